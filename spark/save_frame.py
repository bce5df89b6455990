"""Save of a data frame into a table, by the committer that its submission chose.

::

    from zero_rename.spark import save

    save(frame, "s3://bucket/flights", partition_by=["year", "month", "day"], mode="overwrite")

The native committer writes by ``mapInArrow`` (:mod:`.saving.arrow_save`), on Spark 3.5 and later,
classic or Connect. With one of Hadoop's S3A committers, Spark writes Parquet through ``s3a://``
(:mod:`.s3a.recorded_write`), after checks of the session. The submitter of the application chooses
the committer (:mod:`~.committer.format.handoff`): the Airflow operator, by its ``committer=``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from ..committer.commit.state.job_state import Committed, UnpublishedJob
from ..committer.errors import InvalidInputError
from ..committer.format.handoff import Handoff
from ..committer.format.job_spec import Distribute, Mode
from ..committer.format.read_base import ReadBase
from ..s3a.hadoop.settings import NATIVE
from .pipes import pipes_session, report_commit
from .submitters import argument
from .write_target import WriteTarget, require_spark_frame, resolve, submitted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ..committer.commit.snapshot import Snapshot

logger = logging.getLogger("zero_rename.spark.save_frame")


def save(
    frame: DataFrame,
    table: str | None = None,
    *,
    partition_by: Sequence[str] = (),
    mode: str | None = None,
    partitions: Sequence[str] | None = None,
    committer: str | None = None,
    layout: str | None = None,
    base: Snapshot | ReadBase | str | None = None,
    distribute: str | None = None,
    wait_for_other_runs: timedelta | float | None = None,
    code_version: str | None = None,
    publish: bool | None = None,
    options: Mapping[str, str] | None = None,
) -> Committed | UnpublishedJob | None:
    """Write a frame into a table, as one job.

    Magic and directory make one job for each named partition, if these are replaced. "Natively"
    below means: with the committer ``zero_rename``.

    :param frame: a frame of Spark 3.5 or newer, classic or Connect.
    :param table: ``s3://bucket/prefix``; ``None`` for the one that the operator names.
    :param partition_by: partition columns, outermost first; natively, if left out, the table's own.
    :param mode: ``append``, ``overwrite`` (replace the partitions named or written) or
        ``fail-if-exists``; ``None`` for the operator's, which may be ``merge``, by the key that the
        operator names; else append.
    :param partitions: the only partitions that may be written, ``["day=2013-01-01"]``. With
        overwrite they are emptied even if no row arrives. With an empty list any row is refused,
        and a frame without rows changes nothing. ``None`` for those that the operator names.
    :param committer: ``zero_rename``, ``magic``, ``directory`` or ``partitioned``;
        ``None`` for the operator's, else ``zero_rename``. The session has to be configured for
        it, as the operator does.
    :param layout: natively, ``delta`` for a Delta table, which other engines read by its log
        (docs/guides/delta.md), or ``directory``; ``None`` for the operator's, else
        ``directory``.
    :param base: natively, the state of the table that the frame was computed from, taken by
        ``Table(…).snapshot()`` before the table was loaded; ``"now"`` if it was not computed
        from the table. ``None``: for an overwrite, the states that this application has read of
        the table count.
    :param distribute: ``partition`` brings the rows of a partition together first, by a shuffle, so
        that it gets few files; ``none`` leaves them in their tasks. A frame that is
        sorted keeps its order. ``None`` for the operator's, else ``none``.
    :param wait_for_other_runs: natively, how long the write waits before it begins, in seconds or
        as a timedelta, while a job of another run is at work on the named partitions, or
        on any partition if none are named. After that the option ``onConflict`` decides. Operators
        wait by their own argument, before they submit.
    :param code_version: natively, the version of the program that computes the frame, in any form:
        lineage can find the rows that another version made. ``None`` for the operator's.
    :param publish: ``False``, for a Delta table: the rows are written, and stay invisible until
        the job is published, by its id (docs/guides/delta.md, *Write, audit, publish*). ``None``
        for the operator's, else ``True``.
    :param options: further options of the writer: natively those of ``format("zero_rename")``, else
        Parquet's, such as ``compression``; options that only the native writer has are then
        refused.
    :returns: natively, the commit: the job's id, and for each partition its version, the files,
        rows and bytes added, and the files removed; ``repeated`` if an earlier attempt of the run
        had committed it. With ``publish=False`` the job that waits to be published.
        ``None`` with one of Hadoop's committers, whose own ``_SUCCESS`` reports the job.
    :raises InvalidInputError: an invalid call, or one that contradicts the operator; nothing was
        written.
    :raises SettingsRefusedError: the session's settings, or a partition column's type, would lose
        or double rows; nothing was written.
    :raises CommitConflictError: natively, another job changed a partition; nothing is visible.
    :raises VerificationError: with one of Hadoop's committers: the job committed, and its files do
        not hold the rows that Spark wrote.
    """
    require_spark_frame(frame)
    with submitted(frame.sparkSession) as handoff:
        target = resolve(
            table,
            handoff,
            partition_by=partition_by,
            mode=mode,
            partitions=partitions,
            committer=committer,
            layout=layout,
            base=base,
            distribute=distribute,
            wait_for_other_runs=wait_for_other_runs,
            code_version=code_version,
            publish=publish,
            options=options,
            columns=lambda by: _columns(frame, by),
        )
        if target.mode is Mode.MERGE:
            given = {"base": base, "distribute": distribute, "partitions": partitions}
            given |= {"publish": None if target.publish else False}
            given |= {"wait_for_other_runs": wait_for_other_runs}
            return _merged(frame, target, handoff.about(target.root), given, layout)
        if target.committer == NATIVE:
            from .saving.arrow_save import save_by_arrow

            session = pipes_session()
            committed = save_by_arrow(frame, target, handoff)
            if session is not None and isinstance(committed, Committed):
                report_commit(session, committed, is_asset=handoff.table in (None, target.root))
            return committed
        if target.partitions == ():
            return _refuse_all_rows(frame, target)
        from .s3a.recorded_write import save_by_s3a
        from .saving.distribution import distributed

        asked = target.distribute or handoff.about(target.root).distribute
        if asked is Distribute.PARTITION:
            frame = distributed(frame, target.partition_by, None, target.root.url)
        save_by_s3a(frame, target, handoff)
        return None


def _columns(frame: DataFrame, partition_by: Sequence[str]) -> pa.Schema:
    from .types import table_schema  # Lazy: it loads Arrow.

    return table_schema(frame.schema, partition_by)


def _refuse_all_rows(frame: DataFrame, target: WriteTarget) -> None:
    """Check that a frame has no rows, since ``partitions=[]`` allows no partition for them.

    :raises InvalidInputError: it has rows.
    """
    if frame.isEmpty():
        logger.info("%s: no partition is named, and there are no rows", target.root.url)
        return
    raise InvalidInputError(
        "There are rows, and partitions=[] names no partition that this write may write; nothing "
        "was written.",
        table=target.root.url,
        remedy="Name the partitions, or leave partitions out.",
    )


def _merged(
    frame: DataFrame,
    target: WriteTarget,
    said: Handoff,
    given: Mapping[str, object],
    layout: str | None,
) -> Committed | None:
    """Merge a frame as the submitter asks.

    :param given: arguments of the call that a merge does not have.
    :param layout: the call's value.

    Returns ``None`` if nothing changes and the run has no idempotency key.
    """
    from .changing.merge_source import MergeRules
    from .changing.merging import merge_by

    odd = [name for name, value in given.items() if value is not None]
    if odd or not said.merge_on:
        what = f"save() is given {odd[0]}" if odd else "no column to merge by is named"
        raise InvalidInputError(
            f"The mode is merge, and {what}; nothing was merged.",
            table=target.root.url,
            remedy=f"Name the key by {argument(said, 'merge_on')}; or call merge(frame, table, "
            "on=['id']).",
        )
    rules = MergeRules(
        said.merge_on,
        delete_when=said.delete_when,
        latest_by=said.latest_by,
        across=said.across_partitions is True,
    )
    done = merge_by(
        rules,
        frame,
        target.root.url,
        partition_by=target.partition_by,
        layout=layout,
        code_version=target.code_version,
        committer=target.committer,
        options=target.options,
    )
    return done.committed
