"""Three Delta tables of 64 files that are made of each other: durable only, by a fast root, with
that root lost.

``make fast-tier``, or ``PYTHONPATH=tests:. .venv/bin/python benchmarks/fast_tier.py [--rounds 3]
[--mib 64] [--write]``. Two of moto's servers on the same machine, whose answers come 30 and 3 ms
late. The ways take turns, each in tables of its own that are there before; the median counts.
*Lost*: the fast root is given up once two stages are made, and all three are made again without it.
The checkpoint copies some of the last stage's partitions; no stage waits for it. ``make bench`` has
the table written into docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from docs.extensions.tables import between
from support.moto_server import running
from zero_rename.tables import DeltaTable

STAGES = ("daily", "weekly", "monthly")
#: Partitions that the checkpoint copies.
COPIED = 8


@dataclass(frozen=True)
class Pipeline:
    """Three tables, of which each but the first is made of the one before.

    :param data_root: where their files lie first; ``None``: in the tables.
    """

    client: Any
    prefix: str
    rows: pa.Table
    data_root: str | None = None

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"s3://lake/{self.prefix}/{name}", self.client)

    def begin(self) -> None:
        """Make the tables, whose first jobs probe the store."""
        for name in STAGES:
            with self.table(name).job(self.rows.schema, partition_by=["day"]):
                pass
            self.table(name).set_data_root(self.data_root, apply=True)

    def make(self, names: Sequence[str] = STAGES) -> None:
        """Stages, each a job that reads all of the stage before."""
        for name in names:
            number, rows = STAGES.index(name), self.rows
            if number:
                rows = self.table(STAGES[number - 1]).scan().to_arrow()
            with self.table(name).job(rows.schema, mode="overwrite") as job:
                job.write(rows)

    def lose(self) -> None:
        """Two stages, then all without the fast root that they were in."""
        self.make(STAGES[:2])
        for name in STAGES:
            self.table(name).set_data_root(None, apply=True)
        self.make()

    def checkpoint(self) -> None:
        days = [f"day={day}" for day in range(COPIED)]
        done = self.table(STAGES[-1]).checkpoint(days, apply=True)
        assert len(done) == COPIED


def source(files: int, mib: float) -> pa.Table:
    """Rows that no encoding makes smaller, of so many partitions."""
    rows = max(files, int(mib * 2**20 / 8))
    values = np.random.default_rng(1).integers(0, 2**62, rows)
    return pa.table({"x": values, "day": pa.array(np.sort(np.arange(rows) % files), pa.int32())})


def seconds(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    took = time.monotonic() - began
    print(f"{took:.1f} s", file=sys.stderr, flush=True)
    return took


def measured(durable: Pipeline, fast: Pipeline, lost: Pipeline, rounds: int) -> dict[str, float]:
    """The median of each way's seconds, after a round that does not count."""
    runs: list[dict[str, float]] = []
    for _ in range(1 + rounds):
        for name in STAGES:
            lost.table(name).set_data_root(lost.data_root, apply=True)
        runs.append(
            {
                "durable only": seconds(durable.make),
                "fast root": seconds(fast.make),
                "fast root, lost after two stages, all made again": seconds(lost.lose),
                f"checkpoint of {COPIED} of the last stage's partitions": seconds(fast.checkpoint),
            }
        )
    return {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}


def table(found: Mapping[str, float], files: int, mib: float) -> str:
    """Markdown: each way's seconds, and those in proportion to the first's."""
    first = next(iter(found.values()))
    lines = [
        f"Three stages of {files} files and {mib:g} MiB each, on {os.cpu_count()} cores; the load "
        f"of the machine was {os.getloadavg()[0]:.1f} at the end.\n",
        "| | seconds | beside durable only |\n|---|---:|---:|",
        *(f"| {name} | {took:.2f} | {took / first:.2f} |" for name, took in found.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="that count, after a first one")
    parser.add_argument("--files", type=int, default=64, help="of a stage")
    parser.add_argument("--mib", type=float, default=0.1, help="of a stage")
    parser.add_argument("--write", action="store_true", help="docs/performance.md, not the screen")
    asked = parser.parse_args()
    rows = source(asked.files, asked.mib)
    with running(latency=0.03) as slow, running(latency=0.003) as quick:
        slow.client().create_bucket(Bucket="lake")
        quick.client().create_bucket(Bucket="fast")
        os.environ.update(slow.environment)
        root = f"s3://fast/lake?endpoint={quick.endpoint}"
        places = {"durable": None, "fast": root, "lost": root}
        lines = [Pipeline(slow.client(), name, rows, place) for name, place in places.items()]
        for it in lines:
            it.begin()
        found = measured(lines[0], lines[1], lines[2], asked.rounds)
    told = table(found, asked.files, asked.mib)
    if not asked.write:
        print(told)
        return
    page = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
    page.write_text(between(page.read_text("utf-8"), "fast tier", told), "utf-8")


if __name__ == "__main__":
    main()
