"""Recompute: Airflow runs the jobs of a plan again, one layer at a time, until none is left."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException

from ..committer.errors import InvalidInputError, counted
from ..orchestration.runs.reports import text_table
from ..orchestration.runs.task_run import NamedTask
from .airflow_api import ENDED, AirflowApi, ApiRefusedError, AssetEvent, TriggeredRun
from .clearing import Clearing, Permit, follow, program_of
from .hooks import ZeroRenameHook
from .recomputed import Again, Recomputed

if TYPE_CHECKING:
    from ..lineage import Plan
    from ..lineage.plan import Step

_log = logging.getLogger(__name__)
#: Seconds after an asset's event within which a DAG scheduled on the asset must have a run.
PATIENCE = 120.0


@dataclass(frozen=True)
class Recomputing:
    """Recompute of partitions that do not match their inputs.

    A job is run again by its own task in its own run, which is cleared. After each layer a new plan
    is made. Before the clear, a record (:class:`.Narrowing`) says which partitions the run may
    replace, at the versions that the plan has seen. If only some of the run's partitions are
    needed, the record lets it make only these. The record is ended when the run's task has ended.

    :param planner: the task that plans and clears.
    :param seconds: the longest time that it may take.
    :param patience: seconds after an asset's event within which a DAG scheduled on the asset must
        have a run.
    :param lost: also check that the files are there.
    :param narrow: if only some of a run's partitions are needed, let it make only these.
    :param code_versions: by table's root, the present version of its program's code.
    :param may_be_empty: targets may hold no rows: then they are not stale.
    """

    hook: ZeroRenameHook
    airflow_conn_id: str
    planner: NamedTask
    seconds: float
    patience: float = PATIENCE
    lost: bool = False
    narrow: bool = True
    code_versions: Mapping[str, str] = field(default_factory=dict)
    may_be_empty: bool = False

    def begin(self, targets: Iterable[str]) -> Recomputed:
        return Recomputed(tuple(targets), time.time() + self.seconds)

    def to_end(self, progress: Recomputed, wait: Callable[[Recomputed], None]) -> Recomputed:
        """Plan, clear and wait, until no job must be run again.

        :param wait: called between two polls; it may raise, to go on in another process.
        :raises AirflowFailException: a job must not be run again, was not run by Airflow, or its
            DAG is paused; a task failed, or ended without a new job in its partitions; the API
            refused. If a task failed, those that were cleared with it have ended.
        :raises ApiTroubleError: the API has failed for minutes.
        """
        progress = follow(self.airflow_conn_id, self._look, progress, wait, self._give_up)
        _log.info("%s run again.", counted(len(progress.all), "job"))
        return progress

    def _give_up(self, progress: Recomputed) -> NoReturn:
        names = "; ".join(str(it.instance) for it in progress.running) or "its runs"
        _fail(f"Not over after {self.seconds:,.0f} s: {names}. They go on")

    @property
    def _clearing(self) -> Clearing:
        return Clearing(self.hook, self.planner, self.seconds)

    def _look(self, api: AirflowApi, progress: Recomputed) -> tuple[Recomputed, bool]:
        """Do all that can be done now. Return the progress, and whether all is done."""
        if progress.running:
            left = self._at_work(api, progress.running)
            progress = replace(progress, running=left)
            if left:
                return progress, False
        if progress.refused:
            _fail(progress.refused.removesuffix("."))
        # Read before the plan is made: a run that is at work now may load partitions that the plan
        # still finds stale.
        started = self._started(api, progress)
        # A job that was run again may have left a target empty.
        may_be_empty = self.may_be_empty or bool(progress.layers)
        how = (self.lost, self.narrow, self.code_versions, may_be_empty)
        made = plan_for(self.hook, progress.targets, *how)
        found = made.plan
        if not progress.layers or found.refused:
            log_plan(made)
        if not found.layers:
            if found.refused:
                _fail(f"Not all can be run again: {'; '.join(it.said for it in found.refused)}")
            return progress, True
        _check_moved(found, progress, self.code_versions)
        again, refused = self._all_again(api, self._due(api, found.layers[0], progress, started))
        if not again:
            return progress, False
        # While another plan has an instance, every poll finds the same layer.
        is_new = any(it.cleared for it in again) or again not in progress.layers
        layers = (*progress.layers, again) if is_new else progress.layers
        return replace(progress, running=again, layers=layers, refused=refused), False

    def _all_again(
        self, api: AirflowApi, due: Mapping[NamedTask, Sequence[Step]]
    ) -> tuple[tuple[Again, ...], str]:
        """Clear the task instances that are due. If the API refuses one, return why; those that are
        cleared by then are waited for first, and their records are ended.

        :raises ApiRefusedError: the API refused the first one.
        """
        again: list[Again] = []
        for instance, steps in due.items():
            try:
                again += self._run_again(api, steps, instance)
            except ApiRefusedError as error:
                if not again:
                    raise
                return tuple(again), str(error)
        return tuple(again), ""

    def _at_work(self, api: AirflowApi, running: Sequence[Again]) -> tuple[Again, ...]:
        """Return the jobs that have not ended; end the records of the others.

        The failure of a task is raised once the others have ended, too. Otherwise nothing would end
        their records, and a task that is cleared by hand later could load the plan's partitions
        alone.
        """
        states = {it: api.state(it.instance) for it in running}
        over = [it for it in running if states[it] in ENDED]
        for it in over:
            self._clearing.take_back(it.table, it.told)
        left = [it for it in running if it not in over]
        failed = [it for it in over if states[it] != "success"]
        said = [
            f"{it.instance} is {states[it]}, which was to make {it.places} again" for it in failed
        ]
        if failed and not left:
            _fail("; ".join(said))
        for one in said:
            names = ", ".join(str(it.instance) for it in left)
            _log.error("%s. This task fails when the others have ended: %s.", one, names)
        return (*left, *failed)

    def _due(
        self,
        api: AirflowApi,
        layer: Sequence[Step],
        progress: Recomputed,
        started: Mapping[str, Sequence[AssetEvent]],
    ) -> dict[NamedTask, list[Step]]:
        """Return the steps of a layer to clear now, by task instance.

        Steps of a DAG that runs by itself, because of asset events, are left out.

        :param started: by DAG, the events of assets on which it is scheduled, from before the plan.
        """
        due: dict[NamedTask, list[Step]] = {}
        for step in layer:
            instance = NamedTask.of_run(step.run.owner, step.run.idempotency_key)
            if instance is None:
                _fail(
                    f"Job {step.job} of {step.table} was run outside Airflow, by "
                    f"{program_of(step.run.owner)}: run it again there, for "
                    f"{', '.join(step.partitions)}"
                )
            ran = [
                any(it.instance == instance and it.cleared for it in of) for of in progress.layers
            ]
            if sum(ran) > 1:
                _fail(f"{instance} was run twice, and is stale again: its inputs move on")
            if self._is_under_way(started.get(instance.dag_id, ())):
                _log.info("DAG %s runs by itself; it is waited for.", instance.dag_id)
                continue
            if idle := api.idle(instance.dag_id):
                _fail(f"DAG {instance.dag_id} is {idle}, so that {instance} would not run")
            due.setdefault(instance, []).append(step)
        return due

    def _started(self, api: AirflowApi, progress: Recomputed) -> dict[str, list[AssetEvent]]:
        """Return the asset events since the first clear, by the DAGs scheduled on these assets.

        They are events of all cleared tasks, and of the runs that these events have started: a run
        that an earlier layer has started may still be at work.
        """
        found: dict[str, list[AssetEvent]] = {}
        before = {it.instance: it.events for it in reversed(progress.all)}  # The first clear's.
        front = [event for it, last in before.items() for event in api.events(it, after=last)]
        seen: set[TriggeredRun] = set()
        followers = cache(api.followers)
        while front:
            event = front.pop()
            for dag_id in followers(event.asset):
                of_dag = tuple(run for run in event.runs if run.dag_id == dag_id)
                found.setdefault(dag_id, []).append(replace(event, runs=of_dag))
            front += [more for run in event.runs if run not in seen for more in api.events(run)]
            seen |= set(event.runs)
        return found

    def _is_under_way(self, events: Iterable[AssetEvent]) -> bool:
        """Return whether a DAG is at work because of asset events, or soon will be."""
        return any(
            any(run.state not in ENDED for run in event.runs)
            or (not event.runs and time.time() < event.time + self.patience)
            for event in events
        )

    def _run_again(
        self, api: AirflowApi, steps: Sequence[Step], instance: NamedTask
    ) -> list[Again]:
        """Clear a task instance, for all steps of a layer that it must make."""
        last = api.last_event(instance)
        # By default a run keeps the version of its DAG with which it began.
        latest = any(self._outdated(step) for step in steps)
        cleared = self._clearing.clear(api, instance, _permits(steps), latest=latest)
        for step in steps:
            _log.info(
                "%s, for %s of %s; besides: %s.",
                f"Cleared {instance}"
                if cleared
                else f"Waiting for {instance}, which is at work, or is to run by another plan",
                step.said,
                step.table,
                ", ".join(step.besides) or "nothing",
            )
        return [
            Again(
                step.table,
                step.job,
                step.partitions,
                instance,
                cleared,
                last,
                # Also if it was not cleared now: an earlier attempt of this task may have cleared
                # it, and left a record.
                step.run.idempotency_key if step.versions else None,
            )
            for step in steps
        ]

    def _outdated(self, step: Step) -> bool:
        """Return whether another version of the program is wanted than the one that ran."""
        now = self.code_versions.get(step.table)
        return now is not None and bool(step.run.outdated(now))


def _permits(steps: Sequence[Step]) -> list[Permit]:
    """Build a permit for each run of the steps."""
    runs: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        if step.run.idempotency_key is not None:
            runs[step.table, step.run.idempotency_key].append(step)
    return [
        Permit(
            table,
            key,
            {name: version for step in of_run for name, version in step.versions.items()},
            whole=not any(step.narrowed for step in of_run),
        )
        for (table, key), of_run in runs.items()
    ]


@dataclass(frozen=True)
class MadePlan:
    """A plan, and the number of partitions that it cannot judge.

    :param unknown: the number of partitions whose inputs are not known.
    """

    plan: Plan
    unknown: int


def plan_for(
    hook: ZeroRenameHook,
    targets: Iterable[str],
    lost: bool,
    narrow: bool,
    code_versions: Mapping[str, str],
    may_be_empty: bool = False,
) -> MadePlan:
    """Plan which jobs must be run again now. Nothing is cleared.

    ``lost``, ``narrow`` and ``code_versions`` are as for :class:`Recomputing`.

    :param may_be_empty: targets may hold no rows.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..lineage import LineageState, look_up, plan

    graph = look_up(
        targets, hook.get_conn(), lost=lost, code_versions=code_versions, may_be_empty=may_be_empty
    )
    unknown = sum(it.state is LineageState.UNKNOWN for it in graph.partitions())
    return MadePlan(plan(graph, narrow), unknown)


def refuse_hadoops(
    hook: ZeroRenameHook,
    targets: Iterable[str],
    remedy: str = "Leave it out of targets; or load it with committer='zero_rename'.",
) -> None:
    """Refuse targets that Hadoop's committers load: nothing would ever be stale there.

    This takes six requests for each table.

    :raises InvalidInputError: one of the targets is of such a table.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..lineage.graph import place_named
    from ..maintenance.destinations import destination_at

    for url in sorted({place_named(target)[0] for target in targets}):
        table = hook.get_table(url)
        if table.run(destination_at(table.root)).is_hadoops:
            raise InvalidInputError(
                f"Hadoop's committers load {url}, and record no inputs: whether it is stale nobody "
                "can tell. Nothing was planned.",
                table=url,
                remedy=remedy,
            )


def log_plan(made: MadePlan) -> None:
    """Log a plan: jobs to run again, refused jobs, and the number of partitions it cannot judge."""
    found = made.plan
    rows = [
        (str(number), step.table, step.said, step.job, "; ".join(step.why))
        for number, layer in enumerate(found.layers, 1)
        for step in layer
    ]
    columns = ("layer", "table", "partitions", "job", "why")
    _log.info(
        "%s in %s:\n%s",
        counted(len(rows), "job"),
        counted(len(found.layers), "layer"),
        text_table(columns, rows) if rows else "nothing is to be run again",
    )
    for it in found.refused:
        _log.warning("Refused: %s.", it.said)
    if made.unknown:
        _log.warning(
            "Of %s it is not known what they were computed from, so that no input of theirs makes "
            "them stale: zero-rename lineage show says why.",
            counted(made.unknown, "partition"),
        )


def _check_moved(found: Plan, progress: Recomputed, code_versions: Mapping[str, str]) -> None:
    """Refuse to go on if a cleared task did not help.

    It has ended, but its partitions are as they were, or were made by a version of its code that is
    not the present one.

    :raises AirflowFailException: there is such a task.
    """
    steps = [step for layer in found.layers for step in layer]
    for it, step in ((it, step) for it in progress.all for step in steps if it.made_any_of(step)):
        if it.job == step.job:
            _fail(
                f"{it.instance} ended, and {it.places} still hold rows of job {it.job}: it "
                "has on_repeat='skip', or its application did not load them, or holds them back "
                "until they are published"
            )
        version = code_versions.get(step.table)
        if version is not None and (outdated := step.run.outdated(version)):
            _fail(
                f"{it.instance} was run again, and {it.places} is {outdated}: deploy that "
                "version, or say in code_versions the one that it has"
            )


def _fail(what: str) -> NoReturn:
    raise AirflowFailException(
        f"{what}. Each table is whole; what is stale stays so. `zero-rename lineage plan` "
        f"says what is left."
    )
