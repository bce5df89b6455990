"""Copy of a table of directories to a new Delta table, by one job.

Rows are rewritten, file after file, in bounded memory. The bytes cannot be copied, since files of a
Delta table contain the partition columns, and only types that Delta has. The job's key is derived
from the copied state, so a second copy of the same state does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.context import Progress
from ..committer.errors import InvalidInputError, SnapshotGoneError, ZeroRenameError
from ..committer.format.job_spec import Content, FileOptions, SuccessMarkers
from ..committer.format.parquet.reader import read_batches
from ..committer.format.schema.compatibility import without_untyped
from ..committer.readable_table import ReadableTable
from ..committer.table_copy import Copied, copy_spec, emptied_since
from ..committer.upkeep.compaction import content_kept, inputs_in
from ..committer.write_job import WriteJob, this_process
from .delta_steps import DeltaSteps

logger = logging.getLogger("zero_rename.tables.delta_copy")


def copy_table(
    old: ReadableTable, steps: DeltaSteps, files: FileOptions, progress: Callable[[Progress], None]
) -> Copied:
    """Copy a table's present state, all of it or nothing.

    :param steps: the steps of the table to copy to.
    :param files: how its files are written.
    :raises InvalidInputError: the new table holds rows, or was emptied since a former copy. Nothing
        was copied.
    :raises SnapshotGoneError: a file of ``old`` disappeared or changed without a record meanwhile.
    :raises UnsupportedTypeError: Delta has no type for a column of ``old``.
    """
    state = old.state()
    spec = copy_spec(state, this_process())
    if content_kept(state.files) is Content.ROWS:
        files = replace(files, content=Content.ROWS)
    # All rows are written anew, so no file of the copy has nulls without a type.
    schema = without_untyped(spec.schema)
    spec = replace(spec, schema=schema, success_markers=SuccessMarkers.NONE, files=files)
    jobs = {file.job for file in state.files if file.job}
    writers = {job: it for job, it in old.decisions(jobs).items() if it is not None}
    inputs = inputs_in(writers, state.files)
    with WriteJob(steps, spec, inputs=lambda: inputs) as job:
        if not job.repeats:
            assert job.opened.log is not None
            _refuse_rows(steps)
            for done, file in enumerate(state.files):
                for rows in read_batches(
                    old.driver, state.schema, state.partition_by, file, rewrites=True
                ):
                    job.write(rows)
                progress(Progress(job.opened.job, done + 1, len(state.files)))
            _refuse_changed(state, old.state())
    assert job.committed is not None
    if job.repeats and state.files and not steps.count_files():
        raise emptied_since(steps.root, state.root, job.committed.job)
    changed: tuple[str, ...] | None = None
    try:
        changed = _changed(state, old.state())
    except ZeroRenameError as error:
        logger.warning(
            "%s: the copy is committed, as job %s; whether %s has changed meanwhile could not be "
            "seen: %s",
            steps.root.url,
            job.job,
            state.root.url,
            error,
        )
    copied = Copied.of(state, job.committed, False, changed)
    return replace(copied, rewritten=0 if copied.repeated else len(state.files))


def _refuse_rows(steps: DeltaSteps) -> None:
    """Refuse to copy into a table that has files.

    :raises InvalidInputError: it has files.
    """
    count = steps.count_files()
    if count:
        raise InvalidInputError(
            f"The table to copy to holds {count:,} files already. Nothing was copied.",
            table=steps.root.url,
            remedy="Copy to another root, or empty it first.",
        )


def _changed(before: Snapshot, now: Snapshot) -> tuple[str, ...]:
    """Return the partitions that hold other files than in a former state."""
    former, present = before.by_partition(), now.by_partition()
    return tuple(
        sorted(it for it in former.keys() | present.keys() if former.get(it) != present.get(it))
    )


def _refuse_changed(state: Snapshot, now: Snapshot) -> None:
    """Refuse a copy if a partition without a head has changed meanwhile: the copy may have read
    half of a job of another program.

    :raises SnapshotGoneError: such a partition has changed.
    """
    told = state.versions.keys() & now.versions.keys()
    if changed := [name for name in _changed(state, now) if name not in told]:
        raise SnapshotGoneError(
            f"Files of {changed[0] or 'the table'} changed while they were copied, and no record "
            "tells of it. Nothing of the copy is visible.",
            table=state.root.url,
            remedy="Copy again while nobody writes.",
        )
