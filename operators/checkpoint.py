"""Checkpoint of Delta tables whose files are first written to a fast root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, ZeroRenameError, counted, first_few
from ..committer.format.job_spec import choice
from ..committer.upkeep.checkpoint import CheckpointAction, CheckpointOrder
from ..orchestration.runs.reports import text_table
from .maintenance import _MOST, Step, _TableMaintenance

if TYPE_CHECKING:
    from ..committer import Table
    from ..provider.hooks import ZeroRenameHook


class CheckpointOperator(_TableMaintenance):
    """Copy files that are only in the fast roots of Delta tables into the tables.

    Plain jobs copy them; the rows stay the same. If another job changes a partition meanwhile, that
    partition is left out.

    By default it only reports; ``apply=True`` acts. Returns (XCom) ``tables``, each with
    ``partitions`` (``partition``, ``action``, ``files``, ``bytes``, ``since``, ``job``; at most
    100, lost ones first), ``partitions_left_off``, ``copied``, ``would_copy``,
    ``changed_meanwhile`` and ``lost``.
    If files are lost, it copies the others and then fails. It refuses a table whose data root is
    temporary, and a table of directories.

    :param tables: one table or several, by URL or by name below the connection's table root.
        (templated)
    :param order: the partitions to copy first: ``creation``, the oldest, or ``latest``.
    :param apply: act; ``False`` only reports what would be done. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = ("tables", "apply", "zero_rename_conn_id")

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        order: CheckpointOrder | str = CheckpointOrder.CREATION,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("patience") is not None:
            raise InvalidInputError(
                f"Invalid patience={kwargs['patience']!r}: a checkpoint judges no job by its "
                "silence. Nothing was copied.",
                remedy="Leave patience out; RecoverJobsOperator takes it.",
            )
        # No catalog: a checkpoint brings no rows, and changes no path that a catalog has.
        super().__init__(tables=tables, catalog="", **kwargs)
        self.order = choice("order", CheckpointOrder, order)

    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        return [(table.root.url, partial(self._copied, table))]

    def _copied(self, table: Table) -> dict[str, Any]:
        from ..tables.table_at import delta_alone

        why = "the files of a table of directories lie in it"
        opened = delta_alone(table, why, "Leave it out of tables.", undone="copied")
        found = opened.checkpoint(order=self.order, apply=self.apply)
        rows = [(it.partition, str(it.action), it.files, it.bytes) for it in found]
        listed = text_table(("partition", "action", "files", "bytes"), rows)
        self.log.info("%s\n%s", table.root.url, listed if rows else "all of it is durable")
        actions = Counter(it.action for it in found)
        shown = sorted(found, key=lambda it: it.action is not CheckpointAction.LOST)[:_MOST]
        return {
            "table": table.root.url,
            "partitions": [asdict(it) | {"action": str(it.action)} for it in shown],
            "partitions_left_off": max(0, len(found) - _MOST),
            **{str(it).replace(" ", "_"): actions[it] for it in CheckpointAction},
        }

    def _failures(self, report: dict[str, Any]) -> list[ZeroRenameError]:
        if not report["lost"]:
            return []
        lost = [it["partition"] for it in report["partitions"] if it["action"] == "lost"]
        return [
            ZeroRenameError(
                f"Files of {counted(report['lost'], 'partition')} are missing in the fast root, "
                f"{first_few(lost)}; the others are copied.",
                table=report["table"],
                remedy=f"The jobs that make them again: zero-rename lineage plan {report['table']}",
            )
        ]
