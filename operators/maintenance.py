"""Maintenance: settle interrupted jobs, and abort the uploads that nobody will complete."""

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
from ..provider.failures import final_where_refused
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
#: The URL of a destination, and what treats it and returns a report with its ``table``.
Step = tuple[str, Callable[[], dict[str, Any]]]
#: Uploads in one message of the log.
_LINES = 1000


class _Maintenance(TaskArguments, BaseOperator):
    """What all maintenance is told."""

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
        """Tells what has become of an S3A try, by the state of its task."""
        from ..provider.task_states import task_states

        return task_states(self._ti)

    def _catalog(self, hook: ZeroRenameHook, tables: Sequence[Table]) -> str:
        """Where the tables are registered, once their jobs are settled; empty: nowhere.

        :raises InvalidInputError: it is no such place, or a single table's.
        """
        catalog = hook.catalog_of(self.catalog)
        if catalog:
            check_catalog_of(catalog, len(tables))
        return catalog if self.apply else ""


class _Purging(_Maintenance):
    """Maintenance of destinations of every committer, that may abort foreign uploads too."""

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
        """:raises InvalidInputError: arguments that cannot be right."""
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
        """Look for what dead drivers left outside the store, once their jobs are settled."""
        from ..maintenance.residue import find_residue, residue_lines

        found = find_residue(self.staging, self.buffer_dir, jobs, self.apply)
        if lines := residue_lines(found):
            self.log.info("%s", "\n".join(lines))
        return found

    def _foreign_age(self, hook: ZeroRenameHook) -> float | None:
        """Seconds from which foreign uploads are aborted; ``None`` leaves them.

        :raises InvalidInputError: an age without ``foreign``, or one below the floor.
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
    """Does something to several tables; one that fails does not keep the others from it, nor those
    below the same folder."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Treat every table, then fail if one of them failed.

        :return: ``tables``: one report a destination, each with its ``table``.
        :raises AirflowFailException: a call that no retry can mend.
        :raises Exception: the first error met, with the others as notes.
        """
        self._ti = context["ti"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
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
            # A folder may hold several destinations, none of which waits for the others.
            with self._noting(table.root.url, errors):
                for url, treat in self._steps(table, hook):
                    with self._noting(url, errors):
                        report = treat()
                        reports.append(report)
                        errors += self._failures(report)
                        if catalog and (registered := _registered(hook, report, catalog)):
                            report["catalog"] = registered
        if errors:
            for other in errors[1:]:
                errors[0].add_note(str(other))
            raise errors[0]
        return {"tables": reports}

    @contextmanager
    def _noting(self, url: str, errors: list[Exception]) -> Iterator[None]:
        """Note the error of the block, for when everything else is treated."""
        try:
            yield
        except ZeroRenameError as error:
            self.log.error("%s: %s", url, error)
            errors.append(error)
        except Exception as error:
            self.log.exception("%s", url)
            errors.append(error)

    def _check(self, hook: ZeroRenameHook) -> None:
        """:raises InvalidInputError: an argument that cannot be right."""

    @abstractmethod
    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        """:returns: what treats each destination there, and its URL."""

    def _failures(self, report: dict[str, Any]) -> list[ZeroRenameError]:
        failed = (
            (report.get("failed"), "job", "could not be settled"),
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
    """Tell a catalog of a table whose jobs are settled; return what it was told. A destination of
    Hadoop's committers and a directory have no record of columns and partitions to register.

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
    """Build the error for a destination of Hadoop's committers; ``None``: it is none."""
    from ..maintenance.destinations import destination_at

    if not table.run(destination_at(table.root)).is_s3a:
        return None
    return TableNotFoundError(
        "This is a destination of Hadoop's committers, whose jobs leave no records of this "
        "package. Nothing was changed.",
        table=table.root.url,
        remedy="Name it to RecoverS3AJobsOperator; or to PurgeStaleUploadsOperator or "
        "MaintainTablesOperator, which settle the jobs of each committer.",
    )


class RecoverJobsOperator(_TableMaintenance):
    """Settle interrupted jobs: apply committed ones, finish aborted ones, fence dead ones.

    Reports by default: ``apply=True`` acts. Safe beside running jobs: those that send heartbeats
    are left alone. Jobs in Delta tables send none, and are left for as long as they may take.
    Returns (XCom) ``tables``, each with ``kind`` (``table`` or ``delta``), ``recovered`` (``job``,
    ``outcome``, ``detail``) and ``failed``; and ``catalog``, what the catalog was told after that:
    what a load could not register is registered here.

    :param tables: one table or several, whole or below the connection's table root.
        (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param patience: seconds (or a timedelta) an undecided job may be silent before it is
        declared dead; ``None`` takes each job's own. In a Delta table it counts from the job's
        opening: give none there while a job may be at work. (templated)
    :param catalog: where the tables are registered: ``glue://database``, or ``glue://database/table``
        for a single one; ``None``: the connection's; ``""``: nowhere. Delta tables that another
        engine has made are left to that engine. (templated)
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
    """Settle interrupted jobs of whichever committer, then abort the multipart uploads that nobody
    will complete; of tables of this package, remove runs' failures and lists of files that nobody
    needs any more, too, and of Delta tables that this package has made, files that no version
    within the retention names (``removed``). Of another engine's Delta table nothing is removed.

    Reports by default: ``apply=True`` acts. What belongs to a job is judged by its records alone,
    whatever its age: this package's by theirs, those of Hadoop's committers by their ledger, their
    tasks' states, their heartbeats and their pending files. Uploads of which no job is known are
    aborted only with ``foreign=True`` and by age. Returns (XCom) ``tables``, a report for each
    destination, with ``kind`` (``table``, ``delta``, ``s3a``, ``table and s3a`` or ``directory``),
    ``recovered`` (``job``, ``committer``, ``outcome``, ``detail``), ``failed``, ``uploads``
    (``key``, ``upload_id``, ``job``, ``initiated``, ``age``, ``bytes``, ``action``, ``reason``;
    100 at most, those that could not be aborted first), ``uploads_left_off``, ``aborted``,
    ``kept``, ``would_abort``, ``removed``, ``would_remove``, ``failed_uploads`` and ``catalog``.
    Besides ``residue``, what dead drivers left outside the store (``path``, ``job``, ``bytes``,
    ``age``, ``action``, ``reason``; 100 at most), ``residue_left_off``, and ``unreachable``,
    folders that cannot be looked at from the worker.
    Fails when an upload is still listed after it was aborted, or a job could not be settled.

    :param tables: one table or several, whole or below the connection's table root: tables of this
        package, destinations of Hadoop's committers, with or without a record of their runs, and
        directories, of which all that lies below is purged. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param foreign: abort foreign uploads too. (templated)
    :param older_than: their least age, seconds or a timedelta; ``None`` takes the connection's,
        else ``[zero_rename] purge_older_than_hours``. Below ``[zero_rename]
        purge_floor_hours`` it is refused. (templated)
    :param patience: as in :class:`RecoverJobsOperator`; of Delta tables only 0 counts, which says
        that no job is at work. (templated)
    :param s3a_patience: seconds (or a timedelta) of silence after which a job of Hadoop's
        committers that no run's record names counts as dead. Longer than the longest task: one
        that writes a file is silent. ``None``: such a job stays unknown, and is left.
        (templated)
    :param staging: where the directory and partitioned committers keep their pending sets
        (``fs.s3a.committer.staging.tmp.path``), as a path on the worker or an ``hdfs://`` URL.
        Without it, a job of theirs that died is left to a person. (templated)
    :param buffer_dir: folders of the worker on which S3A buffers files (``fs.s3a.buffer.dir``),
        separated by commas. What dead drivers left there is reported, and folders of tasks whose
        job this task has settled are removed with ``apply=True``. (templated)
    :param catalog: as in :class:`RecoverJobsOperator`. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    _settled: list[SettledJob]

    def execute(self, context: Context) -> dict[str, Any]:
        """As :meth:`_TableMaintenance.execute`, and look for residue last.

        :return: ``tables``, ``residue``, ``residue_left_off`` and ``unreachable``.
        """
        from ..maintenance.residue import as_report

        self._settled = []
        report = super().execute(context)
        return report | as_report(self._residue(self._settled))

    def _check(self, hook: ZeroRenameHook) -> None:
        self._order(hook)

    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        from ..maintenance.destinations import destinations_in

        order = self._order(hook)
        return [
            (place.root.url, partial(self._purged, hook.get_table(place.root.url), place, order))
            for place in table.run(destinations_in(table.root))
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
            # Its name may be a slip, by which nobody would ever purge the table.
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
        """The whole list, in pieces: one message of a hundred thousand lines suits no log."""
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
    """Look after all tables of a connection, whichever committer writes them: recover, purge and
    verify; of tables of this package also gc, index, and register them where their loads do; of
    Delta tables that this package has made, a checkpoint that is due. Another engine's Delta table
    is named, and left to it.

    Reports by default: ``apply=True`` acts. The summary is logged and returned (XCom):
    ``tables`` (100 at most: ``kind``; ``jobs``, ``uploads``, ``findings``, ``conflicts`` counted;
    ``catalog``, ``person``, ``again`` and ``notes`` with 20 sentences each and ``left_off``),
    ``tables_left_off``, ``person`` (how many things need one), ``again`` and, as in
    :class:`PurgeStaleUploadsOperator`, ``residue``. The XCom ``markdown``
    has it as a page. Both are there also where the task fails. Where the connection has
    ``max_recompute``, ``notes`` name what is not durable and would take longer to be made again.

    Fails, without a retry, where only a person can help: a file is missing or changed, a record
    cannot be read, a committed file is lost, a right is missing. What the store's failures kept
    from being done is in ``again``, and the next run tries it.

    :param tables: as in :class:`PurgeStaleUploadsOperator`; ``None``: all below the connection's
        table root. (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param foreign: abort foreign uploads too. (templated)
    :param older_than: their least age, as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param patience: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param s3a_patience: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param staging: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param buffer_dir: as in :class:`PurgeStaleUploadsOperator`. (templated)
    :param catalog: as in :class:`RecoverJobsOperator`. (templated)
    :param conflicts: what to do about runs that conflict over partitions
        (:class:`.FindConflictsOperator`), which are looked for before anything is removed:
        ``report`` notes them, ``fail`` needs a person while one is not settled; a policy of
        :class:`.ResolveConflictsOperator` settles them, in a Delta table also by bringing back
        rows, and needs a person where that is of no avail; ``None`` does not look. (templated)
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
        """Look after every table, then fail if a person is needed.

        :raises AirflowFailException: a person is needed, or a call that no retry can mend.
        """
        from ..maintenance.conflicts import ConflictOrder
        from ..maintenance.residue import as_report
        from ..maintenance.upkeep import as_markdown

        self._ti = context["ti"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
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
                run = task_run(context)  # pyright: ignore[reportArgumentType]
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
        # What a task returns is kept only where it succeeds.
        self._ti.xcom_push(key="return_value", value=report)
        others = counted(len(needed) - 1, "more table")
        more = "" if len(needed) == 1 else f" And {others}; the log has all."
        raise AirflowFailException(f"A person is needed. {needed[0]}{more}")

    def _look_after(
        self,
        named: Table,
        places: Sequence[Destination] | None,
        hook: ZeroRenameHook,
        order: PurgeOrder,
        register: Register | None,
        conflicts: ConflictOrder | None,
    ) -> list[Upkeep]:
        """:param places: what there is where a table was named; ``None``: that is to be seen."""
        from ..lineage import risks_of
        from ..maintenance.destinations import NOTHING, destinations_in
        from ..maintenance.upkeep import Upkeep, look_after
        from ..tables.table_at import delta_at

        most, found = hook.settings.max_recompute, list[Upkeep]()
        try:
            for place in places or named.run(destinations_in(named.root)):
                table = hook.get_table(place.root.url)
                done = look_after(table, place, order, register, conflicts)
                if most is not None and place.is_delta:
                    with done.step():
                        done.notes += risks_of(delta_at(table), most, hook.get_conn())
                found.append(done)
            if places is None and all(it.is_empty_rest for it in found):
                # Its name may be a slip, by which nobody would ever look after the table.
                found[-1].notes.append(NOTHING)
        except ZeroRenameError as error:
            found.append(Upkeep.of_unseen(named.root.url, error))
        except Exception as error:
            # The others are looked after; this one is for who mends the program.
            self.log.exception("%s", named.root.url)
            said = f"{type(error).__name__}: {error}"
            found.append(Upkeep(named.root.url, kind="unknown", person=[said]))
        for done in found:
            for title in ("person", "again", "notes"):
                for line in getattr(done, title):
                    self.log.info("%s, %s: %s", done.table, title, line)
        return [it for it in found if not it.is_empty_rest]
