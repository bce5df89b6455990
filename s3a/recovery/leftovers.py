"""Traces of S3A jobs below a table, put together to one leftover job each.

A job leaves its magic tree and its uploads (:mod:`~..hadoop.upload_owners`: which are whose). The
uploads that no job claims are of staging committers, or of tasks that closed no file yet: they are
grouped by the UUID in their names.

Where to look: the table's root, the folders the caller names, and every folder above an upload
(the S3A architecture text: work backwards from the uploads rather than list millions of keys).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from ...committer.errors import RecordDamagedError
from ...committer.layout import TableRoot
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import (
    All,
    Found,
    Get,
    ListedObject,
    ListedUpload,
    Step,
)
from ..hadoop.commit_files import PendingCommit, PendingSet
from ..hadoop.magic_paths import (
    DIRECTION_NAME,
    SHARED_MAGIC,
    MagicPath,
    is_magic,
    parse,
    task_number,
    why_outside,
)
from ..hadoop.upload_owners import UploadClaim, UploadOwners, list_uploads, staging_job

#: More folders than this are not asked one by one: the table is listed as a whole.
_FOLDERS = 100


class Kind(StrEnum):
    """What a job left."""

    MAGIC = "magic"
    #: Uploads only: a staging committer's, or of tasks that closed no file.
    UPLOADS = "uploads"


@dataclass(frozen=True)
class LeftoverSet:
    """One ``.pendingset``: ``read`` is ``None`` where it cannot be read, and ``damage`` says why.

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
    :param tree: the prefix of its magic tree, ``None`` where it left uploads only.
    :param attempts: directories of application attempts that hold pending sets.
    :param running: keys that files of uncommitted task attempts would have.
    :param uploads: the uploads under way that are this job's.
    :param oldest: when the first thing seen of it was made, by the store's clock; ``newest``
        the last.
    """

    uuid: str
    kind: Kind
    destination: str
    tree: str | None
    sets: tuple[LeftoverSet, ...]
    attempts: tuple[str, ...]
    running: tuple[str, ...]
    uploads: tuple[ListedUpload, ...]
    oldest: float
    newest: float
    objects: int = 0

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
                if commit.job and self.uuid and commit.job != self.uuid:
                    found.append(f"{name} names a file of another job, {commit.job!r}")
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


@dataclass(frozen=True)
class Leftovers:
    """All jobs found, oldest first; ``now`` by the store's clock."""

    jobs: tuple[LeftoverJob, ...]
    now: float


def find_jobs(
    root: TableRoot, folders: Collection[str] = (), deep: bool = False
) -> Step[Leftovers]:
    """Look for jobs.

    :param folders: further destinations below the root, as prefixes without slashes at the end:
        a job that wrote to a partition's folder and has no upload left shows nowhere else.
    :param deep: list the whole table instead, a request per thousand keys.
    """
    uploads = yield from list_uploads(root)
    objects, now = yield from _magic_objects(root, uploads, folders, deep)
    trees: dict[str, list[tuple[ListedObject, MagicPath]]] = defaultdict(list)
    for item in objects:
        path = parse(item.key)
        if path is not None:
            trees[path.tree].append((item, path))
    # The directory object of a magic root that jobs share is nobody's while there are any.
    shared = [tree for tree, items in trees.items() if not items[0][1].job and not _holds(items)]
    for tree in shared:
        if any(other != tree and other.startswith(tree) for other in trees):
            del trees[tree]
    made = yield All(tuple(_job(tree, items) for tree, items in sorted(trees.items())))
    jobs = _with_uploads(root, made, uploads)
    return Leftovers(tuple(sorted(jobs, key=lambda job: (job.oldest, job.uuid))), now)


def _magic_objects(
    root: TableRoot, uploads: Iterable[ListedUpload], folders: Collection[str], deep: bool
) -> Step[tuple[list[ListedObject], float]]:
    places = {root.prefix, *(folder for folder in folders if _within(root, folder))}
    for upload in uploads:
        parts = upload.key.split("/")[:-1]
        least = root.prefix.count("/") + 1
        places |= {"/".join(parts[:n]) for n in range(least, len(parts) + 1)}
    if deep or len(places) > _FOLDERS:
        listing = yield from list_objects(f"{root.prefix}/", wanted=_is_magic)
        return list(listing.objects), listing.date
    listed = yield All(
        tuple(list_objects(f"{place}/{SHARED_MAGIC}", wanted=_is_magic) for place in sorted(places))
    )
    unique = {item.key: item for one in listed for item in one.objects}
    return list(unique.values()), max(one.date for one in listed)


def _is_magic(item: ListedObject) -> bool:
    return is_magic(item.key)


def _within(root: TableRoot, folder: str) -> bool:
    return folder == root.prefix or folder.startswith(f"{root.prefix}/")


def _holds(items: list[tuple[ListedObject, MagicPath]]) -> bool:
    return any(item.size or path.rest for item, path in items)


def activity(items: Iterable[ListedObject]) -> list[float]:
    """When a job wrote each of these: not what a recoverer wrote, nor objects for directories,
    whose time on a store that keeps them as directories is that of the last change below."""
    return [i.last_modified for i in items if not i.key.endswith(("/", f"/{DIRECTION_NAME}"))]


def _job(tree: str, items: list[tuple[ListedObject, MagicPath]]) -> Step[LeftoverJob]:
    destination, job = items[0][1].destination, items[0][1].job
    sets = [(item, path) for item, path in items if path.is_set]
    loaded = [
        one
        for one in (yield All(tuple(_load(item, path) for item, path in sets)))
        if one is not None
    ]
    named = {one.read.job for one in loaded if one.read}
    if not job and len(named) == 1:
        job = named.pop()  # Before Hadoop 3.3 no path named the job.
    times = activity(item for item, _ in items)
    return LeftoverJob(
        uuid=job,
        kind=Kind.MAGIC,
        destination=destination,
        tree=tree,
        sets=tuple(loaded),
        attempts=tuple(sorted({path.attempt for _, path in sets})),
        running=tuple(sorted({key for _, path in items if (key := path.final_key)})),
        uploads=(),
        oldest=min(times, default=min(item.last_modified for item, _ in items)),
        newest=max(times, default=max(item.last_modified for item, _ in items)),
        objects=len(items),
    )


def _load(item: ListedObject, path: MagicPath) -> Step[LeftoverSet | None]:
    found = yield Get(item.key)
    if not isinstance(found, Found):
        return None  # Deleted since the listing: the job, or another recoverer, is cleaning up.
    try:
        read = PendingSet.parse(found.body, item.key)
    except RecordDamagedError as error:
        return LeftoverSet(item.key, path.task, item.last_modified, None, str(error))
    return LeftoverSet(item.key, path.task, item.last_modified, read)


def _with_uploads(
    root: TableRoot, jobs: list[LeftoverJob], uploads: Collection[ListedUpload]
) -> list[LeftoverJob]:
    owned: dict[int, list[ListedUpload]] = defaultdict(list)
    left: dict[str, list[ListedUpload]] = defaultdict(list)
    owners = UploadOwners(job.claim for job in jobs)
    for upload in uploads:
        index = owners.owner_of(upload)
        if index is not None:
            owned[index].append(upload)
        else:
            left[staging_job(upload.key)].append(upload)
    found = [_joined(job, owned[index]) for index, job in enumerate(jobs)]
    return found + [_uploads_only(root, uuid, items) for uuid, items in left.items()]


def _joined(job: LeftoverJob, uploads: list[ListedUpload]) -> LeftoverJob:
    times = [upload.initiated for upload in uploads]
    return LeftoverJob(
        **{
            **vars(job),
            "uploads": tuple(uploads),
            "oldest": min([job.oldest, *times]),
            "newest": max([job.newest, *times]),
        }
    )


def _uploads_only(root: TableRoot, uuid: str, uploads: list[ListedUpload]) -> LeftoverJob:
    times = [upload.initiated for upload in uploads]
    return LeftoverJob(
        uuid=uuid,
        kind=Kind.UPLOADS,
        destination=root.prefix,
        tree=None,
        sets=(),
        attempts=(),
        running=(),
        uploads=tuple(uploads),
        oldest=min(times),
        newest=max(times),
    )
