"""Recompute: an operator that plans which jobs to run again, and one that runs them."""

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
    """Report which jobs must be run again so that partitions match their inputs.

    It changes nothing, and runs nothing.

    :param targets: tables, or partitions of tables: ``flights``, ``flights/day=2013-01-01``,
        ``s3://bucket/prefix``. (templated)
    :param lost: also check that the files are there, by a listing of each table. (templated)
    :param narrow: if only some of a run's partitions are needed, let its task make only these
        again; ``False``: it makes all of them. (templated)
    :param code_versions: by table, the present version of its program's code. Rows that another
        version made, or an unknown one, are stale. (templated)
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
        """Compare the tables with the inputs from which they were computed.

        :return: ``layers``, each a list of jobs that do not depend on each other: ``table``,
            ``job``, ``run`` (its ``owner`` has ``dag_id``, ``run_id``, ``task_id``,
            ``map_index``), ``partitions``, ``besides``, ``narrowed`` (only ``partitions`` are
            made), ``why``; ``refused``, jobs that must not be run, with ``why``; ``waiting``, jobs
            that wait for these; ``seconds`` and ``critical``, of the longest path.
        :raises AirflowFailException: an invalid target, or one that Hadoop's committers load.
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
    """Run jobs again until partitions match their inputs, one layer of the plan at a time.

    A job is run again by its own task in its own run, which is cleared. So that task must load the
    partitions of its run, and replace what it loaded before (``on_repeat`` ``auto`` or
    ``replace_own``). If only some of the run's partitions are needed, or others have replaced some
    of them since, it makes only the needed ones (``narrow``). After each layer a new plan is made:
    a partition that came out with the same rows makes nothing stale. DAGs that are scheduled on an
    asset of a cleared task start by themselves. They are waited for, and are cleared only if they
    leave their partitions stale.

    If it is killed or retried, it makes a new plan, and waits for tasks that still run. If it is
    deferrable, it holds no worker slot while it waits; otherwise it needs a slot in addition to
    those of the tasks that it clears.

    :param airflow_conn_id: connection of type ``http`` to Airflow's API server. (templated)
    :param poll_interval: seconds between polls of cleared tasks. (templated)
    :param patience: seconds after an asset's event within which a DAG scheduled on the asset must
        have a run. (templated)
    :param timeout: seconds after which it gives up; cleared tasks go on. (templated)
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
        """Plan, clear and wait, until no job must be run again.

        :return: ``layers``, each a list of jobs that were run together: ``table``, ``job`` (the
            replaced job), ``partitions``, ``instance``, and whether it was ``cleared``.
        :raises AirflowFailException: Hadoop's committers load a target; a job must not be run
            again, was not run by Airflow, or its DAG is paused; a task failed, or ended without a
            new job in its partitions, or with a job of another code version; the API refused.
            If a task failed, those that were cleared with it have ended.
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
