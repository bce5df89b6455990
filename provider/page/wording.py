"""Texts of the page: numbers, sizes, times, and the verdict on a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ...committer import Owner, SeenState, TableOverview
from ...committer.errors import counted
from ...committer.format.layout import UNPARTITIONED
from ...committer.format.records.run_conflict import is_dagsters
from ...committer.upkeep.storage_price import STANDARD, monthly_cost
from .failed_tasks import FailedTask

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
#: Units of time with their seconds, the largest first.
_SPANS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))
#: States that a verdict names, the most pressing first.
_PRESSING = (SeenState.UNREADABLE, SeenState.FAILED, SeenState.CONFLICTED, SeenState.RUNNING)


def size_text(size: int) -> str:
    """Write a number of bytes as ``3.2 MiB``."""
    number, unit = float(size), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:,.0f} {_UNITS[unit]}" if unit == 0 else f"{number:,.1f} {_UNITS[unit]}"


def count_text(count: int | None) -> str:
    """Write a number with separated thousands; a dash for ``None``."""
    return "-" if count is None else f"{count:,}"


def span_text(seconds: float) -> str:
    """Write a duration in its largest whole unit, as ``3 hours``."""
    for length, name in _SPANS:
        if seconds >= length or length == 1.0:
            return counted(int(max(0.0, seconds) // length), name)
    raise AssertionError("the last span fits")


def moment_text(at: float) -> str:
    """Write Unix seconds as a time in UTC, as ``2013-02-01 02:14:07``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def cost_text(size: int) -> str:
    """Write the monthly cost of a number of bytes, in dollars."""
    cost = monthly_cost(size)
    if 0 < cost < 0.01:
        return "less than $0.01"
    return f"${cost:,.2f}"


def price_text() -> str:
    """Write the price by which :func:`cost_text` computes."""
    return f"${STANDARD} per GiB and month, as S3 Standard in us-east-1"


def owner_text(owner: Owner) -> str:
    """Write the owner of a job: DAG and task, Dagster's asset, or application and host."""
    if owner.task_id and is_dagsters(owner, None):
        return f"Dagster, asset {owner.task_id}"
    if owner.dag_id:
        return ".".join(part for part in (owner.dag_id, owner.task_id) if part)
    place = f" on {owner.host}" if owner.host else ""
    return f"{owner.application or 'an unknown process'}{place}"


def partition_text(name: str) -> str:
    """Write a partition's name; that of an unpartitioned table is ``the whole table``."""
    return "the whole table" if name == UNPARTITIONED else name


@dataclass(frozen=True)
class TableVerdict:
    """The first line of a table's page.

    :param level: ``failed``, ``conflicted``, ``running`` or ``quiet``; it decides the colour.
    """

    level: str
    text: str


def verdict_on(overview: TableOverview, tasks: Sequence[FailedTask]) -> TableVerdict:
    """Sum up the state of a table in one line: first of all, whether it needs action.

    :param tasks: failed tasks that left no record at the table.
    """
    counts = Counter(partition.state for partition in overview.partitions)
    pressing = ", ".join(f"{counts[it]:,} {it}" for it in _PRESSING if counts[it])
    said = [f"Partitions: {pressing}"] if pressing else []
    dead = [job for job in overview.under_way if job.is_dead or job.damage]
    if dead:
        said.append(f"{counted(len(dead), 'job')} left open by a dead process")
    astray = [it for it in overview.failures if not it.partitions]
    if astray:
        said.append(f"{counted(len(astray), 'failed run')} of no known partition")
    lost, again = ([task for task in tasks if task.again is it] for it in (False, True))
    said += [counted(len(lost), "failed task")] if lost else []
    said += [f"{counted(len(again), 'failed task')} to be tried again"] if again else []
    if dead or astray or lost or counts[SeenState.FAILED] or counts[SeenState.UNREADABLE]:
        return TableVerdict("failed", "; ".join(said))
    if counts[SeenState.CONFLICTED]:
        return TableVerdict("conflicted", "; ".join(said))
    running = [job for job in overview.under_way if job.is_running]
    if running or again:
        under_way = f"{counted(len(running), 'job')} under way"
        return TableVerdict("running", "; ".join(said) or under_way)
    return TableVerdict("quiet", "Nothing needs action")
