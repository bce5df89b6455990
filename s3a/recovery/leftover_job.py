"""One job of Hadoop's committers that did not end well: what it left, put together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...committer.format.layout import TableRoot
from ...committer.store.requests import ListedUpload
from ..hadoop.commit_files import PendingCommit, PendingSet
from ..hadoop.magic_paths import is_staged_name, staging_job, why_outside
from ..hadoop.staging_dir import StagedJob


class Kind(StrEnum):
    """What a job left."""

    MAGIC = "magic"
    #: Uploads, and pending sets in the staging folder that the caller named.
    STAGING = "staging"
    #: Uploads only: a staging committer's whose folder is not known, or of tasks that closed no
    #: file.
    UPLOADS = "uploads"


@dataclass(frozen=True)
class LeftoverSet:
    """One pending set: ``read`` is ``None`` where it cannot be read, and ``damage`` says why.

    :param attempt: the application's.
    :param last_modified: by the store's clock.
    """

    key: str
    attempt: str
    last_modified: float
    read: PendingSet | None
    damage: str = ""


@dataclass(frozen=True)
class LeftoverJob:
    """What one job left below a table.

    :param uuid: the committer's; of uploads alone, the UUID in their names; ``""`` for none.
    :param destination: the job's output, a prefix without a slash at its end.
    :param oldest: when the first thing seen of it was made, by the store's clock; ``newest``
        the last.
    :param tree: the prefix of its magic tree; for one of a staging committer, of what recovery
        notes of it; ``None`` where it left uploads only.
    :param running: keys that files of uncommitted task attempts would have.
    :param uploads: the uploads under way that are this job's.
    :param staged: a staging committer's folder.
    """

    uuid: str
    kind: Kind
    destination: str
    oldest: float
    newest: float
    tree: str | None = None
    sets: tuple[LeftoverSet, ...] = ()
    running: tuple[str, ...] = ()
    uploads: tuple[ListedUpload, ...] = ()
    staged: StagedJob | None = None

    @property
    def commits(self) -> tuple[PendingCommit, ...]:
        """All that the readable pending sets name."""
        return tuple(c for found in self.sets if found.read for c in found.read.commits)

    @property
    def listed(self) -> frozenset[tuple[str, str]]:
        """(key, UploadId) of :attr:`commits`."""
        return frozenset((commit.key, commit.upload_id) for commit in self.commits)

    @property
    def extra(self) -> tuple[ListedUpload, ...]:
        """Its uploads that no pending set names: of task attempts that did not commit."""
        listed = self.listed
        return tuple(u for u in self.uploads if (u.key, u.upload_id) not in listed)

    @property
    def last_set(self) -> float:
        """When its last task committed, by the store's clock."""
        return max((one.last_modified for one in self.sets), default=0.0)

    def refusals(self, root: TableRoot) -> tuple[str, ...]:
        """Why its pending sets may not be carried out at all, neither way: they name what is
        not this job's. Empty where nothing is wrong. Asks the store nothing."""
        found: list[str] = []
        seen: dict[str, str] = {}
        for one in self.sets:
            name = one.key.rsplit("/", 1)[-1]
            if one.read is not None and one.read.job not in ("", self.uuid):
                found.append(f"{name} is of another job, {one.read.job!r}")
            for commit in one.read.commits if one.read else ():
                whose = commit.job or self._named_in(commit.key)
                if whose not in ("", self.uuid):
                    found.append(f"{name} names a file of another job, {whose!r}")
                outside = why_outside(commit.bucket, commit.key, root, self.destination)
                if outside:
                    found.append(f"{name} {outside}")
                if commit.key in seen:
                    found.append(f"{name} and {seen[commit.key]} both name {commit.key!r}")
                seen[commit.key] = name
        attempts = sorted({one.attempt for one in self.sets})
        if len(attempts) > 1:
            found.append(
                f"there are pending sets of {len(attempts)} application attempts "
                f"({', '.join(attempts)}), of which a job commit would take the last alone"
            )
        return tuple(dict.fromkeys(found))

    def _named_in(self, key: str) -> str:
        """The job in the name of a staging committer's file: its records name none, and more
        people than may write below the table may put records into a staging folder."""
        if self.kind is not Kind.STAGING or not is_staged_name(key):
            return ""
        named = staging_job(key)
        return self.uuid if named == self.uuid.lower() else named
