"""History of a table, from its decisions: each change with its author, time and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from ..commit.state.context import Context
from ..commit.state.found_table import read_table
from ..errors import InvalidInputError
from ..store.listing import list_objects
from ..store.requests import Step
from .recent_jobs import PartitionChange, SeenJob, recent_jobs

#: One row for each partition that a job changed; one for a job that changed none.
HISTORY = pa.schema(
    [
        ("decided_at", pa.timestamp("us", "UTC")),
        ("job", pa.string()),
        ("verdict", pa.string()),
        ("partition", pa.string()),
        ("change", pa.string()),
        ("version", pa.int64()),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("files_removed", pa.int64()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("rows_unchanged", pa.int64()),
        # These are about the job: the same in each of its rows.
        ("partitions_left", pa.int64()),
        ("bytes_read", pa.int64()),
        ("application", pa.string()),
        ("dag_id", pa.string()),
        ("run_id", pa.string()),
        ("task_id", pa.string()),
        ("try_number", pa.int64()),
        ("idempotency_key", pa.string()),
    ]
)


def history(context: Context, most: int) -> Step[pa.Table]:
    """Build the history for :meth:`.table.Table.history`: one request a job, and a few listings."""
    if most < 1:
        raise InvalidInputError(
            f"A history of {most} jobs; nothing was read.", remedy="Ask for one job or more."
        )
    opened = yield from list_objects(context.root.open_prefix)
    jobs, damaged = yield from recent_jobs(context, opened.date, most)
    if not jobs and not damaged:
        yield from read_table(context)
    rows = [row for job in jobs for row in _rows(job)]
    rows += [{"job": job, "verdict": "damaged"} for job in damaged]
    return pa.Table.from_pylist(rows, schema=HISTORY)


def _rows(job: SeenJob) -> Iterator[Mapping[str, Any]]:
    owner = job.owner
    told = {
        # Microseconds: a float of seconds has no more digits.
        "decided_at": round(job.decided_at * 1_000_000),
        "job": job.job,
        "verdict": str(job.verdict),
        "application": owner.application,
        "dag_id": owner.dag_id,
        "run_id": owner.run_id,
        "task_id": owner.task_id,
        "try_number": owner.try_number,
        "idempotency_key": job.idempotency_key,
    }
    if job.change_reads is not None:
        told["partitions_left"] = job.change_reads.partitions_left
        told["bytes_read"] = job.change_reads.bytes_read
    if not job.changes:
        yield told
    for change in job.changes:
        yield {
            **told,
            "partition": change.partition,
            "change": _kind(change),
            "version": change.base_version + 1,
            "files": change.files,
            "rows": change.rows,
            "bytes": change.bytes,
            "files_removed": change.removed,
            **_row_changes(change),
        }


def _row_changes(change: PartitionChange) -> Mapping[str, int]:
    rows = change.row_changes
    return {} if rows is None else {f"rows_{kind}": n for kind, n in asdict(rows).items()}


def _kind(change: PartitionChange) -> str:
    if change.rewritten:
        return "rewrite"
    if change.replaced:
        return "replace" if change.row_changes is None else "change"
    if change.files or not (change.adopted or change.settles):
        return "append"
    return "adopt" if change.adopted else "settle"
