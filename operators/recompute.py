"""Plan of what is to be run again: which jobs, in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from ..committer.errors import InvalidInputError, counted
from ..orchestration.runs.reports import text_table
from ..provider.failures import final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lineage import Plan


class PlanRecomputeOperator(BaseOperator):
    """Say which jobs are to be run again so that partitions are as their inputs are. Changes
    nothing, and runs nothing.

    :param targets: tables, or partitions of them: ``flights``, ``flights/day=2013-01-01``,
        ``s3://bucket/prefix``. (templated)
    :param lost: look, too, whether the files are there: a listing of each table.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = ("targets", "zero_rename_conn_id")
    ui_color = "#e6ecf2"

    def __init__(
        self,
        *,
        targets: Sequence[str] | str,
        lost: bool = True,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.targets = targets
        self.lost = lost
        self.zero_rename_conn_id = zero_rename_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at the tables and at what they were computed from.

        :return: ``layers``, each a list of jobs that need nothing of each other: ``table``,
            ``job``, ``run`` (its ``owner`` has ``dag_id``, ``run_id``, ``task_id``,
            ``map_index``), ``partitions``, ``besides``, ``why``; ``refused``, that must not be run,
            with ``why``; ``waiting`` for these; ``seconds`` and ``critical``, of the longest way.
        :raises AirflowFailException: a target that is none.
        """
        # On use: DAG files are parsed by processes that look at nothing.
        from ..lineage import look_up, plan

        with final_where_refused():
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            targets = [hook.table_url(name) for name in self._named()]
            found = plan(look_up(targets, hook.get_conn(), lost=self.lost))
        self._log(found)
        return json.loads(json.dumps(asdict(found)))

    def _named(self) -> list[str]:
        given = [self.targets] if isinstance(self.targets, str) else self.targets
        if not isinstance(given, Sequence) or not all(isinstance(it, str) for it in given):
            raise InvalidInputError(
                f"targets={self.targets!r} names no table, nor a list of some.",
                remedy="See what its template renders to.",
            )
        if not given:
            raise InvalidInputError("targets names no table.", remedy="Give one or more.")
        return list(given)

    def _log(self, found: Plan) -> None:
        rows = [
            (str(number), step.table, ", ".join(step.partitions), step.job, "; ".join(step.why))
            for number, layer in enumerate(found.layers, 1)
            for step in layer
        ]
        columns = ("layer", "table", "partitions", "job", "why")
        self.log.info(
            "%s in %s:\n%s",
            counted(len(rows), "job"),
            counted(len(found.layers), "layer"),
            text_table(columns, rows) if rows else "nothing is to be run again",
        )
        for it in found.refused:
            self.log.warning(
                "Refused: %s of %s: %s.", it.job or "files of no job", it.table, it.why
            )
