"""Failed loads that left no record at the table, from Airflow's database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import and_, select

from ...committer import Owner, TableOverview
from ...committer.format.layout import TableRoot
from ...orchestration.table_names import table_url
from .access import Visitor

#: Age of the oldest failures: a table keeps its records of failures as long.
_SINCE = timedelta(days=7)
#: The number of tasks, of any kind, that are read: those that failed last.
_MOST = 1_000
#: Template fields by which a load is recognised.
_OF_A_LOAD = {"table", "partition", "on_repeat", "on_conflict", "zero_rename_conn_id"}
#: Seconds by which the clocks of a store and of Airflow may differ.
_CLOCKS = 300.0


@dataclass(frozen=True)
class FailedTask:
    """Last attempt of a task, which committed nothing and reported no failure.

    Its application may have opened a job; that is not known, since an abort decision does not name
    the job's owner.

    :param at: its end, in Unix seconds.
    :param again: it waits for a retry.
    :param partition: as its template was rendered; ``None``: the run gives it.
    """

    owner: Owner
    at: float
    again: bool
    partition: str | None


def failed_tasks(
    visitor: Visitor, conn_id: str, root: str | None, overview: TableOverview
) -> list[FailedTask]:
    """Find failed loads of a table that left no record there, newest first.

    They are loads by one connection whose last attempt failed in the last seven days, or waits for
    a retry. A load with a recorded job or failure since then is left out. This reads Airflow's
    database. Only DAGs that the visitor may see are included.

    :param root: the connection's table root.
    """
    seen = _seen(overview)
    return [
        FailedTask(owner, ended, again, _text(fields["partition"]))
        for owner, began, ended, again, fields in _failed_loads()
        if _table_of(fields, conn_id, root) == overview.root.url
        and seen.get(_key(owner), 0.0) < began - _CLOCKS
        and visitor.may_see_dag(str(owner.dag_id))
    ]


def _failed_loads() -> Iterator[tuple[Owner, float, float, bool, Mapping[str, Any]]]:
    """Yield failed loads: the owner, start and end, whether a retry follows, rendered fields."""
    ti: Any = TaskInstance
    rendered: Any = RenderedTaskInstanceFields
    same = [getattr(ti, it) == getattr(rendered, it) for it in ("dag_id", "task_id", "run_id")]
    columns = (ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number)
    wanted = (
        select(*columns, ti.start_date, ti.end_date, ti.state, rendered.rendered_fields)
        .join(rendered, and_(*same, ti.map_index == rendered.map_index))
        .where(ti.state.in_(("failed", "up_for_retry")))
        .where(ti.end_date >= datetime.now(UTC) - _SINCE)
        .order_by(ti.end_date.desc())
        .limit(_MOST)
    )
    with create_session() as session:
        found = session.execute(wanted).all()
    for *whose, began, ended, state, fields in found:
        if isinstance(fields, dict) and fields.keys() >= _OF_A_LOAD:
            begun = (began or ended).timestamp()
            yield Owner(*whose), begun, ended.timestamp(), state == "up_for_retry", fields


def _seen(overview: TableOverview) -> dict[tuple[Any, ...], float]:
    """Return the time of the last record of each task's run at the table, by task."""
    found: dict[tuple[Any, ...], float] = {}
    events = [(it.owner, it.decided_at) for it in overview.jobs]
    events += [(it.owner, it.at) for it in overview.failures]
    # An aborted job does not count: only its clean-up is left, and its task has failed.
    events += [(it.owner, overview.now) for it in overview.under_way if it.decided != "abort"]
    for owner, at in events:
        if owner is not None:
            found[_key(owner)] = max(at, found.get(_key(owner), 0.0))
    return found


def _key(owner: Owner) -> tuple[Any, ...]:
    index = None if owner.map_index == -1 else owner.map_index
    return owner.dag_id, owner.run_id, owner.task_id, index


def _table_of(fields: Mapping[str, Any], conn_id: str, root: str | None) -> str | None:
    name = str(fields["table"])
    if "://" not in name and fields["zero_rename_conn_id"] != conn_id:
        return None
    try:
        return TableRoot.parse(table_url(name, root, conn_id)).url
    except ValueError:
        return None  # The invalid name is the reason for the failure.


def _text(partition: Any) -> str | None:
    if isinstance(partition, list):
        return ", ".join(map(str, partition))
    return None if partition in (None, "None") else str(partition)
