"""Spark drivers as processes that can be killed with all they started."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from torture.loads import Load
from torture.writers import environment

from support.spark import settings
from support.waiting import STUCK

_PRELUDE = """
import json, signal, sys
from pyspark.sql import SparkSession, functions as F

def session(given, master="local[2]"):
    return SparkSession.builder.master(master).config(map=given).getOrCreate()

def save(frame, url, mode, **options):
    try:
        frame.write.format("zero_rename").mode(mode).options(**options).save(url)
    except Exception as error:
        print("answer " + str(error).replace(chr(10), " ")[:2000], flush=True)
    else:
        print("answer committed", flush=True)
    signal.pause()

arguments = json.loads(sys.argv[1])
"""

_LOAD = """
url, load, given = arguments
spark = session(given)
if load["number"] % 2:
    from zero_rename.spark import register
    register(spark)
days = F.array(*[F.lit(day) for day in load["days"]])
total = load["rows"] * len(load["days"])
frame = spark.range(0, total, 1, 2).select(
    F.lit(load["number"]).cast("bigint").alias("load"),
    F.col("id").alias("row"),
    F.element_at(days, (F.col("id") % len(load["days"]) + 1).cast("int")).alias("day"),
    F.lit(b"").alias("payload"),
)
options = {
    "rowsPerFile": str(load["rows_per_file"]),
    "onRepeat": load["on_repeat"],
}
if load["partitioned"]:
    options["partitionBy"] = "day"
if load["idempotency_key"]:
    options["idempotency_key"] = load["idempotency_key"]
save(frame, url, "overwrite" if load["mode"] == "replace" else "append", **options)
"""


class SparkProgram:
    """A Python program with Spark, in a session of its own.

    :param program: what follows the prelude, which defines ``arguments``, ``session(settings)``
        and ``save(frame, url, mode, **options)``; the latter answers, then waits to be killed.
    :param arguments: what JSON can hold.
    :param folder: its working directory; its standard error goes to a file there.
    """

    def __init__(
        self, program: str, arguments: Any, variables: Mapping[str, str], folder: Path
    ) -> None:
        self.errors = folder / "stderr"
        with self.errors.open("wb") as errors:
            # The group of PySpark's daemon is not the driver's; the session is.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PRELUDE + program, json.dumps(arguments)],
                env=environment(variables)
                | {
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "TMPDIR": str(folder),  # What is killed removes no temporary files.
                },
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                self._answers.put(line.removeprefix("answer ").strip())
        self._answers.put(None)

    def kill(self) -> None:
        kill_session(self._process.pid)

    def answer(self, timeout: float = STUCK) -> str | None:
        """What it answered; ``None`` when it was killed.

        :raises TimeoutError: neither, for so many seconds.
        """
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"a Spark driver does not answer, see {self.errors}") from None

    @property
    def silent(self) -> bool:
        """Whether it has neither answered nor died yet."""
        return self._answers.empty()

    def close(self) -> None:
        self.kill()
        self._process.wait()


class SparkWriter(SparkProgram):
    """A Spark driver on ``local[2]`` that carries out one load."""

    def __init__(self, url: str, load: Load, variables: Mapping[str, str], folder: Path) -> None:
        super().__init__(_LOAD, [url, asdict(load), settings(folder)], variables, folder)


def kill_session(session: int) -> None:
    """Kill every process of a session until there is none."""
    while True:
        found = False
        for process in psutil.process_iter():
            try:
                ours = os.getsid(process.pid) == session
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    found = True
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        if not found:
            return
        time.sleep(0.01)
