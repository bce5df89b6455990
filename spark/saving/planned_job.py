"""Plan of a job that writes a data frame: its options, columns, partitions and read base."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ...committer.commit.state.job_state import OpenedJob
from ...committer.errors import CommitConflictError, InvalidInputError, TableNotFoundError
from ...committer.format.job_spec import Coordination, JobSpec, Mode, OnConflict, OnRepeat, Owner
from ...committer.format.layout import TableRoot
from ...committer.format.read_base import ReadBase
from ...committer.format.schema.compatibility import find_column
from ...committer.format.schema.hive_paths import normalise_partition, parse_partition
from ...committer.format.schema.row_metadata import renamed
from ...committer.table import Table
from ...tables import DeltaTable
from ..options import WriterOptions
from ..reading.predicate import named_partition, read_predicate, selected_partitions
from ..reading.table_reads import TableReads
from ..session_settings import is_on
from ..types import table_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.saving.planned_job")
#: The remedy of a conflict with what this application has read.
_LOAD_ANEW = (
    "Of each partition the oldest state counts that this application has read, since nothing tells "
    "which one the rows come from. Load the table anew now, and write what comes of that: what was "
    "read before this refusal then counts no longer. Or name the state, by the option base, "
    "base=now if the rows do not depend on the table; or choose onConflict=last_wins."
)


@dataclass(frozen=True)
class PlannedJob:
    """A job that is not open yet.

    :param spec: its properties.
    :param own_key: its idempotency key was given to the write, not to the whole application.
    """

    table: Table | DeltaTable
    spec: JobSpec
    own_key: bool

    def base(self, opened: OpenedJob, reads: TableReads) -> ReadBase | None:
        """Return the read base of the job by this application's reads; ``None``: it has none.

        Only a replace has one, since it may replace the rows that it was computed from. An append
        leaves these as they are.
        """
        spec = opened.spec
        by_reads = (
            spec.base is None
            and spec.mode is Mode.REPLACE
            and spec.on_conflict is not OnConflict.LAST_WINS
            and spec.coordination is Coordination.STORE
        )
        return reads.noted().base_of(opened) if by_reads else None

    def refuse_second_use(self, opened: OpenedJob) -> None:
        """Refuse a second write of one application under the run's own idempotency key.

        The operator's key reaches every write of a script. Two writes into one table would share
        it, and the second would be skipped, or would replace the first.

        :raises InvalidInputError: this is such a second write; the job stays open.
        """
        own = opened.spec.owner.application
        if own is None or self.own_key:
            return
        for job, owner in self._earlier_jobs(opened):
            if owner is not None and owner.application == own:
                raise InvalidInputError(
                    "This application has made a write into this table already under the run's "
                    f"idempotency key, {opened.spec.idempotency_key!r}, which comes from the "
                    "environment; this second one was not begun. The first one stays.",
                    table=self.table.root.url,
                    job=job,
                    remedy="If it is another write, give it a key of its own, such as the run's "
                    'key with "/second" at its end: save(…, options={"idempotencyKey": "…"}) or '
                    '.option("idempotencyKey", "…"). The operator reports the write that has '
                    "none. If it repeats the first, leave it out.",
                )

    def _earlier_jobs(self, opened: OpenedJob) -> Iterator[tuple[str, Owner | None]]:
        """Yield the jobs of the run that this write would repeat or replace, with their owners."""
        spec, key, table = opened.spec, opened.spec.idempotency_key, self.table
        if opened.unpublished is not None:
            yield opened.unpublished.job, opened.unpublished.owner
        job = opened.repeated.job if opened.repeated is not None else opened.repeat_of
        replaces = spec.on_repeat is OnRepeat.REPLACE_OWN
        if replaces and key is not None and isinstance(table, DeltaTable):
            # The opening of a job in a log does not look for the jobs that its commit will replace.
            job = job or table.job_of_key(key)
            waits = None if spec.publish else table.unpublished_of_key(key)
            if waits is not None:
                yield waits.job, waits.owner
        if job:
            yield job, table.owner_of(job)


def planned_job(
    table: Table | DeltaTable,
    schema: StructType,
    overwrite: bool,
    options: WriterOptions,
    own_key: bool,
    application: str | None,
    any_case: bool = True,
) -> PlannedJob:
    """Plan a job, and check everything that can be checked before it opens.

    :param own_key: the idempotency key of the options was given to this write itself.
    :param application: a unique name of this Spark application.
    :param any_case: column names are compared without regard to case, as by Spark's default.
    :raises InvalidInputError: invalid options or columns; nothing was written.
    """
    if options.data_root is not None and not isinstance(table, DeltaTable):
        raise InvalidInputError(
            f"data_root={options.data_root} is of Delta tables, and is given for a table of "
            "directories; nothing was written.",
            table=table.root.url,
            remedy="Give save() layout='delta', or leave data_root out.",
        )
    if any_case and options.partition_by:
        by = (find_column(name, schema.names) or name for name in options.partition_by)
        options = replace(options, partition_by=tuple(by))
    stored = table_schema(schema, options.partition_by or ())
    names = {option.name for option in fields(WriterOptions)}
    policy = {f.name: getattr(options, f.name) for f in fields(JobSpec) if f.name in names}
    for name in ("replace_partitions", "only_partitions"):
        policy[name] = _named(table, options, stored, policy[name])
    if options.replace_where is not None:
        policy |= _replaced(table, options, stored, options.replace_where)
    spec = JobSpec(
        schema=stored,
        mode=options.mode(overwrite),
        owner=options.owner(application),
        files=options.files(),
        any_case=any_case,
        spark_types=True,
        **policy,
    )
    return PlannedJob(table, spec, own_key)


def in_any_case(session: SparkSession) -> bool:
    """Return whether a session compares column names without regard to case."""
    return not is_on(session, "spark.sql.caseSensitive")


def advise(error: CommitConflictError, root: TableRoot, base: ReadBase) -> None:
    """Set the remedy of a conflict over a partition that this application has read.

    :param base: the read base of the write.
    """
    partition = root.partition_of_head_key(error.key or "")
    # A log's error has no key of a head, and names the partitions.
    met = error.gave_way if partition is None else (partition,)
    if any(base.version(it) is not None for it in met):
        error.remedy = _LOAD_ANEW


def _named(
    table: Table | DeltaTable,
    options: WriterOptions,
    stored: pa.Schema,
    paths: tuple[str, ...] | None,
) -> tuple[str, ...] | None:
    """Convert names of partitions to their canonical spelling."""
    if not paths:
        return paths
    own, columns = None, options.partition_by
    if columns is None:
        own, columns = _shape_of(table)
    return _spelled(paths, _as_in_table(stored, own, columns), columns)


def _spelled(paths: Sequence[str], schema: pa.Schema, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(normalise_partition(path, schema, by) for path in paths))


def _as_in_table(stored: pa.Schema, own: pa.Schema | None, by: Sequence[str]) -> pa.Schema:
    """Return a frame's columns, with the partition columns in the table's spelling and types.

    :param own: the table's columns; ``None``: they are not known, so the frame's types count.
    :raises InvalidInputError: the frame lacks a partition column.
    """
    stored = renamed(stored, [find_column(name, by) or name for name in stored.names])
    for column in by:
        if column not in stored.names:
            raise InvalidInputError(
                f"The partition column {column!r} is not among the columns "
                f"{', '.join(stored.names)}; nothing was written.",
                remedy="Add the column to the data or correct its name.",
            )
        if own is not None and column in own.names:
            index = stored.get_field_index(column)
            stored = stored.set(index, stored.field(index).with_type(own.field(column).type))
    return stored


def _replaced(
    table: Table | DeltaTable, options: WriterOptions, stored: pa.Schema, where: str
) -> dict[str, Any]:
    """Return the properties of a job that replaces the partitions that fit a condition.

    :raises InvalidInputError: it is not certain which partitions fit.
    """
    own, by = _shape_of(table)
    by = by or options.partition_by or ()
    schema = _as_in_table(stored, own, by)
    named = named_partition(where, schema, by)
    if named is not None and len(parse_partition(named)) == len(by):
        return {"replace_partitions": _spelled((named,), schema, by), "replace_where": None}
    found = read_predicate(where, schema, by)
    fits = selected_partitions(where, schema, by)
    if fits is None or found.unsure is not None:
        raise InvalidInputError(
            f"replaceWhere={where[:200]!r} does not say for certain which partitions it means: "
            f"{found.unsure or 'the table has none'}; nothing was written.",
            table=table.root.url,
            remedy="Compare partition columns with literals of their own kind, dates and texts in "
            "single quotes, times with their zone: day >= '2013-01-01' and day < '2013-02-01'. Or "
            "name the partitions, by replacePartitions.",
        )
    return {"replace_where": fits}


def _shape_of(table: Table | DeltaTable) -> tuple[pa.Schema | None, tuple[str, ...]]:
    """Return a table's columns and partition columns.

    Before its first job, only the columns of its directories are known, if there are any.
    """
    try:
        shape = table.shape() if isinstance(table, DeltaTable) else table.recorded_shape()
        return (None, table.partition_by) if shape is None else shape
    except TableNotFoundError:
        return None, ()
