"""The examples' Spark application, held in the middle of its job for as long as a file is there.

Takes the place of ``jobs/flights_job.py``, which lies beside it as ``flights_example.py``. Says
that it is in the middle by a file, too: ``<dag>-<task>-<period>.<process>.begun``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import flights_example  # pyrefly: ignore[missing-import]
import pyarrow as pa
from pyspark.sql import DataFrame

_save = flights_example.save
_gates = Path(os.environ["AIRFLOW_LIFE_GATES"])
_PERIODS = ("--day", "--days", "--hour")
_period = next(sys.argv[n + 1] for n, word in enumerate(sys.argv) if word in _PERIODS)
_name = f"{os.environ['ZERO_RENAME_DAG']}-{os.environ['ZERO_RENAME_TASK']}-{_period}"


def held(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    (_gates / f"{_name}.{os.getppid()}.begun").touch()
    while (_gates / f"{_name}.hold").exists():
        time.sleep(0.05)
    yield from batches


def save(frame: DataFrame, *arguments: Any, **named: Any) -> Any:
    if os.environ.get("ZERO_RENAME_COMMITTER", "zero_rename") == "zero_rename":
        # What is made of the flights is not stale where the same rows are in other files.
        named["options"] = {"content": "rows"}
    return _save(frame.mapInArrow(held, frame.schema), *arguments, **named)


flights_example.save = save
if __name__ == "__main__":
    flights_example.main(sys.argv[1:])
