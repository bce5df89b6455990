"""Run and partitions of a task, read from its context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import MappedOperator

from ..committer.errors import InvalidInputError
from ..committer.format.run_rank import RunRank, RunRanks
from ..orchestration.runs.arguments import read_index
from ..orchestration.runs.partitions import check_partition, dated_partition, listed_partitions
from ..orchestration.runs.task_run import TaskRun
from .assets.outlets import is_cut_key

#: Argument for jobs that write any partitions that their rows have, and for unpartitioned tables.
ANY = "*"
_REMEDY = (
    "Give partition='year=2013/month=1/day=5' (templates work), or "
    "partition_format='year=%Y/month=%-m/day=%-d' for the run's date, or partition='*' for a "
    "job that writes whatever partitions its rows have and for an unpartitioned table."
)


def task_run(context: Mapping[str, Any]) -> TaskRun:
    """Return the attempt that a context belongs to."""
    ti = context["ti"]
    task = context.get("task") or getattr(ti, "task", None)
    retries = int(getattr(task, "retries", 0) or 0)
    # A clear sets max_tries to try_number + retries (airflow.models.taskinstance,
    # clear_task_instances). The task SDK finds the first attempt after a clear in the same way.
    max_tries = getattr(ti, "max_tries", None)
    first_try = max(1, int(max_tries) - retries + 1) if max_tries is not None else 1
    map_index = getattr(ti, "map_index", None)
    try_number = int(ti.try_number)
    return TaskRun(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if map_index is None else int(map_index),
        try_number=try_number,
        first_try=min(first_try, try_number),
        series=_series(context.get("dag_run"), max_tries),
    )


def _series(dag_run: Any, max_tries: int | None) -> str | None:
    """Return a text that is the same in all attempts since the task's last clear, and unique.

    A run that is deleted and made again begins at another time. A clear changes the task's
    max_tries (airflow.models.taskinstance, clear_task_instances). It also raises the run's
    clear_number, but so does a clear of any other task of the run: by that number a retry would
    count as cleared, and a deferred load as another attempt.
    """
    began = getattr(dag_run, "start_date", None)
    if began is None:
        return None
    return f"{began.isoformat()} {max_tries}"


def map_index_of(task_id: str, given: int | str | None, context: Mapping[str, Any]) -> int:
    """Return the map index of a task of this run that another task waits for; -1: not mapped.

    :param given: the argument; ``None``: the index of the waiting task, if both are in one mapped
        task group.
    :raises InvalidInputError: there is no such task in the DAG; it is mapped and its index is not
        given, or it is not mapped and one is given; or the argument is not an index.
    """
    index = None if given is None else read_index("upstream_map_index", given)
    task = context["task"]
    dag = task.get_dag()
    if dag is None:
        return -1 if index is None else index
    upstream = dag.task_dict.get(task_id)
    if upstream is None:
        raise _no_such_task(task_id, dag)
    group, mine = upstream.get_closest_mapped_task_group(), task.get_closest_mapped_task_group()
    mapped = isinstance(upstream, MappedOperator)
    if index is not None and index >= 0:
        if mapped or group is not None:
            return index
        raise InvalidInputError(
            f"The task {task_id!r} is not mapped, and upstream_map_index={index} is given: such a "
            "job would never come.",
            remedy="Leave upstream_map_index out.",
        )
    if mapped or (group is not None and (mine is None or mine.group_id != group.group_id)):
        raise InvalidInputError(
            f"The task {task_id!r} is mapped, and nothing says the job of which index is meant.",
            remedy="Give upstream_map_index=…, '{{ ti.map_index }}' in a sensor that is mapped "
            "likewise; or wait for partitions=[…].",
        )
    return -1 if group is None else int(context["ti"].map_index)


def _no_such_task(task_id: str, dag: Any) -> InvalidInputError:
    longer = [name for name in dag.task_dict if name.endswith(f".{task_id}")]
    return InvalidInputError(
        f"The DAG {dag.dag_id!r} has no task {task_id!r}, whose job would never come.",
        remedy=f"Name it with its task group, {', '.join(longer)}."
        if longer
        else "Name a task of this DAG; of another one give idempotency_key=….",
    )


def resolve_partitions(
    context: Mapping[str, Any],
    partition: str | Sequence[str] | None,
    partition_format: str | None,
    timezone: str = "UTC",
) -> tuple[str, ...]:
    """Return the partitions that a run must load.

    They come from the argument or, without one, from the run's partition key or else from the run's
    date in ``partition_format``. A run's date is its ``partition_date`` in a partitioned run, and
    otherwise the start of its data interval. A partitioned run has no data interval and no ``ds``.

    :param partition: one path, several, or :data:`ANY`.
    :param partition_format: ``strftime`` codes for the date, such as ``year=%Y/month=%-m/day=%-d``.
    :param timezone: the zone in which the date is written.
    :return: paths without repetition; empty for :data:`ANY`.
    :raises InvalidInputError: nothing gives the partition; the message says what to give.
    """
    if partition is not None:
        return refuse_cut_key(context, _named(partition))
    key = context.get("partition_key")
    date = context.get("partition_date") if key else context.get("data_interval_start")
    if key and "=" in key:
        return refuse_cut_key(context, (check_partition(key),))
    if partition_format is not None and date is not None:
        made = dated_partition(date, partition_format, timezone)
        if not key:
            _check_logical_date(context)
            _check_events(
                context,
                made,
                partial(dated_partition, partition_format=partition_format, timezone=timezone),
            )
        return (made,)
    raise InvalidInputError(_missing(key, date, partition_format), remedy=_REMEDY)


def refuse_cut_key(context: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return partitions, unless one of them is the run's partition key and that was cut.

    :raises InvalidInputError: no partition has such a name: a load would write another one than the
        one whose event has started the run.
    """
    key = str(context.get("partition_key") or "")
    if is_cut_key(key) and key in names:
        raise InvalidInputError(
            f"The run's partition key {key!r} is longer than Airflow allows and was cut, so it is "
            "no partition. Nothing was read or written.",
            remedy="Give partition= the whole path: an event of a load has it as "
            "extra['partition'], and triggering_asset_events has the event.",
        )
    return names


def run_rank(context: Mapping[str, Any], given: object | None) -> RunRanks | None:
    """Return the rank of a run.

    It is the rank that its task gives; without it, the end of the run's data interval or its
    partition's date; without these, the time at which the run was due. Of two runs with the same
    rank, the one that was due later is newer. In Airflow 2 the time at which a run was due is its
    logical date. The run's start is never used, since Airflow sets it again when a task is cleared.

    :param given: the rank that the task gives, or ``None``.
    :return: ``None`` if the run has none of these; then the opening of its job is its rank.
    :raises InvalidInputError: the task gives an invalid rank.
    """
    due = getattr(context.get("dag_run"), "run_after", None) or context.get("logical_date")
    if given is not None:
        return RunRanks.of(RunRank.of(given, due))
    interval_end = context.get("data_interval_end")
    date = context.get("partition_date") if interval_end is None else interval_end
    known = date or due
    return None if known is None else RunRanks.of(RunRank.of(known, due))


def no_partition() -> InvalidInputError:
    """Build the error for an empty list of partitions."""
    return InvalidInputError("partition names no partition.", remedy=_REMEDY)


def _named(partition: str | Sequence[str]) -> tuple[str, ...]:
    names = listed_partitions("partition", partition)
    if names == (ANY,):
        return ()
    if not names:
        raise no_partition()
    return tuple(dict.fromkeys(check_partition(name) for name in names))


def _check_logical_date(context: Mapping[str, Any]) -> None:
    """Check that a run's data interval fits its logical date.

    With ``airflow dags trigger --logical-date`` the data interval is the last one before *now*, for
    any date (airflow.api.common.trigger_dag infers it from ``run_after``).

    :raises InvalidInputError: the data interval is about another time.
    """
    logical = context.get("logical_date")
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if logical is None or start is None or end is None:
        return
    run_after = getattr(context.get("dag_run"), "run_after", None) or logical
    if start <= logical <= max(end, run_after):
        return
    raise InvalidInputError(
        f"The run's data interval, {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, is not about "
        f"its logical date, {logical:%Y-%m-%d %H:%M}: it is the last one before the run was made. "
        "Nothing was submitted.",
        remedy="airflow dags trigger --logical-date makes such runs. For a day that is over run "
        "airflow backfill create --dag-id … --from-date … --to-date …; or give partition='…'.",
    )


def _check_events(
    context: Mapping[str, Any], partition: str, partition_of: Callable[[datetime], str]
) -> None:
    """Check that all events that have started a run are of one partition.

    Airflow 2.11 starts one run for all events of datasets that came since the one before, and its
    data interval spans those of all runs that they are of.

    :param partition: of the start of the data interval.
    :param partition_of: returns the partition of a time.
    :raises InvalidInputError: the interval has several: no run would load the others.
    """
    if getattr(context.get("dag_run"), "run_type", None) != "dataset_triggered":
        return
    start, end = context["data_interval_start"], context["data_interval_end"]
    last = partition_of(max(start, end - timedelta(microseconds=1)))
    if last != partition:
        raise InvalidInputError(
            f"Events of several partitions have started this run, from {partition} "
            f"({start:%Y-%m-%d %H:%M}) to {last} ({end:%Y-%m-%d %H:%M}), and partition_format "
            "names only the first one. Nothing was submitted.",
            remedy="Give partition= the list of all: the events that Airflow gives the task tell "
            "them, that of a load as extra['partition']. Or load by a schedule.",
        )


def _missing(key: Any, date: datetime | None, partition_format: str | None) -> str:
    if key and partition_format is None:
        return (
            f"The run's partition key {key!r} is no partition path, and there is no "
            "partition_format for its date."
        )
    if key:
        return f"The run's partition key {key!r} is no partition path, and the run has no date."
    if date is None and partition_format is not None:
        return (
            "The run has neither a partition key nor a data interval (as a run triggered "
            "without a logical date), so there is no date for partition_format."
        )
    return "Nothing says which partition this run loads."
