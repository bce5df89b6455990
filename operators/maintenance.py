"""Operators for maintenance: interrupted jobs, orphaned uploads, and all tables of a connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from ..committer.errors import InvalidInputError, TableNotFoundError, ZeroRenameError, counted
from ..orchestration.runs.arguments import (
    Parser,
    read_conflicts,
    read_flag,
    read_seconds,
    read_text,
)
from ..orchestration.runs.reports import text_table
from ..orchestration.table_names import check_catalog_of, listed_tables
from ..provider.connection import config_number
from ..provider.failures import final_where_refused, raise_all
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_arguments import TaskArguments
from ..provider.task_context import task_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..maintenance.conflicts import ConflictOrder
    from ..maintenance.destinations import Destination
    from ..maintenance.purging import PurgedEntry, PurgeOrder, SettledJob
    from ..maintenance.residue import ResidueReport
    from ..maintenance.upkeep import Register, Upkeep
    from ..s3a.recovery.liveness import JobLiveness
    from ..s3a.runs.try_record import TryRecord

#: Destinations in a report by XCom, which lies in Airflow's database.
_MOST = 100
_NO_JOBS = "no open jobs"
#: The URL of a destination, and a function that treats it and returns a report with its ``table``.
Step = tuple[str, Callable[[], dict[str, Any]]]
#: The most uploads in one message of the log.
_LINES = 1000


class _Maintenance(TaskArguments, BaseOperator):
    """Base of the maintenance operators: the arguments that all of them have."""

    template_fields: Sequence[str] = (
        *("tables", "apply", "patience", "catalog", "zero_rename_conn_id"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "tables": listed_tables,
        "apply": read_flag,
        "patience": read_seconds,
        **dict.fromkeys(("catalog", "zero_rename_conn_id"), read_text),
    }
    ui_color = "#f2eee6"
    _ti: Any = None

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None,
        apply: bool | str = False,
        patience: float | timedelta | str | None = None,
        catalog: str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables: Any = tables
        self.apply: Any = apply
        self.patience: Any = patience
        self.catalog = catalog
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()

    @property
    def _ask(self) -> Callable[[TryRecord], JobLiveness | None]:
        """Function that returns the liveness of an S3A attempt, by the state of its task."""
        from ..provider.task_states import task_states

        return task_states(self._ti)

    def _catalog(self, hook: ZeroRenameHook, tables: Sequence[Table]) -> str:
        """Return the catalog in which tables are registered after their recovery; empty: in none.

        :raises InvalidInputError: an invalid URL, or the URL of one table for several tables.
        """
        catalog = hook.catalog_of(self.catalog)
        if catalog:
            check_catalog_of(catalog, len(tables))
        return catalog if self.apply else ""


class _Purging(_Maintenance):
    """Base of maintenance for all committers that may also abort foreign uploads."""

    def _places(self, table: Table, hook: ZeroRenameHook) -> Sequence[Destination]:
        """Return the destinations at a table's root or below it, before any of them is treated.

        :raises InvalidInputError: the catalog's URL is that of one table, and there are several.
        """
        from ..maintenance.destinations import destinations_in

        places = table.run(destinations_in(table.root))
        if catalog := hook.catalog_of(self.catalog):
            check_catalog_of(catalog, sum(it.is_table or it.is_delta for it in places))
        return places

    template_fields: Sequence[str] = (
        *_Maintenance.template_fields,
        *("foreign", "older_than", "s3a_patience", "staging", "buffer_dir"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "foreign": read_flag,
        **dict.fromkeys(("older_than", "s3a_patience"), read_seconds),
        **dict.fromkeys(("staging", "buffer_dir"), read_text),
    }

    def __init__(
        self,
        *,
        foreign: bool | str = False,
        older_than: float | timedelta | str | None = None,
        s3a_patience: float | timedelta | str | None = None,
        staging: str | None = None,
        buffer_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.foreign: Any = foreign
        self.older_than: Any = older_than
        self.s3a_patience: Any = s3a_patience
        self.staging = staging
        self.buffer_dir = buffer_dir
        self.note_arguments()

    def _order(self, hook: ZeroRenameHook) -> PurgeOrder:
        """Build the order for the purge from the arguments.

        :raises InvalidInputError: invalid arguments.
        """
        from ..maintenance.purging import PurgeOrder

        return PurgeOrder(
            apply=self.apply,
            foreign_age=self._foreign_age(hook),
            patience=self.patience,
            s3a_patience=self.s3a_patience,
            staging=self.staging,
            ask=self._ask,
        )

    def _residue(self, jobs: Collection[SettledJob]) -> ResidueReport:
        """Find files that dead drivers left outside the store, after their jobs were settled."""
        from ..maintenance.residue import find_residue, residue_lines

        found = find_residue(self.staging, self.buffer_dir, jobs, self.apply)
        if lines := residue_lines(found):
            self.log.info("%s", "\n".join(lines))
        return found

    def _foreign_age(self, hook: ZeroRenameHook) -> float | None:
        """Return the age in seconds from which foreign uploads are aborted; ``None``: keep them.

        :raises InvalidInputError: an age without ``foreign``, or an age below the floor.
        """
        if self.older_than is not None and not self.foreign:
            raise InvalidInputError(
                "older_than is the age of foreign uploads, and foreign=True is not given.",
                remedy="Give foreign=True as well, or leave older_than out: what belongs to a job "
                "is judged by its records.",
            )
        if not self.foreign:
            return None
        age = hook.purge_age if self.older_than is None else self.older_than
        floor = 3600.0 * config_number("purge_floor_hours")
        if not age >= floor:
            raise InvalidInputError(
                f"Foreign uploads are to be purged from an age of {age:.0f} s, which is below "
                f"[zero_rename] purge_floor_hours ({floor:.0f} s): another tool may still be "
                "writing them. Nothing was purged.",
                remedy="Give a greater older_than, or lower the floor in Airflow's configuration.",
            )
        return age


class _TableMaintenance(_Maintenance):
    """Base of maintenance that treats several tables.

    If one fails, the others are treated all the same, also those below the same folder.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Treat every table, then fail if one of them failed.

        :return: ``tables``: a report for each destination, with its ``table``.
        :raises AirflowFailException: an error that a retry cannot help.
        :raises Exception: the first error that a retry may help, with the others as notes.
        """
        self._ti = context["ti"]
        reports: list[dict[str, Any]] = []
        errors: list[Exception] = []
        with final_where_refused():
            self.read_arguments()
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            names = self.tables or ()
            if not names:
                raise InvalidInputError("tables names no table.", remedy="Give one or more tables.")
            tables = [hook.get_table(name) for name in names]
            self._check(hook)
            catalog = self._catalog(hook, tables)
        if not self.apply:
            self.log.warning("Nothing is changed, only reported: apply=True acts.")
        for table in tables:
            # A folder may hold several destinations: if one fails, the others are still treated.
            with self._noting(table.root.url, errors):
                for url, treat in self._steps(table, hook):
                    with self._noting(url, errors):
                        report = treat()
                        reports.append(report)
                        errors += self._failures(report)
                        if catalog and (registered := _registered(hook, report, catalog)):
                            report["catalog"] = registered
        raise_all(errors)
        return {"tables": reports}

    @contextmanager
    def _noting(self, url: str, errors: list[Exception]) -> Iterator[None]:
        """Keep the error of the block, to raise it after everything else was treated."""
        try:
            yield
        except ZeroRenameError as error:
            self.log.error("%s: %s", url, error)
            errors.append(error)
        except Exception as error:
            self.log.exception("%s", url)
            errors.append(error)

    def _check(self, hook: ZeroRenameHook) -> None:
        """Check the arguments of a subclass.

        :raises InvalidInputError: an invalid argument.
        """

    @abstractmethod
    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        """Return a step for each destination at a table's root or below it."""

    def _failures(self, report: dict[str, Any]) -> list[ZeroRenameError]:
        failed = (
            (report.get("failed"), "job", "could not be recovered"),
            (report.get("failed_uploads"), "orphaned upload", "could not be removed"),
        )
        return [
            ZeroRenameError(
                f"{counted(count, what)} {why}; the log says why.", table=report["table"]
            )
            for count, what, why in failed
            if count
        ]


def _registered(hook: ZeroRenameHook, report: Mapping[str, Any], catalog: str) -> dict[str, Any]:
    """Register a table in a catalog after its jobs were settled; return the changes there.

    A destination of Hadoop's committers and a plain directory are left out: they have no record of
    columns and partitions.

    :param report: of the destination.
    """
    from ..committer.commit.state.table_kind import TableKind, table_kind
    from ..maintenance.delta import why_left
    from ..tables.table_at import delta_at

    table = hook.get_table(report["table"])
    kind = table.run(table_kind(table.root))
    if kind is TableKind.NONE:
        return {}
    if kind is TableKind.DIRECTORIES:
        return hook.sync(table, catalog)
    delta = delta_at(table)
    return {} if why_left(delta) else hook.sync(delta, catalog)


def _of_hadoop(table: Table) -> TableNotFoundError | None:
    """Build the error for a destination of Hadoop's committers; ``None`` for any other table."""
    from ..maintenance.destinations import destination_at

    if not table.run(destination_at(table.root)).is_s3a:
        return None
    return TableNotFoundError(
        "This is a destination of Hadoop's committers, whose jobs leave no records of this "
        "package. Nothing was changed.",
        table=table.root.url,
        remedy="Give it to RecoverS3AJobsOperator; or to PurgeStaleUploadsOperator or "
        "MaintainTablesOperator, which recover the jobs of any committer.",
    )


class RecoverJobsOperator(_TableMaintenance):
    """Finish or abort interrupted jobs: apply committed, clean up aborted, and fence dead ones.

    By default it only reports; ``apply=True`` acts. It is safe beside running jobs: jobs that send
    heartbeats are not touched. Jobs in Delta tables send none; they are not touched for as long as
    a job may take. Returns (XCom) ``tables``, each with ``kind`` (``table`` or ``delta``),
    ``recovered`` (``job``, ``outcome``, ``detail``), ``failed``, and ``catalog``, the changes in
    the catalog: a table that a load could not register is registered here.

    :param tables: one table or several, by URL or by name below the connection's table root.
        (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param patience: seconds (or a timedelta) without a heartbeat after which an undecided job is
        declared dead; ``None`` takes each job's own. In a Delta table it counts from the job's
        opening: leave it out there while a job may be at work. (templated)
    :param catalog: the catalog in which the tables are registered: ``glue://database``, or
        ``glue://database/table`` for a single one; ``None``: the connection's; ``""``: none. Delta
        tables that another engine has made are left to that engine. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        return [(table.root.url, partial(self._recovered, table))]

    def _recovered(self, table: Table) -> dict[str, Any]:
        from ..tables import DeltaTable
        from ..tables.table_at import opened_as_it_is

        opened = opened_as_it_is(table)
        settle = opened.recover if self.apply else opened.plan_recovery
        try:
            found = settle(self.patience)
        except TableNotFoundError as error:
            raise _of_hadoop(table) or error from error
        names = ("job", "outcome", "detail")
        rows = [(job.job, str(job.outcome), job.detail) for job in found]
        self.log.info("%s\n%s", table.root.url, text_table(names, rows) if rows else _NO_JOBS)
        return {
            "table": table.root.url,
            "kind": "delta" if isinstance(opened, DeltaTable) else "table",
            "recovered": [dict(zip(names, row, strict=True)) for row in rows],
            "failed": sum(outcome == "failed" for _, outcome, _ in rows),
        }


class PurgeStaleUploadsOperator(_Purging, _TableMaintenance):
    """Finish or abort interrupted jobs of all committers, then abort orphaned multipart uploads.

    In tables of this package it also removes old records of runs' failures, and lists of files that
    no head names any more. In Delta tables that this package has made, it removes files that no
    version within the retention names (``removed``). In another engine's Delta table it removes
    nothing.

    By default it only reports; ``apply=True`` acts. The uploads and files of a job are judged by
    the job's records alone, not by their age: jobs of this package by its records; jobs of Hadoop's
    committers by their ledger, their tasks' states, their heartbeats and their pending files.
    Uploads without a known job are aborted only with ``foreign=True``, and by age.

    Returns (XCom) ``tables``, a report for each destination, with ``kind`` (``table``, ``delta``,
    ``s3a``, ``table and s3a`` or ``directory``), ``recovered`` (``job``, ``committer``,
    ``outcome``, ``detail``), ``failed``, ``uploads`` (``key``, ``upload_id``, ``job``,
    ``initiated``, ``age``, ``bytes``, ``action``, ``reason``; at most 100, those that could not be
    aborted first), ``uploads_left_off``, ``aborted``, ``kept``, ``would_abort``, ``removed``,
    ``would_remove``, ``failed_uploads`` and ``catalog``. It also returns ``residue``, files that
    dead drivers left outside the store (``path``, ``job``, ``bytes``, ``age``, ``action``,
    ``reason``; at most 100), ``residue_left_off``, and ``unreachable``, folders that the worker
    cannot read. It fails if an upload is still listed after it was aborted, or a job could not be
    settled.

    :param tables: one table or several, by URL or by name below the connection's table root: tables
        of this package; destinations of Hadoop's committers, with or without a record of their
        runs; and directories, in which everything below is purged. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param foreign: abort foreign uploads too. (templated)
    :param older_than: the least age of foreign uploads, in seconds or as a timedelta; ``None``
        takes the connection's, else ``[zero_rename] purge_older_than_hours``. An age below
        ``[zero_rename] purge_floor_hours`` is refused. (templated)
    :param patience: as in :class:`RecoverJobsOperator`; for Delta tables only 0 has an effect: it
        says that no job is at work. (templated)
    :param s3a_patience: seconds (or a timedelta) without a sign of life after which a job of
        Hadoop's committers that no run's record names counts as dead. It must be longer than the
        longest task, since a task that writes a file gives no sign. ``None``: the state of such a
        job stays unknown, and it is not touched. (templated)
    :param staging: the folder in which the directory and partitioned committers keep their pending
        sets (``fs.s3a.committer.staging.tmp.path``), as a path on the worker or an ``hdfs://`` URL.
        Without it, a dead job of theirs needs action by a person. (templated)
    :param buffer_dir: folders of the worker in which S3A buffers files (``fs.s3a.buffer.dir``),
        separated by commas. Files that dead drivers left there are reported. With ``apply=True``,
        folders of tasks whose job was settled here are removed. (templated)
    :param catalog: as in :class:`RecoverJobsOperator`. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    _settled: list[SettledJob]

    def execute(self, context: Context) -> dict[str, Any]:
        """Treat every table, then search for files that dead drivers left outside the store.

        :return: ``tables``, ``residue``, ``residue_left_off`` and ``unreachable``.
        :raises AirflowFailException: as :meth:`_TableMaintenance.execute`.
        """
        from ..maintenance.residue import as_report

        self._settled = []
        report = super().execute(context)
        return report | as_report(self._residue(self._settled))

    def _check(self, hook: ZeroRenameHook) -> None:
        self._order(hook)

    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        order = self._order(hook)
        return [
            (place.root.url, partial(self._purged, hook.get_table(place.root.url), place, order))
            for place in self._places(table, hook)
        ]

    def _purged(self, table: Table, place: Destination, order: PurgeOrder) -> dict[str, Any]:
        from ..maintenance.destinations import NOTHING
        from ..maintenance.purging import MOST_ENTRIES, ORDER, purge_destination

        found = purge_destination(table, place, order, partial(self._log_entries, table))
        self._settled += found.jobs
        names = ("job", "committer", "outcome", "detail")
        rows = [(it.job, it.committer, it.outcome, it.detail) for it in found.jobs]
        self.log.info("%s\n%s", table.root.url, text_table(names, rows) if rows else _NO_JOBS)
        if not found.counts:
            self.log.info("%s\nno multipart uploads", table.root.url)
        if place.is_directory and not (place.others or found.counts or found.jobs):
            # The name may be a typing error; then the intended table would never be purged.
            self.log.warning("%s: %s", table.root.url, NOTHING)
        counts = {str(action): found.counts[action] for action in ORDER}
        failed = counts.pop("failed")
        return {
            "table": table.root.url,
            "kind": place.kind,
            "recovered": [dict(zip(names, row, strict=True)) for row in rows],
            "failed": sum(it.is_unsettled for it in found.jobs),
            "uploads": [asdict(it) | {"action": str(it.action)} for it in found.reported],
            "uploads_left_off": max(0, found.counts.total() - MOST_ENTRIES),
            **{action.replace("-", "_"): number for action, number in counts.items()},
            "failed_uploads": failed,
        }

    def _log_entries(self, table: Table, entries: Sequence[PurgedEntry]) -> None:
        """Log the whole list, in several messages: it may have a hundred thousand lines."""
        header = ("action", "initiated", "bytes", "job", "key", "reason")
        for start in range(0, len(entries), _LINES):
            rows = [
                (
                    it.action,
                    datetime.fromtimestamp(it.initiated, UTC).isoformat(timespec="seconds"),
                    "" if it.bytes is None else it.bytes,
                    it.job,
                    it.key,
                    it.reason,
                )
                for it in entries[start : start + _LINES]
            ]
            self.log.info("%s\n%s", table.root.url, text_table(header, rows))


class MaintainTablesOperator(_Purging):
    """Maintain all tables of a connection, with any committer: recover, purge and verify.

    In tables of this package it also carries out gc, writes the index, and registers the tables in
    the catalog of their loads. In Delta tables that this package has made it makes a checkpoint if
    one is due. A Delta table of another engine is only named in the report.

    By default it only reports; ``apply=True`` acts. The summary is logged and returned (XCom):
    ``tables`` (at most 100: ``kind``; the numbers of ``jobs``, ``uploads``, ``findings``,
    ``conflicts``; ``catalog``; ``person``, ``again`` and ``notes`` with 20 sentences each, and
    ``left_off``), ``tables_left_off``, ``person`` (the number of findings that need action),
    ``again`` and, as in :class:`PurgeStaleUploadsOperator`, ``residue``. The XCom ``markdown`` has
    the summary as a page. Both XComs are there even if the task fails. If the connection has
    ``max_recompute``, ``notes`` name partitions that are not durable and would take longer to be
    made again.

    It fails, without a retry, if a finding needs action by a person: a file is missing or changed,
    a record cannot be read, a committed file is lost, a right is missing. Work that failures of the
    store prevented is in ``again``, and the next run tries it.

    :param tables: as in :class:`PurgeStaleUploadsOperator`; ``None``: all below the connection's
        table root. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param foreign: abort foreign uploads too. (templated)
    :param older_than: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param patience: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param s3a_patience: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param staging: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param buffer_dir: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param catalog: as in :class:`RecoverJobsOperator`. (templated)
    :param conflicts: what to do about runs that conflict over partitions
        (:class:`.FindConflictsOperator`); they are searched before anything is removed. ``report``
        notes them. With ``fail``, a conflict that is not settled needs action. A policy of
        :class:`.ResolveConflictsOperator` settles them, in a Delta table also by bringing back
        rows; a conflict that it cannot settle needs action. ``None`` does not search. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (*_Purging.template_fields, "conflicts")
    parsers: ClassVar[Mapping[str, Parser]] = {"conflicts": read_conflicts}

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        conflicts: str | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, **kwargs)
        self.conflicts: Any = conflicts
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Maintain every table, then fail if a finding needs action.

        :raises AirflowFailException: a finding needs action, or an error that a retry cannot help.
        """
        from ..maintenance.conflicts import ConflictOrder
        from ..maintenance.residue import as_report
        from ..maintenance.upkeep import as_markdown

        self._ti = context["ti"]
        with final_where_refused():
            self.read_arguments()
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            known = hook.destinations() if self.tables is None else []
            places = {it.root.url: [it] for it in known}
            names = [*places] if self.tables is None else self.tables
            tables = [hook.get_table(name) for name in names]
            order = self._order(hook)
            conflicts = ConflictOrder.parse(self.conflicts)
            if conflicts is not None:
                run = task_run(context)
                conflicts = replace(conflicts, owner=run.handoff().owner)
            ours = [
                table
                for table, it in zip(tables, known, strict=False)
                if it.is_table or it.is_delta
            ]
            catalog = self._catalog(hook, ours if self.tables is None else tables)
        register = partial(hook.sync, catalog=catalog) if catalog else None
        done = []
        for table in tables:
            place = places.get(table.root.url)
            done += self._look_after(table, place, hook, order, register, conflicts)
        residue = self._residue([job for it in done for job in it.settled])
        page = as_markdown(done, self.apply, residue)
        self.log.info("%s", page)
        report = {
            "tables": [it.capped() for it in done[:_MOST]],
            "tables_left_off": max(0, len(done) - _MOST),
            "person": sum(len(it.person) for it in done),
            "again": sum(len(it.again) for it in done),
            **as_report(residue),
        }
        self._ti.xcom_push(key="markdown", value=page)
        needed = [f"{it.table}: {it.person[0]}" for it in done if it.person]
        if not needed:
            return report
        # Airflow keeps the return value only if the task succeeds.
        self._ti.xcom_push(key="return_value", value=report)
        others = counted(len(needed) - 1, "more table")
        more = "" if len(needed) == 1 else f" And {others}; the log has all."
        raise AirflowFailException(f"Action is needed. {needed[0]}{more}")

    def _look_after(
        self,
        named: Table,
        places: Sequence[Destination] | None,
        hook: ZeroRenameHook,
        order: PurgeOrder,
        register: Register | None,
        conflicts: ConflictOrder | None,
    ) -> list[Upkeep]:
        """Maintain the destinations at a root; errors become findings of their reports.

        :param named: the table at the root.
        :param places: the destinations there; ``None``: find them.
        """
        from ..lineage import risks_of
        from ..maintenance.destinations import NOTHING
        from ..maintenance.upkeep import Upkeep, look_after
        from ..tables.table_at import delta_at

        most, found = hook.settings.max_recompute, list[Upkeep]()
        try:
            for place in places or self._places(named, hook):
                table = hook.get_table(place.root.url)
                done = look_after(table, place, order, register, conflicts)
                if most is not None and place.is_delta:
                    with done.step():
                        done.notes += risks_of(delta_at(table), most, hook.get_conn())
                found.append(done)
            if places is None and all(it.is_empty_rest for it in found):
                # The name may be a typing error; then the intended table would never be maintained.
                found[-1].notes.append(NOTHING)
        except ZeroRenameError as error:
            found.append(Upkeep.of_unseen(named.root.url, error))
        except Exception as error:
            # A fault in the program: log it with its traceback, and go on with the other tables.
            self.log.exception("%s", named.root.url)
            said = f"{type(error).__name__}: {error}"
            found.append(Upkeep(named.root.url, kind="unknown", person=[said]))
        for done in found:
            for title in ("person", "again", "notes"):
                for line in getattr(done, title):
                    self.log.info("%s, %s: %s", done.table, title, line)
        return [it for it in found if not it.is_empty_rest]
