"""Clearing: a task's instance runs again, once its runs are told what a plan lets them make.

Each run is told before the clear what it may replace, as the plan has seen it
(:class:`.Narrowing`). What it was told is taken back when its task has ended.
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
#: Looks one after the other at which Airflow's API may fail.
_TROUBLES = 10


@dataclass(frozen=True)
class Permit:
    """What a plan lets a run make.

    :param table: its root.
    :param idempotency_key: the run's key.
    :param versions: the partitions that it may replace, at the versions that the plan has seen;
        none: the run goes by no plan.
    :param whole: it makes all of its partitions.
    :param settles: of these, those in which it settles a conflict of runs.
    :param plans: the root below which the run is told so; ``None``: the table's.
    """

    table: str
    idempotency_key: str
    versions: Mapping[str, int]
    whole: bool
    settles: Mapping[str, Settling] = field(default_factory=dict)
    plans: TableRoot | None = None


@dataclass(frozen=True)
class Clearing:
    """Clears instances of tasks as plans of one task let them run again.

    :param planner: the task that does this.
    :param seconds: as long as it may take.
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
        """Let an instance run again, as all of these permit; ``False``: it is at work already, or
        another plan has it.

        :param include_downstream: let its successors run again, too.
        :param latest: by the newest version of its DAG.
        :raises ApiRefusedError: the API refused; nothing was cleared, and what its runs were told
            is taken back.
        :raises ApiTroubleError: it may be cleared.
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
        """Tell each run that goes by plans what it is to make, and no other run what somebody else
        has told it; ``False``: the task is at work, or another plan has it."""
        # On use: DAG files are parsed by processes that look at nothing.
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
        """Read what a plan has told a run.

        :param plans: the root below which it was told; ``None``: the table's.
        """
        from ..committer.commit.narrowed_run import read_narrowing

        table = self.hook.get_table_as_it_is(url)
        return table.run(read_narrowing(plans or table.root, idempotency_key))

    def _is_at_work(self, api: AirflowApi, left: Left) -> bool:
        """Tell whether another task that has told a run something still waits for it."""
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
        """Let what this task has told a run count no longer."""
        from ..committer.commit.narrowed_run import end_narrowing

        left = None if idempotency_key is None else self.read(url, idempotency_key, plans)
        if left is None or left.said.over or NamedTask.of(left.said.planner) != self.planner:
            return
        table = self.hook.get_table_as_it_is(url)
        table.run(end_narrowing(plans or table.root, left, new_write_id()))


class ClearingProgress(Protocol):
    """What a task that clears others has done so far.

    :param until: Unix time at which it is given up.
    :param troubles: looks at which Airflow's API has failed, since one at which it did not.
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
    """Look what there is to clear, and how what was cleared goes on, until all is done.

    :param look: does what there is to do now; returns also whether all is done.
    :param wait: called between two looks; may leave this, to go on later.
    :param give_up: what becomes of the progress when the time is up, if it does not raise.
    :raises AirflowFailException: the API refused.
    :raises ApiTroubleError: the API fails for minutes.
    """
    with final_where_refused():
        while True:
            done = False
            try:
                with airflow_api(airflow_conn_id) as api:
                    progress, done = look(api, progress)
                progress = _with_troubles(progress, 0)
            except ApiTroubleError as error:
                # What it has cleared meanwhile is found at work by the next look.
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
