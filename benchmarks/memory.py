"""Memory that a merge in plain Python, and ``compact``, take: one partition, on moto beside it::

    .venv/bin/python benchmarks/memory.py merge --rows 20000000 --percent 1
    .venv/bin/python benchmarks/memory.py compact --megabytes 400 --files 80 --row-bytes 2000

A process does it, and prints the most memory that it had, and less what it had before it read a row
that it changes. That ``compact`` takes no more for twice the bytes is what shows that it streams.
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


def most() -> float:
    """MiB that this process has had at the most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows_of(first: int, count: int, value: float, step: int = 1) -> Any:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(first, first + count * step, step)
    texts = pa.array(ids * 2654435761 % 4294967296).cast(pa.string())
    columns = {"id": ids, "text": texts, "value": ids * value, "day": np.ones(count, "int32")}
    return pa.table(columns)


def fill_merge(table: Any, given: Any) -> None:
    with table.job(rows_of(0, 1, 0.5).schema, partition_by=["day"]) as job:
        for first in range(0, given.rows, _BATCH):
            job.write(rows_of(first, min(_BATCH, given.rows - first), 0.5))


def merge(table: Any, given: Any) -> None:
    count = given.rows * given.percent // 100
    # Half of them are there.
    step = max(1, 200 // given.percent)
    source = rows_of(given.rows - step * (count // 2), count, 0.25, step)
    table.scan().count()
    before = most()
    done = table.merge(source, on=["id"])
    assert done.rows.unchanged + done.rows.updated == given.rows, done.rows
    print(f"{done.rows}: {most():.0f} MiB, {most() - before:.0f} of them the merge's")


def fill_compact(table: Any, given: Any) -> None:
    """Files of a number and incompressible bytes."""
    import pyarrow as pa

    rows, size = (
        max(1, given.megabytes * 1_000_000 // given.files // given.row_bytes),
        given.row_bytes,
    )
    for number in range(given.files):
        payload = os.urandom(rows * size)
        cells = [payload[at * size : (at + 1) * size] for at in range(rows)]
        ids = range(number * rows, (number + 1) * rows)
        made = pa.table({"id": list(ids), "payload": pa.array(cells, pa.binary())})
        with table.job(made.schema) as job:
            job.write(made)


def compact(table: Any, given: Any) -> None:
    import pyarrow as pa

    count = table.scan().count()
    before = most()
    (done,) = table.compact(apply=True, sort_by=given.sort_by)
    more, arrow = most() - before, pa.default_memory_pool().max_memory() or 0
    assert (table.scan().count(), len(table.files())) == (count, 1)
    print(
        f"{done.bytes / 1e6:.0f} MB in {done.files} files: {more:.0f} MiB more, "
        f"{arrow / 2**20:.0f} of them Arrow's"
    )


PARTS = {it.__name__: it for it in (fill_merge, merge, fill_compact, compact)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("merge", "compact"))
    parser.add_argument("--rows", type=int, default=10_000_000, help="that are merged into")
    parser.add_argument("--percent", type=int, default=1, help="of them that are merged")
    parser.add_argument("--megabytes", type=int, default=200, help="that are compacted")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--row-bytes", type=int, default=100)
    parser.add_argument("--sort-by", nargs="*", default=(), help="id, payload")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        from zero_rename import Table

        PARTS[given.part](Table("s3://bench/table"), given)
        return
    from support.moto_server import running

    with running() as server:
        server.client().create_bucket(Bucket="bench")
        variables = os.environ | server.environment
        for part in (f"fill_{given.what}", given.what):
            command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
            subprocess.run(command, env=variables, check=True)


if __name__ == "__main__":
    main()
