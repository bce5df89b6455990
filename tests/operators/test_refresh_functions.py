"""TPC-H's refresh functions over six days by a real Airflow, beside the same in DuckDB: new orders
and their lines come, old ones go, some are corrected; a driver is killed, and a day cleared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.airflow import JOB_FILE, Tables
from support.airflow_runs import run_tasks, xcom
from support.fake_spark import FAILS, FakeSpark

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]
ORDERS = pa.schema(
    [
        *(("o_orderkey", pa.int64()), ("o_orderstatus", pa.string())),
        *(("o_totalprice", pa.float64()), ("month", pa.string()), ("op", pa.string())),
    ]
)
LINES = pa.schema(
    [
        *(("l_orderkey", pa.int64()), ("l_linenumber", pa.int32()), ("l_quantity", pa.int32())),
        *(("month", pa.string()), ("op", pa.string())),
    ]
)
TABLES = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
#: What is killed when, once: before anything is decided, and right after it.
KILLED = {"orders": (2, "claim_all"), "lineitem": (4, "finish_own")}
CLEARED = 5
#: Merges the rows of a day as its submitter says, by the verb of plain Python.
APPLICATION = """
import os, signal
from pathlib import Path
import pyarrow.compute as pc
import pyarrow.parquet as pq
from zero_rename import Table
from zero_rename.committer.commit import commit
from zero_rename.committer.format.handoff import Handoff

def dies(*_, **given):
    os.kill(os.getpid(), signal.SIGKILL)

said = Handoff.decode(os.environ)
assert said.mode == "merge"
folder, day = Path({folder!r}), int(os.environ["REFRESH_DAY"])
name = said.table.url.rpartition("/")[2]
fatal = folder / f"{{name}}-{{day}}.kill"
if fatal.exists():
    setattr(commit, fatal.read_text(), dies)
    fatal.unlink()
Table(said.table.url).merge(
    pq.read_table(folder / f"{{name}}-{{day}}.parquet"),
    said.merge_on,
    delete_when=pc.field("op") == "D",
    idempotency_key=said.idempotency_key,
    on_repeat=said.on_repeat or "skip",
)
"""


def day_of_rows(day: int, there: dict[int, str]) -> dict[str, pa.Table]:
    """The rows of a day: forty new orders, ten that go, ten that are corrected.

    :param there: the months of the orders that there are, by key; is changed.
    """
    random = Random(day)
    old = random.sample(sorted(there), min(20, len(there)))
    gone, corrected = old[:10], old[10:]
    news = [day * 1000 + number for number in range(40)]
    # A day has orders of a few months: the others are to stay as they are.
    months = {key: f"1995-{day // 3 + key % 3 + 1:02}" for key in news}
    orders, lines = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for op, keys in (("I", news), ("U", corrected), ("D", gone)):
        for key in keys:
            month = there.get(key) or months[key]
            orders.append((key, "OFP"[random.randrange(3)], random.random() * 1e5, month, op))
            lines += [(key, line, random.randrange(50), month, op) for line in range(1, 4)]
    for key in gone:
        del there[key]
    there |= months
    tables = {"orders": (orders, ORDERS), "lineitem": (lines, LINES)}
    return {
        name: pa.table(
            [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)],
            schema,
        )
        for name, (rows, schema) in tables.items()
    }


def refresh(own: duckdb.DuckDBPyConnection, name: str, file: Path) -> None:
    """A day in DuckDB."""
    on = " and ".join(f"own.{key} = rows.{key}" for key in TABLES[name])
    columns = [it[0] for it in own.execute(f"describe {name}").fetchall()]
    sets = ", ".join(f"{column} = rows.{column}" for column in columns)
    own.execute(
        f"merge into {name} as own using read_parquet('{file}') as rows on {on} "
        f"when matched and rows.op = 'D' then delete when matched then update set {sets} "
        f"when not matched and rows.op <> 'D' then insert "
        f"values ({', '.join(f'rows.{column}' for column in columns)})"
    )


def clear(dag: Any, run: Any) -> Any:
    """The run once more, as a user who clears its tasks has it."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import clear_task_instances
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(DagRun).filter_by(dag_id=run.dag_id, run_id=run.run_id).one()
        tries = found.get_task_instances(session=session)
        clear_task_instances(tries, session)
        session.flush()
        session.refresh(found)
        session.expunge_all()
    return run_tasks(dag, found)


def test_a_cleared_task_that_keeps_failing_ends(
    tables: Tables, spark: FakeSpark, dag_of: Callable[[str, str], Any]
) -> None:
    load = f'table="{tables.url()}", partition="*", retries=1, retry_delay=timedelta(0)'
    body = f'ZeroRenameSparkSubmitOperator(task_id="load", application="{JOB_FILE}", {load})'
    dag = dag_of("fails", f"from datetime import timedelta\n{body}")
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    assert str(run.state) == "success"
    spark.runs(FAILS)
    again = clear(dag, run)
    assert str(again.state) == "failed"
    assert len(spark.calls()) == 1 + 2  # Cleared, and its retry.


def test_six_days_are_those_of_duckdb(
    tables: Tables, spark: FakeSpark, dag_of: Callable[[str, str], Any], tmp_path: Path
) -> None:
    spark.runs(APPLICATION.format(folder=str(tmp_path)))
    own, there = duckdb.connect(), dict[int, str]()
    for name, schema in (("orders", ORDERS), ("lineitem", LINES)):
        empty = schema.empty_table().drop(["op"])
        own.register("empty", empty)
        own.execute(f"create table {name} as select * from empty")
        with tables.table(name).job(empty.schema, partition_by=["month"]):
            pass
        day, phase = KILLED[name]
        (tmp_path / f"{name}-{day}.kill").write_text(phase)
    loads = "\n".join(
        f'ZeroRenameSparkSubmitOperator(task_id="{name}", application="{JOB_FILE}", '
        f'table="{tables.url(name)}", partition="*", mode="merge", merge_on={on}, retries=1, '
        'retry_delay=timedelta(0), env_vars={"REFRESH_DAY": "{{ logical_date.day }}"})'
        for name, on in TABLES.items()
    )
    dag = dag_of("refresh", f"from datetime import timedelta\n{loads}")
    for day in range(1, 7):
        files = {name: tmp_path / f"{name}-{day}.parquet" for name in TABLES}
        for name, rows in day_of_rows(day, there).items():
            pq.write_table(rows, files[name])
        run = dag.test(logical_date=datetime(2013, 2, day, tzinfo=UTC))
        assert str(run.state) == "success"
        if day == CLEARED:
            before = {name: tables.table(name).snapshot().versions for name in TABLES}
            again = clear(dag, run)
            assert str(again.state) == "success"
            assert not xcom(again, "orders")["repeated"]
            after = {name: tables.table(name).snapshot().versions for name in TABLES}
            assert after == before
        for name, file in files.items():
            refresh(own, name, file)
            held = tables.table(name).to_arrow()
            expected = own.execute(f"select {', '.join(held.column_names)} from {name}").fetchall()
            assert sorted(tuple(row.values()) for row in held.to_pylist()) == sorted(expected)
    assert not list(tmp_path.glob("*.kill"))
    assert len(spark.calls()) == 6 * 2 + 2 + 1  # Cleared; what was decided needs no other try.
    # All days have orders of that month; what was repeated has made no version of it more.
    assert tables.table("orders").snapshot().versions["month=1995-01"] == 6
