"""Merge of a frame into a table: rows whose keys are there are updated or deleted, others inserted.

::

    from zero_rename.spark import merge

    merge(changes, "s3://bucket/orders", on=["order_id"], delete_when="op = 'D'", latest_by="at")

The partitions that the frame has rows for, or with ``across_partitions`` those of all keys, are
read as one state and joined with it by Spark. Those in which any row changes are written anew by
one job, which is refused where another one has changed them since.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...committer.errors import InvalidInputError
from ...committer.merge_request import INSERT, UPDATE
from ...committer.row_rewrite import TableChange
from ...committer.table import Table
from ...tables import DeltaTable
from ..write_target import WriteTarget, require_spark_frame
from .changed_rows import ChangedRows
from .merge_join import merged_rows
from .merge_source import MergeRules, MergeSource
from .row_writer import change_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("zero_rename.spark.changing.merging")


def merge(
    frame: DataFrame,
    table: str | None = None,
    *,
    on: Sequence[str],
    when_matched: str | Mapping[str, str] = UPDATE,
    when_not_matched: str = INSERT,
    delete_when: str | None = None,
    latest_by: str | None = None,
    null_safe: bool = False,
    across_partitions: bool = False,
    schema_mode: str | None = None,
    attempts: int = 3,
    partition_by: Sequence[str] = (),
    layout: str | None = None,
    code_version: str | None = None,
    options: Mapping[str, str] | None = None,
) -> TableChange:
    """Merge a frame into a table, by one job that replaces the partitions in which a row changes.

    :param frame: the source, with the table's partition columns. It is read once.
    :param table: ``s3://bucket/prefix``; ``None`` for the one that the operator names.
    :param on: the key's columns. A row matches those of its own partition alone.
    :param when_matched: ``update`` (all columns), ``ignore``, or expressions by column, in which
        ``source.c`` and ``target.c`` are the two rows' columns.
    :param when_not_matched: ``insert`` or ``ignore``.
    :param delete_when: a condition, such as ``op = 'D'``: a row of which it is true deletes the row
        that it matches, and is not inserted where it matches none.
    :param latest_by: of several rows of a key in a partition the one counts that has the greatest
        value there, the table's own among them where it has that column: one that is later than the
        frame's stays. Left out, several are refused, and the frame's row counts.
    :param null_safe: null keys match each other; else a null key matches nothing, as in SQL.
    :param across_partitions: a row matches those of all partitions. One that has come to another
        partition moves there, as does one whose partition column ``when_matched`` computes; of
        several rows of a key, in whichever partitions, one counts, as ``latest_by`` says.
    :param schema_mode: ``merge``: columns that only the frame has, and wider types, become the
        table's; those that it lacks stay as they are, and are null in rows that are inserted.
    :param attempts: how often the table is read and joined, where another job changes it meanwhile.
    :param partition_by: partition columns of a table that is not there yet.
    :param layout: of a table that is not there yet, as :func:`.save_frame.save` has it; one that is
        there is found.
    :param code_version: of the program that computes the frame, as :func:`.save_frame.save` has it.
    :param options: of the write, as there.
    :returns: what was done: rows inserted, updated, deleted, unchanged; partitions written, left.
    :raises InvalidInputError: a call that cannot be right; nothing was changed.
    :raises TableMismatchError: columns that are not the table's.
    :raises CommitConflictError: another job changed a partition, at each attempt; nothing of this
        one is visible.
    """
    if isinstance(on, str) or schema_mode not in (None, "merge"):
        what = f"on is the text {on!r}" if isinstance(on, str) else f"schema_mode={schema_mode!r}"
        raise InvalidInputError(
            f"{what}; nothing was merged.",
            remedy="Give a list of columns, on=['id'], and schema_mode='merge' or none.",
        )
    evolves = schema_mode == "merge"
    rules = MergeRules(
        tuple(on),
        when_matched,
        when_not_matched,
        delete_when,
        latest_by,
        null_safe,
        across_partitions,
        evolves,
    )
    return merge_by(rules, frame, table, attempts, partition_by, layout, code_version, options)


def merge_by(
    rules: MergeRules,
    frame: DataFrame,
    table: str | None,
    attempts: int = 3,
    partition_by: Sequence[str] = (),
    layout: str | None = None,
    code_version: str | None = None,
    options: Mapping[str, str] | None = None,
) -> TableChange:
    """As :func:`merge`, by rules."""
    require_spark_frame(frame)
    if frame.isStreaming:
        raise InvalidInputError(
            "A streaming frame has no end to merge; nothing was merged.",
            remedy="Use stream(…, mode='merge', merge_on=[…]).",
        )
    kept: list[DataFrame] = []  # Not before a retry is found to have nothing left to do.

    def joined(target: Table | DeltaTable, place: WriteTarget, any_case: bool) -> ChangedRows:
        kept.extend([] if kept else [_materialised(frame)])
        by = place.partition_by
        return merged_rows(partial(MergeSource.of, target, kept[0], rules, by, any_case))

    session = frame.sparkSession
    try:
        return change_table(
            session,
            table,
            joined,
            attempts=attempts,
            options=options,
            partition_by=partition_by,
            layout=layout,
            code_version=code_version,
        )
    finally:
        for source in kept:
            source.unpersist()


def _materialised(frame: DataFrame) -> DataFrame:
    """The source, computed once: checkpointed where this Spark can, so that a lost executor is an
    error, and not other rows."""
    java: Any = getattr(frame, "_jdf", None)
    if java is not None and not java.queryExecution().analyzed().deterministic():
        logger.warning(
            "the frame to merge is not deterministic (rand(), uuid() or the like): a retry of this "
            "run would merge other rows"
        )
    try:
        return frame.localCheckpoint()
    except Exception as error:  # Spark Connect before 4 has none.
        if java is not None:
            raise
        logger.info("the frame is cached, not checkpointed: %s", error)
        return frame.persist()
