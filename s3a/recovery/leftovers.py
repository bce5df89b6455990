"""Traces of S3A jobs below a table, put together to one leftover job each.

A job leaves its magic tree, or pending sets in a staging folder; uploads; and files. Nothing in a
listing of uploads says whose they are, so an upload is a job's by, in this order: its pending sets
name it; its key is that of one of the job's files; its name carries a UUID that the names of that
job's files carry (Spark gives all files of one write the same). Those that no job claims are
grouped by the UUID in their names.

Where to look: the table's root, the folders the caller names, and every folder above an upload
(the S3A architecture text: work backwards from the uploads rather than list millions of keys).
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
    staging_job,
    uploads_below,
    uuids_in_name,
    why_outside,
)
from ..hadoop.staging_dir import StagedJob, StagingFolder
from ..runs.ledger import beside

#: More folders than this are not asked one by one: the table is listed as a whole.
_FOLDERS = 100
#: More than one job claims it.
_SEVERAL = -1


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
    """One pending set: one that cannot be read has no commits, and ``damage`` says why.

    :param attempt: the application's.
    :param last_modified: by the store's clock.
    """

    key: str
    attempt: str
    last_modified: float
    read: PendingSet
    damage: str = ""


@dataclass(frozen=True)
class LeftoverJob:
    """What one job left below a table.

    :param uuid: the committer's; of uploads alone, the UUID in their names; ``""`` for none.
    :param destination: the job's output, a prefix without a slash at its end.
    :param oldest: when the first thing seen of it was made, by the store's clock; ``newest``
        the last.
    :param begun: of a magic job, when its tree was made, by the store's clock.
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
    begun: float = 0.0

    @property
    def commits(self) -> tuple[PendingCommit, ...]:
        """All that the readable pending sets name."""
        return tuple(commit for one in self.sets for commit in one.read.commits)

    @property
    def listed(self) -> frozenset[tuple[str, str]]:
        """(key, UploadId) of :attr:`commits`."""
        return frozenset((commit.key, commit.upload_id) for commit in self.commits)

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its files: those that pending sets name, and of uncommitted attempts."""
        return frozenset((*(commit.key for commit in self.commits), *self.running))

    @property
    def uuids(self) -> frozenset[str]:
        """The UUIDs by which an upload is known for the job's, in lower case: its own, and those
        in the names of its files."""
        found = {uuid for key in self.keys for uuid in uuids_in_name(key)}
        return frozenset(found | {self.uuid.lower()})

    @property
    def extra(self) -> tuple[ListedUpload, ...]:
        """Its uploads that no pending set names: of task attempts that did not commit."""
        listed = self.listed
        return tuple(u for u in self.uploads if (u.key, u.upload_id) not in listed)

    def is_within(self, root: TableRoot) -> bool:
        """Return whether its destination is a root, or lies in it."""
        return f"{self.destination}/".startswith(f"{root.prefix}/")

    def may_write(self, upload: ListedUpload) -> bool:
        """Return whether an upload that no record names may be of a file which a task of the job is
        writing: the magic committer puts it on record when the file is closed."""
        is_below = upload.key.startswith(f"{self.destination}/")
        return self.kind is Kind.MAGIC and is_below and upload.initiated >= int(self.begun)

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
        """The job in the name of a staging committer's file: its records name none, and more
        people than may write below the table may put records into a staging folder."""
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
    """Look for jobs. Returns them, the oldest first, and the time by the store's clock. Among them
    are magic jobs of destinations around the root that have uploads below it.

    :param folders: further destinations below the root, as prefixes without slashes at the end:
        a job that wrote to a partition's folder and has no upload left shows nowhere else.
    :param deep: list the whole table instead, a request per thousand keys.
    :param staging: where staging committers keep their pending sets.
    :param without: prefixes below the root of other destinations, whose jobs are not looked at.
    :raises InvalidInputError: the staging folder cannot be listed.
    """
    # Before the uploads: of a set that is seen, whatever upload is not listed was ended.
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
    # Those who have rights below the root alone know nothing of what lies above.
    asked = (magic_jobs(prefixes), unless_denied(magic_jobs(above), ([], 0.0)))
    (jobs, now), (around, _) = yield from All(asked)
    jobs += around
    named = {uuid for upload in uploads for uuid in uuids_in_name(upload.key)}
    for trace in traces:
        # The files' times are of another clock than the store's.
        job = staged_job(root, folders, trace, now - time.time())
        below = [c.key for c in job.commits if c.bucket == root.bucket]
        below = [key for key in below if key.startswith(f"{root.prefix}/")]
        if trace.uuid.lower() in named or any(not key.startswith(without) for key in below):
            jobs.append(job)
    found = _with_uploads(root, jobs, uploads)
    # One that lies around the root concerns it where it has uploads there.
    found = [it for it in found if it.uploads or it.is_within(root)]
    return sorted(found, key=lambda it: (it.oldest, it.uuid)), now


def magic_jobs(prefixes: Sequence[str]) -> Step[tuple[list[LeftoverJob], float]]:
    """Put the jobs together whose magic trees lie below some prefixes. Returns them, and the time
    by the store's clock; 0 where there is no prefix."""
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
    """When a job wrote each of these: not what a recoverer wrote, nor objects for directories,
    whose time on a store that keeps them as directories is that of the last change below."""
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
        return None  # Deleted since the listing: the job, or another recoverer, is cleaning up.
    return _read(item.key, path.attempt, item.last_modified, lambda: found.body)


def _read(key: str, attempt: str, made: float, body: Callable[[], bytes]) -> LeftoverSet:
    try:
        return LeftoverSet(key, attempt, made, PendingSet.parse(body(), key))
    except (OSError, RecordDamagedError) as error:
        return LeftoverSet(key, attempt, made, PendingSet(()), str(error))


def staged_job(
    root: TableRoot, folders: Collection[str], trace: StagedJob, ahead: float
) -> LeftoverJob:
    """A staging folder's job. It is one of the table where its pending sets name files of it, or
    uploads below it carry its UUID. What recovery notes of it lies beside the table, since below
    it a folder of the job's would look like a magic one's.

    :param folders: a job's destination is the deepest that holds all its files, else the root.
    :param ahead: seconds of the store's clock before that of this machine.
    """
    sets = []
    for file in (file for file in trace.files if file.is_committed):
        found = _read(file.path, file.attempt, 0.0, partial(trace.folder.read, file.path))
        # What it says itself holds of a copy too. The store's times are whole seconds.
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
        index = claims.get((upload.key, upload.upload_id), claims.get(upload.key))
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
    """Where a file that a pending set names is."""

    WRITTEN = "written"
    OUTSTANDING = "outstanding"
    #: Neither an upload nor an object.
    MISSING = "missing"
    #: No upload, and an object at its key that is another's.
    FOREIGN = "foreign"
    #: No upload, and an object at its key of which only a person can say that it is this file:
    #: size and time speak for it, and its ETag neither for nor against.
    UNSURE = "unsure"


@dataclass(frozen=True)
class NamedFile:
    """A file that a pending set names; ``since``: when that was written, by the store's clock."""

    commit: PendingCommit
    presence: Presence
    since: float

    def whose(self, found: Found) -> Presence:
        """What an object at its key is: written, unsure or foreign. An ETag made of the parts'
        proves it. Another one proves nothing: under SSE-KMS and SSE-C ETags are no checksums (S3
        User Guide, "Checking object integrity"), though they look like some, and other stores
        make them as they like.
        """
        if found.size != self.commit.length:
            return Presence.FOREIGN
        if found.etag == composite_etag(self.commit.etags):
            return Presence.WRITTEN
        return Presence.UNSURE if found.last_modified >= self.since else Presence.FOREIGN


def composite_etag(etags: Sequence[str]) -> str | None:
    """The ETag S3 gives an object made of parts, where the parts' ETags are MD5 sums; ``None``
    where they do not look like it."""
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return None
    if not etags or len(digests) != 16 * len(etags):
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def look_at_files(job: LeftoverJob) -> Step[tuple[NamedFile, ...]]:
    """Where each file is that the job's pending sets name: one HEAD for each not outstanding."""
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
    """Keys of complete files that no readable pending set names and that carry the UUID of a job
    whose sets do not name all it wrote; ``None`` where nothing says what its files are called.

    A staging committer's driver that dies in its job commit leaves some files complete and the
    uploads of the others; a pending set that cannot be read may have named some. Names are easily
    made: such files are told, and never removed.
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

    # What a staging job completed may be anywhere; else it is asked whether other attempts won.
    places = {f"{key.rpartition('/')[0]}/" for key in alone} if direct else {f"{job.destination}/"}
    listed = yield from All(tuple(list_objects(place, direct, is_its) for place in sorted(places)))
    return tuple(sorted({key for one in listed for key in one.keys} - named))
