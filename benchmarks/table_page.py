"""What the page of a table costs: requests, CPU and bytes of HTML.

A table of so many days, loaded by one job, and a hundred of them once more by a job each, on a
store in memory, which counts requests exactly and costs next to nothing itself::

    .venv/bin/python benchmarks/table_page.py --partitions 5000

Measured after maintenance, with heads changed since, and without an index at all. What a request
takes longer on a real store comes on top: of those of a look most are sent 32 at a time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import pyarrow as pa  # noqa: E402

import support.airflow  # noqa: E402, F401 - a home, before Airflow is imported
from support.protocol import ROOT as TABLE  # noqa: E402
from support.protocol import World  # noqa: E402
from zero_rename.committer.job_spec import Mode  # noqa: E402
from zero_rename.committer.overview.partition_history import look_back  # noqa: E402
from zero_rename.committer.overview.table_overview import look_over  # noqa: E402
from zero_rename.provider.page import pages  # noqa: E402

FIRST = date(2010, 1, 1)
SCHEMA = pa.schema([("value", pa.int64()), ("date", pa.date32())])
AGAIN, SINCE = 100, 15
VISITOR: Any = SimpleNamespace(may_see_dag=lambda dag_id: True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=5_000)
    given = parser.parse_args()
    world = World()
    names = [f"date={FIRST + timedelta(days=day)}" for day in range(given.partitions)]
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


def load(world: World, *names: str) -> None:
    world.load(*names, schema=SCHEMA, partition_by=("date",), mode=Mode.REPLACE)


def table_page(world: World) -> str:
    overview = world.driver.run(look_over(world.context, 100))
    return pages.table(VISITOR, "lake", "flights", overview, None, None)


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
