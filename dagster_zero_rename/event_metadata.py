"""Metadata of materialisations: what a commit did, under Dagster's names if it has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg
import pyarrow as pa

from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.commit.state.job_state import Committed, PartitionCommit
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.records.inputs import content_of, digest_of
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.committer.readable_table import ReadableTable
from zero_rename.tables import DeltaTable

JOB = "zero_rename/job"
VERSION = "zero_rename/version"
#: When a commit was decided. An entry of another engine in a Delta table has this and no job.
DECIDED = "zero_rename/decided"
#: The job that wrote a partition last, if this job has left the partition to a newer run.
SUPERSEDED_BY = "zero_rename/superseded_by"
#: Dagster's names for the number of all rows of a table without partitions, and of a partition.
ROW_COUNT, PARTITION_ROW_COUNT = "dagster/row_count", "dagster/partition_row_count"


def table_metadata(root: TableRoot, schema: pa.Schema) -> dict[str, Any]:
    """Return the metadata that all partitions of a table have in common."""
    columns = [
        dg.TableColumn(
            name=field.name,
            type=str(field.type),
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
        )
        for field in schema
    ]
    return {
        "dagster/table_name": root.url.removeprefix("s3://").replace("/", "."),
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
    }


def commit_metadata(root: TableRoot, committed: Committed) -> dict[str, Any]:
    """Return the metadata that all partitions changed by a job have in common."""
    found: dict[str, Any] = {
        JOB: committed.job,
        DECIDED: dg.MetadataValue.timestamp(committed.decided_at),
        "dagster/uri": dg.MetadataValue.url(root.url),
    }
    if (reads := committed.change_reads) is not None:
        found["zero_rename/partitions_replaced"] = len(committed.partitions)
        found["zero_rename/partitions_left"] = reads.partitions_left
        found["zero_rename/bytes_read"] = reads.bytes_read
        found["zero_rename/bytes_written"] = committed.bytes
        found |= _row_changes("rows_in_all", committed.row_changes)
    return found


def _row_changes(of: str, rows: RowChanges | None) -> dict[str, Any]:
    kinds = {} if rows is None else asdict(rows)
    return {f"zero_rename/{of}_{kind}": count for kind, count in kinds.items()}


def partition_metadata(
    root: TableRoot, partition: PartitionCommit, *, replaced: bool
) -> dict[str, Any]:
    """Return what a job did to one partition, or to a table without partitions.

    :param replaced: the job's rows are now all rows there.
    """
    found: dict[str, Any] = {
        VERSION: partition.version,
        "zero_rename/rows": partition.rows,
        "zero_rename/bytes": partition.bytes,
        "zero_rename/files": partition.files,
        "zero_rename/files_removed": partition.removed,
        "dagster/uri": dg.MetadataValue.url(partition_url(root, partition.partition)),
    }
    found |= _row_changes("rows", partition.row_changes)
    if replaced:
        whole = partition.partition == UNPARTITIONED
        found[ROW_COUNT if whole else PARTITION_ROW_COUNT] = partition.rows
    return found


def partition_url(root: TableRoot, partition: str) -> str:
    """Return the URL of the folder with a partition's files."""
    return root.url if partition == UNPARTITIONED else f"{root.url}/{partition}"


def data_version(table: ReadableTable | DeltaTable, paths: Collection[str] = ()) -> dg.DataVersion:
    """Return a version of the rows of partitions, the same for the same rows of any job. For one
    partition it is the digest of its content. For several it is a digest of these, since Dagster
    keeps one version for all partitions of a step.

    :param paths: the partitions; empty: the whole table, as one.
    """
    if paths:
        state = table.state(list(paths))
        return dg.DataVersion(version_of(state) if len(paths) > 1 else content_of(state.files))
    return dg.DataVersion(version_of(table.state()))


def version_of(state: Snapshot) -> str:
    """Return a digest of all rows of a state, by partition."""
    return digest_of((path, content_of(it)) for path, it in state.by_partition().items())


def rows_now(table: ReadableTable | DeltaTable, paths: Collection[str]) -> Mapping[str, int | None]:
    """Return how many rows partitions hold, by partition; 0 for those that hold none, ``None`` for
    those with files whose rows were not counted.

    :param paths: the partitions; empty: the table's only one.
    """
    files = table.state(list(paths) or None).by_partition()
    counted = {path: [file.rows for file in of] for path, of in files.items()}
    found: dict[str, int | None] = dict.fromkeys(paths or (UNPARTITIONED,), 0)
    found |= {path: sum(rows) if min(rows) >= 0 else None for path, rows in counted.items() if rows}
    return found


def job_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the job that a materialisation's metadata names."""
    value = metadata.get(JOB)
    text = getattr(value, "value", value)
    return text if isinstance(text, str) else None
