"""Maintenance: settle interrupted jobs, and abort the uploads that nobody will complete."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from ..committer.errors import InvalidInputError, ZeroRenameError, counted
from ..orchestration.runs.partitions import listed_texts
from ..orchestration.runs.reports import text_table
from ..orchestration.table_names import check_catalog_of
from ..provider.connection import config_number
from ..provider.failures import final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..committer.upkeep.purge import PurgeEntry
    from ..orchestration.upkeep import Upkeep

#: Uploads in a report by XCom, which lies in Airflow's database.
_MOST = 100
#: Uploads in one message of the log.
_LINES = 1000
#: What needs a look comes first.
_ORDER = ("failed", "aborted", "would-abort", "removed", "would-remove", "kept")


class _Maintenance(BaseOperator):
    """What all maintenance is told."""

    template_fields: Sequence[str] = ("tables", "catalog", "zero_rename_conn_id")
    ui_color = "#f2eee6"

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None,
        apply: bool = False,
        patience: float | timedelta | None = None,
        catalog: str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.apply = apply
        self.patience = patience
        self.catalog = catalog
        self.zero_rename_conn_id = zero_rename_conn_id

    def _named(self) -> list[str]:
        """The tables that were given.

        :raises InvalidInputError: a template made something else of them.
        """
        given = self.tables or ()
        return list(listed_texts("tables", given, None, "tables", "names such as flights"))

    def _catalog(self, hook: ZeroRenameHook, tables: Sequence[Table]) -> str:
        """Where the tables are registered, once their jobs are settled; empty: nowhere.

        :raises InvalidInputError: it is no such place, or a single table's.
        """
        catalog = hook.catalog_of(self.catalog)
        if catalog:
            check_catalog_of(catalog, len(tables))
        return catalog if self.apply else ""


class _Purging(_Maintenance):
    """Maintenance that may abort foreign uploads too."""

    def __init__(
        self, *, foreign: bool = False, older_than: float | timedelta | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.foreign = foreign
        self.older_than = older_than

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
        given = _seconds(self.older_than)
        age = hook.purge_age if given is None else given
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
    """Does something to several tables; one that fails does not keep the others from it."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Treat every table, then fail if one of them failed.

        :return: ``tables``: one report a table, each with its ``table``.
        :raises AirflowFailException: a call that no retry can mend.
        :raises Exception: the first error met, with the others as notes.
        """
        if not self.apply:
            self.log.warning("Nothing is changed, only reported: apply=True acts.")
        reports: list[dict[str, Any]] = []
        errors: list[Exception] = []
        with final_where_refused():
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            names = self._named()
            if not names:
                raise InvalidInputError("tables names no table.", remedy="Give one or more tables.")
            tables = [hook.get_table(name) for name in names]
            self._check(hook)
            catalog = self._catalog(hook, tables)
        for table in tables:
            try:
                report = self._treat(table, hook)
                if catalog and (registered := hook.sync(table, catalog)):
                    report["catalog"] = registered
            except ZeroRenameError as error:
                self.log.error("%s: %s", table.root.url, error)
                errors.append(error)
            except Exception as error:
                # Raised below, when the other tables have been treated.
                self.log.exception("%s", table.root.url)
                errors.append(error)
            else:
                reports.append({"table": table.root.url, **report})
                errors += self._failures(table, report)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(str(other))
            raise errors[0]
        return {"tables": reports}

    def _check(self, hook: ZeroRenameHook) -> None:
        """:raises InvalidInputError: an argument that cannot be right."""

    @abstractmethod
    def _treat(self, table: Table, hook: ZeroRenameHook) -> dict[str, Any]: ...

    def _failures(self, table: Table, report: dict[str, Any]) -> list[ZeroRenameError]:
        failed = (
            (report.get("failed"), "job", "could not be settled"),
            (report.get("failed_uploads"), "orphaned upload", "could not be removed"),
        )
        return [
            ZeroRenameError(
                f"{counted(count, what)} {why}; the log says why.", table=table.root.url
            )
            for count, what, why in failed
            if count
        ]

    def _log_recovered(self, table: Table, recovered: Sequence[Any]) -> dict[str, Any]:
        rows = [(job.job, str(job.outcome), job.detail) for job in recovered]
        listed = text_table(("job", "outcome", "detail"), rows) if rows else "no open jobs"
        self.log.info("%s\n%s", table.root.url, listed)
        names = ("job", "outcome", "detail")
        return {
            "recovered": [dict(zip(names, row, strict=True)) for row in rows],
            "failed": sum(1 for row in rows if row[1] == "failed"),
        }


class RecoverJobsOperator(_TableMaintenance):
    """Settle interrupted jobs: apply committed ones, finish aborted ones, fence dead ones.

    Reports by default: ``apply=True`` acts. Safe beside running jobs: those that send heartbeats
    are left alone. Returns (XCom) ``tables``, each with ``recovered`` (``job``, ``outcome``,
    ``detail``) and ``failed``; and ``catalog``, what the catalog was told after that: what a load
    could not register is registered here.

    :param tables: one table or several, whole or below the connection's table root.
        (templated)
    :param apply: act; ``False`` only reports what would be done.
    :param patience: seconds (or a timedelta) an undecided job may be silent before it is
        declared dead; ``None`` takes each job's own.
    :param catalog: where the tables are registered: ``glue://database``, or ``glue://database/table``
        for a single one; ``None``: the connection's; ``""``: nowhere. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    def _treat(self, table: Table, hook: ZeroRenameHook) -> dict[str, Any]:
        settle = table.recover if self.apply else table.plan_recovery
        return self._log_recovered(table, settle(_seconds(self.patience)))


class PurgeStaleUploadsOperator(_Purging, _TableMaintenance):
    """Settle interrupted jobs, then abort the multipart uploads that nobody will complete, and
    remove runs' failures and lists of files that nobody needs any more (``removed``).

    Reports by default: ``apply=True`` acts. What belongs to a job is judged by its records alone,
    whatever its age. Uploads that no job of this package made, such as those of Spark's own
    writers, are aborted only with ``foreign=True`` and by age. Returns (XCom) ``tables``, each
    with ``uploads`` (``key``, ``upload_id``, ``job``, ``initiated``, ``action``, ``reason``; 100
    at most, those that could not be aborted first), ``uploads_left_off``, ``aborted``, ``kept``,
    ``would_abort``, ``removed``, ``would_remove``, ``failed_uploads``, ``recovered``, ``failed``
    and ``catalog``. Fails when an upload is still listed after it was aborted.

    :param tables: one table or several, whole or below the connection's table root.
        (templated)
    :param apply: act; ``False`` only reports what would be done.
    :param foreign: abort foreign uploads too.
    :param older_than: their least age, seconds or a timedelta; ``None`` takes the connection's,
        else ``[zero_rename] purge_older_than_hours``. Below ``[zero_rename]
        purge_floor_hours`` it is refused.
    :param patience: as in :class:`RecoverJobsOperator`.
    :param catalog: as in :class:`RecoverJobsOperator`.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    def _check(self, hook: ZeroRenameHook) -> None:
        self._foreign_age(hook)

    def _treat(self, table: Table, hook: ZeroRenameHook) -> dict[str, Any]:
        found = table.purge(
            older_than=self._foreign_age(hook),
            foreign=self.foreign,
            apply=self.apply,
            patience=_seconds(self.patience),
        )
        report = self._log_recovered(table, found.recovered)
        entries = sorted(found.entries, key=lambda entry: _ORDER.index(entry.action))
        self._log_uploads(table, entries)
        counts = Counter(str(entry.action) for entry in entries)
        return report | {
            "uploads": [asdict(entry) | {"action": str(entry.action)} for entry in entries[:_MOST]],
            "uploads_left_off": max(0, len(entries) - _MOST),
            **{action.replace("-", "_"): counts[action] for action in _ORDER if action != "failed"},
            "failed_uploads": counts["failed"],
        }

    def _log_uploads(self, table: Table, entries: Sequence[PurgeEntry]) -> None:
        """The whole list, in pieces: one message of a hundred thousand lines suits no log."""
        if not entries:
            self.log.info("%s\nno multipart uploads", table.root.url)
        header = ("action", "initiated", "key", "reason")
        for start in range(0, len(entries), _LINES):
            rows = [
                (
                    entry.action,
                    datetime.fromtimestamp(entry.initiated, UTC).isoformat(timespec="seconds"),
                    entry.key,
                    entry.reason,
                )
                for entry in entries[start : start + _LINES]
            ]
            self.log.info("%s\n%s", table.root.url, text_table(header, rows))


class MaintainTablesOperator(_Purging):
    """Look after all tables of a connection: recover, purge, gc, index, verify, and register them
    where their loads do.

    Reports by default: ``apply=True`` acts. The summary is logged and returned (XCom):
    ``tables`` (100 at most: ``jobs``, ``uploads`` and ``findings`` counted, ``catalog``,
    ``person``, ``again`` and ``notes`` with 20 sentences each and ``left_off``),
    ``tables_left_off``, ``person`` (how many things need one) and ``again``. The XCom ``markdown``
    has it as a page. Both are there also where the task fails. Where the connection has
    ``max_recompute``, ``notes`` name what is not durable and would take longer to be made again.

    Fails, without a retry, where only a person can help: a file is missing or changed, a record
    cannot be read, a committed file is lost, a right is missing. What the store's failures kept
    from being done is in ``again``, and the next run tries it.

    :param tables: one table or several, whole or below the connection's table root; ``None``
        looks for all below it. (templated)
    :param apply: act; ``False`` only reports what would be done.
    :param foreign: abort foreign uploads too.
    :param older_than: their least age, as in :class:`PurgeStaleUploadsOperator`.
    :param patience: as in :class:`RecoverJobsOperator`.
    :param catalog: as in :class:`RecoverJobsOperator`.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    def __init__(self, *, tables: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(tables=tables, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Look after every table, then fail if a person is needed.

        :raises AirflowFailException: a person is needed, or a call that no retry can mend.
        """
        from ..orchestration.upkeep import as_markdown

        with final_where_refused():
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            names = hook.table_urls() if self.tables is None else self._named()
            tables = [hook.get_table(name) for name in names]
            age = self._foreign_age(hook)
            catalog = self._catalog(hook, tables)
        register = partial(hook.sync, catalog=catalog) if catalog else None
        done = [self._look_after(table, hook, age, register) for table in tables]
        page = as_markdown(done, self.apply)
        self.log.info("%s", page)
        report = {
            "tables": [it.capped() for it in done[:_MOST]],
            "tables_left_off": max(0, len(done) - _MOST),
            "person": sum(len(it.person) for it in done),
            "again": sum(len(it.again) for it in done),
        }
        ti: Any = context["ti"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        ti.xcom_push(key="markdown", value=page)
        needed = [f"{it.table}: {it.person[0]}" for it in done if it.person]
        if not needed:
            return report
        # What a task returns is kept only where it succeeds.
        ti.xcom_push(key="return_value", value=report)
        others = counted(len(needed) - 1, "more table")
        more = "" if len(needed) == 1 else f" And {others}; the log has all."
        raise AirflowFailException(f"A person is needed. {needed[0]}{more}")

    def _look_after(
        self,
        table: Table,
        hook: ZeroRenameHook,
        age: float | None,
        register: Callable[[Table], dict[str, Any]] | None,
    ) -> Upkeep:
        from ..lineage import risks_of
        from ..orchestration.upkeep import Upkeep, look_after

        most = hook.settings.max_recompute

        try:
            done = look_after(
                table,
                apply=self.apply,
                foreign_age=age,
                patience=_seconds(self.patience),
                register=register,
            )
            with done.step():
                done.notes += [] if most is None else risks_of(table, most, hook.get_conn())
        except Exception as error:
            # The other tables are looked after; this one is for who mends the program.
            self.log.exception("%s", table.root.url)
            done = Upkeep(table.root.url, person=[f"{type(error).__name__}: {error}"])
        for title in ("person", "again", "notes"):
            for line in getattr(done, title):
                self.log.info("%s, %s: %s", done.table, title, line)
        return done


def _seconds(value: float | timedelta | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value
