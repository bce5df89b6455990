"""Failed tasks of a real Airflow's database, as the page shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from support.airflow import Connect, Tables
from support.airflow_runs import dag_of
from zero_rename.committer import Owner
from zero_rename.provider.page import pages
from zero_rename.provider.page.failed_tasks import failed_tasks

__all__ = ["dag_of"]

pytestmark = [pytest.mark.airflow, pytest.mark.memory_s3]


def test_a_failed_task_that_told_the_table_nothing_is_on_the_page(
    tables: Tables, dag_of: Callable[[str, str], Any], connect: Connect
) -> None:
    connect("lake", extra={"table_root": tables.url("")})
    given = 'application="/none.py", partition="day=7", zero_rename_conn_id="lake"'
    dag = dag_of(
        "never_begun",
        f"""
        ZeroRenameSparkSubmitOperator(task_id="load", table="flights", {given})
        ZeroRenameSparkSubmitOperator(task_id="whole", table="{tables.url()}/", {given})
        ZeroRenameSparkSubmitOperator(task_id="other", table="others", {given})
        """,
    )
    run = dag.test(logical_date=datetime(2013, 2, 7, tzinfo=UTC))
    assert str(run.state) == "failed"
    tables.load(1)

    def shown(overview: Any, *dags: str, conn: str = "lake") -> list[tuple[str | None, str | None]]:
        visitor: Any = SimpleNamespace(may_see_dag=lambda dag_id: dag_id in dags)
        found = failed_tasks(visitor, conn, tables.url(""), overview)
        page = pages.table(visitor, conn, "flights", overview, found, None, None)
        assert ("without a record at the table" in page) == bool(found)
        assert ("Nothing needs action" in page) == (not found)
        assert ("for</span> day=7" in page) == bool(found)
        return sorted((it.owner.task_id, it.partition) for it in found)

    overview = tables.table().overview()
    assert shown(overview, "never_begun") == [("load", "day=7"), ("whole", "day=7")]
    # A name is below its own connection's root.
    assert shown(overview, "never_begun", conn="another") == [("whole", "day=7")]
    assert shown(overview, "others") == []
    owner = Owner(dag_id="never_begun", run_id=run.run_id, task_id="load", map_index=-1)
    # Its worker was killed while it aborted the job, and then somebody settled it.
    job = tables.aborted(3, owner=owner)
    assert len(shown(tables.table().overview(), "never_begun")) == 2
    tables.table().settle([job])
    assert len(shown(tables.table().overview(), "never_begun")) == 2
    tables.load(2, owner=owner)
    assert shown(tables.table().overview(), "never_begun") == [("whole", "day=7")]
