"""Plan of what is to be run again, which jobs and in which order; and its execution."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator, conf

from ..committer.errors import InvalidInputError
from ..orchestration.runs.arguments import Parser, read_flag, read_seconds, read_text, read_versions
from ..orchestration.table_names import listed_tables
from ..provider.failures import final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.recomputing import PATIENCE, log_plan, plan_for, refuse_hadoops
from ..provider.staleness import make_again, versions_by_root
from ..provider.task_arguments import TaskArguments

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanRecomputeOperator(TaskArguments, BaseOperator):
    """Say which jobs are to be run again so that partitions are as their inputs are. Changes
    nothing, and runs nothing.

    :param targets: tables, or partitions of them: ``flights``, ``flights/day=2013-01-01``,
        ``s3://bucket/prefix``. (templated)
    :param lost: look, too, whether the files are there: a listing of each table. (templated)
    :param narrow: let a task that made more than is asked for make only that again; ``False``: all
        that its run makes. (templated)
    :param code_versions: by table, the present version of its program's code: rows that another one
        made, or of which it is not known, are stale. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *("targets", "lost", "narrow", "code_versions", "zero_rename_conn_id"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "targets": listed_tables,
        **dict.fromkeys(("lost", "narrow"), read_flag),
        "code_versions": read_versions,
        "zero_rename_conn_id": read_text,
    }
    ui_color = "#e6ecf2"

    def __init__(
        self,
        *,
        targets: Sequence[str] | str,
        lost: bool | str = True,
        narrow: bool | str = True,
        code_versions: Mapping[str, str] | str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.targets: Any = targets
        self.lost: Any = lost
        self.narrow: Any = narrow
        self.code_versions: Any = code_versions
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at the tables and at what they were computed from.

        :return: ``layers``, each a list of jobs that need nothing of each other: ``table``,
            ``job``, ``run`` (its ``owner`` has ``dag_id``, ``run_id``, ``task_id``,
            ``map_index``), ``partitions``, ``besides``, ``narrowed`` where the former alone are
            made, ``why``; ``refused``, that must not be run, with ``why``; ``waiting`` for these;
            ``seconds`` and ``critical``, of the longest way.
        :raises AirflowFailException: a target that is none, or that Hadoop's committers load.
        """
        with final_where_refused():
            self.read_arguments()
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            versions = versions_by_root(hook, self.code_versions)
            made = plan_for(hook, self._targets(hook), self.lost, self.narrow, versions)
        log_plan(made)
        return json.loads(json.dumps(asdict(made.plan)))

    def _targets(self, hook: ZeroRenameHook) -> list[str]:
        if not self.targets:
            raise InvalidInputError("targets names no table.", remedy="Give one or more.")
        urls = [hook.table_url(name) for name in self.targets]
        refuse_hadoops(hook, urls)
        return urls


class RecomputeOperator(PlanRecomputeOperator):
    """Run again what partitions need to be as their inputs are, a layer of the plan at a time.

    A job is run again by its own task of its own run, which is cleared; so that task has to load
    the partitions of its run, and to replace what it loaded (``on_repeat`` ``auto`` or
    ``replace_own``). Where only some of what a run has made is asked for, or others have replaced
    some of it since, it makes only those (``narrow``). After each layer the plan is made anew: what
    came out equal ends there. DAGs that are scheduled on an asset of a cleared task start by
    themselves: they are waited for, and cleared only where they leave their partitions stale.

    Killed or retried it plans anew, and waits for what still runs. It holds no slot while it waits
    where it is deferrable; else it needs one besides those of the tasks that it clears.

    :param airflow_conn_id: connection of type ``http`` to Airflow's API server. (templated)
    :param poll_interval: seconds between looks at what runs. (templated)
    :param patience: seconds in which a DAG that is scheduled on an asset is to have a run.
        (templated)
    :param timeout: seconds after which it is given up; what was cleared goes on. (templated)
    :param deferrable: wait in the triggerer; ``None``: as ``[operators] default_deferrable`` says.
    """

    template_fields: Sequence[str] = (
        *PlanRecomputeOperator.template_fields,
        *("airflow_conn_id", "poll_interval", "patience", "timeout"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "airflow_conn_id": read_text,
        **dict.fromkeys(("poll_interval", "patience", "timeout"), read_seconds),
    }

    def __init__(
        self,
        *,
        airflow_conn_id: str = "airflow_api",
        poll_interval: float | timedelta | str = 30.0,
        patience: float | timedelta | str = PATIENCE,
        timeout: float | timedelta | str = 24 * 3600.0,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.airflow_conn_id = airflow_conn_id
        self.poll_interval: Any = poll_interval
        self.patience: Any = patience
        self.timeout: Any = timeout
        by_default = conf.getboolean("operators", "default_deferrable", fallback=False)
        given = by_default if deferrable is None else deferrable
        self.deferrable = read_flag("deferrable", given)
        self.note_arguments()

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, clear and wait, until nothing is to be run again.

        :return: ``layers``, each a list of jobs that were run together: ``table``, ``job`` (the
            one that was replaced), ``partitions``, ``instance`` and whether it was ``cleared``.
        :raises AirflowFailException: Hadoop's committers load a target; a job must not be run
            again, was none of Airflow's, or its DAG is paused; a task failed, or ended without
            another job in its partitions, or with one of another code version; the API refused.
            What was cleared before goes on.
        """
        with final_where_refused():
            self.read_arguments()
            targets = self._targets(ZeroRenameHook(self.zero_rename_conn_id))
        return self._go(context, targets)

    def proceed(
        self, context: Context, event: object = None, *, progress: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Go on after a wait in the triggerer."""
        with final_where_refused():
            self.read_arguments()
        return self._go(context, progress)

    def _go(self, context: Context, of: list[str] | Mapping[str, Any]) -> dict[str, Any]:
        how = {"patience": self.patience, "lost": self.lost, "narrow": self.narrow}
        return {"layers": make_again(self, context, of, self.poll_interval, **how).said()["layers"]}
