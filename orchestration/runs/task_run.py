"""Identity of one attempt of a task, for the commit protocol.

A job's idempotency key names DAG, run, task and map index, but not the attempt: attempt 2 must find
the commit of attempt 1. An earlier commit under the key is reported or replaced. This depends on
why the task runs again: :meth:`TaskRun.on_repeat` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ...committer.errors import InvalidInputError
from ...committer.format.handoff import Handoff

if TYPE_CHECKING:
    from ...committer import Owner

#: The index of a mapped task, or -1.
_INDEX = re.compile(r"-?\d{1,18}", re.ASCII)
#: Values of the operators' argument ``on_repeat``; ``auto`` becomes one of the others.
ON_REPEAT = ("auto", "skip", "replace_own", "append")


def idempotency_key_of(
    dag_id: str, run_id: str, task_id: str, map_index: int | str | None = None
) -> str:
    """Return the idempotency key of a task's run.

    In templates it is the macro ``macros.zero_rename.idempotency_key_of``.

    :param map_index: index of a mapped task, also as a text; ``None`` and -1 mean a task that is
        not mapped.
    :raises InvalidInputError: ``map_index`` is not a whole number.
    :return: such as ``flights/scheduled__2013-02-01T00:00:00+00:00/load``; parts are escaped,
        so that two runs never share a key.
    """
    parts = [quote(part, safe=":+ ~") for part in (dag_id, run_id, task_id)]
    if map_index is None:
        return "/".join(parts)
    said = str(map_index).strip()
    if isinstance(map_index, bool) or not _INDEX.fullmatch(said):
        raise InvalidInputError(
            f"map_index={map_index!r} is not the index of a mapped task.",
            remedy="Give a whole number; leave it out for a task that is not mapped.",
        )
    if int(said) >= 0:
        parts.append(str(int(said)))
    return "/".join(parts)


@dataclass(frozen=True)
class NamedTask:
    """A task of a run, as an idempotency key names it.

    :param map_index: -1 for a task that is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @staticmethod
    def of(owner: Owner) -> NamedTask | None:
        """Return the task that runs a job; ``None`` if the owner is not a task of Airflow."""
        if not owner.dag_id or not owner.run_id or not owner.task_id:
            return None
        index = -1 if owner.map_index is None else owner.map_index
        return NamedTask(owner.dag_id, owner.run_id, owner.task_id, index)

    @staticmethod
    def of_run(owner: Owner, idempotency_key: str | None) -> NamedTask | None:
        """Return the task that made a job; ``None`` also if a run of Dagster did, whose owner names
        a job, a run and an asset.

        :param idempotency_key: of the job's run; ``None``: it has none.
        """
        # Imported on use: processes that only parse DAG files need not load it.
        from ...committer.format.records.run_conflict import is_dagsters

        return None if is_dagsters(owner, idempotency_key) else NamedTask.of(owner)

    @property
    def state_name(self) -> str:
        """The task's name among the states of a run's tasks (Airflow SDK's ``get_task_states``)."""
        return f"{self.task_id}_{self.map_index}" if self.map_index >= 0 else self.task_id

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"task {self.task_id}{mapped} of DAG {self.dag_id}, run {self.run_id}"


def task_of(idempotency_key: str) -> NamedTask | None:
    """Return the task of a key by :func:`idempotency_key_of`; ``None`` for any other key."""
    parts = idempotency_key.split("/")
    if len(parts) not in (3, 4) or not all(parts) or not "".join(parts[3:] or "0").isdecimal():
        return None
    dag_id, run_id, task_id = map(unquote, parts[:3])
    return NamedTask(dag_id, run_id, task_id, int(parts[3]) if len(parts) == 4 else -1)


@dataclass(frozen=True)
class TaskRun:
    """One attempt of a task.

    :param try_number: Airflow's number of the attempt; it counts on over retries *and* clears.
    :param first_try: the number of the first attempt since the task was last cleared, or 1. It is
        right only if the number of the task's retries has not changed since then.
    :param series: identifies the attempts since the task was last cleared. It differs from that of
        earlier attempts, and from that of a deleted run with the same id. ``None`` if the context
        has no run.
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
        """Return what to do if this run has committed before.

        ``auto`` becomes ``skip`` if the commit is of an attempt since the task was last cleared:
        then this is a retry, and the commit is reported. It becomes ``replace_own`` if the task was
        cleared since, for example by a backfill that reprocesses, or if its run was deleted and
        made again: then it should load again and replace its former rows. If the two cases cannot
        be distinguished, it becomes ``replace_own``, which leaves the right rows in both cases. If
        the owner does not say which attempt it was, it becomes ``skip`` only for a later attempt of
        a task that was never cleared: a first attempt is a retry of none.

        :param asked: one of :data:`ON_REPEAT`.
        :param committed_by: the owner of that commit; ``None`` if there is no commit, or its job is
            not known.
        """
        if asked != "auto":
            return asked
        if committed_by is None:
            return "skip" if self.first_try == 1 else "replace_own"
        if committed_by.try_number is None:
            return "skip" if self.first_try == 1 and not self.is_first else "replace_own"
        return "skip" if self.retries(committed_by) else "replace_own"

    def on_repeat_of_cleaned(self, asked: str, committed_by: Owner | None) -> str:
        """Return what to do if this run has committed before, by a job whose entry was cleaned.

        As :meth:`on_repeat`, but if the owner is not known, ``auto`` becomes ``replace_own`` for
        the first attempt: the commit is of a deleted run with the same id.

        :param asked: one of :data:`ON_REPEAT`.
        """
        if committed_by is None and asked == "auto" and self.is_first:
            return "replace_own"
        return self.on_repeat(asked, committed_by)

    def handoff(self) -> Handoff:
        """Return the hand-off for the application: the job's idempotency key and owner."""
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
        """The owner that the records of its jobs name."""
        return self.handoff().owner

    @property
    def named(self) -> NamedTask:
        return NamedTask(self.dag_id, self.run_id, self.task_id, self.map_index)

    def owns(self, owner: Any) -> bool:
        """Return whether a job's owner is this run's task, in any attempt."""
        return NamedTask.of(owner) == self.named

    def made(self, owner: Owner | None) -> bool:
        """Return whether this attempt made a job of this run; true if the owner is unknown.

        The number of an attempt counts on over clears. So it is unique, unless the run was deleted
        and made again.
        """
        if owner is None or owner.try_number is None:
            return True
        return self._is_of_this_run(owner) and owner.try_number == self.try_number

    def comes_after(self, owner: Owner) -> bool:
        """Return whether an earlier attempt made a job of this run."""
        number = owner.try_number
        return self.owns(owner) and number is not None and 1 <= number < self.try_number

    def retries(self, owner: Owner) -> bool:
        """Return whether this attempt is a retry of the attempt that made a job of this run.

        It is not if the task is known to have been cleared between the two.
        """
        number = owner.try_number
        # The series alone would miss a clear if max_tries is the same after it, because the task's
        # retries were lowered by just as much.
        is_before = number is not None and self.first_try <= number < self.try_number
        is_same = owner.cleared is None or self.owner.cleared in (None, owner.cleared)
        return is_before and is_same and self._is_of_this_run(owner)

    def _is_of_this_run(self, owner: Owner) -> bool:
        """Return whether a job is of this run, and not of a deleted run with the same id."""
        return owner.run_began is None or self.owner.run_began in (None, owner.run_began)

    def __str__(self) -> str:
        mapped = f", map index {self.map_index}" if self.map_index >= 0 else ""
        return (
            f"task {self.task_id!r} of DAG {self.dag_id!r}, run {self.run_id!r}{mapped}, "
            f"attempt {self.try_number}"
        )


def check_on_repeat(value: str) -> str:
    """Return ``value`` after checking that it is one of :data:`ON_REPEAT`.

    :raises InvalidInputError: it is not.
    """
    if value not in ON_REPEAT:
        raise InvalidInputError(
            f"on_repeat={value!r} is unknown.", remedy=f"Choose one of {', '.join(ON_REPEAT)}."
        )
    return value
