"""Base of all operators that load tables: arguments, the run's job, and its report."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from ...committer.errors import InvalidInputError, TaskResultsError, ZeroRenameError
from ...committer.format.code_version import checked_code_version
from ...committer.format.job_spec import (
    Distribute,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    TableLayout,
    choice,
)
from ...committer.format.run_rank import RunRanks
from ...orchestration.load_policies import check_policies, check_table_data_root, read_publish
from ...orchestration.merge_arguments import OF_MERGES, check_merge, listed_columns, read_across
from ...orchestration.runs.arguments import Parser, read_any, read_flag, read_seconds, read_text
from ...orchestration.runs.heartbeat import wait_for_living
from ...orchestration.runs.newer_runs import refuse_superseded
from ...orchestration.runs.outcomes import (
    check_partitions,
    check_waiting,
    nothing_committed,
    settle_former,
    settle_killed,
    settled,
    tell_narrowing,
    unknown_rows,
)
from ...orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    compared_partitions,
    listed_partitions,
    made_partitions,
    stored_partitions,
    sure_partitions,
)
from ...orchestration.runs.reports import (
    commit_report,
    one_line,
    opening,
    partitions_line,
    summary,
    unknown_report,
    unpublished_report,
)
from ...orchestration.runs.rivals import wait_for_rivals
from ...orchestration.runs.task_run import check_on_repeat
from ...orchestration.table_names import check_catalog, check_table_name
from ...orchestration.templates import is_known
from ...provider.assets.outlets import UnsaidOutlets, default_outlets, tell_outlets
from ...provider.dag_schedule import shared_partition
from ...provider.failures import ended_for_good, final_where_refused, refuse_retry
from ...provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ...provider.links import (
    ManifestLink,
    PartitionPageLink,
    TableConsoleLink,
    link_to_report,
    link_to_table,
)
from ...provider.pauses import pause_deferred
from ...provider.task_arguments import TaskArguments
from ...provider.task_context import ANY, no_partition, resolve_partitions, run_rank, task_run
from ...s3a.hadoop.settings import NATIVE, check_committer
from ...s3a.policies import check_kept

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from ...committer import Committed, Table, UnpublishedJob
    from ...committer.format.handoff import Handoff
    from ...committer.rival_wait import RivalWait
    from ...orchestration.runs.loaded_table import LoadedTable
    from ...orchestration.runs.task_run import TaskRun


#: Policies of a job that are arguments of a load, each with its parser. The member of
#: :class:`.Handoff` for the application has the same name.
POLICIES: Mapping[str, Callable[[str], Any]] = {
    "mode": Mode.parse,
    "on_conflict": partial(choice, "on_conflict", OnConflict),
    "on_superseded": partial(choice, "on_superseded", OnSuperseded),
    "run_rank": RunRanks.of,
    "distribute": partial(choice, "distribute", Distribute),
    "layout": partial(choice, "layout", TableLayout),
    "code_version": checked_code_version,
    "merge_on": listed_columns,
    "delete_when": str,
    "latest_by": str,
    "across_partitions": read_across,
    "publish": read_publish,
}
#: Policies of a load that gives none.
_NO_POLICIES: Mapping[str, Any] = dict.fromkeys(POLICIES)
#: Remedy if a format makes the same partition for two runs.
_KEEP_APART = (
    "Make partition_format as fine as the DAG's schedule, with %G beside %V. Where each run loads "
    'the whole partition anew, name it by a template: partition="day={{ ds }}".'
)
#: Remedy if nobody can tell which rows a run has loaded before.
_AFTER_CLEANING = (
    "If these rows are to stay, give on_repeat='skip'. With on_repeat='append' the run loads "
    "again: in mode overwrite it replaces its partitions, in other modes these rows stay beside "
    "the new ones."
)
#: Seconds between two polls for other runs, for a task that is deferred in between.
_LOOK_DEFERRED_EVERY = 60.0
#: Policies that are not texts.
_NO_TEXTS = ("merge_on", "across_partitions", "run_rank", "publish")
#: Arguments that are texts once they are rendered.
_TEXTS = (
    *("table", "partition_format", "on_repeat", "committer", "catalog", "zero_rename_conn_id"),
    *(name for name in POLICIES if name not in _NO_TEXTS),
)


@dataclass(frozen=True)
class TableLoad:
    """One attempt of a task, with its table and its hand-off.

    :param handoff: for the application, with any committer.
    :param committer: the name of the committer.
    :param earlier: the run's job that had committed before this attempt submits one.
    :param held: the run's job that waited to be published before this attempt submits one.
    """

    run: TaskRun
    hook: ZeroRenameHook
    table: LoadedTable
    handoff: Handoff
    committer: str
    earlier: str | None = None
    held: str | None = None

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that the run may write; empty: any partitions that its rows have."""
        return self.handoff.partitions or ()

    @property
    def is_delta(self) -> bool:
        """True if it loads a Delta table."""
        return self.handoff.layout is TableLayout.DELTA

    def waiting(self) -> UnpublishedJob | None:
        """Return the run's job that waits to be published, if this load holds rows back."""
        # Imported on use: processes that only parse DAG files need not load it.
        from ...tables import DeltaTable

        if self.handoff.publish is not False:
            return None
        assert isinstance(self.table, DeltaTable)
        return self.table.unpublished_of_key(self.run.idempotency_key)

    @property
    def directories(self) -> Table:
        """Table as one of directories, the only layout that Hadoop's committers write.

        A Delta table may have been one: an adopted directory is.
        """
        # Imported on use: processes that only parse DAG files need not load it.
        from ...committer import Table
        from ...tables import DeltaTable
        from ...tables.table_at import directories_at

        assert isinstance(self.table, Table | DeltaTable)
        return directories_at(self.table)


class LoadOperator(TaskArguments, BaseOperator):
    """Base of the operators that submit an application to write one table.

    In the list of bases it comes before the operator that submits. Before the submission it finds
    out what earlier attempts of the run have done; after it, it checks that this run's job is
    committed.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
        (templated)
    :param partition: the partition or partitions that the run may write, such as
        ``year=2013/month=2/day=1``. With ``mode="overwrite"`` they are replaced even if no row
        arrives. ``"*"`` allows any partitions that the rows have; use it also for an unpartitioned
        table. Left out, it is the run's partition key if that is such a path, else
        ``partition_format`` decides. (templated)
    :param partition_format: ``strftime`` codes that make the partition from the run's date: its
        ``partition_date``, else the start of its data interval. With mode ``overwrite`` it must
        make different partitions for the runs of the DAG's schedule. (templated)
    :param partition_timezone: the time zone in which that date is written.
    :param mode: ``append``, ``overwrite`` (the same as ``replace``), ``fail-if-exists`` or
        ``merge``, which only the committer ``zero_rename`` has; ``None`` leaves it to the
        application. (templated)
    :param merge_on: with mode ``merge``, the key's columns. (templated)
    :param delete_when: with mode ``merge``, a condition in Spark's SQL: for rows that meet it, the
        matching rows are deleted, and nothing is inserted. (templated)
    :param latest_by: with mode ``merge``, the column whose greatest value decides which of a key's
        rows counts, the table's own row included. (templated)
    :param across_partitions: with mode ``merge``, ``True`` if a row matches rows of all partitions,
        and may so move to another one; else it matches only rows of its own partition. (templated)
    :param on_conflict: ``fail``, ``last_wins`` or ``newest_run``: what to do if another job has
        changed a partition since this one began and, with ``newest_run``, if a newer run has loaded
        it at any time; ``None`` takes the connection's. (templated)
    :param on_superseded: with ``newest_run``, for partitions that newer runs have loaded: ``fail``
        (the default), or ``skip``, which writes the others and skips the task if none is left.
        (templated)
    :param run_rank: with ``newest_run``, the rank of the run: a number, a date or a time; the
        greatest is the newest. Left out, it is the end of the run's data interval, else its
        partition's date, else the time at which it was due. (templated)
    :param wait_for_other_runs: the longest time to wait, before anything is submitted, while
        another run is at work on the same partitions: a timedelta, seconds, or a text such as
        ``PT2H``. After that ``on_conflict`` decides. With the committer ``zero_rename``, a run that
        another one overtook while Spark started is tried again, and the next attempt waits. Left
        out, it does not wait. With ``deferrable=True``, if the operator has that, it holds no
        worker while it waits. (templated)
    :param distribute: with ``partition``, ``save()`` first brings the rows of each partition
        together, which makes few files; or ``none``; ``None`` leaves it to the application.
        (templated)
    :param layout: with the committer ``zero_rename``, ``delta`` for a Delta table, which other
        engines read by its log; ``None`` or ``directory`` for directories. (templated)
    :param publish: ``False``, for a Delta table: the rows are written, but they are not visible
        until :class:`.publishing.PublishLoadOperator` publishes the job, whose id is returned as
        ``job``; there is no asset event before that. Left out, rows are visible when the load ends.
        (templated)
    :param code_version: the version of the application's code, by which lineage finds rows that
        another version made. (templated)
    :param on_repeat: what to do if this run has committed before. ``auto``: report that commit
        after a retry; replace its rows after the task was cleared or its run was made again. Or
        always ``skip``, ``replace_own`` or ``append``. (templated)
    :param committer: ``zero_rename``, or one of Hadoop's in the JVM: ``magic``, ``directory``,
        ``partitioned``; ``None`` takes the connection's. (templated)
    :param catalog: with the committer ``zero_rename``, the catalog in which the table is registered
        after the commit: ``glue://database/table``, or ``glue://database``; ``None`` takes the
        connection's, ``""`` is none. (templated)
    :param asset_partitions: ``True``: an event for each written partition, with its path as the
        key, and one without a key for the load; ``False``: only the event of the load. Left out, a
        run that has a partition key has one event, under that key, and any other run has both
        kinds. (templated)
    :param outlets: assets or aliases, as for any operator. Left out, the load makes an event of the
        asset that a DAG names at the table's address; ``[]`` for none.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        "table",
        "partition",
        "partition_format",
        *POLICIES,
        "wait_for_other_runs",
        "on_repeat",
        "committer",
        "catalog",
        "asset_partitions",
        "zero_rename_conn_id",
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(_TEXTS, read_text),
        # Their own parsers, for partitions, merges and ranks, read these later.
        **dict.fromkeys(("partition", "merge_on", "run_rank"), read_any),
        **dict.fromkeys(("across_partitions", "asset_partitions", "publish"), read_flag),
        "wait_for_other_runs": read_seconds,
    }
    operator_extra_links = (PartitionPageLink(), ManifestLink(), TableConsoleLink())
    ui_color = "#e6f2ec"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give an operator without its own templates or links those of all its bases."""
        super().__init_subclass__(**kwargs)
        for name in {"template_fields", "operator_extra_links"} - vars(cls).keys():
            found: list[Any] = []
            for base in reversed(cls.__bases__):
                found += (it for it in getattr(base, name, ()) if it not in found)
            setattr(cls, name, tuple(found))

    def __init__(
        self,
        *,
        table: str,
        partition: str | Sequence[str] | None = None,
        partition_format: str | None = None,
        partition_timezone: str = "UTC",
        mode: str | None = None,
        on_conflict: str | None = None,
        on_superseded: str | None = None,
        run_rank: datetime | date | float | str | None = None,
        wait_for_other_runs: timedelta | float | str | None = None,
        distribute: str | None = None,
        layout: str | None = None,
        code_version: str | None = None,
        merge_on: str | Sequence[str] | None = None,
        delete_when: str | None = None,
        latest_by: str | None = None,
        across_partitions: bool | str | None = None,
        publish: bool | str | None = None,
        on_repeat: str = "auto",
        committer: str | None = None,
        catalog: str | None = None,
        asset_partitions: bool | str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        outlets: Any = UnsaidOutlets(),  # noqa: B008 - never changed
        **kwargs: Any,
    ) -> None:
        if isinstance(outlets, UnsaidOutlets):
            outlets = default_outlets(table)
        super().__init__(outlets=outlets, **kwargs)
        self.table = table
        self.partition = partition
        self.partition_format = partition_format
        self.partition_timezone = partition_timezone
        self.mode = mode
        self.on_conflict = on_conflict
        self.on_superseded = on_superseded
        self.run_rank: Any = run_rank
        self.wait_for_other_runs: Any = wait_for_other_runs
        self.distribute = distribute
        self.layout = layout
        self.code_version = code_version
        self.merge_on = merge_on
        self.delete_when = delete_when
        self.latest_by = latest_by
        self.across_partitions: Any = across_partitions
        self.publish: Any = publish
        self.on_repeat = on_repeat
        self.committer = committer
        self.catalog = catalog
        self.asset_partitions: Any = asset_partitions
        self.zero_rename_conn_id = zero_rename_conn_id
        self._submitted: tuple[LoadedTable, TaskRun] | None = None
        self._published_load: tuple[TableLoad, dict[str, Any]] | None = None
        self._waiting_since: float | None = None
        self._check_arguments(parsing=True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit, unless this run has committed already; then report its job.

        :raises AirflowFailException: an error that a retry cannot help.
        :raises ZeroRenameError: the job is not committed, or it is not known whether it is.
        """
        load = self._table_load(context)
        return self._published(context, load, self._load(context, load))

    def wait_over(
        self, context: Context, event: Any = None, *, waiting_since: float
    ) -> dict[str, Any]:
        """Go on after a wait for other runs in the triggerer: check for them again, then load.

        :param event: of the trigger; it only says that time has passed.
        :param waiting_since: Unix time at which the wait began.
        """
        self._waiting_since = waiting_since
        return self.execute(context)

    def on_kill(self) -> None:
        """End the application, and abort its job, or finish it if it had decided to commit."""
        try:
            super().on_kill()
        finally:
            # Also if the application could not be ended, for example without the command ``yarn``:
            # then it goes on, and must not commit for a task that was killed.
            if self._submitted is not None:
                settle_killed(*self._submitted)

    @abstractmethod
    def _submit(self, context: Context, load: TableLoad) -> None:
        """Run the application to its end.

        :raises AirflowException: it failed.
        """

    def _check_arguments(self, parsing: bool = False) -> None:
        """Refuse invalid arguments; while a DAG file is parsed, templates are left out.

        :raises InvalidInputError: names the argument and its valid values.
        """

        def known(value: object) -> bool:
            return value is not None and (is_known(value) or not parsing)

        if parsing:
            self.note_arguments()
        else:
            self.read_arguments()
        if known(self.table) or not self.table:
            check_table_name(self.table)
        for name, value in self._policies.items():
            if known(value):
                POLICIES[name](value)
        by_key = (self._policies[name] for name in ("mode", *OF_MERGES))
        if all(it is None or known(it) or isinstance(it, list | tuple) for it in by_key):
            committer = self.committer if known(self.committer) else None
            check_merge(self._policies, committer)
        if known(self.on_repeat) or self.on_repeat is None:
            check_on_repeat(self.on_repeat)
        if known(self.committer):
            check_kept(check_committer(self.committer or ""), self._known_policies(known))
        if self.catalog and known(self.catalog):
            check_catalog(self.catalog)
        self._check_partitions(parsing, known)
        if known(self.partition_format):
            check_partition_format(self.partition_format or "", self.partition_timezone)
            if parsing and known(self.mode):
                self._check_schedule(Mode.parse(self.mode or ""))

    def _check_schedule(self, mode: Mode | None) -> None:
        """Refuse a partition_format with which two runs of the schedule replace one partition.

        If only the application knows the mode, it warns.

        :param mode: ``None``: the application decides.
        :raises InvalidInputError: names two runs and their partition.
        """
        dag, made = self.get_dag(), self.partition_format
        if dag is None or made is None or self.partition is not None:
            return
        if mode not in (None, Mode.REPLACE):
            return
        said = shared_partition(dag, made, self.partition_timezone)
        if said is None:
            return
        if mode is None:
            self.log.warning("%s %s", said, _KEEP_APART)
        else:
            raise InvalidInputError(f"{said} Nothing was submitted.", remedy=_KEEP_APART)

    def _known_policies(self, known: Callable[[object], bool]) -> dict[str, Any]:
        """Return the policies and the catalog, without those whose values are not known yet.

        A committer may be unable to keep some of these.
        """
        given = {**self._policies, "catalog": self.catalog}
        return {name: it for name, it in given.items() if known(it)}

    @property
    def _policies(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in POLICIES}

    def _check_partitions(self, parsing: bool, known: Callable[[object], bool]) -> None:
        if parsing and isinstance(self.partition, list | tuple):
            names = tuple(self.partition)
        elif known(self.partition):
            names = listed_partitions("partition", self.partition)
        else:
            return
        if not names:
            raise no_partition()
        for name in names if names != (ANY,) else ():
            if isinstance(name, str) and known(name):
                check_partition(name)

    def _table_load(self, context: Context) -> TableLoad:
        """Read the arguments and the connection, and build the load.

        :raises AirflowFailException: an invalid argument or connection.
        """
        with final_where_refused():
            self._check_arguments()
            run = task_run(context)
            partitions = resolve_partitions(
                context, self.partition, self.partition_format, self.partition_timezone
            )
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            committer = check_committer(self.committer or hook.settings.committer)
            table = hook.get_table(self.table)
            own = {name: it for name, it in self._policies.items() if it is not None}
            said = hook.settings.policies | {name: POLICIES[name](it) for name, it in own.items()}
            catalog = hook.catalog_of(self.catalog)
            given = {**_NO_POLICIES, **said, "catalog": catalog, "partitions": partitions}
            given["wait_for_other_runs"] = self.wait_for_other_runs
            is_delta = said.get("layout") is TableLayout.DELTA
            ti = context["ti"]
            has_page = committer == NATIVE and not is_delta
            link_to_table(self, ti, hook, table.root.url, partitions, has_page)
            check_policies(committer, given, getattr(self, "s3a_options", None))
            check_table_data_root(table, said)
            said["run_rank"] = run_rank(context, self.run_rank)
            said |= {"table": table.root, "partitions": partitions or None}
            handoff = replace(run.handoff(), **said)
            if "=" not in (context.get("partition_key") or ""):
                self._check_schedule(handoff.mode)
        loaded: LoadedTable = hook.get_delta_table(self.table) if is_delta else table
        return TableLoad(run, hook, loaded, handoff, committer)

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        """Return the report of this run's job; submit it unless an earlier attempt has made it."""
        table, run = load.table, load.run
        wait_for_living(table, run)
        earlier = table.job_of_key(run.idempotency_key)
        on_repeat = run.on_repeat(self.on_repeat, table.owner_of(earlier) if earlier else None)
        waits = load.waiting()
        if waits is not None:
            on_repeat = run.on_repeat(self.on_repeat, waits.owner)
            if on_repeat == "skip":
                self.log.info("Not submitted: job %s of this run waits to be published", waits.job)
                return self._held_back(load, waits, True)
        if earlier is not None and on_repeat == "skip":
            committed = self._settled(load, earlier)
            report = commit_report(committed)
            self.log.info("Not submitted: this run has committed %s", one_line(report))
            if self.on_repeat == "auto":
                # A retry: the attempt that committed may have died before it checked this.
                _check_partitions(load, committed, earlier)
            self.log.info("To load again, clear the task or give on_repeat='replace_own'.")
            return report | {"repeated": True}
        # Asked of Delta tables only: no record of a table of directories is cleaned by others.
        if earlier is None and load.is_delta and table.has_done(run.idempotency_key):
            # Imported on use: processes that only parse DAG files need not load it.
            from ...tables import DeltaTable

            is_delta = isinstance(table, DeltaTable)
            owner = table.owner_of_key(run.idempotency_key) if is_delta else None
            on_repeat = run.on_repeat_of_cleaned(self.on_repeat, owner)
            if on_repeat == "skip":
                self.log.info(
                    "Not submitted: this run has committed before. What it loaded is not known: "
                    "its entry was cleaned from the table's log."
                )
                self.log.info(
                    "To load again, give on_repeat='append' and clear the task: in mode overwrite "
                    "it replaces its partitions, in other modes the former rows stay beside the "
                    "new ones."
                )
                return unknown_report(table.root.url)
            if on_repeat == "replace_own":
                with ended_for_good("Not submitted. "):
                    raise unknown_rows(table, run.idempotency_key, _AFTER_CLEANING)
        refuse_retry(table, run, bool(self.wait_for_other_runs))
        with final_where_refused():
            stored = stored_partitions(table, load.partitions) or None
            handoff = replace(load.handoff, partitions=stored, on_repeat=OnRepeat(on_repeat))
            held = None if waits is None else waits.job
            load = replace(load, handoff=handoff, earlier=earlier, held=held)
        key, is_retried = run.idempotency_key, run.try_number > 1
        planned = tell_narrowing(table, key, earlier, is_retried, run.owner.cleared)
        waiting = self._rival_wait()
        if waiting is not None:
            makes = made_partitions(stored or (), planned)
            with ended_for_good():
                wait_for_rivals(table, waiting, makes, handoff.mode, handoff.on_conflict, key)
        written = partial(sure_partitions, table, stored)
        named = partial(compared_partitions, written, planned)
        after = f", after {waiting.waited:.0f} s of waiting" if waiting and waiting.waited else ""
        with ended_for_good(f"Not submitted{after}. "), final_where_refused():
            refuse_superseded(table, handoff, named)
        self._log_opening(load, f"{run.idempotency_key}, attempt {run.try_number}")
        self._submitted = table, run
        self._submit(context, load)
        return self._outcome(load)

    def _rival_wait(self) -> RivalWait | None:
        """Return the run's wait for other runs of its partitions; ``None``: it does not wait."""
        if not self.wait_for_other_runs:
            return None
        from ...committer.rival_wait import RivalWait

        longest, since = self.wait_for_other_runs, self._waiting_since
        if not getattr(self, "deferrable", False):
            return RivalWait(longest, since)
        return RivalWait(longest, since, self._pause_deferred, _LOOK_DEFERRED_EVERY)

    def _pause_deferred(self, seconds: float) -> None:
        since = time.time() if self._waiting_since is None else self._waiting_since
        pause_deferred(self, seconds, "wait_over", {"waiting_since": since})

    def _execute_parent(self, context: Context) -> Any:
        """Call ``execute`` of the operator that submits."""
        return super().execute(context)

    def _outcome(self, load: TableLoad) -> dict[str, Any]:
        """Return the report of the job of an application that ended well.

        :raises RefusedError: the application has committed no job.
        :raises AirflowFailException: the job has changed other partitions than the task's. There is
            no retry: it would only report the commit, and the error would be lost.
        """
        table, run = load.table, load.run
        waits = load.waiting()
        if waits is not None and waits.job != load.held:
            return self._held_back(load, waits, not run.made(waits.owner))
        job = table.job_of_key(run.idempotency_key)
        if job is None or job == load.earlier:
            raise nothing_committed(table, run, load.earlier, None if waits is None else waits.job)
        committed = self._settled(load, job)
        report = commit_report(committed)
        report["repeated"] = not run.made(table.owner_of(job))
        self.log.info("Committed %s", summary(report))
        _check_partitions(load, committed, load.earlier)
        return report

    def _settled(self, load: TableLoad, job: str) -> Committed:
        """Return what the run's job did; close what the run's earlier attempts have left open."""
        committed = settled(load.table, job)
        if load.is_delta:
            settle_former(load.table, load.run)
        return committed

    def _held_back(
        self, load: TableLoad, waits: UnpublishedJob, is_repeated: bool
    ) -> dict[str, Any]:
        """Return the report of a job that waits to be published.

        :raises AirflowFailException: the job would change other partitions than the task's.
        """
        try:
            check_waiting(waits, stored_partitions(load.table, load.partitions))
        except TaskResultsError as error:
            raise AirflowFailException(str(error)) from error
        report = unpublished_report(waits) | {"repeated": is_repeated}
        self.log.info("Held back %s", summary(report))
        return report

    def _published(
        self, context: Context, load: TableLoad, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Register the table in the catalog, and make the events of the outlets.

        Rows that are held back make events only when they are published. A job that is not known
        makes none.

        :return: the report, with the changes in the catalog.
        """
        is_seen = not report.get("unpublished") and bool(report["job"])
        if is_seen and not load.is_delta:  # The page only shows tables of directories.
            link_to_report(self, report, load.hook.settings.conn_id)
        catalog = load.hook.catalog_of(self.catalog)
        opened = load.hook.get_delta_table if load.is_delta else load.hook.get_table
        table = opened(self.table) if catalog else None
        if table and (registered := load.hook.register(table, catalog)) is not None:
            report["catalog"] = registered
        if is_seen:
            tell_outlets(self, context, report)
            self._published_load = load, report
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return the datasets of this task for the OpenLineage provider, if it is installed.

        They are the table, with its columns and the numbers of the job, and the application's
        inputs. ``airflow.providers.openlineage.extractors.base`` defines name and call.
        """
        if self._published_load is None:
            return None
        # Imported on use: processes that only parse DAG files need not load it.
        from ...provider.assets.lineage import job_lineage

        load, report = self._published_load
        return job_lineage(load.table, report, self.inlets)

    def get_openlineage_facets_on_start(self) -> OperatorLineage | None:
        """Return the table to be written, and the task's inlets, as datasets for OpenLineage.

        :return: ``None`` if the arguments name no table; then the task itself fails with that.
        """
        from ...provider.assets.lineage import named_lineage

        try:
            url = ZeroRenameHook(self.zero_rename_conn_id).table_url(self.table)
        except ZeroRenameError:
            return None
        return named_lineage(url, self.inlets)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage | None:
        """Return the datasets of the commit if there was one, else the table and the inlets."""
        committed = self.get_openlineage_facets_on_complete(task_instance)
        return committed or self.get_openlineage_facets_on_start()

    def _log_opening(self, load: TableLoad, job: str) -> None:
        """Log the facts of the load before the lines of Spark."""
        handoff, is_native = load.handoff, load.committer == NATIVE
        said = opening(
            table=load.table.root.url,
            partition=partitions_line(load.partitions),
            mode=handoff.mode or "the application's",
            committer=load.committer,
            on_conflict=handoff.on_conflict or ("the application's" if is_native else "fail"),
            job=job,
        )
        self.log.info("Loading\n%s", said)


def _check_partitions(load: TableLoad, committed: Committed, earlier: str | None) -> None:
    """Check that a job of a load changed only the load's partitions.

    :param earlier: the run's job before, as for :func:`.outcomes.check_partitions`.
    :raises AirflowFailException: the job changed others.
    """
    asked = stored_partitions(load.table, load.partitions)
    try:
        check_partitions(load.table, committed, asked, earlier)
    except TaskResultsError as error:
        raise AirflowFailException(str(error)) from error
