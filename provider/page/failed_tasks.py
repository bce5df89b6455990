"""Failed loads of which nothing is on record at the table, as Airflow's database has them."""

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

#: As long as failures are kept at a table.
_SINCE = timedelta(days=7)
#: Tasks of whatever kind that are looked at, those that failed last.
_MOST = 1_000
#: What a load alone has among its template fields.
_OF_A_LOAD = {"table", "partition", "on_repeat", "on_conflict", "zero_rename_conn_id"}
#: Seconds by which the clocks of a store and of Airflow may differ.
_CLOCKS = 300.0


@dataclass(frozen=True)
class FailedTask:
    """A task's last try, which committed nothing and told no failure. Whether its application had
    opened a job nobody can tell: the decision that aborts one does not name its owner.

    :param at: when it ended, in seconds since the epoch.
    :param again: whether it waits to be tried again.
    :param partition: as its template was rendered; ``None``: by its run.
    """

    owner: Owner
    at: float
    again: bool
    partition: str | None


def failed_tasks(
    visitor: Visitor, conn_id: str, root: str | None, overview: TableOverview
) -> list[FailedTask]:
    """Loads of a table by a connection whose last try failed, or waits to be tried again, in the
    last seven days, newest first; but for those of which a job or a failure is on record.

    Reads Airflow's database, and tells of DAGs that the visitor may see only.

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
    """Loads: whose, when it began and ended, whether it will be tried again, rendered fields."""
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
    """When what is on record of a task's runs happened, by task."""
    found: dict[tuple[Any, ...], float] = {}
    events = [(it.owner, it.decided_at) for it in overview.jobs]
    events += [(it.owner, it.at) for it in overview.failures]
    # Of an aborted one the clean-up alone is left, and its task has failed.
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
        return None  # Which is why it failed.


def _text(partition: Any) -> str | None:
    if isinstance(partition, list):
        return ", ".join(map(str, partition))
    return None if partition in (None, "None") else str(partition)
