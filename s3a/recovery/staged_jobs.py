"""Jobs of the staging committers, from their pending sets on the cluster's file system.

With them such a job is like one of the magic committer: each file it was to complete is known by
its upload and its parts. What recovery notes of it lies beside the table, since below it a folder
of the job's would look like a magic one's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable

from ...committer.errors import RecordDamagedError
from ...committer.layout import CONTROL, TableRoot
from ...committer.s3.requests import ListedUpload
from ..hadoop.commit_files import PendingSet
from ..hadoop.magic_paths import uuids_in_name
from ..hadoop.staging_dir import StagedFile, StagedJob, StagingFolder
from .leftover_job import Kind, LeftoverJob, LeftoverSet, StagedTrace


def staged_jobs(
    root: TableRoot,
    folders: Collection[str],
    staging: StagingFolder,
    traces: Iterable[StagedJob],
    uploads: Iterable[ListedUpload],
    now: float,
    clock: Callable[[], float] = time.time,
) -> list[LeftoverJob]:
    """Those of a staging folder's jobs that write to a table: their pending sets name files of it,
    or uploads below it carry their UUIDs.

    :param folders: destinations below the root, as prefixes: a job's is the deepest that holds
        all its files, else the root.
    :param now: by the store's clock, which the files' times are put into.
    """
    ahead = now - clock()
    named = {uuid for upload in uploads for uuid in uuids_in_name(upload.key)}
    found = []
    for trace in traces:
        sets = tuple(_read(staging, file, ahead) for file in trace.committed)
        job = _job(root, folders, StagedTrace(staging, trace), sets, ahead)
        mine = [c for c in job.commits if c.bucket == root.bucket and _within(c.key, root.prefix)]
        if mine or trace.uuid.lower() in named:
            found.append(job)
    return found


def _read(staging: StagingFolder, file: StagedFile, ahead: float) -> LeftoverSet:
    try:
        read = PendingSet.parse(staging.read(file.path), file.path)
    except (OSError, RecordDamagedError) as error:
        made = math.floor(file.mtime + ahead)
        return LeftoverSet(file.path, file.task, made, None, str(error))
    # What it says itself holds of a copy too. The store's times are whole seconds.
    created = [commit.created_ms / 1000 for commit in read.commits if commit.created_ms > 0]
    made = math.floor(max(created, default=file.mtime) + ahead)
    return LeftoverSet(file.path, file.task, made, read)


def _job(
    root: TableRoot,
    folders: Collection[str],
    trace: StagedTrace,
    sets: tuple[LeftoverSet, ...],
    ahead: float,
) -> LeftoverJob:
    keys = [commit.key for one in sets if one.read for commit in one.read.commits]
    holding = [f for f in folders if keys and all(_within(key, f) for key in keys)]
    times = [one.last_modified for one in sets] + [math.floor(trace.job.mtime + ahead)]
    return LeftoverJob(
        uuid=trace.job.uuid,
        kind=Kind.STAGING,
        destination=max(holding, key=len, default=root.prefix),
        tree=_notes(root, trace.job.uuid),
        sets=sets,
        attempts=tuple(sorted({file.attempt for file in trace.job.committed})),
        running=trace.job.running,
        oldest=min(times),
        newest=max(times),
        staged=trace,
    )


def _notes(root: TableRoot, uuid: str) -> str:
    parent, _, name = root.prefix.rpartition("/")
    return "/".join(filter(None, (parent, CONTROL, "s3a-recoveries", name, uuid))) + "/"


def _within(key: str, folder: str) -> bool:
    return key.startswith(f"{folder}/")
