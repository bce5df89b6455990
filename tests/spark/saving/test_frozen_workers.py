"""Python workers of Spark's that have written: what they hold is out of the garbage collector's
sight, where nobody else has seen to that; and they do without pandas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from zero_rename import Table
from zero_rename.committer.format.handoff import OPEN_JOBS
from zero_rename.spark import register, registration, save
from zero_rename.spark.startup.launch import worker_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A worker: objects that are frozen, whether one that is marked is still collected, and whether
    it had pandas before it was looked at, which imports it."""

    frozen: int
    marked: bool
    pandas: bool


@contextmanager
def workers_of(spark: Any, name: str, python: str | None = None) -> Iterator[Any]:
    """Lets the session's tasks run in workers of a test's own, which Spark starts for variables
    that others lack; of the daemon of the tests, or of Spark's own by a Python."""
    context = spark.sparkContext
    before = context.environment, context.pythonExec
    notes = str(registration._heartbeat(context).folder)  # As the data source's workers have it.
    context.environment = context.environment | {"WORKERS_OF": name, OPEN_JOBS: notes}
    context.pythonExec = python or context.pythonExec
    register(spark)  # The data source keeps the workers' Python and variables of this moment.
    try:
        yield spark
    finally:
        context.environment, context.pythonExec = before
        register(spark)


@pytest.fixture
def workers(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    with workers_of(spark, request.node.name, worker_python()) as session:
        yield session


def look(spark: Any) -> dict[int, Seen]:
    """The workers that are there, each marked by an object for the next look."""

    def seen(batches: Any) -> Any:
        import gc
        import os
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        known, mark = sys.modules.get("mark_of_a_test"), []
        marked = any(item is known for item in gc.get_objects())
        sys.modules["mark_of_a_test"] = mark  # pyrefly: ignore[unsupported-operation]
        row = [[os.getpid()], [gc.get_freeze_count()], [marked], ["pandas" in sys.modules]]
        yield pa.record_batch(row, list("pfmd"))

    kinds = "p long, f long, m boolean, d boolean"
    rows = spark.range(0, 8, 1, 8).mapInArrow(seen, kinds).collect()
    first: dict[int, Seen] = {}
    for row in rows:
        first.setdefault(row.p, Seen(row.f, row.m, row.d))
    return first


def by_save(frame: Any, url: str, freeze: str) -> None:
    save(frame, url, options={"freezeWorkers": freeze})


def by_format(frame: Any, url: str, freeze: str) -> None:
    frame.write.format("zero_rename").mode("append").option("freezeWorkers", freeze).save(url)


def frozen_once(spark: Any, url: str, write: Callable[[Any, str, str], None]) -> None:
    """A worker that has written is frozen; what it imports and makes later is not."""
    before = {pid: seen for pid, seen in look(spark).items() if seen.frozen}
    assert before, "no worker was frozen"
    write(spark.range(0, 8, 1, 8), url, "true")
    again = {pid: seen for pid, seen in look(spark).items() if pid in before}
    assert again, "no worker was used again: the test shows nothing"
    assert all(seen.marked for seen in again.values())
    assert all(seen.frozen <= before[pid].frozen for pid, seen in again.items())


@pytest.fixture
def columns() -> list[str]:
    """Of all kinds of types."""
    return [
        *("id", "cast(id as int) i", "cast(id as string) s", "id / 3.0D x", "id = 1 b"),
        *("cast(id as decimal(9, 2)) price", "timestamp_seconds(id) at", "array(id) ids"),
        *("named_struct('i', id) st", "map('a', id) m", "cast('a' as binary) bytes"),
        *("cast(id % 3 as int) p", "date_add(date'2013-01-01', cast(id % 2 as int)) day"),
    ]


def test_workers_of_save_write_without_pandas_and_are_frozen_after_imports_alone(
    workers: Any, url: str, columns: list[str]
) -> None:
    """The import of pandas is 0.2 s and 36 MB, in each new worker of an application."""
    save(workers.range(0, 80, 1, 8).selectExpr(*columns), f"{url}-2", partition_by=["p", "day"])
    before = {pid: seen for pid, seen in look(workers).items() if seen.frozen}
    assert before, "no worker was frozen"
    assert not any(seen.pandas for seen in before.values())
    by_save(workers.range(0, 8, 1, 8), url, "true")
    again = {pid: seen for pid, seen in look(workers).items() if pid in before}
    assert all(seen.pandas for seen in again.values()), "looking imports it"
    assert any(seen.frozen > before[pid].frozen + 10_000 for pid, seen in again.items())
    frozen_once(workers, url, by_save)
    assert Table(url).to_arrow().num_rows == 16
    assert Table(f"{url}-2").to_arrow().num_rows == 80


def test_workers_are_frozen_by_the_data_source_once_and_not_where_the_option_says_so(
    workers: Any, url: str
) -> None:
    tasks = workers.range(0, 8, 1, 8)
    for write in (by_save, by_format):
        write(tasks, url, "false")
        assert {seen.frozen for seen in look(workers).values()} == {0}
    by_format(tasks, url, "true")
    frozen_once(workers, url, by_format)
    assert Table(url).to_arrow().num_rows == 32


def test_one_that_another_has_frozen_is_left_alone(spark: Any, url: str) -> None:
    with workers_of(spark, "frozen"):
        before = look(spark)
        assert all(seen.frozen for seen in before.values()), "the daemon of the tests freezes none"
        save(spark.range(0, 8, 1, 8), url)
        again = {pid: seen for pid, seen in look(spark).items() if pid in before}
    assert again, "no worker was used again: the test shows nothing"
    assert all(seen.marked for seen in again.values())


def test_frozen_objects_are_counted_once_in_a_workers_life(spark: Any, url: str) -> None:
    """Counting them takes as long as to collect garbage over them."""

    def calls(batches: Any) -> Any:
        """How often this worker has counted, from the first time this is asked."""
        import gc
        import os
        import sys

        import pyarrow as pa

        for _ in batches:
            pass
        if "calls_of_a_test" not in sys.modules:
            made: Any = []
            sys.modules["calls_of_a_test"] = made
            count = gc.get_freeze_count
            gc.get_freeze_count = lambda: (made.append(1), count())[1]
        found = len(sys.modules["calls_of_a_test"])  # pyrefly: ignore[bad-argument-type]
        yield pa.record_batch([[os.getpid()], [found]], list("pn"))

    with workers_of(spark, "counted", worker_python()):
        tasks = spark.range(0, 8, 1, 8)
        before = {row.p for row in tasks.mapInArrow(calls, "p long, n long").collect()}
        save(tasks, url)
        save(tasks, url)
        rows = tasks.mapInArrow(calls, "p long, n long").collect()
    counts = {row.n for row in rows if row.p in before}
    assert any(counts), "no worker that was asked before has written: the test shows nothing"
    assert max(counts) == 1
