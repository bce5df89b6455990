"""Job that carries out a change of rows: computed again where another one came first, and done once
for each run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ...committer.changeable_table import refuse_repeat
from ...committer.commit.failures import failures_told
from ...committer.commit.snapshot import Snapshot
from ...committer.commit.state.job_state import Committed
from ...committer.errors import CommitConflictError, InvalidInputError, SnapshotGoneError
from ...committer.format.handoff import Handoff
from ...committer.format.job_spec import Distribute, Mode, OnRepeat, SchemaMode
from ...committer.format.records.inputs import Inputs
from ...committer.format.row_changes import ChangeReads
from ...committer.row_rewrite import TableChange
from ...committer.table import Table
from ...s3a.hadoop.settings import NATIVE
from ..options import WriterOptions, names_key, writer_options
from ..pipes import pipes_session, report_commit
from ..reading.table_reads import TableReads
from ..saving.arrow_save import all_read, carry_out
from ..saving.planned_job import PlannedJob, planned_job
from ..startup.preflight import check_versions, warn_of_overwrites
from ..types import spark_schema
from ..worker import application_of
from ..write_target import WriteTarget, resolve, take_handoff
from .changed_rows import ChangedRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class RowWriter:
    """Carries out changes of one table: reads, computes, writes what changes, and again after a
    conflict.

    :param target: the table, the only partitions that may be written, and the write's options.
    """

    def __init__(self, session: SparkSession, target: WriteTarget, handoff: Handoff) -> None:
        check_versions()
        self.session = session
        self.table = Table(target.root.url)
        self._own_key = names_key(target.options)
        named = {"path": target.root.url, "expected_mode": None, "replace_table": False}
        named |= {"only_partitions": target.partitions} if target.partitions else {}
        named |= {"code_version": target.code_version} if target.code_version else {}
        named |= {"replace_partitions": ()}
        self._options = writer_options(target.options, handoff, named)
        _refuse_policies(self._options, target.root.url)
        self._name = application_of(session)
        self.any_case = session.conf.get("spark.sql.caseSensitive", None) != "true"

    def change(self, compute: Callable[[], ChangedRows], attempts: int) -> TableChange:
        """Compute a change and carry it out.

        :param compute: reads the table's state, and says what is to become of it.
        :param attempts: how often it may be computed, where others change the table meanwhile.
        :raises CommitConflictError: they have, each time. Nothing of it is visible.
        """
        if attempts < 1:
            raise InvalidInputError(f"attempts is {attempts}; it is 1 at least.")
        done = self._done_before()
        for attempt in range(1, attempts + 1):
            if done is not None:
                return TableChange.done_before(done)
            rows = compute()
            try:
                return replace(self._carried_out(rows), attempts=attempt)
            except (CommitConflictError, SnapshotGoneError):
                if attempt == attempts:
                    raise
            except Exception:
                # Of a file that a replace has removed Spark's own reader raises an error of its
                # own.
                if attempt == attempts or not self._has_moved(rows.state):
                    raise
            finally:
                rows.release()
            done = self._done_before()
        raise AssertionError("each attempt returns or raises")

    def _has_moved(self, state: Snapshot) -> bool:
        read = None if state.read is not None else state.asked
        return self.table.state_to_change(read).base != state.base

    def _done_before(self) -> Committed | None:
        """What an earlier try of the run has done, where it is not to be done again."""
        options = self._options
        if options.idempotency_key is None or options.on_repeat is not OnRepeat.SKIP:
            return None
        if self.table.job_of_key(options.idempotency_key) is None:
            return None
        return self._without_rows(self.table.schema, SchemaMode.KEEP)

    def _carried_out(self, rows: ChangedRows) -> TableChange:
        counts = rows.counts
        committed = self._committed(rows)
        if committed is not None and committed.repeated:
            return TableChange.done_before(committed)
        return TableChange.of(rows.state, counts.rows, counts.changed, committed)

    def _committed(self, rows: ChangedRows) -> Committed | None:
        counts = rows.counts
        changed = {name: counts.rows[name] for name in counts.changed}
        reads = TableChange.of(rows.state, counts.rows, counts.changed).reads(counts.rows)
        if not changed:
            evolves = not rows.schema.equals(rows.state.schema)
            needed = self._options.idempotency_key is not None or evolves
            return self._without_rows(rows.schema, rows.schema_mode, reads) if needed else None
        self._refuse_repeat(rows)
        frame = rows.rows(counts.changed)
        options = replace(self._options, partition_by=rows.state.partition_by)
        planned, options = self._planned(frame.schema, True, options, rows.schema_mode)
        spec = planned.spec
        policies, inputs = self.table.rewrite_policies(rows.state, changed, spec.files)
        if not rows.brings_rows:  # They stay theirs who computed them.
            policies["code_version"] = None
        planned = replace(planned, spec=replace(spec, change_reads=reads, **policies))
        brought = all_read(self._reads()).made_by(spec.code_version)
        inputs += [brought] if rows.brings_rows else []
        expected = sum(it.after for it in changed.values())
        made_of = Inputs.all_of(inputs)
        return carry_out(frame, planned, options, self._reads(), expected, made_of)

    def _without_rows(
        self, schema: pa.Schema, schema_mode: SchemaMode, reads: ChangeReads | None = None
    ) -> Committed:
        """A job that changes no partition: it says of the run that this was done, and may bring
        columns."""
        columns = spark_schema(schema)
        planned, options = self._planned(columns, False, self._options, schema_mode)
        planned = replace(planned, spec=replace(planned.spec, change_reads=reads))
        frame = self.session.createDataFrame([], columns)
        return carry_out(frame, planned, options, self._reads(), 0)

    def _planned(
        self, schema: StructType, replaces: bool, options: WriterOptions, schema_mode: SchemaMode
    ) -> tuple[PlannedJob, WriterOptions]:
        options = replace(options, schema_mode=schema_mode, distribute=Distribute.PARTITION)
        if options.on_repeat is OnRepeat.REPLACE_OWN:
            # What it wrote before holds the rows of others, too: the change is made once more on
            # what is there.
            options = replace(options, on_repeat=OnRepeat.APPEND)
        own, name = self._own_key, self._name
        planned = planned_job(self.table, schema, replaces, options, own, name, self.any_case)
        return planned, options

    def _refuse_repeat(self, rows: ChangedRows) -> None:
        """Of a run that is to do its work again."""
        options = self._options
        if options.idempotency_key is None or options.on_repeat is not OnRepeat.REPLACE_OWN:
            return
        earlier = self.table.job_of_key(options.idempotency_key)
        why = None if earlier is None else rows.why_not_repeatable()
        refuse_repeat(earlier, why, self.table.root.url)

    def _reads(self) -> TableReads:
        return TableReads.of(self._name, self.table.root.url)


def _refuse_policies(options: WriterOptions, table: str) -> None:
    """Options that contradict a change of rows, which has a state, partitions and a mode of its
    own."""
    given = {
        "failIfExists": options.fail_if_exists,
        "replaceWhere": options.replace_where,
        "replaceTable": options.replace_table,
        "replacePartitions": options.replace_partitions,
        "schemaMode": options.schema_mode is not SchemaMode.KEEP,
        "base": options.base,
        "onConflict=last_wins": options.on_conflict != "fail",
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
    compute: Callable[[Table, WriteTarget, bool], ChangedRows],
    *,
    attempts: int,
    options: Mapping[str, str] | None,
    partition_by: Sequence[str] = (),
    code_version: str | None = None,
) -> TableChange:
    """Change rows of the table that is named, or that the application's submitter names.

    :param compute: reads its state and says what is to become of its rows; is told the target, and
        whether columns are the table's whatever their case.
    """
    warn_of_overwrites(session)
    take_handoff(session)
    handoff = Handoff.decode(os.environ)
    with failures_told(handoff.table, handoff.idempotency_key, handoff.owner, handoff.partitions):
        target = _target(table, partition_by, code_version, handoff, options)
        pipes = pipes_session()
        writer = RowWriter(session, target, handoff)
        done = writer.change(lambda: compute(writer.table, target, writer.any_case), attempts)
        if pipes is not None and done.committed is not None:
            report_commit(pipes, done.committed, is_asset=handoff.table in (None, target.root))
        return done


def _target(
    table: str | None,
    partition_by: Sequence[str],
    code_version: str | None,
    handoff: Handoff,
    options: Mapping[str, str] | None,
) -> WriteTarget:
    """The table whose rows are changed.

    :raises InvalidInputError: none is named, or one of Hadoop's committers writes it.
    """
    no = None
    target = resolve(
        table, partition_by, Mode.MERGE, no, no, no, no, code_version, options or {}, handoff
    )
    if target.committer != NATIVE:
        raise InvalidInputError(
            f"Rows are merged, updated and deleted natively alone, and the committer is "
            f"{target.committer}: tables of Hadoop's committers have no state that a job could be "
            "held against, so another writer's rows would be lost unseen. Nothing was changed.",
            table=target.root.url,
            remedy="Write the partitions whole, with mode overwrite; or natively, by "
            "committer='zero_rename'.",
        )
    return target
