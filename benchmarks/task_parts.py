"""What a task of ``save()`` takes of a Python process, part by part, without Spark.

``.venv/bin/python benchmarks/task_parts.py``. CPU in a fresh process, in milliseconds: once a
worker, then of a task in a warm one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parent.parent / "tests"
_TIMES = 50


def main() -> None:
    """Start a server, and a process that knows nothing yet."""
    sys.path.insert(0, str(_TESTS))
    from support.moto_server import running

    with running() as server:
        server.client().create_bucket(Bucket="parts")
        variables = {**os.environ, **server.environment, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([sys.executable, __file__, "parts"], env=variables, check=True)


def parts() -> None:
    print("| once a worker | CPU |\n|---|---:|")
    told("import of pyarrow", lambda: import_module("pyarrow"))
    told("import of boto3", lambda: import_module("boto3"))
    told("import of pandas", lambda: import_module("pandas"))
    told("import of this package", lambda: import_module("zero_rename.spark.saving.task_rows"))
    from zero_rename import Table
    from zero_rename.committer.store.requests import Head

    told("client of the store", lambda: Table("s3://parts/table"))
    table = Table("s3://parts/table")
    told("its first request", lambda: table.driver.run(Head("nothing")))
    print("\n| each task of a warm worker | CPU |\n|---|---:|")
    payload = packed_job(table)
    task = a_task(payload)
    told("no rows", lambda: task(False), _TIMES)
    told("a row: a file of three requests", lambda: task(True), _TIMES)
    told("one request", lambda: table.driver.run(Head("nothing")), _TIMES)
    told("unpickling of the job", lambda: pickle.loads(payload), _TIMES)
    import gc

    told("Spark's collection of garbage after it", gc.collect, _TIMES)
    gc.freeze()
    told("the same, frozen", gc.collect, _TIMES)


def a_task(payload: bytes) -> Callable[[bool], object]:
    import pyarrow as pa

    from zero_rename.spark.saving.task_rows import report

    rows = pa.record_batch([pa.array([1])], names=["id"])

    def task(any_rows: bool) -> object:
        batches = iter([rows] if any_rows else [])
        return list(report(payload, False, batches))

    return task


def packed_job(table: Any) -> bytes:
    import pyarrow as pa

    from zero_rename.committer.format.job_spec import JobSpec

    return pickle.dumps(table.open_job(JobSpec(pa.schema({"id": pa.int64()}))))


def told(name: str, act: Callable[[], object], times: int = 1) -> None:
    if times > 1:
        act()
    started = time.process_time()
    for _ in range(times):
        act()
    used = (time.process_time() - started) / times * 1000
    print(f"| {name} | {used:.{0 if used >= 10 else 2}f} ms |")


if __name__ == "__main__":
    parts() if "parts" in sys.argv else main()
