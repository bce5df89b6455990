"""One small load by every committer, on one store, in one session: requests and seconds.

Each committer appends the same rows to a table of its own that holds one such load already, in
turns, after a warm-up; what is printed are medians, and their ratios to the native committer in
the same run. All requests pass a proxy that counts them and delays each answer, 30 ms unless told
otherwise, since a store on the same machine answers sooner than any S3 does::

    .venv/bin/python benchmarks/s3a_committers.py
    .venv/bin/python benchmarks/s3a_committers.py --latency 0 --rounds 9 --server minio

The jars are fetched as for the tests: ``python tools/fetch_s3a_jars.py``. ``--server versitygw``
and ``minio`` take those from ``PATH``. Native tables refuse S3Mock, and S3A does not reach Ceph
over plain HTTP, so that moto is what is always there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from torture.proxy import Proxy  # noqa: E402
from torture.servers import Store, serving  # noqa: E402

from support.hadoop_committers import (  # noqa: E402
    COMMITTERS,
    RENAMING,
    Application,
    Place,
    environment,
    static_settings,
)
from tools import fetch_s3a_jars  # noqa: E402
from zero_rename.s3a.hadoop.settings import ALGORITHM_KEY  # noqa: E402

NATIVE = "zero_rename"
#: Spark's own committer, by Hadoop's two algorithms.
RENAMES = {"rename v1": "1", "rename v2": "2"}


@dataclass
class Runs:
    """What one committer took."""

    place: Place
    seconds: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="moto", help="moto, versitygw or minio")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds per request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=80_000)
    parser.add_argument("--days", type=int, default=4, help="partitions of each load")
    parser.add_argument("--tasks", type=int, default=2, help="each writes one file a day")
    given = parser.parse_args()
    fetch_s3a_jars.fetch_jars()
    with started(given.server, given.latency) as (application, proxy):
        runs = measure(application, proxy, given)
        report(runs, given)


@contextlib.contextmanager
def started(server: str, latency: float) -> Iterator[tuple[Application, Proxy]]:
    """A session whose every request passes the proxy."""
    from pyspark.sql import SparkSession

    from zero_rename.spark import register

    jars = fetch_s3a_jars.cached_jars()
    assert jars is not None
    with (
        tempfile.TemporaryDirectory(prefix="zero-rename-benchmark-") as folder,
        serving(server) as store,
        Proxy(store.endpoint, latency=latency) as proxy,
    ):
        behind: Store = replace(store, endpoint=proxy.endpoint)
        os.environ.update(environment(behind))
        builder = SparkSession.builder.master("local[2]").appName("benchmark")
        for name, value in static_settings(behind, jars, Path(folder)).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            register(spark)
            # What looks at the store to check it goes past the proxy.
            yield Application(spark, store, Path(folder)), proxy
        finally:
            spark.stop()


def measure(application: Application, proxy: Proxy, given: Any) -> dict[str, Runs]:
    """Load in turns, the warm-up first, and check that every table holds every row."""
    names = [NATIVE, *(str(committer) for committer in COMMITTERS), *RENAMES]
    runs = {name: Runs(application.place()) for name in names}
    for number in range(given.rounds + 1):
        for name in names:
            frame = application.frame(number * given.rows, given.rows, given.days, given.tasks)
            seconds, requests = timed(loader(application, name, runs[name].place, frame), proxy)
            if number:
                runs[name].seconds.append(seconds)
                runs[name].requests.append(requests)
            else:
                print(f"warm-up of {name}: {seconds:.1f} s", file=sys.stderr)
    expected = given.rows * (given.rounds + 1)
    for name in names:
        there = application.spark.read.parquet(runs[name].place.url).count()
        if there != expected:
            raise SystemExit(f"{name}: {there} rows instead of {expected}")
    return runs


def loader(application: Application, name: str, place: Place, frame: Any) -> Callable[[], None]:
    if name == NATIVE:
        writer = frame.write.format(NATIVE).mode("append").option("partitionBy", "day")
        return lambda: writer.save(place.root.url)

    def load() -> None:
        renaming = {**RENAMING, ALGORITHM_KEY: RENAMES.get(name, "")}
        session = application.set(renaming) if name in RENAMES else application.with_committer(name)
        with session:
            application.write(place, frame)

    return load


def timed(load: Callable[[], None], proxy: Proxy) -> tuple[float, int]:
    """Seconds and requests of a load."""
    proxy.watch()
    began = time.perf_counter()
    load()
    took = time.perf_counter() - began
    proxy.drain()
    return took, len(proxy.seen)


def report(runs: dict[str, Runs], given: Any) -> None:
    files = given.days * given.tasks
    print(
        f"{given.rows:,} rows in {files} files of {given.days} partitions appended, "
        f"{given.latency * 1000:.0f} ms a request, {given.server}, {os.cpu_count()} cores, "
        f"medians of {given.rounds}\n"
    )
    native = runs[NATIVE]
    print("| committer | requests | to native | seconds | to native | least-most |")
    print("|---|---|---|---|---|---|")
    for name, run in runs.items():
        requests = statistics.median(run.requests)
        more = requests / statistics.median(native.requests)
        print(
            f"| `{name}` | {requests:.0f} | {more:.1f} | {run.median:.2f} | "
            f"{run.median / native.median:.2f} | {min(run.seconds):.2f}-{max(run.seconds):.2f} |"
        )


if __name__ == "__main__":
    main()
