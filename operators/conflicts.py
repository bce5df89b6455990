"""Operators that find conflicts of runs over partitions, and settle them by a policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseOperator,
    conf,
)

from ..committer.errors import InvalidInputError, ZeroRenameError, counted
from ..committer.format.job_spec import NOBODY
from ..orchestration.runs.arguments import Parser, read_flag, read_policy, read_seconds, read_text
from ..orchestration.runs.partitions import listed_partitions
from ..orchestration.runs.reports import commit_report, of_partitions
from ..orchestration.table_names import listed_tables
from ..provider.assets.outlets import UnsaidOutlets, default_outlets, tell_outlets
from ..provider.failures import final_where_refused, raise_all
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_arguments import TaskArguments
from ..provider.task_context import task_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..committer.format.records.run_conflict import RunConflict
    from ..committer.upkeep.conflicts.conflict_search import ConflictReport
    from ..provider.settling import RerunOutcome

#: Destinations in a report by XCom, which lies in Airflow's database.
_MOST = 100


class FindConflictsOperator(TaskArguments, BaseOperator):
    """Find runs that conflict over partitions of tables, with any committer.

    Two runs conflict if the commit of one removed rows of the other, or if one gave way to the
    other. This counts if the two overlapped, if the older one came later, or if their tasks differ
    and no policy decided.

    Each search goes on from the end of the last one. Conflicts that are not settled are reported
    every time. A record of runs that cannot be read counts as not settled, since it is not known
    whether these runs conflict.

    Returns (XCom) ``tables``, a report for each destination: ``table``, ``committer``, ``since``,
    ``until``, ``conflicts`` (at most 200, those not settled first: ``partition``, ``cause``,
    ``runs`` with ``dag_id``, ``task_id``, ``run_id``, ``rank``, ``attempt``, ``job``, ``rows``,
    ``visible`` and ``gave_way``, ``settled``, ``settlement``), ``left_off``, ``unread`` (records
    that could not be read, with reasons), ``notes``. It also returns the numbers ``unresolved`` and
    ``unread``. The XCom ``markdown`` has the report as a page. Both XComs are there even if the
    task fails. If a table cannot be read, the task fails after the search of the others.

    :param tables: as in :class:`.PurgeStaleUploadsOperator`; ``None``: all below the connection's
        table root. (templated)
    :param since: seconds (or a timedelta) to search back, instead of since the last search. Then
        the position of this search is not recorded. (templated)
    :param fail_on: ``unresolved`` fails the task without a retry while a conflict is not settled,
        or a record of runs cannot be read; ``None`` only reports. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = ("tables", "since", "fail_on", "zero_rename_conn_id")
    parsers: ClassVar[Mapping[str, Parser]] = {
        "tables": listed_tables,
        "since": read_seconds,
        **dict.fromkeys(("fail_on", "zero_rename_conn_id"), read_text),
    }
    ui_color = "#f2eee6"

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        since: float | timedelta | str | None = None,
        fail_on: str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables: Any = tables
        self.since: Any = since
        self.fail_on = fail_on
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Search every table, then fail if ``fail_on`` asks for it or a table could not be read.

        :raises AirflowFailException: a conflict is not settled, or a record could not be read, and
            ``fail_on`` is ``unresolved``; or the arguments are invalid.
        :raises ZeroRenameError: of a table that could not be read, with the errors of others as
            notes.
        """
        from ..maintenance.conflicts import capped, conflicts_as_markdown, not_settled

        with final_where_refused():
            self.read_arguments()
            if self.fail_on not in (None, "", "unresolved"):
                raise InvalidInputError(
                    f"Invalid fail_on {self.fail_on!r}. Nothing was searched.",
                    remedy="Give 'unresolved', or leave fail_on out.",
                )
            looks = self._looks(ZeroRenameHook(self.zero_rename_conn_id))
        found: list[ConflictReport] = []
        errors: list[ZeroRenameError] = []
        for look in looks:
            try:
                found += look()
            except ZeroRenameError as error:
                self.log.error("%s", error)
                errors.append(error)
        page = conflicts_as_markdown(found)
        self.log.info("%s", page)
        report = {
            "tables": [capped(it) for it in found[:_MOST]],
            "tables_left_off": max(0, len(found) - _MOST),
            "unresolved": sum(len(it.unresolved) for it in found),
            "unread": sum(len(it.unread) for it in found),
        }
        ti: Any = context["ti"]
        ti.xcom_push(key="markdown", value=page)
        said = not_settled(found) if self.fail_on else ""
        if said or errors:
            # Airflow keeps the return value only if the task succeeds.
            ti.xcom_push(key="return_value", value=report)
        raise_all(errors)
        if said:
            raise AirflowFailException(
                f"{said} Conflicts are settled by ResolveConflictsOperator, or `zero-rename "
                "resolve`."
            )
        return report

    def _looks(self, hook: ZeroRenameHook) -> list[Callable[[], list[ConflictReport]]]:
        """Return a search for each table; if one fails, the others can still be carried out."""
        from ..maintenance.conflicts import find_at, find_below

        if self.tables is None:
            places = [(hook.get_table(place.root.url), place) for place in hook.destinations()]
            return [partial(find_at, table, place, self.since) for table, place in places]
        named = [hook.get_table(name) for name in self.tables]
        return [partial(find_below, table, hook.get_table, self.since) for table in named]


class ResolveConflictsOperator(TaskArguments, BaseOperator):
    """Settle recorded conflicts over partitions of a table, by a policy that chooses the run.

    By default it only reports; ``apply=True`` acts. Each partition is settled separately, only if
    it still has the state that the search saw, and never while a job is at work that may write it.
    If a partition could not be settled, its conflict stays unresolved, its record has the reason,
    and the task fails. A retry does not repeat the settlements that were made; its report and its
    event have them, too.

    Returns (XCom) ``table``, ``conflicts`` as in :class:`FindConflictsOperator`, and the numbers
    ``settled`` and ``unresolved``. The XCom ``markdown`` has the report as a page. Rows that were
    brought back make an event of the table's asset.

    :param table: the table, by URL or by name below the connection's table root. (templated)
    :param policy: ``newest_run``; ``{"prefer": ["corrections", "flights_daily"]}``, with DAGs,
        tasks (``dag.task``), applications or assets, the preferred first; or ``{"keep": [job]}``.
        (templated)
    :param by: ``restore`` brings back the rows of the chosen run, in a Delta table; rows that are
        visible already are kept in any table. ``rerun`` clears the task of the chosen run, lets it
        make only the partitions in conflict (with Hadoop's committers it loads all of its
        partitions), waits for it, and checks that its rows are there; it needs
        ``airflow_conn_id``. (templated)
    :param partitions: settle only these; ``[]`` for none, ``None`` for all. A partition without a
        recorded conflict is refused. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param airflow_conn_id: for ``rerun``, a connection of type ``http`` to Airflow's API server.
        (templated)
    :param include_downstream: for ``rerun``, let successors of cleared tasks run again, too; they
        are not waited for. (templated)
    :param poll_interval: seconds between polls of cleared tasks. (templated)
    :param timeout: seconds after which the wait for a rerun ends, and its conflict stays
        unresolved; cleared tasks go on. (templated)
    :param deferrable: wait in the triggerer; ``None``: as ``[operators] default_deferrable`` says.
    :param outlets: assets or aliases, as for any operator. Left out, rows that are brought back
        make an event of the asset that a DAG names at the table's address; ``[]`` for none.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *("table", "policy", "by", "partitions", "apply", "airflow_conn_id", "include_downstream"),
        *("poll_interval", "timeout", "zero_rename_conn_id"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("table", "by", "zero_rename_conn_id"), read_text),
        "policy": read_policy,
        "partitions": listed_partitions,
        **dict.fromkeys(("apply", "include_downstream"), read_flag),
        **dict.fromkeys(("poll_interval", "timeout"), read_seconds),
    }
    optional_parsers: ClassVar[Mapping[str, Parser]] = {"airflow_conn_id": read_text}
    ui_color = "#f2eee6"
    #: The argument of a load of this name: whether each partition has an event under its key.
    asset_partitions: bool | None = None

    def __init__(
        self,
        *,
        table: str,
        policy: str | Mapping[str, Any],
        by: str = "restore",
        partitions: str | Sequence[str] | None = None,
        apply: bool | str = False,
        airflow_conn_id: str | None = None,
        include_downstream: bool | str = False,
        poll_interval: float | timedelta | str = 30.0,
        timeout: float | timedelta | str = 24 * 3600.0,
        deferrable: bool | None = None,
        outlets: Any = UnsaidOutlets(),  # noqa: B008
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        told = default_outlets(table) if isinstance(outlets, UnsaidOutlets) else outlets
        super().__init__(outlets=told, **kwargs)
        self.table = table
        self.policy: Any = policy
        self.by = by
        self.partitions: Any = partitions
        self.apply: Any = apply
        self.airflow_conn_id = airflow_conn_id
        self.include_downstream: Any = include_downstream
        self.poll_interval: Any = poll_interval
        self.timeout: Any = timeout
        by_default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = read_flag("deferrable", by_default if deferrable is None else deferrable)
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Settle the conflicts, or report how they would be settled.

        :raises AirflowFailException: invalid arguments.
        :raises AirflowException: a conflict could not be settled.
        """
        from ..maintenance.conflicts import resolve_by_restore

        with final_where_refused():
            self.read_arguments()
            if self.by not in ("restore", "rerun"):
                raise InvalidInputError(
                    f"Invalid by {self.by!r}. Nothing was changed.",
                    remedy="Give 'restore' or 'rerun'.",
                )
            table = self._destination()
            before, left = self._before(table, context)
            if self.by == "rerun":
                done = self._by_rerun(table, context, left)
            else:
                owner = task_run(context).handoff().owner
                done = resolve_by_restore(table, self.policy, left, self.apply, owner)
        return self._reported(table, [*before, *done], context)

    def proceed(
        self, context: Context, event: object = None, *, progress: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Go on after a wait in the triggerer.

        :raises AirflowException: a conflict could not be settled.
        """
        with final_where_refused():
            self.read_arguments()
            table = self._destination()
            before, _ = self._before(table, context)
            done = self._waited(table, context, progress)
        return self._reported(table, [*before, *done], context)

    def _destination(self) -> Table:
        return ZeroRenameHook(self.zero_rename_conn_id).get_table(self.table)

    def _before(
        self, table: Table, context: Context
    ) -> tuple[list[RunConflict], Collection[str] | None]:
        """Return the conflicts that earlier attempts have settled, and the partitions left to do.

        Airflow passes on neither the report nor the events of an attempt that has failed.
        """
        run = task_run(context)
        if not self.apply or run.try_number == run.first_try:
            return [], self.partitions
        from ..maintenance.conflicts import settled_before

        return settled_before(table, lambda it: run.owns(it) and run.retries(it), self.partitions)

    def _by_rerun(
        self, table: Table, context: Context, partitions: Collection[str] | None
    ) -> list[RunConflict]:
        """Let the chosen runs load again, or report which runs would."""
        from ..maintenance.conflicts import choose_reruns
        from ..provider.settling import RerunOrder, RerunOutcome, check_connection

        check_connection(self.airflow_conn_id)
        owner = task_run(context).handoff().owner
        chosen = choose_reruns(table, self.policy, partitions, owner)
        if not self.apply:
            return [it.conflict.settled(it.settlement) for it in chosen]
        orders, refused = [], []
        for it in chosen:
            said, conflict = it.settlement, it.conflict
            order = RerunOrder(
                table.root.url,
                conflict.partition,
                conflict.version,
                said.stands,
                it.owner or NOBODY,
                said.losers,
                said.rank,
                it.committer,
            )
            if said.error:
                refused.append(RerunOutcome(order, None, said.error))
            else:
                orders.append(order)
        return self._waited(table, context, orders, refused) if chosen else []

    def _waited(
        self, table: Table, context: Context, of: Any, refused: Sequence[RerunOutcome] = ()
    ) -> list[RunConflict]:
        from ..committer.format.records.run_conflict import SettledBy, Settlement
        from ..committer.upkeep.conflicts.settlement_policy import SettlementPolicy
        from ..maintenance.conflicts import note_rerun
        from ..provider.settling import settle_by_rerun

        outcomes = settle_by_rerun(
            self, context, of, include_downstream=self.include_downstream, refused=refused
        )
        owner = task_run(context).handoff().owner
        policy, done = str(SettlementPolicy.parse(self.policy)), []
        for it in outcomes:
            order = it.order
            said = Settlement(
                *(order.run, order.losers, order.rank, owner, policy, SettledBy.RERUN),
                job=it.job,
                error=it.error,
                version=it.dag_version,
            )
            noted = note_rerun(table, order.committer, order.partition, said)
            if noted is None:
                self.log.warning("No conflict over %s is on record any more.", order.partition)
            else:
                done.append(noted)
        return done

    def _reported(
        self, table: Table, done: Sequence[RunConflict], context: Context
    ) -> dict[str, Any]:
        """Report the outcome of conflicts, and fail if one is not settled."""
        from ..committer.upkeep.conflicts.conflict_search import ConflictReport
        from ..maintenance.conflicts import as_members, conflicts_as_markdown

        url = table.root.url
        found = [ConflictReport(url, "", tuple(done), 0.0, 0.0)]
        page = conflicts_as_markdown(found, planned=not self.apply)
        self.log.info("%s", page)
        left = [it for it in done if not it.is_settled]
        report = {
            "table": url,
            "conflicts": [as_members(it) for it in done],
            "settled": len(done) - len(left),
            "unresolved": len(left),
        }
        ti: Any = context["ti"]
        ti.xcom_push(key="markdown", value=page)
        if not self.apply:
            if done:
                self.log.warning("Nothing is changed, only reported: apply=True acts.")
            return report
        self._tell(table, done, context)
        if not left:
            return report
        ti.xcom_push(key="return_value", value=report)
        said = [f"{it.name}: {it.settlement.error}" for it in left if it.settlement is not None]
        raise AirflowException(
            f"Of {counted(len(done), 'conflict')} {len(left)} could not be settled. {said[0]}"
        )

    def _tell(self, table: Table, done: Sequence[RunConflict], context: Context) -> None:
        """Make an event of the table's asset, with the partitions whose rows have changed."""
        jobs = [
            it.settlement.job for it in done if it.settlement and it.settlement.how == "restore"
        ]
        # Imported on use: processes that only parse DAG files need not load it.
        from ..tables.table_at import opened_as_it_is

        own = opened_as_it_is(table) if any(jobs) else table
        made = [own.result(job) for job in jobs if job is not None]
        reports = [commit_report(it) for it in made if it is not None]
        if not reports:
            return
        # Each partition is settled by a job of its own.
        partitions = [one | {"job": it["job"]} for it in reports for one in it["partitions"]]
        tell_outlets(self, dict(context), {**reports[-1], **of_partitions(partitions)})
