"""One job of Hadoop's committers that did not end well: what it left, put together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from ...committer.layout import TableRoot
from ...committer.s3.requests import ListedUpload
from ..hadoop.commit_files import PendingCommit, PendingSet
from ..hadoop.magic_paths import task_number, why_outside
from ..hadoop.staging_dir import StagedJob, StagingFolder
from ..hadoop.upload_owners import UploadClaim, is_staged_name, staging_job

_log = logging.getLogger(__name__)


class Kind(StrEnum):
    """What a job left."""

    MAGIC = "magic"
    #: Uploads, and pending sets in the staging folder that the caller named.
    STAGING = "staging"
    #: Uploads only: a staging committer's whose folder is not known, or of tasks that closed no
    #: file.
    UPLOADS = "uploads"


@dataclass(frozen=True)
class StagedTrace:
    """Where a staging committer's job keeps its pending sets."""

    folder: StagingFolder
    job: StagedJob

    def is_unchanged(self) -> bool:
        """Whether its folder holds what it held; of one that cannot be listed, that is not known,
        and nothing may be done."""
        try:
            return self.folder.is_unchanged(self.job)
        except OSError as error:
            _log.warning("The folder of job %s cannot be listed: %s", self.job.uuid, error)
            return False

    def remove(self) -> str:
        """Delete its folder; the answer is the problem there was, ``""`` for none."""
        try:
            self.folder.remove(self.job)
        except OSError as error:
            return f"its folder {self.job.tree!r} cannot be deleted: {error}"
        return ""


@dataclass(frozen=True)
class LeftoverSet:
    """One pending set: ``read`` is ``None`` where it cannot be read, and ``damage`` says why.

    :param last_modified: by the store's clock.
    """

    key: str
    task: str
    last_modified: float
    read: PendingSet | None
    damage: str = ""


@dataclass(frozen=True)
class LeftoverJob:
    """What one job left below a table.

    :param uuid: the committer's; of uploads alone, the UUID in their names; ``""`` for none.
    :param destination: the job's output, a prefix without a slash at its end.
    :param tree: the prefix of its magic tree; for one of a staging committer, of what recovery
        notes of it; ``None`` where it left uploads only.
    :param attempts: directories of application attempts that hold pending sets.
    :param running: keys that files of uncommitted task attempts would have.
    :param uploads: the uploads under way that are this job's.
    :param oldest: when the first thing seen of it was made, by the store's clock; ``newest``
        the last.
    """

    uuid: str
    kind: Kind
    destination: str
    oldest: float
    newest: float
    tree: str | None = None
    sets: tuple[LeftoverSet, ...] = ()
    attempts: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    uploads: tuple[ListedUpload, ...] = ()
    staged: StagedTrace | None = None

    @property
    def commits(self) -> tuple[PendingCommit, ...]:
        """All that the readable pending sets name."""
        return tuple(c for found in self.sets if found.read for c in found.read.commits)

    @property
    def listed(self) -> frozenset[tuple[str, str]]:
        """(key, UploadId) of :attr:`commits`."""
        return frozenset((commit.key, commit.upload_id) for commit in self.commits)

    @property
    def claim(self) -> UploadClaim:
        """What its metadata say of its uploads."""
        keys = {commit.key for commit in self.commits} | set(self.running)
        return UploadClaim(self.uuid, self.listed, frozenset(keys))

    @property
    def extra(self) -> tuple[ListedUpload, ...]:
        """Its uploads that no pending set names: of task attempts that did not commit."""
        listed = self.listed
        return tuple(u for u in self.uploads if (u.key, u.upload_id) not in listed)

    @property
    def unaccounted(self) -> tuple[ListedUpload, ...]:
        """Those of :attr:`extra` whose file no committed task made: an attempt that lost to
        another of the same task has the same key (HADOOP-17258)."""
        keys = {commit.key for commit in self.commits}
        return tuple(upload for upload in self.extra if upload.key not in keys)

    @property
    def task_gaps(self) -> tuple[int, ...]:
        """Task numbers below the highest of which there is no pending set."""
        numbers = {n for found in self.sets if (n := task_number(found.task)) is not None}
        return tuple(n for n in range(max(numbers, default=-1)) if n not in numbers)

    def refusals(self, root: TableRoot) -> tuple[str, ...]:
        """Why its pending sets may not be carried out at all, neither way: they name what is
        not this job's. Empty where nothing is wrong. Asks the store nothing."""
        found: list[str] = []
        seen: dict[str, str] = {}
        if not self.uuid and len({one.read.job for one in self.sets if one.read}) > 1:
            found.append("its pending sets are of several jobs, and its path names none")
        for one in self.sets:
            if one.read is None:
                continue
            name = one.key.rsplit("/", 1)[-1]
            if one.read.job and self.uuid and one.read.job != self.uuid:
                found.append(f"{name} is of another job, {one.read.job!r}")
            for commit in one.read.commits:
                whose = commit.job or self._named_in(commit.key)
                if whose and self.uuid and whose != self.uuid:
                    found.append(f"{name} names a file of another job, {whose!r}")
                outside = why_outside(commit.bucket, commit.key, root, self.destination)
                if outside:
                    found.append(f"{name} {outside}")
                if commit.key in seen:
                    found.append(f"{name} and {seen[commit.key]} both name {commit.key!r}")
                seen[commit.key] = name
        if len(self.attempts) > 1:
            found.append(
                f"there are pending sets of {len(self.attempts)} application attempts "
                f"({', '.join(self.attempts)}), of which a job commit would take the last alone"
            )
        return tuple(dict.fromkeys(found))

    def _named_in(self, key: str) -> str:
        """The job in the name of a staging committer's file: its records name none, and more
        people than may write below the table may put records into a staging folder."""
        if self.kind is not Kind.STAGING or not is_staged_name(key):
            return ""
        named = staging_job(key)
        return self.uuid if named == self.uuid.lower() else named
