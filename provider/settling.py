"""Settlement of conflicts by a rerun: the run that stands is cleared, waited for, and checked.

A record says which conflict the run may settle.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..committer.errors import DamagedError, InvalidInputError, counted, first_few
from ..committer.format.job_spec import Owner
from ..committer.format.layout import TableRoot
from ..committer.format.records.typed_json import from_members, to_members
from ..committer.format.run_rank import RunRank
from ..committer.format.settling import SettledRuns, Settling
from ..orchestration.runs.task_run import NamedTask
from .airflow_api import ENDED, AirflowApi, ApiTroubleError
from .clearing import Clearing, Permit, follow, program_of
from .failures import final_where_refused
from .hooks import ZeroRenameHook
from .recomputed import wait
from .task_context import task_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..tables import DeltaTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RerunOrder:
    """A partition whose conflict a run must settle by loading it again.

    :param table: the destination's root.
    :param version: the partition's version that the plan saw; not used with Hadoop's committers.
    :param run: the key of the run that stands.
    :param owner: of that run.
    :param losers: the keys of the runs that give way.
    :param rank: the highest rank in the conflict; ``None``: none is known.
    :param committer: the one of Hadoop's committers that wrote it; ``""``: this package's.
    """

    table: str
    partition: str
    version: int
    run: str
    owner: Owner
    losers: tuple[str, ...]
    rank: RunRank | None = None
    committer: str = ""

    @property
    def settling(self) -> Settling:
        return Settling(SettledRuns(self.run, self.losers), self.rank)


@dataclass(frozen=True)
class RerunOutcome:
    """Outcome of an order.

    :param job: the job that settled it.
    :param error: the reason why it is not settled; ``""``: it is.
    :param dag_version: the version of the DAG with which the run ran again; ``None``: not known.
    """

    order: RerunOrder
    job: str | None = None
    error: str = ""
    dag_version: str | None = None


@dataclass(frozen=True)
class SettlingRun:
    """A run that is made again for one or more orders of one table.

    :param versions: of the partitions that it may replace, as its record has them.
    :param is_begun: its task was cleared.
    :param outcomes: one for each order; empty: the run is not over.
    """

    orders: tuple[RerunOrder, ...]
    versions: Mapping[str, int] = field(default_factory=dict)
    is_begun: bool = False
    outcomes: tuple[RerunOutcome, ...] = ()

    @property
    def first(self) -> RerunOrder:
        return self.orders[0]

    @property
    def partitions(self) -> list[str]:
        return [it.partition for it in self.orders]

    @property
    def instance(self) -> NamedTask | None:
        return NamedTask.of_run(self.first.owner, self.first.run)

    def failed(self, error: str, dag_version: str | None = None) -> SettlingRun:
        """Return the run as over, with no order settled."""
        made = tuple(RerunOutcome(it, None, error, dag_version) for it in self.orders)
        return replace(self, outcomes=made)


@dataclass(frozen=True)
class SettlingRuns:
    """Progress of the runs that a task makes again to settle conflicts.

    :param until: Unix time at which the task gives up.
    :param troubles: the number of consecutive polls in which Airflow's API has failed.
    """

    reruns: tuple[SettlingRun, ...]
    until: float
    troubles: int = 0

    @staticmethod
    def of(orders: Iterable[RerunOrder], seconds: float) -> SettlingRuns:
        """Group orders by run."""
        by_run: dict[tuple[str, str, str], list[RerunOrder]] = {}
        for it in orders:
            by_run.setdefault((it.table, it.run, it.committer), []).append(it)
        made = tuple(SettlingRun(tuple(it)) for it in by_run.values())
        return SettlingRuns(made, time.time() + seconds)

    def said(self) -> dict[str, Any]:
        """Return the progress as values that JSON can represent."""
        return to_members(self)

    @property
    def outcomes(self) -> list[RerunOutcome]:
        return [made for it in self.reruns for made in it.outcomes]


def settle_by_rerun(
    task: Any,
    context: Context,
    of: Sequence[RerunOrder] | Mapping[str, Any],
    *,
    include_downstream: bool = False,
    refused: Sequence[RerunOutcome] = (),
) -> list[RerunOutcome]:
    """Let runs load partitions in conflict again, and wait for them.

    A run's own task is cleared. The run may replace only the partitions in conflict, at the
    versions that the plan saw; with one of Hadoop's committers it loads all of its partitions. If
    this task is killed or retried, it waits for the runs that it has cleared, and does not clear a
    run that has settled its conflict.

    :param task: the operator, for its connections, ``poll_interval``, ``timeout`` and
        ``deferrable``; its method ``proceed`` calls this again with the progress.
    :param of: the orders, or the progress before a wait.
    :param include_downstream: let successors of cleared tasks run again, too; they are not waited
        for.
    :param refused: outcomes of orders that were refused before, to be returned with the others.
    :return: an outcome for each order, with an error if it is not settled: the run is at work, or
        was deleted; its DAG is paused; it failed, was skipped, or has left other rows.
    :raises AirflowFailException: ``airflow_conn_id`` names no connection, or the API refuses it.
    """
    with final_where_refused():
        check_connection(task.airflow_conn_id)
    hook, planner = ZeroRenameHook(task.zero_rename_conn_id), task_run(dict(context)).named
    clearing = Clearing(hook, planner, task.timeout)
    engine = _ConflictReruns(clearing, include_downstream)
    if isinstance(of, Mapping):
        progress = from_members(SettlingRuns, dict(of))
    else:
        progress = SettlingRuns.of(of, task.timeout)
        over = tuple(SettlingRun((it.order,), outcomes=(it,)) for it in refused)
        progress = replace(progress, reruns=(*progress.reruns, *over))
    waits = partial(wait, task, task.poll_interval, task.deferrable)
    done = follow(task.airflow_conn_id, engine.look, progress, waits, engine.give_up)
    return done.outcomes


def check_connection(airflow_conn_id: str | None) -> None:
    """Check that a connection to Airflow's API is named, to clear tasks.

    :raises InvalidInputError: none is named.
    """
    if not airflow_conn_id:
        raise InvalidInputError(
            "by='rerun' clears tasks by Airflow's API, and airflow_conn_id names no connection to "
            "it. Nothing was cleared.",
            remedy="Give airflow_conn_id a connection of type http to Airflow's API server; or "
            "choose by='restore'.",
        )


@dataclass(frozen=True)
class _ConflictReruns:
    clearing: Clearing
    include_downstream: bool

    def look(self, api: AirflowApi, progress: SettlingRuns) -> tuple[SettlingRuns, bool]:
        """Do all that can be done now. Return the progress, and whether all is done."""
        made = tuple(self._looked_at(api, it) for it in progress.reruns)
        return replace(progress, reruns=made), all(it.outcomes for it in made)

    def give_up(self, progress: SettlingRuns) -> SettlingRuns:
        said = (
            f"Not over after {self.clearing.seconds:,.0f} s. It goes on, and settles the conflict "
            "if it ends well: look again then"
        )
        made = tuple(it if it.outcomes else it.failed(said) for it in progress.reruns)
        return replace(progress, reruns=made)

    def _looked_at(self, api: AirflowApi, it: SettlingRun) -> SettlingRun:
        instance = it.instance
        if it.outcomes:
            return it
        if instance is None:
            by = program_of(it.first.owner)
            return it.failed(
                f"The run {it.first.run} was made outside Airflow ({by}): run it again there, with "
                "on_conflict='last_wins'"
            )
        try:
            if it.is_begun:
                return self._ended(api, it, instance)
            return self._begun(api, it, instance)
        except ApiTroubleError:
            raise
        except (InvalidInputError, DamagedError) as error:
            return it.failed(str(error))

    def _begun(self, api: AirflowApi, it: SettlingRun, instance: NamedTask) -> SettlingRun:
        """Clear a run's task, unless this task has cleared it or the conflict is settled."""
        destination = self._destination(it)
        left = self.clearing.read(it.first.table, it.first.run, destination.plans)
        is_own = (
            left is not None
            and NamedTask.of(left.said.planner) == self.clearing.planner
            and left.said.settles.keys() >= {*it.partitions}
        )
        if left is not None and is_own:
            it = replace(it, versions=left.said.partitions)
            if not any(made.error for made in destination.judged(it)):
                return self._ended(api, it, instance)
            if not left.said.over and api.state(instance) not in ENDED:
                return replace(it, is_begun=True)
            if not left.said.over and left.said.taken is not None:
                return self._ended(api, it, instance)
        if idle := api.idle(instance.dag_id):
            return it.failed(f"DAG {instance.dag_id} is {idle}, so that {instance} would not run")
        state = api.state(instance)
        if state not in ENDED:
            return it.failed(
                f"{instance} is at work ({state}). Nothing was cleared: resolve the conflict when "
                "it has ended"
            )
        permit = destination.permit(it)
        if not self.clearing.clear(api, instance, [permit], self.include_downstream):
            return it.failed(
                f"{instance} is at work, or another task is about to clear it. Nothing was "
                "cleared: resolve the conflict when it has ended"
            )
        _log.info("Cleared %s, to settle %s of %s", instance, _named(it), it.first.table)
        return replace(it, versions=permit.versions, is_begun=True)

    def _ended(self, api: AirflowApi, it: SettlingRun, instance: NamedTask) -> SettlingRun:
        """Check whether a run has settled its conflict, if it has ended."""
        state = api.state(instance)
        if state not in ENDED:
            return replace(it, is_begun=True)
        destination = self._destination(it)
        self.clearing.take_back(it.first.table, it.first.run, destination.plans)
        version = api.version(instance)
        if state != "success":
            return it.failed(f"{instance} is {state}: its log says why", version)
        made = tuple(replace(one, dag_version=version) for one in destination.judged(it))
        return replace(it, outcomes=made)

    def _destination(self, it: SettlingRun) -> _Contested:
        hook, url = self.clearing.hook, it.first.table
        if not it.first.committer:
            return _OfThisPackage(hook.get_table_as_it_is(url))
        # Imported on use: processes that only parse DAG files need not load it.
        from ..tables import DeltaTable

        # The run loads again by a job of the Delta table that the directory has become.
        table, known = hook.get_table(url), hook.get_table_as_it_is(url)
        return _OfAdopted(table, known) if isinstance(known, DeltaTable) else _OfS3A(table)


class _Contested(Protocol):
    """Table or destination in which a run settles conflicts, by its committer."""

    @property
    def plans(self) -> TableRoot:
        """Root of the records that say what runs may make."""
        ...

    def permit(self, it: SettlingRun) -> Permit:
        """Build the permit of a run.

        :raises InvalidInputError: the partitions have changed since the plan, or the run must not
            run again.
        """
        ...

    def judged(self, it: SettlingRun) -> Sequence[RerunOutcome]:
        """Return the outcome of each order of a run."""
        ...


@dataclass(frozen=True)
class _OfThisPackage:
    """A table of this package, of any layout."""

    table: Table | DeltaTable

    @property
    def plans(self) -> TableRoot:
        return self.table.root

    def permit(self, it: SettlingRun) -> Permit:
        found = self.table.settled(_seen(it))
        moved = [one.partition for one in it.orders if found[one.partition].version != one.version]
        if moved:
            raise InvalidInputError(
                f"Another job has changed {first_few(moved)} since the conflict was found. Nothing "
                "was cleared.",
                remedy="Look for conflicts again, and resolve what is found.",
            )
        settles = {one.partition: one.settling for one in it.orders}
        # Imported on use: processes that only parse DAG files need not load it.
        from ..orchestration.runs.outcomes import makes_no_other

        is_whole = makes_no_other(self.table, it.first.run, it.partitions)
        return Permit(it.first.table, it.first.run, _seen(it), is_whole, settles)

    def judged(self, it: SettlingRun) -> Sequence[RerunOutcome]:
        return _judged(self.table, it, _seen(it))


@dataclass(frozen=True)
class _OfS3A:
    """A destination of Hadoop's committers: the whole run loads again."""

    table: Table

    @property
    def plans(self) -> TableRoot:
        from ..orchestration.s3a.settling import plans_root

        return plans_root(self.table.root)

    def permit(self, it: SettlingRun) -> Permit:
        from ..orchestration.s3a.settling import load_to_repeat, planned_loads

        winner = load_to_repeat(self.table, it.first.run)
        losers = {loser for one in it.orders for loser in one.losers}
        loads = planned_loads(self.table, winner, it.partitions, losers)
        settles = {one.partition: one.settling for one in it.orders}
        return Permit(it.first.table, it.first.run, loads, True, settles, self.plans)

    def judged(self, it: SettlingRun) -> Sequence[RerunOutcome]:
        from ..orchestration.s3a.settling import settled_by

        loads = {name: it.versions.get(name, 0) for name in it.partitions}
        job = settled_by(self.table, it.first.run, loads)
        error = "" if job is not None else _NOT_LOADED
        return [RerunOutcome(one, job, error) for one in it.orders]


@dataclass(frozen=True)
class _OfAdopted:
    """A destination of Hadoop's committers that has become a Delta table since the runs in conflict
    loaded it: the run loads the partitions in conflict by a job of that table."""

    directory: Table
    table: DeltaTable

    @property
    def plans(self) -> TableRoot:
        return self.table.root

    def permit(self, it: SettlingRun) -> Permit:
        from ..orchestration.s3a.settling import plan_since_adoption

        plan = plan_since_adoption(self.directory, self.table, it.first.run, it.partitions)
        settles = {one.partition: one.settling for one in it.orders}
        return Permit(it.first.table, it.first.run, plan.versions, plan.is_whole, settles)

    def judged(self, it: SettlingRun) -> Sequence[RerunOutcome]:
        from ..maintenance.conflicts import ADOPTION

        return _judged(self.table, it, dict.fromkeys(it.partitions, ADOPTION))


def _judged(
    table: Table | DeltaTable, it: SettlingRun, versions: Mapping[str, int]
) -> list[RerunOutcome]:
    """Return the outcome of each order of a run, by the table's own record.

    :param versions: of the partitions, before the run.
    """
    from ..orchestration.runs.outcomes import why_not_settled

    found = table.settled(versions)
    made = []
    for one in it.orders:
        here = found[one.partition]
        why = why_not_settled(here, one.run, one.losers, versions[one.partition])
        made.append(RerunOutcome(one, None if why else here.job, why))
    return made


_NOT_LOADED = (
    "The run ended well, and did not settle the conflict: the task has on_repeat='skip', or "
    "another run has loaded since"
)


def _seen(it: SettlingRun) -> dict[str, int]:
    """Return the versions at which the plan has seen the partitions in conflict."""
    return {one.partition: one.version for one in it.orders}


def _named(it: SettlingRun) -> str:
    return f"{counted(len(it.partitions), 'partition')} ({first_few(it.partitions)})"
