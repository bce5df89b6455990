"""Identity of one execution of a task, as far as the commit protocol cares.

A job's idempotency key names DAG, run, task and map index, and not the try: try 2 must find what
try 1 committed. Whether an earlier commit under the key is to be reported or replaced depends
on why the task runs again, which :meth:`TaskRun.on_repeat` tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ...committer.errors import InvalidInputError
from ...committer.format.handoff import Handoff

if TYPE_CHECKING:
    from ...committer import Owner

#: What the operators take for ``on_repeat``; ``auto`` becomes one of the others.
ON_REPEAT = ("auto", "skip", "replace_own", "append")


def idempotency_key_of(dag_id: str, run_id: str, task_id: str, map_index: int | None = None) -> str:
    """The idempotency key of a task's run; also a macro, ``macros.zero_rename.idempotency_key_of``.

    :param map_index: index of a mapped task; ``None`` and -1 mean a task that is not mapped.
    :return: such as ``flights/scheduled__2013-02-01T00:00:00+00:00/load``; parts are escaped,
        so that two runs never share a key.
    """
    parts = [quote(part, safe=":+ ~") for part in (dag_id, run_id, task_id)]
    if map_index is not None and map_index >= 0:
        parts.append(str(map_index))
    return "/".join(parts)


@dataclass(frozen=True)
class NamedTask:
    """A task of a run, such as an idempotency key names.

    :param map_index: -1 for a task that is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @staticmethod
    def of(owner: Owner) -> NamedTask | None:
        """The task that runs a job; ``None``: it is none of Airflow's."""
        if not owner.dag_id or not owner.run_id or not owner.task_id:
            return None
        index = -1 if owner.map_index is None else owner.map_index
        return NamedTask(owner.dag_id, owner.run_id, owner.task_id, index)

    @property
    def state_name(self) -> str:
        """Its name among the states of a run's tasks (``get_task_states`` of Airflow's SDK)."""
        return f"{self.task_id}_{self.map_index}" if self.map_index >= 0 else self.task_id

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"task {self.task_id}{mapped} of DAG {self.dag_id}, run {self.run_id}"


def task_of(idempotency_key: str) -> NamedTask | None:
    """The inverse of :func:`idempotency_key_of`; ``None`` for a key that is not made by it."""
    parts = idempotency_key.split("/")
    if len(parts) not in (3, 4) or not all(parts) or not "".join(parts[3:] or "0").isdecimal():
        return None
    dag_id, run_id, task_id = map(unquote, parts[:3])
    return NamedTask(dag_id, run_id, task_id, int(parts[3]) if len(parts) == 4 else -1)


@dataclass(frozen=True)
class TaskRun:
    """One execution of a task.

    :param try_number: counts on over retries *and* clears.
    :param first_try: the try with which the present series began: 1, or the first after the
        task was last cleared; as far as the task's retries are what they were then.
    :param series: tells this series of tries from those before the task was cleared, and from
        those of a run of the same id that was deleted; ``None`` where the context has no run.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    first_try: int
    series: str | None = None

    @property
    def idempotency_key(self) -> str:
        return idempotency_key_of(self.dag_id, self.run_id, self.task_id, self.map_index)

    @property
    def is_first(self) -> bool:
        return self.try_number == 1

    def on_repeat(self, asked: str, committed_by: Owner | None = None) -> str:
        """What to do if this run has committed before.

        ``auto``: where an earlier try of the present series committed, this is a retry, and
        that commit is reported (``skip``). Else the task was cleared, as by a backfill that
        reprocesses, or its run was made anew: it is meant to load again, and replaces what it
        loaded (``replace_own``). Where the two cannot be told apart, replacing is the choice
        that leaves the right rows either way.

        :param asked: one of :data:`ON_REPEAT`.
        :param committed_by: the owner of that commit; ``None`` where there is none or it is not
            known.
        """
        if asked != "auto":
            return asked
        number = None if committed_by is None else committed_by.try_number
        if committed_by is None or number is None:
            return "skip" if self.first_try == 1 else "replace_own"
        return "skip" if self.retries(committed_by) else "replace_own"

    def handoff(self) -> Handoff:
        """What its application is told of it: the job's idempotency key and owner."""
        return Handoff(
            idempotency_key=self.idempotency_key,
            dag=self.dag_id,
            run=self.run_id,
            task=self.task_id,
            map_index=self.map_index,
            try_number=self.try_number,
            series=self.series,
        )

    @property
    def owner(self) -> Owner:
        """Who its jobs' records say runs them."""
        return self.handoff().owner

    @property
    def named(self) -> NamedTask:
        return NamedTask(self.dag_id, self.run_id, self.task_id, self.map_index)

    def owns(self, owner: Any) -> bool:
        """Whether a job's owner is this run's task, in whatever try."""
        return NamedTask.of(owner) == self.named

    def made(self, owner: Owner | None) -> bool:
        """Whether it was this very try that made a job of this run, as far as is known.

        A run counts its tries over clears, so the number tells a try from all others, unless the
        run was made anew.
        """
        if owner is None or owner.try_number is None:
            return True
        return self._is_of_this_run(owner) and owner.try_number == self.try_number

    def retries(self, owner: Owner) -> bool:
        """Whether this try is a retry of one that made a job of this run: no clear of the task came
        between them that is known of."""
        number = owner.try_number
        # The series alone would miss a clear after which max_tries is what it was because the
        # task's retries were lowered by just as much.
        is_before = number is not None and self.first_try <= number < self.try_number
        is_same = owner.cleared is None or self.owner.cleared in (None, owner.cleared)
        return is_before and is_same and self._is_of_this_run(owner)

    def _is_of_this_run(self, owner: Owner) -> bool:
        """Whether a job's run is this one, and was not deleted and made anew since."""
        return owner.run_began is None or self.owner.run_began in (None, owner.run_began)

    def __str__(self) -> str:
        mapped = f", map index {self.map_index}" if self.map_index >= 0 else ""
        return (
            f"task {self.task_id!r} of DAG {self.dag_id!r}, run {self.run_id!r}{mapped}, "
            f"try {self.try_number}"
        )


def check_on_repeat(value: str) -> str:
    """Return ``value`` if it is one of :data:`ON_REPEAT`.

    :raises InvalidInputError: it is not.
    """
    if value not in ON_REPEAT:
        raise InvalidInputError(
            f"on_repeat={value!r} is unknown.", remedy=f"Choose one of {', '.join(ON_REPEAT)}."
        )
    return value
