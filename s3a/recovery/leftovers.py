"""Traces of S3A jobs below a table, grouped into one leftover job each.

A job leaves its magic tree, or pending sets in a staging folder; uploads; and files. A listing of
uploads does not show their jobs. So the first of these rules that applies decides whose an upload
is: a job's pending sets name it; its key is that of one of the job's files, and, if the key has no
UUID, no other job may have begun it; its name carries a UUID that the names of the job's files
carry (Spark gives all files of one write the same). Uploads that belong to no job by these rules
are grouped by the UUID in their names.

Jobs are searched at the table's root, in the folders that the caller names, and in every folder
above an upload (the S3A architecture text: work backwards from the uploads rather than list
millions of keys).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from ...committer.commit.state.tolerance import unless_denied
from ...committer.errors import RecordDamagedError
from ...committer.format.layout import TableRoot
from ...committer.store.listing import list_objects
from ...committer.store.requests import (
    LIST_BYTES,
    All,
    Found,
    Get,
    Head,
    ListedObject,
    ListedUpload,
    Step,
)
from ..hadoop.commit_files import PendingCommit, PendingSet
from ..hadoop.job_traces import (
    DIRECTION_NAME,
    MAGIC_JOB,
    MagicPath,
    is_magic,
    is_staged_name,
    parse,
    prefix_of,
    staging_job,
    uploads_below,
    uuids_in_name,
    why_outside,
)
from ..hadoop.staging_dir import StagedJob, StagingFolder
from ..runs.ledger import beside

#: If there are more folders than this, the table is listed as a whole, not folder by folder.
_FOLDERS = 100
#: Stands for a job's number if more than one job claims an upload.
_SEVERAL = -1


class Kind(StrEnum):
    """Kind of a leftover job, by the traces that it left."""

    MAGIC = "magic"
    #: Uploads, and pending sets in the staging folder that the caller named.
    STAGING = "staging"
    #: Uploads only: of a staging committer whose folder is not known, or of tasks that closed no
    #: file.
    UPLOADS = "uploads"


@dataclass(frozen=True)
class LeftoverSet:
    """A pending set of a leftover job.

    :param attempt: the application's attempt.
    :param last_modified: by the store's clock.
    :param read: its content; without commits if it cannot be read.
    :param damage: why it cannot be read; ``""`` if it can.
    """

    key: str
    attempt: str
    last_modified: float
    read: PendingSet
    damage: str = ""


@dataclass(frozen=True)
class LeftoverJob:
    """Traces of one job below a table.

    :param uuid: the committer's; for uploads alone, the UUID in their names; ``""`` for none.
    :param destination: the job's output, a prefix without a slash at its end; ``""``: the bucket.
    :param oldest: when the oldest of its traces was made, by the store's clock.
    :param newest: when the newest of its traces was made, by the store's clock.
    :param begun: for a magic job, when its tree was made, by the store's clock.
    :param tree: the prefix of its magic tree. For a staging committer's job, the prefix of the
        records that recovery writes about it. ``None`` if it left uploads only.
    :param sets: its pending sets.
    :param running: keys that files of uncommitted task attempts would have.
    :param uploads: the uploads under way that are this job's.
    :param staged: its folder, for a staging committer's job.
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
    begun: float = 0.0

    @property
    def commits(self) -> tuple[PendingCommit, ...]:
        """All files that the readable pending sets name."""
        return tuple(commit for one in self.sets for commit in one.read.commits)

    @property
    def listed(self) -> frozenset[tuple[str, str]]:
        """(key, UploadId) of :attr:`commits`."""
        return frozenset((commit.key, commit.upload_id) for commit in self.commits)

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its files: of those in pending sets, and of those of uncommitted attempts."""
        return frozenset((*(commit.key for commit in self.commits), *self.running))

    @property
    def uuids(self) -> frozenset[str]:
        """The UUIDs by which the job's uploads are recognised, in lower case.

        These are its own, and those in the names of its files.
        """
        found = {uuid for key in self.keys for uuid in uuids_in_name(key)}
        return frozenset(found | {self.uuid.lower()})

    @property
    def extra(self) -> tuple[ListedUpload, ...]:
        """Its uploads of task attempts that did not commit: no pending set names them."""
        listed = self.listed
        return tuple(u for u in self.uploads if (u.key, u.upload_id) not in listed)

    def is_within(self, root: TableRoot) -> bool:
        """Return whether its destination is a root, or lies in it."""
        return f"{self.destination}/".startswith(f"{root.prefix}/")

    def may_write(self, upload: ListedUpload) -> bool:
        """Return whether an upload that no record names may be of a running task of the job.

        The magic committer records an upload only when the file is closed.
        """
        is_below = upload.key.startswith(prefix_of(self.destination))
        return self.kind is Kind.MAGIC and is_below and upload.initiated >= int(self.begun)

    @property
    def last_set(self) -> float:
        """Time at which its last task committed, by the store's clock."""
        return max((one.last_modified for one in self.sets), default=0.0)

    def refusals(self, root: TableRoot) -> tuple[str, ...]:
        """Return why its pending sets must not be used, neither to roll it forward nor back.

        They may name files that are not this job's. Empty if nothing is wrong. Sends no request.
        """
        found: list[str] = []
        seen: dict[str, str] = {}
        for one in self.sets:
            name = one.key.rsplit("/", 1)[-1]
            if one.read.job not in ("", self.uuid):
                found.append(f"{name} is of another job, {one.read.job!r}")
            for commit in one.read.commits:
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
        """Return the job in the name of a staging committer's file; ``""`` for other files.

        A staging committer's records name no job. And more users may put records into a staging
        folder than may write below the table, so the name is checked.
        """
        if self.kind is not Kind.STAGING or not is_staged_name(key):
            return ""
        named = staging_job(key)
        return self.uuid if named == self.uuid.lower() else named


def find_jobs(
    root: TableRoot,
    folders: Collection[str] = (),
    deep: bool = False,
    staging: StagingFolder | None = None,
    without: tuple[str, ...] = (),
) -> Step[tuple[list[LeftoverJob], float]]:
    """Find the jobs below a root, and magic jobs of destinations around it with uploads below it.

    :param folders: further destinations below the root, as prefixes without slashes at the end. A
        job that wrote to a partition's folder and has no upload left is found nowhere else.
    :param deep: list the whole table instead, a request per thousand keys.
    :param staging: the folder in which staging committers keep their pending sets.
    :param without: prefixes below the root of other destinations, whose jobs are left out.
    :returns: the jobs, the oldest first, and the time by the store's clock.
    :raises InvalidInputError: the staging folder cannot be listed.
    """
    # Pending sets before uploads: then an upload that a set names and that is not listed is over.
    traces = staging.jobs() if staging is not None else ()
    uploads = yield from uploads_below(f"{root.prefix}/")
    uploads = [upload for upload in uploads if not upload.key.startswith(without)]
    places = {root.prefix, *folders}
    for upload in uploads:
        parts = upload.key.split("/")[:-1]
        places |= {"/".join(parts[:n]) for n in range(root.prefix.count("/") + 2, len(parts) + 1)}
    prefixes = [f"{place}/{MAGIC_JOB}" for place in sorted(places)]
    if deep or len(places) > _FOLDERS:
        prefixes = [f"{root.prefix}/"]
    above = [f"{it.prefix}/{MAGIC_JOB}" for it in root.around] if uploads else []
    # Credentials with rights only below the root may not list above it. Then those are left out.
    asked = (magic_jobs(prefixes), unless_denied(magic_jobs(above), ([], 0.0)))
    (jobs, now), (around, _) = yield from All(asked)
    # A listing of the whole table shows the trees in other destinations, too.
    jobs = [job for job in jobs if not f"{job.destination}/".startswith(without)] + around
    named = {uuid for upload in uploads for uuid in uuids_in_name(upload.key)}
    for trace in traces:
        # The files' times are by another clock than the store's.
        job = staged_job(root, folders, trace, now - time.time())
        below = [c.key for c in job.commits if c.bucket == root.bucket]
        below = [key for key in below if key.startswith(f"{root.prefix}/")]
        if trace.uuid.lower() in named or any(not key.startswith(without) for key in below):
            jobs.append(job)
    found = _with_uploads(root, jobs, uploads)
    # A job whose destination is not below the root counts only if it has uploads there.
    found = [it for it in found if it.uploads or it.is_within(root)]
    return sorted(found, key=lambda it: (it.oldest, it.uuid)), now


def magic_jobs(prefixes: Sequence[str]) -> Step[tuple[list[LeftoverJob], float]]:
    """Find the jobs whose magic trees lie below some prefixes.

    :returns: the jobs, and the time by the store's clock; 0 if there is no prefix.
    """
    wanted = [list_objects(prefix, wanted=lambda item: is_magic(item.key)) for prefix in prefixes]
    listed = yield from All(tuple(wanted))
    trees: dict[str, dict[MagicPath, ListedObject]] = defaultdict(dict)
    for item in (item for one in listed for item in one.objects):
        if (path := parse(item.key)) is not None:
            trees[path.tree][path] = item
    made = (_magic_job(tree, items) for tree, items in sorted(trees.items()))
    jobs = list((yield from All(tuple(made))))
    return jobs, max((one.date for one in listed), default=0.0)


def activity(items: Iterable[ListedObject]) -> list[float]:
    """Return the times at which a job wrote objects of its tree.

    Objects that a recovery wrote are left out, and so are objects that stand for directories. A
    store that keeps those as directories gives them the time of the last change below.
    """
    return [i.last_modified for i in items if not i.key.endswith(("/", f"/{DIRECTION_NAME}"))]


def _magic_job(tree: str, items: dict[MagicPath, ListedObject]) -> Step[LeftoverJob]:
    sets = yield from All(tuple(_load(item, path) for path, item in items.items() if path.is_set))
    times = activity(items.values()) or [item.last_modified for item in items.values()]
    first = next(iter(items))
    return LeftoverJob(
        uuid=first.job,
        kind=Kind.MAGIC,
        destination=first.destination,
        oldest=min(times),
        newest=max(times),
        tree=tree,
        sets=tuple(one for one in sets if one is not None),
        running=tuple(sorted({key for path in items if (key := path.final_key)})),
        begun=min(item.last_modified for item in items.values()),
    )


def _load(item: ListedObject, path: MagicPath) -> Step[LeftoverSet | None]:
    found = yield from Get(item.key, most=LIST_BYTES)
    if not isinstance(found, Found):
        return None  # Deleted since the listing: the job, or another recovery, is cleaning up.
    return _read(item.key, path.attempt, item.last_modified, lambda: found.body)


def _read(key: str, attempt: str, made: float, body: Callable[[], bytes]) -> LeftoverSet:
    try:
        return LeftoverSet(key, attempt, made, PendingSet.parse(body(), key))
    except (OSError, RecordDamagedError) as error:
        return LeftoverSet(key, attempt, made, PendingSet(()), str(error))


def staged_job(
    root: TableRoot, folders: Collection[str], trace: StagedJob, ahead: float
) -> LeftoverJob:
    """Make a leftover job from a job in a staging folder.

    It is a job of the table if its pending sets name files of the table, or uploads below the table
    carry its UUID. The records that recovery writes about it lie beside the table: a folder below
    the table would look like the tree of a magic job.

    :param folders: possible destinations. The deepest that contains all files of the job is its
        destination; else the root is.
    :param ahead: seconds by which the store's clock is ahead of that of this machine.
    """
    sets = []
    for file in (file for file in trace.files if file.is_committed):
        found = _read(file.path, file.attempt, 0.0, partial(trace.folder.read, file.path))
        # The time that the set itself says is right in a copy, too. The store's times are whole
        # seconds.
        said = max((commit.created_ms / 1000 for commit in found.read.commits), default=0.0)
        sets.append(replace(found, last_modified=math.floor((said or file.mtime) + ahead)))
    keys = [commit.key for one in sets for commit in one.read.commits]
    holding = [f for f in folders if keys and all(key.startswith(f"{f}/") for key in keys)]
    times = [*(one.last_modified for one in sets), math.floor(trace.mtime + ahead)]
    return LeftoverJob(
        uuid=trace.uuid,
        kind=Kind.STAGING,
        destination=max(holding, key=len, default=root.prefix),
        oldest=min(times),
        newest=max(times),
        tree=f"{beside(root, 's3a-recoveries')}{trace.uuid}/",
        sets=tuple(sets),
        staged=trace,
    )


def _with_uploads(
    root: TableRoot, jobs: list[LeftoverJob], uploads: Collection[ListedUpload]
) -> list[LeftoverJob]:
    claims: dict[object, int] = {}
    for index, job in enumerate(jobs):
        for claim in (*job.listed, *job.keys, *job.uuids):
            claims[claim] = index if claims.get(claim, index) == index else _SEVERAL
    owned: dict[int, list[ListedUpload]] = defaultdict(list)
    left: dict[str, list[ListedUpload]] = defaultdict(list)
    for upload in uploads:
        index = claims.get((upload.key, upload.upload_id))
        if index is None and (index := claims.get(upload.key)) is not None:
            # Only a UUID shows that files of one name are of one job.
            is_certain = bool(uuids_in_name(upload.key))
            others = (job for n, job in enumerate(jobs) if n != index)
            if not is_certain and any(job.may_write(upload) for job in others):
                index = _SEVERAL
        if index is None:
            named = {claims[uuid] for uuid in uuids_in_name(upload.key) if uuid in claims}
            index = named.pop() if len(named) == 1 else _SEVERAL
        (left[staging_job(upload.key)] if index == _SEVERAL else owned[index]).append(upload)
    found = [_joined(job, owned[index]) for index, job in enumerate(jobs)]
    for uuid, items in left.items():
        first = items[0].initiated
        found.append(_joined(LeftoverJob(uuid, Kind.UPLOADS, root.prefix, first, first), items))
    return found


def _joined(job: LeftoverJob, uploads: list[ListedUpload]) -> LeftoverJob:
    times = [upload.initiated for upload in uploads]
    oldest, newest = min([job.oldest, *times]), max([job.newest, *times])
    return replace(job, uploads=tuple(uploads), oldest=oldest, newest=newest)


class Presence(StrEnum):
    """State of a file that a pending set names."""

    WRITTEN = "written"
    OUTSTANDING = "outstanding"
    #: Neither an upload nor an object.
    MISSING = "missing"
    #: No upload, and the object at its key is another file.
    FOREIGN = "foreign"
    #: No upload, and only a person can say whether the object at its key is this file: size and
    #: time fit, and the ETag proves nothing.
    UNSURE = "unsure"


@dataclass(frozen=True)
class NamedFile:
    """A file that a pending set names.

    :param since: when the pending set was written, by the store's clock.
    """

    commit: PendingCommit
    presence: Presence
    since: float

    def whose(self, found: Found) -> Presence:
        """Return what an object at its key is: written, unsure or foreign.

        An ETag made from those of the parts proves that it is this file. Another ETag proves
        nothing: under SSE-KMS and SSE-C ETags are not checksums (S3 User Guide, "Checking object
        integrity"), though they look like them, and other stores make them in other ways.
        """
        if found.size != self.commit.length:
            return Presence.FOREIGN
        if found.etag == composite_etag(self.commit.etags):
            return Presence.WRITTEN
        return Presence.UNSURE if found.last_modified >= self.since else Presence.FOREIGN


def composite_etag(etags: Sequence[str]) -> str | None:
    """Compute the ETag that S3 gives an object made of parts.

    ``None`` if the parts' ETags do not look like MD5 sums.
    """
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return None
    if not etags or len(digests) != 16 * len(etags):
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def look_at_files(job: LeftoverJob) -> Step[tuple[NamedFile, ...]]:
    """Find the state of each file in the job's pending sets: a HEAD for each not outstanding."""
    under_way = {(upload.key, upload.upload_id) for upload in job.uploads}

    def look(commit: PendingCommit, since: float) -> Step[NamedFile]:
        file = NamedFile(commit, Presence.OUTSTANDING, since)
        if (commit.key, commit.upload_id) in under_way:
            return file
        found = yield from Head(commit.key)
        presence = file.whose(found) if isinstance(found, Found) else Presence.MISSING
        return replace(file, presence=presence)

    looks = [look(commit, one.last_modified) for one in job.sets for commit in one.read.commits]
    return tuple((yield from All(tuple(looks))))


def unclaimed_files(job: LeftoverJob) -> Step[tuple[str, ...] | None]:
    """List complete files with a job's UUID that no readable pending set names.

    For a job whose readable pending sets do not name all its files. A staging committer's driver
    that dies in its job commit leaves some files complete, and the uploads of the others; and a
    pending set that cannot be read may have named some. A name is no proof, so such files are
    reported and never removed.

    :returns: their keys; ``None`` if nothing shows how the job's files are named.
    """
    alone = {upload.key for upload in job.uploads}
    named = {commit.key for commit in job.commits}
    if job.kind is Kind.UPLOADS:
        uuids, direct = {job.uuid.lower()} - {""}, not any(map(is_staged_name, alone))
    else:
        direct = False
        uuids = {uuid for key in alone.union(job.running, named) for uuid in uuids_in_name(key)}
        # The names of a magic job's files carry Spark's UUID alone.
        uuids |= {job.uuid.lower()} if job.kind is Kind.STAGING else set()
    if not uuids:
        return () if job.kind is Kind.UPLOADS else None

    def is_its(item: ListedObject) -> bool:
        return not is_magic(item.key) and not uuids.isdisjoint(uuids_in_name(item.key))

    # Files that a staging job completed may be anywhere. For other uploads the question is only
    # whether another attempt has completed the same file.
    places = {f"{key.rpartition('/')[0]}/" for key in alone} if direct else {f"{job.destination}/"}
    listed = yield from All(tuple(list_objects(place, direct, is_its) for place in sorted(places)))
    return tuple(sorted({key for one in listed for key in one.keys} - named))
