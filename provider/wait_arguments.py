"""Arguments of a sensor, made into what it asks of its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from ..committer.errors import InvalidInputError
from ..orchestration.job_query import JobQuery
from ..orchestration.partitions_query import PartitionsQuery, TableQuery
from ..orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    listed_partitions,
    moment,
    partitions_between,
)
from ..orchestration.runs.task_run import once_key
from ..orchestration.table_names import check_table_name
from ..orchestration.templates import check_texts, is_known
from ..s3a.hadoop.settings import NATIVE
from .task_context import map_index_of, resolve_partitions, task_run

#: What is asked of partitions, whichever job committed them.
_OF_PARTITIONS = ("partitions", "from_date", "to_date", "newer_than", "committer", "check_files")
#: Arguments that are texts once they are rendered.
_TEXTS = (
    *("table", "job", "upstream_task_id", "once", "partition", "partition_format", "committer"),
    "zero_rename_conn_id",
)


class WaitArguments(Protocol):
    """The arguments, by their names on the sensor."""

    table: str
    job: str | None
    upstream_task_id: str | None
    upstream_map_index: int | str | None
    once: str | None
    partition: str | None
    partitions: Any
    partition_format: str | None
    partition_timezone: str
    from_date: str | datetime | None
    to_date: str | datetime | None
    newer_than_epoch: int | str | None
    newer_than: str | float | datetime | None
    min_rows: int | None
    min_files: int | None
    committer: str | None
    check_files: bool
    apply: bool
    on_foreign_marker: str
    zero_rename_conn_id: str


def check_wait_arguments(task: WaitArguments) -> None:
    """While a DAG file is parsed: what no template hides.

    :raises InvalidInputError: an argument that cannot be right.
    """
    if not task.table or is_known(task.table):
        check_table_name(task.table)
    once = task.once if task.upstream_task_id is None else task.upstream_task_id
    _query(task, task.table, once, _known_partitions(task), is_known).check(is_known)


def wait_query(task: WaitArguments, table: str, context: Mapping[str, Any]) -> TableQuery:
    """What a sensor asks, by its rendered arguments.

    :param table: the table's whole root.
    :raises InvalidInputError: they do not say what is waited for, or cannot be right.
    """
    check_texts(task, _TEXTS)
    for name in ("once", "upstream_task_id"):
        _check_named(name, getattr(task, name))
    once = task.once
    if task.upstream_task_id is not None and once is None:
        run, upstream = task_run(context), task.upstream_task_id
        index = map_index_of(upstream, task.upstream_map_index, context)
        once = once_key(run.dag_id, run.run_id, upstream, index)
    names = _partitions(task)
    if names is not None:
        names = tuple(map(check_partition, names))
    if names is None and task.partition_format is not None:
        names = resolve_partitions(context, None, task.partition_format, task.partition_timezone)
    query = _query(task, table, once, names, lambda value: value is not None)
    query.check()
    return query


def _query(
    task: WaitArguments,
    table: str,
    once: str | None,
    names: tuple[str, ...] | None,
    known: Callable[[object], bool],
) -> TableQuery:
    """One job's query, or one of partitions.

    :param known: whether a value is what it will be, and no template of it.
    """
    if task.once is not None and task.upstream_task_id is not None:
        raise InvalidInputError(
            "once and upstream_task_id both say which job is meant.", remedy="Give one of them."
        )
    epoch = task.newer_than_epoch
    if epoch is not None:
        epoch = _epoch(epoch) if known(epoch) else 0
    asked = [name for name in _OF_PARTITIONS if getattr(task, name) not in (None, False)]
    if task.job is None and once is None and (asked or (names and _counts(task) and epoch is None)):
        return _of_partitions(task, table, names or (), epoch, known)
    if asked:
        raise InvalidInputError(
            f"{asked[0]} is about what partitions hold, whoever committed it; job, once and "
            "upstream_task_id are about one job.",
            remedy="Give one or the other.",
        )
    return JobQuery(
        table=table,
        job=task.job,
        once=once,
        partition=names[0] if names else None,
        newer_than_epoch=epoch,
        min_rows=task.min_rows,
        min_files=task.min_files,
        apply=task.apply,
        on_foreign_marker=task.on_foreign_marker,
    )


def _of_partitions(
    task: WaitArguments,
    table: str,
    names: tuple[str, ...],
    epoch: int | None,
    known: Callable[[object], bool],
) -> PartitionsQuery:
    if task.on_foreign_marker != "wait":
        raise InvalidInputError(
            "on_foreign_marker is for sensors that wait for one job.",
            remedy="Leave it out; committer='magic' waits for partitions of that committer.",
        )
    after = task.newer_than
    if after is not None:
        after = moment("newer_than", after).timestamp() if known(after) else 0.0
    return PartitionsQuery(
        table=table,
        partitions=names,
        newer_than_epoch=epoch,
        newer_than=after,
        min_rows=task.min_rows,
        min_files=task.min_files,
        committer=task.committer or NATIVE,
        check_files=task.check_files,
        apply=task.apply,
    )


def _counts(task: WaitArguments) -> bool:
    return task.min_rows is not None or task.min_files is not None


def _known_partitions(task: WaitArguments) -> tuple[str, ...] | None:
    """The partitions as far as no template hides them; a template where one does."""
    given = (task.partitions, task.from_date, task.to_date, task.partition_format)
    if task.partition_format is not None and is_known(task.partition_format):
        check_partition_format(task.partition_format, task.partition_timezone)
    if all(value is None or is_known(value) or isinstance(value, list | tuple) for value in given):
        names = _partitions(task)
        if names is not None or task.partition_format is None:
            return names
    return ("{{ }}",)


def _partitions(task: WaitArguments) -> tuple[str, ...] | None:
    """The partitions that arguments name; ``None`` where they name none."""
    dates = (task.from_date, task.to_date)
    ways = [task.partition, task.partitions, next((d for d in dates if d is not None), None)]
    if sum(way is not None for way in ways) > 1:
        raise InvalidInputError(
            "partition, partitions and from_date with to_date each say which partitions are meant.",
            remedy="Give one of them.",
        )
    if task.partition is not None:
        return (task.partition,)
    if task.partitions is not None:
        return listed_partitions("partitions", task.partitions, separator=";")
    if dates == (None, None):
        return None
    if task.from_date is None or task.to_date is None or task.partition_format is None:
        raise InvalidInputError(
            "A range of partitions is said by from_date, to_date and partition_format together.",
            remedy="Give all three, as partition_format='year=%Y/month=%-m/day=%-d'.",
        )
    return partitions_between(
        task.from_date, task.to_date, task.partition_format, task.partition_timezone
    )


def _check_named(name: str, value: str | None) -> None:
    """See that no template that has no value says whose job is meant: it is never committed."""
    if value is not None and value.strip() in ("", "None"):
        raise InvalidInputError(
            f"{name}={value!r} names no task's run; nothing was waited for.",
            remedy="Where it is a template, see what that renders to.",
        )


def _epoch(value: int | str) -> int:
    try:
        epoch = int(value)
    except (TypeError, ValueError, OverflowError):
        epoch = -1
    if epoch < 0:
        raise InvalidInputError(
            f"newer_than_epoch={value!r} is not an epoch.",
            remedy="Give a whole number of at least 0, such as an earlier report's epoch.",
        )
    return epoch
