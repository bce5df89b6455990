"""Conflicts of runs over partitions: finding them, and settling them by a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from ..orchestration.runs.reports import commit_report
from ..orchestration.table_names import listed_tables
from ..provider.assets.outlets import UnsaidOutlets, default_outlets, tell_outlets
from ..provider.failures import final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_arguments import TaskArguments
from ..provider.task_context import task_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..committer.format.records.run_conflict import RunConflict
    from ..committer.upkeep.conflicts import ConflictReport
    from ..provider.settling import RerunOutcome

#: Destinations in a report by XCom, which lies in Airflow's database.
_MOST = 100


class FindConflictsOperator(TaskArguments, BaseOperator):
    """Find runs that conflict over partitions of tables, whichever committer wrote them: rows that
    another run's commit removed, or a run that gave way, where the two overlapped, the older came
    later, or their tasks differ and no policy decided.

    Each look goes on from the one before; what nobody has settled is told by each. A record of runs
    that cannot be read counts as not settled: whether they conflict is not known. Returns (XCom)
    ``tables``, a report for each destination: ``table``, ``committer``, ``since``, ``until``,
    ``conflicts`` (200 at most, those that are not settled first: ``partition``, ``cause``,
    ``runs`` with ``dag_id``, ``task_id``, ``run_id``, ``rank``, ``attempt``, ``job``, ``rows``,
    ``visible`` and ``gave_way``, ``settled``, ``settlement``), ``left_off``, ``unread`` (what could
    not be read, and why), ``notes``; and ``unresolved`` and ``unread``, how many there are. The
    XCom ``markdown`` has it as a page. Both are there also where the task fails. A table that
    cannot be looked at fails the task once the others are looked at.

    :param tables: as in :class:`.PurgeStaleUploadsOperator`; ``None``: all below the connection's
        table root. (templated)
    :param since: seconds (or a timedelta) to look back, instead of since the last look; nothing is
        remembered then. (templated)
    :param fail_on: ``unresolved`` fails the task for good while a conflict is not settled, or a
        record of runs cannot be read; ``None`` only reports. (templated)
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
        """Look at every table, then fail if that is asked for, or one could not be looked at.

        :raises AirflowFailException: a conflict is not settled, or a record could not be read, and
            ``fail_on`` is ``unresolved``; or a call that cannot be right.
        :raises ZeroRenameError: of the first table that could not be looked at, with those of
            others as notes.
        """
        from ..maintenance.conflicts import capped, conflicts_as_markdown, not_settled

        with final_where_refused():
            self.read_arguments()
            if self.fail_on not in (None, "", "unresolved"):
                raise InvalidInputError(
                    f"Invalid fail_on {self.fail_on!r}. Nothing was looked at.",
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
        ti: Any = context["ti"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        ti.xcom_push(key="markdown", value=page)
        said = not_settled(found) if self.fail_on else ""
        if said or errors:
            # What a task returns is kept only where it succeeds.
            ti.xcom_push(key="return_value", value=report)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(str(other))
            with final_where_refused():
                raise errors[0]
        if said:
            raise AirflowFailException(
                f"{said} Conflicts are settled by ResolveConflictsOperator, or `zero-rename "
                "resolve`."
            )
        return report

    def _looks(self, hook: ZeroRenameHook) -> list[Callable[[], list[ConflictReport]]]:
        """Return a look at each table, none of which keeps the others from being looked at."""
        from ..maintenance.conflicts import find_at, find_below

        if self.tables is None:
            places = [(hook.get_table(place.root.url), place) for place in hook.destinations()]
            return [partial(find_at, table, place, self.since) for table, place in places]
        named = [hook.get_table(name) for name in self.tables]
        return [partial(find_below, table, hook.get_table, self.since) for table in named]


class ResolveConflictsOperator(TaskArguments, BaseOperator):
    """Settle the conflicts that looks have found over partitions of a table: by a policy that says
    which run is to stand.

    Reports by default: ``apply=True`` acts. Each partition is settled by itself, bound to the state
    that the look saw, and never while a job is at work that may write it. A partition that could
    not be settled stays unresolved, on record with the reason, and fails the task; its retry does
    not do again what is done. Returns (XCom) ``table``, ``conflicts`` as in
    :class:`FindConflictsOperator`, ``settled`` and ``unresolved``, how many; the XCom ``markdown``
    has it as a page. What it brings back is an event of the table's asset.

    :param table: the table, whole or below the connection's table root. (templated)
    :param policy: ``newest_run``; ``{"prefer": ["corrections", "flights_daily"]}``, DAGs, tasks
        (``dag.task``), applications or assets in order; or ``{"keep": [job]}``. (templated)
    :param by: ``restore`` brings back the rows of that run, in a Delta table; rows that are visible
        already are kept in any table. ``rerun`` clears the task of that run, narrowed to the
        partitions in conflict (with Hadoop's committers it loads all that it loads), waits for it,
        and sees that its rows are there; it needs ``airflow_conn_id``. (templated)
    :param partitions: only these; ``[]`` for none, ``None`` for all. One without a conflict on
        record is refused. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param airflow_conn_id: for ``rerun``, a connection of type ``http`` to Airflow's API server.
        (templated)
    :param include_downstream: for ``rerun``, let successors of cleared tasks run again, too; nobody
        waits for them. (templated)
    :param poll_interval: seconds between looks at what runs. (templated)
    :param timeout: seconds after which a rerun is given up, and its conflict stays unresolved; what
        was cleared goes on. (templated)
    :param deferrable: wait in the triggerer; ``None``: as ``[operators] default_deferrable`` says.
    :param outlets: assets or aliases, as for any operator. Left out, what is brought back is an
        event of the asset that a DAG names at the table's address; ``[]`` for none.
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
    #: As of a load: whether each partition is an event under its key.
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
        """Settle the conflicts, or say how they would be.

        :raises AirflowFailException: a call that cannot be right.
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
            if self.by == "rerun":
                done = self._by_rerun(table, context)
            else:
                owner = task_run(context).handoff().owner  # pyright: ignore[reportArgumentType]
                done = resolve_by_restore(table, self.policy, self.partitions, self.apply, owner)
        return self._reported(table, done, context)

    def proceed(
        self, context: Context, event: object = None, *, progress: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Go on after a wait in the triggerer.

        :raises AirflowException: a conflict could not be settled.
        """
        with final_where_refused():
            self.read_arguments()
            table = self._destination()
            done = self._waited(table, context, progress)
        return self._reported(table, done, context)

    def _destination(self) -> Table:
        return ZeroRenameHook(self.zero_rename_conn_id).get_table(self.table)

    def _by_rerun(self, table: Table, context: Context) -> list[RunConflict]:
        """Let the runs that are to stand load again, or say which would."""
        from ..maintenance.conflicts import choose_reruns
        from ..provider.settling import RerunOrder, RerunOutcome, check_connection

        check_connection(self.airflow_conn_id)
        owner = task_run(context).handoff().owner  # pyright: ignore[reportArgumentType]
        chosen = choose_reruns(table, self.policy, self.partitions, owner)
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
        from ..committer.upkeep.settlement_policy import SettlementPolicy
        from ..maintenance.conflicts import note_rerun
        from ..provider.settling import settle_by_rerun

        outcomes = settle_by_rerun(
            self, context, of, include_downstream=self.include_downstream, refused=refused
        )
        owner = task_run(context).handoff().owner  # pyright: ignore[reportArgumentType]
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
        """Report what has become of conflicts, and fail where one is not settled."""
        from ..committer.upkeep.conflicts import ConflictReport
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
        ti: Any = context["ti"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
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
        """Tell the table's asset which partitions hold other rows now."""
        jobs = [
            it.settlement.job for it in done if it.settlement and it.settlement.how == "restore"
        ]
        # On use: DAG files are parsed by processes that change nothing.
        from ..tables.table_at import opened_as_it_is

        own = opened_as_it_is(table) if any(jobs) else table
        made = [own.result(job) for job in jobs if job is not None]
        reports = [commit_report(it) for it in made if it is not None]
        if not reports:
            return
        partitions = [one for it in reports for one in it["partitions"]]
        tell_outlets(self, dict(context), {**reports[-1], "partitions": partitions})
