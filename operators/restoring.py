"""Restoring: bring back what a table held before a job, or at a time."""

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
    """Return a version, or a time."""
    found = AsOf.parse(given)
    if found.time is None:
        return found.version or 0
    return datetime.fromtimestamp(found.time, UTC)


class RestoreTableOperator(TaskArguments, BaseOperator):
    """Bring back what a Delta table held before a job, or at a time, by a job that writes no byte:
    all of the partitions at once, or none.

    Reports by default: ``apply=True`` acts. Returns (XCom) ``table``, ``version`` (the one
    whose content comes back; -1: there was no table), ``present`` (the one that the table was
    at), ``partitions`` (those that change), ``returned`` and ``removed`` (counts of files),
    ``lost`` (paths that cannot be brought back) and ``job``, the id of the job that did it, by
    which it is undone. A retry after a try that had done it changes nothing, says so, and
    returns that one's ``job``. What is refused is final: where other jobs have changed the same
    partitions since, where one does so meanwhile (a retry would take its rows away), or where
    what was replaced is not kept any more. So is a table of directories, which keeps nothing
    that it replaces: ``zero-rename copy OLD NEW --layout delta`` makes a Delta table of it.

    :param table: the table, whole or below the connection's table root. (templated)
    :param undo: the id of the job to undo. (templated)
    :param as_of: instead: a time with its zone, ``2026-01-31T12:00:00Z``, or a version of the
        table. (templated)
    :param partitions: with ``as_of``: only these; ``[]`` for none, ``None`` for all. (templated)
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
        """Bring it back, or say what that would be.

        :raises AirflowFailException: it is refused.
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
    """Name the tries of which one restores: a task that is cleared restores again."""
    return None if run.series is None else f"{run.idempotency_key} {run.series}"


def _with_history(table: Table) -> DeltaTable:
    """Open a table that keeps what it held.

    :raises TableMismatchError: it does not.
    :raises TableNotFoundError: nothing lies there.
    """
    return delta_alone(
        table,
        "only a Delta table keeps what it has replaced",
        f"Load the partitions again. zero-rename copy {table.root.url} NEW --layout delta makes a "
        "Delta table of it, which keeps its history.",
    )
