"""Memory that a merge in plain Python takes: one partition, on moto in its own process::

    .venv/bin/python benchmarks/merge_memory.py
    .venv/bin/python benchmarks/merge_memory.py --rows 20000000 --percent 1

A process merges, and prints the most memory that it had, all in all and less what it had before.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
_BATCH = 500_000


def rows_of(first: int, count: int, value: float, step: int = 1) -> Any:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(first, first + count * step, step)
    texts = pa.array(ids * 2654435761 % 4294967296).cast(pa.string())
    columns = {"id": ids, "text": texts, "value": ids * value, "day": np.ones(count, "int32")}
    return pa.table(columns)


def fill(url: str, given: Any) -> None:
    from zero_rename import Table

    with Table(url).job(rows_of(0, 1, 0.5).schema, partition_by=["day"]) as job:
        for first in range(0, given.rows, _BATCH):
            job.write(rows_of(first, min(_BATCH, given.rows - first), 0.5))


def merge(url: str, given: Any) -> None:
    from zero_rename import Table

    table = Table(url)
    count = given.rows * given.percent // 100
    # Half of them are there.
    step = max(1, 200 // given.percent)
    source = rows_of(given.rows - step * (count // 2), count, 0.25, step)
    table.scan().count()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = table.merge(source, on=["id"])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert done.rows.unchanged + done.rows.updated == given.rows, done.rows
    print(f"{done.rows}: {most / 1024:.0f} MiB, {(most - before) / 1024:.0f} of them the merge's")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--percent", type=int, default=1)
    parser.add_argument("--part", choices=("fill", "merge"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        {"fill": fill, "merge": merge}[given.part](given.url, given)
        return
    from support.moto_server import running

    with running() as server:
        server.client().create_bucket(Bucket="bench")
        variables = os.environ | server.environment
        for part in ("fill", "merge"):
            command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
            command += ["--url", "s3://bench/table"]
            subprocess.run(command, env=variables, check=True)


if __name__ == "__main__":
    main()
