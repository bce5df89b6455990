"""What 64 small tasks cost on each Spark: CPU of the Python workers, and seconds.

``.venv/bin/python benchmarks/tasks_by_spark.py [--rounds 3] [--before FOLDER]``. On the checkout's
Spark, and on those that ``make older-spark`` and ``make other-sparks`` have installed. In one
session for each Spark, ways take turns, each in four Python workers of its own that are warm:
``save()``; ``save()`` with ``freezeWorkers`` false; and tasks that do nothing, in the workers of
each, and in workers that have done nothing else. ``--before`` adds the two of a folder that has
another state of the package ``zero_rename``; the driver is this checkout's. The server runs on the
same machine, without latency. The median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHECKOUT = Path(__file__).resolve().parent.parent
_TASKS, _ROWS = 64, 10_000
_BUCKET = "tasks-by-spark"
#: What each way is called, by its workers and what they do.
_WAYS = {
    ("now", "save"): "`save()`",
    ("now", "nothing"): "tasks that do nothing, in its workers",
    ("unfrozen", "save"): "`save()`, `freezeWorkers` false",
    ("unfrozen", "nothing"): "tasks that do nothing, in its workers",
    ("before", "save"): "`save()`, before",
    ("before", "nothing"): "tasks that do nothing, in its workers",
    ("idle", "nothing"): "tasks that do nothing, in workers of nothing else",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="has another state of zero_rename")
    parser.add_argument("--sparks", nargs="*", help="of their versions, those to measure")
    asked = parser.parse_args()
    sys.path[:0] = [str(_CHECKOUT / "tests"), str(_CHECKOUT)]
    from support.moto_server import running
    from support.spark import environment

    with running() as server, tempfile.TemporaryDirectory() as folder:
        server.client().create_bucket(Bucket=_BUCKET)
        print(
            "| Spark | 64 tasks | CPU of the workers | seconds |\n|---|---|---:|---:|", flush=True
        )
        for version, python in sparks().items():
            if asked.sparks and version not in asked.sparks:
                continue
            variables = environment(server) | {
                "PYSPARK_PYTHON": str(python),
                "PYTHONPATH": package(),
                "ZERO_RENAME_LOG_LEVEL": "ERROR",
            }
            given = [str(asked.rounds), folder, *([str(asked.before)] if asked.before else [])]
            command = [str(python), __file__, "--session", *given]
            done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE)
            for (workers, act), found in json.loads(done.stdout.splitlines()[-1]):
                cpu, seconds = (statistics.median(it) for it in zip(*found, strict=True))
                name = _WAYS[workers, act]
                print(f"| {version} | {name} | {cpu:.2f} s | {seconds:.1f} |", flush=True)


def sparks() -> dict[str, Path]:
    """The Python of each Spark that there is, by Spark's version."""
    import pyspark

    from tools.environments import OLDER_SPARK, SPARK_4_0, SPARK_4_1

    others = {it.version: it.python for it in (OLDER_SPARK, SPARK_4_0, SPARK_4_1)}
    found = {version: python for version, python in others.items() if python.exists()}
    return found | {pyspark.__version__: Path(sys.executable)}


def package() -> str:
    """The folder that has this checkout's package for other Pythons."""
    import zero_rename

    return str(Path(str(zero_rename.__file__)).parents[1])


def session(rounds: int, folder: str, before: str | None) -> None:
    """Measure on this process's Spark, and print what each way took, round by round."""
    from pyspark.sql import SparkSession

    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark: Any = SparkSession.builder.master("local[4]").config(map={**given}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    columns = ("id", "cast(id % 7 as int) a", "cast(hash(id) as string) s", "id / 3.0D d")
    frame = spark.range(0, _TASKS * _ROWS, 1, _TASKS).selectExpr(*columns).cache()
    frame.count()
    ways = [way for way in _WAYS if before or way[0] != "before"]
    took: dict[tuple[str, str], list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for place in range(len(ways)):
            way = ways[(place + 2 * number) % len(ways)]
            spent = measured(spark, frame, way, number, before)
            if number:
                took[way].append(spent)
    print(json.dumps(list(took.items())))


def measured(
    spark: Any, frame: Any, way: tuple[str, str], number: int, before: str | None
) -> tuple[float, float]:
    """Seconds of CPU of Python workers, and seconds, of one round of a way."""
    from zero_rename.spark import save

    workers, act = way
    path = before if workers == "before" and before else os.environ["PYTHONPATH"]
    spark.sparkContext.environment.update({"WORKERS_OF": workers, "PYTHONPATH": path})
    options = {"freezeWorkers": "false"} if workers == "unfrozen" else {}
    url = f"s3://{_BUCKET}/{spark.version}-{workers}-{number}"

    def run(frame: Any, url: str) -> None:
        if act == "save":
            save(frame, url, options=options)
        else:
            frame.mapInArrow(nothing, "id int").collect()

    # Spark ends workers that were idle for a minute.
    run(spark.range(0, 16, 1, 16), f"{url}-warm")
    before_it, started = cpu(), time.perf_counter()
    run(frame if act == "save" else spark.range(0, _TASKS, 1, _TASKS), url)
    seconds = time.perf_counter() - started
    return sum(used - before_it.get(pid, 0.0) for pid, used in cpu().items()), seconds


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    return iter(())


def cpu() -> dict[int, float]:
    """Seconds of CPU of this process's descendants that are Python, from Linux's ``/proc``."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        parents[int(folder.name)] = int(fields[1])
        if not name.endswith("(java"):
            used[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return {pid: seconds for pid, seconds in used.items() if is_below(pid, parents)}


def is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        pid = parents.get(pid, 0)
        if pid == os.getpid():
            return True
    return False


if __name__ == "__main__":
    if sys.argv[1:2] == ["--session"]:
        session(int(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
    else:
        main()
