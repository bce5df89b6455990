"""What the page of a table costs: requests, CPU and bytes of HTML.

A table of so many days, loaded by one job, and a hundred of them once more by a job each, on a
store in memory, which counts requests exactly and costs next to nothing itself::

    .venv/bin/python benchmarks/table_page.py --partitions 5000

Measured after maintenance, with heads changed since, and without an index at all. What a request
takes longer on a real store comes on top: of those of a look most are sent 32 at a time. On one,
in seconds as a visitor waits, each time by a client of its own that knows nothing yet::

    .venv/bin/python benchmarks/table_page.py --partitions 5000 --server ceph
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import pyarrow as pa  # noqa: E402
from torture.servers import serving  # noqa: E402

import support.airflow  # noqa: E402, F401 - a home, before Airflow is imported
from support.protocol import ROOT as TABLE  # noqa: E402
from support.protocol import World  # noqa: E402
from zero_rename.committer import Table  # noqa: E402
from zero_rename.committer.format.job_spec import Mode  # noqa: E402
from zero_rename.committer.overview.partition_history import look_back  # noqa: E402
from zero_rename.committer.overview.table_overview import look_over  # noqa: E402
from zero_rename.provider.page import pages  # noqa: E402

SERVED = "s3://page/flights"
FIRST = date(2010, 1, 1)
SCHEMA = pa.schema([("value", pa.int64()), ("date", pa.date32())])
AGAIN, SINCE = 100, 15
VISITOR: Any = SimpleNamespace(may_see_dag=lambda dag_id: True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--server", help="ceph, or an URL; in memory where left out")
    given = parser.parse_args()
    names = [f"date={FIRST + timedelta(days=day)}" for day in range(given.partitions)]
    if given.server:
        on_a_server(given.server, given.partitions)
        return
    world = World()
    load(world, *names)
    for name in names[-AGAIN:]:
        load(world, name)
    world.write_index()
    table_page(world)
    print(f"{given.partitions:,} partitions, the last {AGAIN} loaded again")
    measure(world, "a table", lambda: table_page(world))
    measure(world, "a partition", lambda: partition_page(world, names[-1]))
    for name in names[:SINCE]:
        load(world, name)
    measure(world, f"a table, {SINCE} heads changed since", lambda: table_page(world))
    del world.store.objects[TABLE.index_key]
    measure(world, "a table without an index", lambda: table_page(world))


def on_a_server(name: str, partitions: int) -> None:
    with serving(name) as store:
        os.environ.update(store.environment())
        store.client().create_bucket(Bucket="page")
        days = [FIRST + timedelta(days=day) for day in range(partitions)]
        loaded(days)
        for day in days[-AGAIN:]:
            loaded([day])
        Table(SERVED).write_index()
        print(f"{partitions:,} partitions, the last {AGAIN} loaded again, on {store.ran_on}")
        last = f"date={days[-1]}"
        pages_of: dict[str, Callable[[Table], str]] = {
            "a table": lambda it: pages.table(
                VISITOR, "lake", "flights", it.overview(), (), None, None
            ),
            "a partition": lambda it: served_partition(it, last),
        }
        for what, page in pages_of.items():
            taken = [waited(page) for _ in range(5)]
            print(f"  {what:36} {statistics.median(taken):6.2f} s, at most {max(taken):.2f} s")


def loaded(days: Sequence[date]) -> None:
    rows = pa.table({"value": range(len(days)), "date": days}, schema=SCHEMA)
    with Table(SERVED).job(SCHEMA, partition_by=["date"], mode=Mode.REPLACE) as job:
        job.write(rows)


def served_partition(table: Table, name: str) -> str:
    overview = table.overview()
    history = table.partition_history(name, overview.jobs)
    return pages.partition(VISITOR, "lake", "flights", overview, history)


def waited(page: Callable[[Table], str]) -> float:
    begun = time.monotonic()
    page(Table(SERVED))
    return time.monotonic() - begun


def load(world: World, *names: str) -> None:
    world.load(*names, schema=SCHEMA, partition_by=("date",), mode=Mode.REPLACE)


def table_page(world: World) -> str:
    overview = world.driver.run(look_over(world.context, 100))
    return pages.table(VISITOR, "lake", "flights", overview, (), None, None)


def partition_page(world: World, name: str) -> str:
    overview = world.driver.run(look_over(world.context, 100))
    history = world.driver.run(look_back(world.context, name, overview.jobs))
    return pages.partition(VISITOR, "lake", "flights", overview, history)


def measure(world: World, what: str, page: Callable[[], str]) -> None:
    world.driver.requests.clear()
    begun = time.process_time()
    html = page()
    used = time.process_time() - begun
    sent = len(world.driver.requests)
    print(f"  {what:36} {sent:6,} requests {used:6.2f} s CPU {len(html) / 1024:6.0f} KiB")


if __name__ == "__main__":
    main()
