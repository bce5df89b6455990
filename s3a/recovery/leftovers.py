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
from dataclasses import dataclass, replace

from ...committer.errors import RecordDamagedError
from ...committer.layout import TableRoot
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import (
    LIST_BYTES,
    All,
    Found,
    Get,
    ListedObject,
    ListedUpload,
    Step,
)
from ..hadoop.commit_files import PendingSet
from ..hadoop.magic_paths import DIRECTION_NAME, SHARED_MAGIC, MagicPath, is_magic, parse
from ..hadoop.staging_dir import StagingFolder
from ..hadoop.upload_owners import UploadOwners, list_uploads, staging_job
from .leftover_job import Kind, LeftoverJob, LeftoverSet
from .staged_jobs import staged_jobs

#: More folders than this are not asked one by one: the table is listed as a whole.
_FOLDERS = 100


@dataclass(frozen=True)
class Leftovers:
    """All jobs found, oldest first; ``now`` by the store's clock."""

    jobs: tuple[LeftoverJob, ...]
    now: float


def find_jobs(
    root: TableRoot,
    folders: Collection[str] = (),
    deep: bool = False,
    staging: StagingFolder | None = None,
) -> Step[Leftovers]:
    """Look for jobs.

    :param folders: further destinations below the root, as prefixes without slashes at the end:
        a job that wrote to a partition's folder and has no upload left shows nowhere else.
    :param deep: list the whole table instead, a request per thousand keys.
    :param staging: where staging committers keep their pending sets.
    :raises InvalidInputError: the staging folder cannot be listed.
    """
    # Before the uploads: of a set that is seen, whatever upload is not listed was ended.
    traces = staging.jobs() if staging is not None else ()
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
    if staging is not None:
        made += staged_jobs(root, folders, staging, traces, uploads, now)
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
        oldest=min(times, default=min(item.last_modified for item, _ in items)),
        newest=max(times, default=max(item.last_modified for item, _ in items)),
    )


def _load(item: ListedObject, path: MagicPath) -> Step[LeftoverSet | None]:
    found = yield Get(item.key, most=LIST_BYTES)
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
    oldest, newest = min([job.oldest, *times]), max([job.newest, *times])
    return replace(job, uploads=tuple(uploads), oldest=oldest, newest=newest)


def _uploads_only(root: TableRoot, uuid: str, uploads: list[ListedUpload]) -> LeftoverJob:
    first = uploads[0].initiated
    return _joined(LeftoverJob(uuid, Kind.UPLOADS, root.prefix, first, first), uploads)
