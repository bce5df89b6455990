"""Merge of a frame into a table: rows with known keys are updated or deleted, others inserted.

::

    from zero_rename.spark import merge

    merge(changes, "s3://bucket/orders", on=["order_id"], delete_when="op = 'D'", latest_by="at")

Spark reads one state of the partitions that the frame has rows for, or with ``across_partitions``
of those of all keys, and joins it with the frame. One job replaces the partitions in which any row
changes. It is refused if another job has changed them since.
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
from .changed_rows import ChangedRows, release
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
    :param on: the key's columns. A row matches only rows of its own partition.
    :param when_matched: ``update`` (all columns), ``ignore``, or expressions by column, in which
        ``source.c`` and ``target.c`` are the two rows' columns.
    :param when_not_matched: ``insert`` or ``ignore``.
    :param delete_when: a condition, such as ``op = 'D'``. A row that fulfils it deletes the row
        that it matches, and is not inserted if it matches none.
    :param latest_by: a column. If several rows of a partition have the same key, the row with the
        greatest value in this column counts. The table's own row is one of them if the table has
        this column: if it is later than the frame's row, it stays. Left out, several rows of a key
        are refused, and the frame's row replaces the table's.
    :param null_safe: null keys match each other; else a null key matches nothing, as in SQL.
    :param across_partitions: a row matches rows of all partitions. If the frame has it in another
        partition, it moves there; so does a row whose partition column ``when_matched`` computes.
        If several rows, in any partitions, have the same key, one counts, by ``latest_by``.
    :param schema_mode: ``merge``: columns that only the frame has, and wider types, become the
        table's. Columns that the frame lacks stay as they are, and are null in inserted rows.
    :param attempts: how often the table may be read and joined, if other jobs change it meanwhile.
    :param partition_by: partition columns of a table that does not exist yet.
    :param layout: the layout of a table that does not exist yet, as in :func:`.save_frame.save`;
        that of an existing table is found.
    :param code_version: version of the program that computes the frame, as in
        :func:`.save_frame.save`.
    :param options: options of the write, as in :func:`.save_frame.save`.
    :returns: a report: numbers of rows inserted, updated, deleted and unchanged, and of partitions
        written and left.
    :raises InvalidInputError: an invalid call; nothing was changed.
    :raises TableMismatchError: the frame's columns do not fit the table's.
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
    committer: str | None = None,
) -> TableChange:
    """Merge a frame into a table by rules. The other parameters are those of :func:`merge`.

    :param committer: that the call names; one of Hadoop's is refused.
    """
    require_spark_frame(frame)
    if frame.isStreaming:
        raise InvalidInputError(
            "A streaming frame has no end to merge; nothing was merged.",
            remedy="Use stream(…, mode='merge', merge_on=[…]).",
        )
    kept: list[DataFrame] = []  # Filled only if there is something to do: a retry may have nothing.

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
            committer=committer,
        )
    finally:
        release(*kept)


def _materialised(frame: DataFrame) -> DataFrame:
    """Compute the source once, and keep it.

    It is checkpointed if this Spark can do that. Then a lost executor causes an error; without a
    checkpoint the source would be computed again, perhaps with other rows.
    """
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
