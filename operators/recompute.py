"""Plan of what is to be run again, which jobs and in which order; and its execution."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator, conf

from ..committer.errors import InvalidInputError, counted
from ..orchestration.runs.reports import text_table
from ..orchestration.runs.task_run import NamedTask
from ..provider.airflow_api import (
    ENDED,
    AirflowApi,
    AssetEvent,
    Run,
    TaskRunsError,
    airflow_api,
)
from ..provider.failures import final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lineage import Plan
    from ..lineage.plan import Step

#: Seconds in the triggerer. Airflow 3.3 sees up to five seconds late that the process of a task
#: which has deferred is gone; where the task is at work again by then, it is taken for a dead one.
_SHORTEST_WAIT = 10.0


class PlanRecomputeOperator(BaseOperator):
    """Say which jobs are to be run again so that partitions are as their inputs are. Changes
    nothing, and runs nothing.

    :param targets: tables, or partitions of them: ``flights``, ``flights/day=2013-01-01``,
        ``s3://bucket/prefix``. (templated)
    :param lost: look, too, whether the files are there: a listing of each table.
    :param narrow: let a task that made more than is asked for make only that again; ``False``: all
        that its run makes.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = ("targets", "zero_rename_conn_id")
    ui_color = "#e6ecf2"

    def __init__(
        self,
        *,
        targets: Sequence[str] | str,
        lost: bool = True,
        narrow: bool = True,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.targets = targets
        self.lost = lost
        self.narrow = narrow
        self.zero_rename_conn_id = zero_rename_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at the tables and at what they were computed from.

        :return: ``layers``, each a list of jobs that need nothing of each other: ``table``,
            ``job``, ``run`` (its ``owner`` has ``dag_id``, ``run_id``, ``task_id``,
            ``map_index``), ``partitions``, ``besides``, ``why``; ``refused``, that must not be run,
            with ``why``; ``waiting`` for these; ``seconds`` and ``critical``, of the longest way.
        :raises AirflowFailException: a target that is none.
        """
        with final_where_refused():
            found = self._plan()
        self._log(found)
        return json.loads(json.dumps(asdict(found)))

    def _plan(self) -> Plan:
        # On use: DAG files are parsed by processes that look at nothing.
        from ..lineage import look_up, plan

        hook = ZeroRenameHook(self.zero_rename_conn_id)
        targets = [hook.table_url(name) for name in self._named()]
        return plan(look_up(targets, hook.get_conn(), lost=self.lost))

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


@dataclass(frozen=True)
class _Again:
    """A job that is run again.

    :param cleared: by this task; else it was at work already, and is waited for.
    :param events: number of the last event that its instance had told of an asset before.
    """

    table: str
    job: str
    partitions: tuple[str, ...]
    instance: NamedTask
    cleared: bool
    events: int

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _Again:
        partitions, instance = tuple(said["partitions"]), NamedTask(**said["instance"])
        return cls(**{**said, "partitions": partitions, "instance": instance})


@dataclass(frozen=True)
class _Progress:
    """What was run again so far.

    :param until: Unix time at which it is given up.
    :param running: what has not ended yet.
    :param layers: what was run together, in order.
    """

    until: float
    running: tuple[_Again, ...] = ()
    layers: tuple[tuple[_Again, ...], ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _Progress:
        layers = tuple(tuple(map(_Again.of, layer)) for layer in said["layers"])
        return cls(said["until"], tuple(map(_Again.of, said["running"])), layers)

    @property
    def all(self) -> list[_Again]:
        return [it for layer in self.layers for it in layer]


class RecomputeOperator(PlanRecomputeOperator):
    """Run again what partitions need to be as their inputs are, a layer of the plan at a time.

    A job is run again by its own task of its own run, which is cleared; so that task has to load
    the partitions of its run, and to replace what it loaded (``on_repeat`` ``auto`` or
    ``replace_own``). After each layer the plan is made anew: what came out equal ends there. DAGs
    that are scheduled on an asset of a cleared task start by themselves: they are waited for, and
    cleared only where they leave their partitions stale.

    Killed or retried it plans anew, and waits for what still runs. It holds no slot while it waits
    where it is deferrable; else it needs one besides those of the tasks that it clears.

    :param airflow_conn_id: connection of type ``http`` to Airflow's API server. (templated)
    :param poll_interval: seconds between looks at what runs.
    :param patience: seconds in which a DAG that is scheduled on an asset is to have a run.
    :param timeout: seconds after which it is given up; what was cleared goes on.
    :param deferrable: wait in the triggerer; ``None``: as ``[operators] default_deferrable`` says.
    """

    template_fields: Sequence[str] = (*PlanRecomputeOperator.template_fields, "airflow_conn_id")

    def __init__(
        self,
        *,
        airflow_conn_id: str = "airflow_api",
        poll_interval: float = 30.0,
        patience: float = 120.0,
        timeout: float = 24 * 3600.0,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.airflow_conn_id = airflow_conn_id
        self.poll_interval = poll_interval
        self.patience = patience
        self.timeout = timeout
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, clear and wait, until nothing is to be run again.

        :return: ``layers``, each a list of jobs that were run together: ``table``, ``job`` (the
            one that was replaced), ``partitions``, ``instance`` and whether it was ``cleared``.
        :raises AirflowFailException: a job must not be run again, was none of Airflow's, or its
            DAG is paused; a task failed, or ended without another job in its partitions; the API
            refused. What was cleared before goes on.
        """
        return self._go(_Progress(time.time() + self.timeout))

    def proceed(
        self, context: Context, event: object = None, *, progress: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Go on after a wait in the triggerer."""
        return self._go(_Progress.of(progress))

    def _go(self, progress: _Progress) -> dict[str, Any]:
        with final_where_refused():
            while True:
                with airflow_api(self.airflow_conn_id) as api:
                    progress, done = self._look(api, progress)
                if done:
                    self.log.info("%s run again.", counted(len(progress.all), "job"))
                    return {"layers": json.loads(json.dumps(asdict(progress)))["layers"]}
                if time.time() > progress.until:
                    names = "; ".join(str(it.instance) for it in progress.running) or "its runs"
                    self._fail(f"Not over after {self.timeout:,.0f} s: {names}. They go on")
                self._wait(progress)

    def _wait(self, progress: _Progress) -> None:
        if not self.deferrable:
            time.sleep(self.poll_interval)
            return
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        said = json.loads(json.dumps(asdict(progress)))
        trigger = TimeDeltaTrigger(timedelta(seconds=max(self.poll_interval, _SHORTEST_WAIT)))
        self.defer(trigger=trigger, method_name="proceed", kwargs={"progress": said})

    def _look(self, api: AirflowApi, progress: _Progress) -> tuple[_Progress, bool]:
        """What there is to do now is done. Returns also whether all is."""
        if progress.running:
            left = tuple(it for it in progress.running if not self._ended(api, it))
            progress = replace(progress, running=left)
            if left:
                return progress, False
        found = self._plan()
        if not progress.layers or found.refused:
            self._log(found)
        if not found.layers:
            if found.refused:
                whys = "; ".join(
                    f"{it.job or 'no job'} of {it.table}: {it.why}" for it in found.refused
                )
                self._fail(f"Not all can be run again: {whys}")
            return progress, True
        self._check_moved(found, progress)
        steps = self._due(api, found.layers[0], progress)
        if not steps:
            return progress, False
        again = tuple(self._clear(api, step, instance) for step, instance in steps)
        return replace(progress, running=again, layers=(*progress.layers, again)), False

    def _ended(self, api: AirflowApi, again: _Again) -> bool:
        state = api.state(again.instance)
        if state in ENDED and state != "success":
            self._fail(f"{again.instance} is {state}, which was to make {_places(again)} again")
        return state in ENDED

    def _check_moved(self, found: Plan, progress: _Progress) -> None:
        """Refuse to go on where a task ended and its partitions are as they were."""
        still = {(step.table, step.job) for layer in found.layers for step in layer}
        for it in progress.all:
            if it.cleared and (it.table, it.job) in still:
                self._fail(
                    f"{it.instance} ended, and {_places(it)} still hold rows of job {it.job}: it "
                    "has on_repeat='skip', or its application did not load them"
                )

    def _due(
        self, api: AirflowApi, layer: Sequence[Step], progress: _Progress
    ) -> list[tuple[Step, NamedTask]]:
        """What of a layer is to be cleared now: not what other runs make by themselves."""
        due, started = [], self._started(api, progress)
        for step in layer:
            instance = NamedTask.of(step.run.owner)
            if instance is None:
                self._fail(
                    f"Job {step.job} of {step.table} was run outside Airflow "
                    f"({step.run.owner.application or 'by an unnamed program'}): run it again "
                    f"there, for {', '.join(step.partitions)}"
                )
            if [it.instance for it in progress.all if it.cleared].count(instance) > 1:
                self._fail(f"{instance} was run twice, and is stale again: its inputs move on")
            if self._is_under_way(started.get(instance.dag_id, ())):
                self.log.info("DAG %s runs by itself; it is waited for.", instance.dag_id)
                continue
            if api.paused(instance.dag_id):
                self._fail(f"DAG {instance.dag_id} is paused, so that {instance} would not run")
            due.append((step, instance))
        return due

    def _started(self, api: AirflowApi, progress: _Progress) -> dict[str, list[AssetEvent]]:
        """By DAG the events of assets that it is scheduled on, of the last layer's tasks and of
        the runs that these have started."""
        found: dict[str, list[AssetEvent]] = {}
        last = progress.layers[-1] if progress.layers else ()
        front = [event for it in last for event in api.events(it.instance, after=it.events)]
        seen: set[Run] = set()
        while front:
            event = front.pop()
            for dag_id in api.followers(event.asset):
                of_dag = tuple(run for run in event.runs if run.dag_id == dag_id)
                found.setdefault(dag_id, []).append(replace(event, runs=of_dag))
            front += [more for run in event.runs if run not in seen for more in api.events(run)]
            seen |= set(event.runs)
        return found

    def _is_under_way(self, events: Iterable[AssetEvent]) -> bool:
        """Whether a DAG is at work because of events of assets, or soon will be."""
        return any(
            any(run.state not in ENDED for run in event.runs)
            or (not event.runs and time.time() < event.time + self.patience)
            for event in events
        )

    def _clear(self, api: AirflowApi, step: Step, instance: NamedTask) -> _Again:
        last = max((event.number for event in api.events(instance)), default=0)
        try:
            api.clear(instance)
            cleared = True
        except TaskRunsError:
            cleared = False
        self.log.info(
            "%s, for %s of %s; besides: %s.",
            f"Cleared {instance}" if cleared else f"Waiting for {instance}, which is at work",
            ", ".join(step.partitions),
            step.table,
            ", ".join(step.besides) or "nothing",
        )
        return _Again(step.table, step.job, step.partitions, instance, cleared, last)

    def _fail(self, what: str) -> NoReturn:
        raise AirflowFailException(
            f"{what}. Each table is whole; what is stale stays so. `zero-rename lineage plan` "
            f"says what is left."
        )


def _places(again: _Again) -> str:
    return f"{', '.join(again.partitions)} of {again.table}"
