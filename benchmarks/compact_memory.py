"""Memory that ``compact`` takes: one partition of many small files, on moto in its own process::

    .venv/bin/python benchmarks/compact_memory.py
    .venv/bin/python benchmarks/compact_memory.py --megabytes 400 --files 80 --row-bytes 2000

A process compacts, and prints the most memory it had less what it had before it read a row. That it
is no more for twice the bytes is what shows that it streams.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]


def batches(given: Any) -> Iterator[Any]:
    """The rows of each file: a number and incompressible bytes."""
    import pyarrow as pa

    rows = max(1, given.megabytes * 1_000_000 // given.files // given.row_bytes)
    for number in range(given.files):
        payload = os.urandom(rows * given.row_bytes)
        cells = [payload[i * given.row_bytes : (i + 1) * given.row_bytes] for i in range(rows)]
        numbers = range(number * rows, (number + 1) * rows)
        yield pa.table({"id": list(numbers), "payload": pa.array(cells, pa.binary())})


def fill(url: str, given: Any) -> None:
    from zero_rename import Table

    for rows in batches(given):
        with Table(url).job(rows.schema) as job:
            job.write(rows)


def compact(url: str, given: Any) -> None:
    import pyarrow as pa

    from zero_rename import Table

    table = Table(url)
    before = table.scan().count()
    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (done,) = table.compact(apply=True, sort_by=given.sort_by)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - least
    assert (table.scan().count(), len(table.files())) == (before, 1)
    arrow = pa.default_memory_pool().max_memory() or 0
    print(
        f"{done.bytes / 1e6:.0f} MB in {done.files} files: {more / 1024:.0f} MiB more, "
        f"{arrow / 2**20:.0f} of them Arrow's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--row-bytes", type=int, default=100)
    parser.add_argument("--sort-by", nargs="*", default=(), help="id, payload")
    parser.add_argument("--part", choices=("fill", "compact"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        {"fill": fill, "compact": compact}[given.part](given.url, given)
        return
    from support.moto_server import running

    with running() as server:
        server.client().create_bucket(Bucket="bench")
        variables = os.environ | server.environment
        for part in ("fill", "compact"):
            command = [sys.executable, __file__, *sys.argv[1:], "--part", part]
            command += ["--url", "s3://bench/table"]
            subprocess.run(command, env=variables, check=True)


if __name__ == "__main__":
    main()
