"""Job that carries out a change of rows.

The change is computed again if another job came first, and made once for each run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...committer.commit.state.job_state import Committed
from ...committer.errors import (
    CommitConflictError,
    DataLostError,
    InvalidInputError,
    OutcomeUnknownError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ...committer.format.handoff import Handoff
from ...committer.format.job_spec import (
    Distribute,
    Mode,
    OnConflict,
    OnRepeat,
    SchemaMode,
    TableLayout,
)
from ...committer.format.records.inputs import Inputs
from ...committer.row_rewrite import TableChange
from ...committer.table import Table
from ...s3a.hadoop.settings import NATIVE
from ...tables import DeltaTable
from ...tables.new_table import check_free
from ...tables.table_at_root import find_at_root
from ..options import WriterOptions, is_given, names_key, writer_options
from ..pipes import pipes_session, report_commit
from ..reading.table_reads import TableReads
from ..saving.arrow_save import all_read, carry_out, delta_options, limited_by
from ..saving.planned_job import in_any_case, planned_job
from ..saving.task_errors import error_of_task
from ..startup.preflight import check_versions
from ..submitters import argument
from ..types import spark_schema
from ..worker import application_of
from ..write_target import WriteTarget, resolve, submitted
from .changed_rows import ChangedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("zero_rename.spark.changing.row_writer")


class RowWriter:
    """Writer of changes to one table, which computes and writes a change again after a conflict.

    :param target: the table, the only partitions that may be written, and the write's options.
    :param layout: the call's value; ``None``: it names none.
    """

    def __init__(
        self,
        session: SparkSession,
        target: WriteTarget,
        handoff: Handoff,
        layout: str | None = None,
    ) -> None:
        check_versions()
        self.session = session
        self.table = table_to_change(target, handoff, layout)
        self._own_key = names_key(target.options)
        own = {"expected_mode": None, "replace_table": False, "replace_partitions": None}
        # Options that the call itself gives are refused below.
        own = {name: it for name, it in own.items() if not is_given(target.options, name)}
        asked = writer_options(target.options, handoff, target.named_options | own)
        self._options = limited_by(session, asked)
        refuse_policies(self._options, target.root.url)
        if isinstance(self.table, DeltaTable):
            self._options = delta_options(self._options, target.options, handoff)
        default = self._options.default_encryption
        self.table.driver.encrypt_by_default(default, target.root.prefix)
        self._name = application_of(session)
        self._reads = TableReads.of(self._name, target.root.url)
        self.any_case = in_any_case(session)

    def change(self, compute: Callable[[], ChangedRows], attempts: int) -> TableChange:
        """Compute a change and carry it out.

        :param compute: reads the table's state and computes its rows after the change.
        :param attempts: how often it may be computed, if other jobs change the table meanwhile.
        :raises CommitConflictError: other jobs did, at each attempt. No row of the change is
            visible.
        """
        if attempts < 1:
            raise InvalidInputError(f"attempts is {attempts}; it is 1 at least.")
        for attempt in range(1, attempts + 1):
            if (done := self._done_before()) is not None:
                return TableChange.done_before(done)
            rows = None
            try:
                rows = compute()
                with self.table.held_against(rows.state):
                    return replace(self._carried_out(rows), attempts=attempt)
            except (CommitConflictError, SnapshotGoneError):
                if attempt == attempts:
                    raise
            except Exception as error:
                if (refused := self._refused_value(error)) is not None:
                    raise refused from error
                if rows is None or attempt == attempts or not self._may_be_overtaken(error, rows):
                    raise
            finally:
                if rows is not None:
                    rows.release()
        raise AssertionError("each attempt returns or raises")

    def _may_be_overtaken(self, error: Exception, rows: ChangedRows) -> bool:
        """Return whether another job may have caused an error, by changing the table meanwhile.

        If a replace has removed a file, Spark's own reader raises an error of another kind. An
        error by which the change is committed, or may be, is never such an error: then the change
        itself may have moved the table, and would be made twice.
        """
        if isinstance(error, OutcomeUnknownError | UnfinishedCommitError | DataLostError):
            return False
        try:
            return self.table.has_moved(rows.state)
        except ZeroRenameError as failed:
            logger.warning("whether another job has changed the table is not known: %s", failed)
            return False

    def _refused_value(self, error: Exception) -> InvalidInputError | None:
        """Return the error of a value that a Spark query has refused; ``None`` for other errors."""
        if isinstance(error, ZeroRenameError):
            return None
        url = self.table.root.url
        told = error_of_task(error, url, "")
        if not isinstance(told, InvalidInputError):
            return None
        told.table = told.table or url
        return told

    def _done_before(self) -> Committed | None:
        """Return the result of the run's earlier attempt, if the change must not be repeated."""
        key, skips = self._options.idempotency_key, self._options.on_repeat is OnRepeat.SKIP
        if not (key and skips and self.table.has_done(key)):
            return None
        return self._without_rows(self.table.schema, self.table.partition_by)

    def _carried_out(self, rows: ChangedRows) -> TableChange:
        counts, state, options = rows.counts, rows.state, self._options
        report = TableChange.of(state, counts.rows, counts.changed)
        reads = {"change_reads": report.reads(counts.rows)}
        if not counts.changed:
            if options.idempotency_key is None and rows.schema.equals(state.schema):
                return report
            done = self._without_rows(rows.schema, state.partition_by, rows.schema_mode, reads)
        else:
            key = options.idempotency_key
            if key is not None and options.on_repeat is OnRepeat.REPLACE_OWN:
                self.table.refuse_repeat(key, lambda: self._why_not_again(key, rows))
            changed = {name: counts.rows[name] for name in counts.changed}
            self.table.refuse_hidden_columns(state.of(changed))
            policies, inputs = self.table.rewrite_policies(state, changed, options.files())
            if rows.brings_rows:
                inputs.append(all_read(self._reads).made_by(options.code_version))
            else:  # The rows keep the code version of the jobs that computed them.
                policies["code_version"] = None
            done = self._written(
                rows.rows(counts.changed),
                state.partition_by,
                rows.schema_mode,
                policies | reads,
                sum(it.after for it in changed.values()),
                Inputs.all_of(inputs),
            )
        return TableChange.done_before(done) if done.repeated else replace(report, committed=done)

    def _why_not_again(self, key: str, rows: ChangedRows) -> str | None:
        """Return why a run's change would change rows again; ``None``: it would not.

        :param key: the run's, which has made the change before.
        """
        why = rows.why_not_repeatable()
        if why is not None or rows.why_not_inserted is None:
            return why
        job = self.table.job_of_key(key)
        done = None if job is None else self.table.result(job)
        before = None if done is None else done.row_changes
        return rows.why_not_inserted if before is not None and before.inserted else None

    def _without_rows(
        self,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        schema_mode: SchemaMode = SchemaMode.KEEP,
        policies: Mapping[str, Any] = MappingProxyType({}),
    ) -> Committed:
        """Carry out a job that changes no partition.

        It records that the run has made the change, and may add columns.
        """
        frame = self.session.createDataFrame([], spark_schema(schema))
        return self._written(frame, partition_by, schema_mode, policies, 0)

    def _written(
        self,
        frame: DataFrame,
        partition_by: tuple[str, ...],
        schema_mode: SchemaMode,
        policies: Mapping[str, Any],
        expected: int,
        inputs: Inputs | None = None,
    ) -> Committed:
        """Carry out a job.

        :param policies: fields of its :class:`.JobSpec` besides those of the options.
        """
        # The run's earlier files hold rows of other runs, too, so they are not replaced: the change
        # is made again on the present rows.
        again = self._options.on_repeat
        again = OnRepeat.APPEND if again is OnRepeat.REPLACE_OWN else again
        options = replace(
            self._options,
            partition_by=partition_by,
            schema_mode=schema_mode,
            distribute=Distribute.PARTITION,
            on_repeat=again,
        )
        own, name = self._own_key, self._name
        planned = planned_job(self.table, frame.schema, False, options, own, name, self.any_case)
        planned = replace(planned, spec=replace(planned.spec, **policies))
        done = carry_out(frame, planned, options, self._reads, expected, inputs)
        assert isinstance(done, Committed)  # A change of rows that is held back is refused.
        return done


def table_to_change(
    target: WriteTarget, handoff: Handoff, layout: str | None = None
) -> Table | DeltaTable:
    """Return the table of a change: the existing one, or the one that its first job will make.

    :param layout: the call's value; ``None``: it names none.
    :raises InvalidInputError: the task that submitted the application waits for a table of
        directories, and this one is a Delta table.
    :raises TableMismatchError: the call or its submitter names another layout than that of the
        existing table.
    """
    url = target.root.url
    if target.layout is TableLayout.DELTA:
        delta = DeltaTable(url)
        if not delta.exists():
            # As its first job would, and before the change is computed.
            delta.run(check_free(target.root))
        return delta
    try:
        table = find_at_root(url).table
    except TableNotFoundError:
        return Table(url)
    if isinstance(table, DeltaTable) and handoff.table == target.root:
        raise InvalidInputError(
            "This is a Delta table, and the task that submitted the application waits for a table "
            "of layout=directory; nothing was changed.",
            table=url,
            remedy=f"Set {argument(handoff, 'layout')} to 'delta'.",
        )
    if isinstance(table, DeltaTable) and layout is not None:
        raise TableMismatchError(
            "This is a Delta table, and layout='directory' is asked for: a table's layout does not "
            "change. Nothing was changed.",
            table=url,
            remedy="Leave the layout out: that of an existing table is found.",
        )
    return table


def refuse_policies(options: WriterOptions, table: str) -> None:
    """Refuse options that contradict a change of rows.

    A change has its own state, partitions and mode.

    :raises InvalidInputError: such an option is given.
    """
    given = {
        "failIfExists": options.fail_if_exists,
        "replaceWhere": options.replace_where,
        "replaceTable": options.replace_table,
        "replacePartitions": options.replace_partitions is not None,
        "schemaMode": options.schema_mode is not SchemaMode.KEEP,
        "base": options.base,
        "publish=False": not options.publish,
        "distribute=none": options.distribute is Distribute.NONE,
        f"onConflict={options.on_conflict}": options.on_conflict is not OnConflict.FAIL,
    }
    found = [name for name, value in given.items() if value]
    if found:
        raise InvalidInputError(
            f"{found[0]} says nothing to a change of rows; nothing was changed.",
            table=table,
            remedy="Leave it out. A change is made of one state, and refused where another job "
            "changes its partitions meanwhile.",
        )


def change_table(
    session: SparkSession,
    table: str | None,
    compute: Callable[[Table | DeltaTable, WriteTarget, bool], ChangedRows],
    *,
    attempts: int,
    options: Mapping[str, str] | None,
    partition_by: Sequence[str] = (),
    layout: str | None = None,
    code_version: str | None = None,
    committer: str | None = None,
) -> TableChange:
    """Change rows of a table that the call or the application's submitter names.

    :param compute: reads the table's state and computes its rows after the change. Its arguments
        are the table, the target, and whether column names are compared without regard to case.
    :raises InvalidInputError: no table is named, or one of Hadoop's committers writes it.
    """
    with submitted(session) as handoff:
        target = resolve(
            table,
            handoff,
            mode=Mode.MERGE,
            partition_by=partition_by,
            committer=committer,
            layout=layout,
            code_version=code_version,
            options=options,
        )
        if target.committer != NATIVE:
            raise InvalidInputError(
                "Rows are merged, updated and deleted natively alone, and the committer is "
                f"{target.committer}: tables of Hadoop's committers have no state that a job could "
                "be held against, so another writer's rows would be lost unseen. Nothing was "
                "changed.",
                table=target.root.url,
                remedy="Write the partitions whole, with mode overwrite; or natively, by "
                "committer='zero_rename'.",
            )
        pipes = pipes_session()
        writer = RowWriter(session, target, handoff, layout)
        done = writer.change(lambda: compute(writer.table, target, writer.any_case), attempts)
        if pipes is not None and done.committed is not None:
            report_commit(pipes, done.committed, is_asset=handoff.table in (None, target.root))
        return done
