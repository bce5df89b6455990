"""Operator that restores the content of a table from before a job, or at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from ..committer import Table
from ..committer.errors import InvalidInputError
from ..committer.format.as_of import AsOf
from ..orchestration.runs.arguments import Parser, read_flag, read_text
from ..orchestration.runs.partitions import listed_partitions
from ..orchestration.runs.reports import text_table
from ..orchestration.runs.task_run import TaskRun
from ..provider.failures import ended_for_good, final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_arguments import TaskArguments
from ..provider.task_context import task_run
from ..tables import DeltaTable
from ..tables.table_at import delta_alone

if TYPE_CHECKING:
    from airflow.sdk import Context


def _read_moment(name: str, given: Any) -> int | datetime:
    """Return a version as a number, or a time as a datetime in UTC."""
    found = AsOf.parse(given)
    if found.time is None:
        return found.version or 0
    return datetime.fromtimestamp(found.time, UTC)


class RestoreTableOperator(TaskArguments, BaseOperator):
    """Restore the content of a Delta table from before a job, or at a time.

    A job that writes no data files brings back all of the partitions at once, or none. By default
    it only reports; ``apply=True`` acts.

    Returns (XCom) ``table``, ``version`` (the version whose content comes back; -1: there was no
    table), ``present`` (the version before the restore), ``partitions`` (those that change),
    ``returned`` and ``removed`` (numbers of files), ``lost`` (paths that cannot be brought back)
    and ``job``, the id of the job that restored, with which it can be undone. A retry after an
    attempt that has restored changes nothing, says so, and returns that attempt's ``job``.

    A restore is refused, without a retry, if other jobs have changed the same partitions since, if
    one changes them meanwhile (a retry would remove its rows), or if the replaced files are not
    kept any more. A table of directories is refused, too, since it keeps no replaced files:
    ``zero-rename copy OLD NEW --layout delta`` makes a Delta table of it.

    :param table: the table, by URL or by name below the connection's table root. (templated)
    :param undo: the id of the job to undo. (templated)
    :param as_of: instead of ``undo``: a time with its zone, ``2026-01-31T12:00:00Z``, or a version
        of the table. (templated)
    :param partitions: with ``as_of``, restore only these; ``[]`` for none, ``None`` for all.
        (templated)
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *("table", "undo", "as_of", "partitions", "apply", "zero_rename_conn_id"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("table", "undo", "zero_rename_conn_id"), read_text),
        "as_of": _read_moment,
        "partitions": listed_partitions,
        "apply": read_flag,
    }
    ui_color = "#f2eee6"

    def __init__(
        self,
        *,
        table: str,
        undo: str | None = None,
        as_of: str | int | datetime | None = None,
        partitions: str | Sequence[str] | None = None,
        apply: bool | str = False,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.undo = undo
        self.as_of = as_of
        self.partitions: Any = partitions
        self.apply: Any = apply
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Restore the content, or report what would change.

        :raises AirflowFailException: the restore is refused.
        """
        with final_where_refused(), ended_for_good():
            self.read_arguments()
            if bool(self.undo) == (self.as_of is not None) or (
                self.undo and self.partitions is not None
            ):
                raise InvalidInputError(
                    "Either undo names a job, all of whose partitions are brought back, or as_of a "
                    "moment, with partitions or without. Nothing was done.",
                    remedy="Give one of undo and as_of; see what their templates render to.",
                )
            named = ZeroRenameHook(self.zero_rename_conn_id).get_table(self.table)
            table = _with_history(named)
            if self.undo:
                found = table.undo(self.undo, self.apply)
            else:
                moment: Any = self.as_of
                key = _key_of(task_run({**context}))
                found = table.restore(moment, self.partitions, self.apply, idempotency_key=key)
        changes = bool(found.partitions or found.lost)
        columns = ("partition", "is at version", "gets what it held at")
        rows = [(name, found.present, found.version) for name in found.partitions]
        nothing = "nothing is to be brought back"
        if found.job is not None:
            nothing = f"done already, by {found.job}: {nothing}"
        self.log.info("%s\n%s", table.root.url, text_table(columns, rows) if changes else nothing)
        if found.lost:
            self.log.warning(
                "%d files cannot be brought back, such as %s", len(found.lost), found.lost[0]
            )
        if changes and not self.apply:
            self.log.warning("Nothing is changed, only reported: apply=True acts.")
        report = asdict(found)
        lists = {name: list(report[name]) for name in ("partitions", "lost")}
        return {"table": table.root.url, **report, **lists}


def _key_of(run: TaskRun) -> str | None:
    """Return the idempotency key of a restore: only one attempt restores until the next clear.

    :return: ``None`` if the attempts since the last clear cannot be identified.
    """
    return None if run.series is None else f"{run.idempotency_key} {run.series}"


def _with_history(table: Table) -> DeltaTable:
    """Open a Delta table, which keeps replaced files.

    :raises TableMismatchError: it is a table of directories.
    :raises TableNotFoundError: there is no table.
    """
    return delta_alone(
        table,
        "only a Delta table keeps what it has replaced",
        f"Load the partitions again. zero-rename copy {table.root.url} NEW --layout delta makes a "
        "Delta table of it, which keeps its history.",
    )
