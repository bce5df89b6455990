"""Traces of S3A jobs below a table, put together to one leftover job each.

A job leaves its magic tree, or pending sets in a staging folder, and its uploads
(:mod:`~..hadoop.upload_owners`: which are whose). The uploads that no job claims are grouped by
the UUID in their names.

Where to look: the table's root, the folders the caller names, and every folder above an upload
(the S3A architecture text: work backwards from the uploads rather than list millions of keys).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ...committer.errors import RecordDamagedError
from ...committer.layout import CONTROL, TableRoot
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import LIST_BYTES, All, Found, Get, ListedObject, ListedUpload, Step
from ..hadoop.commit_files import PendingCommit, PendingSet
from ..hadoop.magic_paths import (
    DIRECTION_NAME,
    MAGIC_JOB,
    MagicPath,
    is_magic,
    parse,
    uuids_in_name,
)
from ..hadoop.staging_dir import StagedFile, StagedJob, StagingFolder
from ..hadoop.upload_owners import UploadOwners, list_uploads, staging_job
from .leftover_job import Kind, LeftoverJob, LeftoverSet

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
    clock: Callable[[], float] = time.time,
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
    jobs = yield All(tuple(_magic_job(tree, items) for tree, items in sorted(trees.items())))
    named = {uuid for upload in uploads for uuid in uuids_in_name(upload.key)}
    for trace in traces:
        # The files' times are of another clock than the store's.
        job = _staged_job(root, folders, trace, now - clock())
        if trace.uuid.lower() in named or any(_is_of(root, commit) for commit in job.commits):
            jobs.append(job)
    jobs = _with_uploads(root, jobs, uploads)
    return Leftovers(tuple(sorted(jobs, key=lambda job: (job.oldest, job.uuid))), now)


def _magic_objects(
    root: TableRoot, uploads: Iterable[ListedUpload], folders: Collection[str], deep: bool
) -> Step[tuple[list[ListedObject], float]]:
    places = {root.prefix, *(folder for folder in folders if _within(f"{folder}/", root.prefix))}
    least = root.prefix.count("/") + 1
    for upload in uploads:
        parts = upload.key.split("/")[:-1]
        places |= {"/".join(parts[:n]) for n in range(least, len(parts) + 1)}
    whole = deep or len(places) > _FOLDERS
    prefixes = [f"{root.prefix}/"] if whole else [f"{one}/{MAGIC_JOB}" for one in sorted(places)]
    listed = yield All(tuple(list_objects(prefix, wanted=_is_magic) for prefix in prefixes))
    unique = {item.key: item for one in listed for item in one.objects}
    return list(unique.values()), max(one.date for one in listed)


def _is_magic(item: ListedObject) -> bool:
    return is_magic(item.key)


def _within(key: str, folder: str) -> bool:
    return key.startswith(f"{folder}/")


def activity(items: Iterable[ListedObject]) -> list[float]:
    """When a job wrote each of these: not what a recoverer wrote, nor objects for directories,
    whose time on a store that keeps them as directories is that of the last change below."""
    return [i.last_modified for i in items if not i.key.endswith(("/", f"/{DIRECTION_NAME}"))]


def _magic_job(tree: str, items: list[tuple[ListedObject, MagicPath]]) -> Step[LeftoverJob]:
    sets = yield All(tuple(_load(item, path) for item, path in items if path.is_set))
    times = activity(item for item, _ in items) or [item.last_modified for item, _ in items]
    return LeftoverJob(
        uuid=items[0][1].job,
        kind=Kind.MAGIC,
        destination=items[0][1].destination,
        oldest=min(times),
        newest=max(times),
        tree=tree,
        sets=tuple(one for one in sets if one is not None),
        running=tuple(sorted({key for _, path in items if (key := path.final_key)})),
    )


def _load(item: ListedObject, path: MagicPath) -> Step[LeftoverSet | None]:
    found = yield Get(item.key, most=LIST_BYTES)
    if not isinstance(found, Found):
        return None  # Deleted since the listing: the job, or another recoverer, is cleaning up.
    return _read(item.key, path.attempt, item.last_modified, lambda: found.body)


def _read(key: str, attempt: str, made: float, body: Callable[[], bytes]) -> LeftoverSet:
    try:
        return LeftoverSet(key, attempt, made, PendingSet.parse(body(), key))
    except (OSError, RecordDamagedError) as error:
        return LeftoverSet(key, attempt, made, None, str(error))


def _staged_job(
    root: TableRoot,
    folders: Collection[str],
    trace: StagedJob,
    ahead: float,
) -> LeftoverJob:
    """A staging folder's job. It is one of the table where its pending sets name files of it, or
    uploads below it carry its UUID. What recovery notes of it lies beside the table, since below
    it a folder of the job's would look like a magic one's.

    :param folders: a job's destination is the deepest that holds all its files, else the root.
    """
    sets = tuple(_read_staged(file, trace, ahead) for file in trace.files if file.is_committed)
    commits = [commit for one in sets if one.read for commit in one.read.commits]
    holding = [f for f in folders if commits and all(_within(c.key, f) for c in commits)]
    times = [*(one.last_modified for one in sets), math.floor(trace.mtime + ahead)]
    parent, _, name = root.prefix.rpartition("/")
    notes = "/".join(filter(None, (parent, CONTROL, "s3a-recoveries", name, trace.uuid)))
    return LeftoverJob(
        uuid=trace.uuid,
        kind=Kind.STAGING,
        destination=max(holding, key=len, default=root.prefix),
        oldest=min(times),
        newest=max(times),
        tree=f"{notes}/",
        sets=sets,
        staged=trace,
    )


def _is_of(root: TableRoot, commit: PendingCommit) -> bool:
    return commit.bucket == root.bucket and _within(commit.key, root.prefix)


def _read_staged(file: StagedFile, trace: StagedJob, ahead: float) -> LeftoverSet:
    found = _read(file.path, file.attempt, file.mtime, lambda: trace.folder.read(file.path))
    # What it says itself holds of a copy too. The store's times are whole seconds.
    commits = found.read.commits if found.read else ()
    created = [commit.created_ms / 1000 for commit in commits if commit.created_ms > 0]
    made = math.floor(max(created, default=file.mtime) + ahead)
    return replace(found, last_modified=made)


def _with_uploads(
    root: TableRoot, jobs: list[LeftoverJob], uploads: Collection[ListedUpload]
) -> list[LeftoverJob]:
    owned: dict[int, list[ListedUpload]] = defaultdict(list)
    left: dict[str, list[ListedUpload]] = defaultdict(list)
    owners = UploadOwners(
        (job.uuid, job.listed, {*(commit.key for commit in job.commits), *job.running})
        for job in jobs
    )
    for upload in uploads:
        index = owners.owner_of(upload)
        if index is not None:
            owned[index].append(upload)
        else:
            left[staging_job(upload.key)].append(upload)
    found = [_joined(job, owned[index]) for index, job in enumerate(jobs)]
    for uuid, items in left.items():
        first = items[0].initiated
        found.append(_joined(LeftoverJob(uuid, Kind.UPLOADS, root.prefix, first, first), items))
    return found


def _joined(job: LeftoverJob, uploads: list[ListedUpload]) -> LeftoverJob:
    times = [upload.initiated for upload in uploads]
    oldest, newest = min([job.oldest, *times]), max([job.newest, *times])
    return replace(job, uploads=tuple(uploads), oldest=oldest, newest=newest)
