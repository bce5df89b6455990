"""One call by which an application writes a table, whichever committer its submission chose.

::

    from zero_rename.spark import save

    save(frame, "s3://bucket/flights", partition_by=["year", "month", "day"], mode="overwrite")

Natively this is ``frame.write.format("zero_rename")``. With one of Hadoop's S3A committers it is
Parquet through ``s3a://`` (:mod:`.s3a.recorded_write`), with checks on the session first. Whoever
submits the application says which (:mod:`~..committer.handoff`): the Airflow operator, by its
``committer=``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..committer import text_values as texts
from ..committer.errors import OutcomeUnknownError, ZeroRenameError
from ..committer.failures import failures_told
from ..committer.handoff import Handoff
from ..committer.job_spec import Mode, OnRepeat
from ..committer.read_base import ReadBase
from ..committer.table import Table
from ..s3a.hadoop.committers import NATIVE
from ..s3a.write_plan import SAVE_MODES
from .pipes import pipes_session, report_commit
from .write_target import WriteTarget, resolve

if TYPE_CHECKING:
    from dagster_pipes import PipesContext
    from pyspark.sql import DataFrame

    from ..committer.protocol.snapshot import Snapshot

logger = logging.getLogger("zero_rename.spark.save_frame")


def save(
    frame: DataFrame,
    table: str | None = None,
    *,
    partition_by: Sequence[str] = (),
    mode: str | None = None,
    partitions: Sequence[str] | None = None,
    committer: str | None = None,
    base: Snapshot | ReadBase | str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write a frame into a table, as one job (magic, directory and classic: one for each
    partition named, where those are replaced).

    :param table: ``s3://bucket/prefix``; ``None`` for the one that the operator names.
    :param partition_by: partition columns, outermost first; natively, the table's own where left
        out.
    :param mode: ``append``, ``overwrite`` (replace the partitions named or written) or
        ``fail-if-exists``; ``None`` for what the operator asks for, else append.
    :param partitions: the only partitions that may be written, ``["day=2013-01-01"]``; with
        overwrite they are emptied even if no row arrives. ``None`` for those that the operator
        names.
    :param committer: ``zero_rename``, ``magic``, ``directory``, ``partitioned`` or ``classic``;
        ``None`` for what the operator says, else ``zero_rename``. The session has to be
        configured for it, as the operator does.
    :param base: natively, the state of the table that the frame was computed from, taken by
        ``Table(…).snapshot()`` before the table was loaded; ``"now"`` where it was not computed
        from the table. ``None``: an overwrite goes by what this application has read of the table.
    :param options: further options of the writer: ``format("zero_rename")``'s natively, else
        Parquet's, such as ``compression``.
    :raises InvalidInputError: a call that cannot be right, or one that contradicts the operator.
    :raises SettingsRefusedError: the session's settings, or a partition column's type, would lose
        or double rows. In either case nothing was written.
    :raises VerificationError: with a committer of Hadoop's: the job committed, and its files do
        not hold the rows that Spark wrote.
    """
    handoff = Handoff.decode(os.environ)
    given = dict(options or {})
    if base is not None:
        given["base"] = _text(base)
    with failures_told(handoff.table, handoff.once, handoff.owner):
        target = resolve(table, partition_by, mode, partitions, committer, given, handoff)
        if target.committer == NATIVE:
            session = pipes_session()
            if not _is_done(target, handoff):
                _save_natively(frame, target)
            if session is not None:
                _report(session, target, handoff)
            return
        from .s3a.recorded_write import save_by_s3a

        save_by_s3a(frame, target, handoff)


def _text(base: Snapshot | ReadBase | str) -> str:
    if isinstance(base, str):
        return base
    return (base if isinstance(base, ReadBase) else base.base).encode()


def _is_done(target: WriteTarget, handoff: Handoff) -> bool:
    """Whether an earlier try of this run has committed this write: it need not be computed.

    In any doubt the writer judges, which opens its job after a shuffle: this only saves time.
    """
    told = handoff.about(target.root)
    of_its_own = {"once", "onrepeat"} & {name.lower() for name in target.options}
    if told.once is None or told.on_repeat is not OnRepeat.SKIP or of_its_own:
        return False
    table = Table(target.root.url)
    try:
        job = table.once_job(told.once)
        owner = table.owner_of(job) if job is not None else None
        if job is None or owner is None or owner.try_number in (None, told.try_number):
            return False
        if owner.series != told.series or not table.is_closed(job):
            return False
    except ZeroRenameError as error:
        logger.info("whether this run has committed before could not be read: %s", error)
        return False
    logger.warning(
        "%s: job %s of try %d has done this already (once key %r); nothing is computed or written",
        table.root.url,
        job,
        owner.try_number,
        told.once,
    )
    return True


def _report(session: PipesContext, target: WriteTarget, handoff: Handoff) -> None:
    given = {name.lower(): value for name, value in target.options.items()}
    once = given.get("once") or handoff.about(target.root).once
    if once is None:
        logger.warning(
            "%s: the commit is not reported to Dagster, since nothing but a once key tells which "
            "job it was; ZeroRenameResource.spark_env hands one on",
            target.root.url,
        )
        return
    table = Table(target.root.url)
    job = table.once_job(once)
    committed = None if job is None else table.result(job)
    if committed is None:
        raise OutcomeUnknownError(
            "The write ended well, and its job cannot be found.",
            table=table.root.url,
            remedy="`zero-rename jobs` shows what the table knows of it.",
        )
    report_commit(session, committed, is_asset=handoff.table in (None, target.root))


def _save_natively(frame: DataFrame, target: WriteTarget) -> None:
    from .registration import register

    register(frame.sparkSession)
    replacing = target.mode is Mode.REPLACE
    given = dict(target.options)
    if target.partition_by:
        given["partitionBy"] = texts.NAMES.encode(target.partition_by)
    if target.mode is Mode.FAIL_IF_EXISTS:
        given["failIfExists"] = "true"
    if target.partitions:
        word = "replacePartitions" if replacing else "onlyPartitions"
        given[word] = texts.PATHS.encode(target.partitions)
    writer = frame.write.format(NATIVE).mode(SAVE_MODES[Mode.REPLACE if replacing else Mode.APPEND])
    writer.options(**given).save(target.root.url)
