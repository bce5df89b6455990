"""Clearing of task instances, so that they run again within a plan.

Before the clear, a record for each run says which partitions it may replace, at the versions that
the plan has seen (:class:`.Narrowing`). The record is ended when the run's task has ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..committer.format.job_spec import Owner
from ..committer.format.layout import TableRoot, new_write_id
from ..committer.format.records.narrowing import Narrowing
from ..committer.format.settling import Settling
from ..orchestration.runs.task_run import NamedTask
from .airflow_api import (
    ENDED,
    AirflowApi,
    ApiRefusedError,
    ApiTroubleError,
    GoneError,
    TaskRunsError,
    airflow_api,
)
from .failures import final_where_refused
from .hooks import ZeroRenameHook

if TYPE_CHECKING:
    from ..committer.commit.narrowed_run import Left

_log = logging.getLogger(__name__)
#: The most consecutive polls in which Airflow's API may fail.
_TROUBLES = 10


@dataclass(frozen=True)
class Permit:
    """Permission of a plan for a run.

    :param table: the table's root.
    :param idempotency_key: the run's key.
    :param versions: the partitions that the run may replace, at the versions that the plan has
        seen; empty: no plan binds the run.
    :param whole: the run makes all of its partitions.
    :param settles: the partitions in which it settles a conflict of runs.
    :param plans: the root of the plan's record; ``None``: the table's root.
    """

    table: str
    idempotency_key: str
    versions: Mapping[str, int]
    whole: bool
    settles: Mapping[str, Settling] = field(default_factory=dict)
    plans: TableRoot | None = None


@dataclass(frozen=True)
class Clearing:
    """The clears of one planning task.

    :param planner: the task that plans and clears.
    :param seconds: the longest time that it may take.
    """

    hook: ZeroRenameHook
    planner: NamedTask
    seconds: float

    def clear(
        self,
        api: AirflowApi,
        instance: NamedTask,
        permits: Sequence[Permit],
        include_downstream: bool = False,
        latest: bool = False,
    ) -> bool:
        """Let an instance run again, within all of these permits.

        :param include_downstream: let its successors run again, too.
        :param latest: use the newest version of its DAG.
        :return: ``False`` if the instance is at work already, or another plan has it.
        :raises ApiRefusedError: the API refused. Nothing was cleared, and the records of the
            permits are ended.
        :raises ApiTroubleError: it is not known whether the instance was cleared.
        """
        if not self._leave(api, instance, permits):
            return False
        try:
            api.clear(instance, include_downstream, latest)
        except (TaskRunsError, ApiRefusedError) as error:
            for it in permits:
                self.take_back(it.table, it.idempotency_key, it.plans)
            if isinstance(error, ApiRefusedError):
                raise
            return False
        return True

    def _leave(self, api: AirflowApi, instance: NamedTask, permits: Sequence[Permit]) -> bool:
        """Write the records of permits with versions; end the records of other plans.

        :return: ``False`` if the task is at work, or another plan has it.
        """
        # Imported on use: processes that only parse DAG files need not load it.
        from ..committer.commit.narrowed_run import end_narrowing, leave_narrowing

        if any(it.versions for it in permits) and api.state(instance) not in ENDED:
            return False
        for it in permits:
            table = self.hook.get_table_as_it_is(it.table)
            left, root = self.read(it.table, it.idempotency_key, it.plans), it.plans or table.root
            if left is not None and not left.said.over and self._is_at_work(api, left):
                return False
            job = table.job_of_key(it.idempotency_key)
            if it.versions and (job is not None or it.settles):
                said = self._said(it, job)
                if not table.run(leave_narrowing(root, said, left)):
                    return False
            elif left is not None and not left.said.over:
                table.run(end_narrowing(root, left, new_write_id()))
        return True

    def _said(self, it: Permit, job: str | None) -> Narrowing:
        seconds, planner = int(self.seconds), Owner(**asdict(self.planner))
        return Narrowing(
            *(new_write_id(), it.idempotency_key, job, it.versions, seconds, planner, it.whole),
            settles=it.settles,
        )

    def read(self, url: str, idempotency_key: str, plans: TableRoot | None = None) -> Left | None:
        """Read the record of a plan for a run.

        :param url: the table's root.
        :param plans: the root of the plan's record; ``None``: the table's root.
        """
        from ..committer.commit.narrowed_run import read_narrowing

        table = self.hook.get_table_as_it_is(url)
        return table.run(read_narrowing(plans or table.root, idempotency_key))

    def _is_at_work(self, api: AirflowApi, left: Left) -> bool:
        """Return whether another task has written a plan and still waits for its run."""
        planner = NamedTask.of(left.said.planner)
        if planner is None or planner == self.planner:
            return False
        try:
            return api.state(planner) not in ENDED
        except GoneError:
            return False  # Its run was deleted.

    def take_back(
        self, url: str, idempotency_key: str | None, plans: TableRoot | None = None
    ) -> None:
        """End the record of this task's plan for a run, if there is one."""
        from ..committer.commit.narrowed_run import end_narrowing

        left = None if idempotency_key is None else self.read(url, idempotency_key, plans)
        if left is None or left.said.over or NamedTask.of(left.said.planner) != self.planner:
            return
        table = self.hook.get_table_as_it_is(url)
        table.run(end_narrowing(plans or table.root, left, new_write_id()))


def program_of(owner: Owner) -> str:
    """Return the name of the program that made a job outside Airflow, for a message."""
    if owner.dag_id and owner.run_id and owner.task_id:
        return f"Dagster, asset {owner.task_id} in run {owner.run_id}"
    return owner.application or "an unnamed program"


class ClearingProgress(Protocol):
    """Progress of a task that clears others.

    :param until: Unix time at which the task gives up.
    :param troubles: the number of consecutive polls in which Airflow's API has failed.
    """

    @property
    def until(self) -> float: ...
    @property
    def troubles(self) -> int: ...


P = TypeVar("P", bound=ClearingProgress)


def follow(
    airflow_conn_id: str,
    look: Callable[[AirflowApi, P], tuple[P, bool]],
    progress: P,
    wait: Callable[[P], None],
    give_up: Callable[[P], P],
) -> P:
    """Poll the cleared tasks, and clear those that are due, until all is done.

    :param look: does all that can be done now. It returns the progress, and whether all is done.
    :param wait: called between two polls; it may raise, to go on in another process.
    :param give_up: called when the time is up. It returns the final progress, or raises.
    :raises AirflowFailException: the API refused.
    :raises ApiTroubleError: the API has failed for minutes.
    """
    with final_where_refused():
        while True:
            done = False
            try:
                with airflow_api(airflow_conn_id) as api:
                    progress, done = look(api, progress)
                progress = _with_troubles(progress, 0)
            except ApiTroubleError as error:
                # If it has cleared tasks meanwhile, the next poll finds them at work.
                if progress.troubles == _TROUBLES:
                    raise
                progress = _with_troubles(progress, progress.troubles + 1)
                _log.warning("%s It is asked again.", error)
            if done:
                return progress
            if time.time() > progress.until:
                return give_up(progress)
            wait(progress)


def _with_troubles(progress: P, troubles: int) -> P:
    made: Any = replace
    return made(progress, troubles=troubles)
