"""Writer processes that can be killed, and processes that recover what they left."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import psutil
from torture.loads import Load

from support.spark import settings
from zero_rename import FileOptions, Table
from zero_rename.committer import DuringApply, OnRepeat
from zero_rename.committer.errors import ZeroRenameError

#: Processes are forked from one that has imported everything, so that a kill costs no start-up.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torture.writers"])
TESTS = Path(__file__).resolve().parent.parent
_START = 120.0


class Writer(Protocol):
    """A process that carries out one load."""

    def kill(self) -> None:
        """End it, and all it started, with SIGKILL. May be repeated, by any thread."""
        ...

    def answer(self) -> str | None:
        """What it said when it was done: ``committed``, ``repeated`` or its error; ``None`` when
        it died first."""
        ...

    def close(self) -> None: ...


class PlainWriter:
    """A job of plain Python in a process of its own, which then waits to be killed."""

    def __init__(self, url: str, load: Load, variables: Mapping[str, str]) -> None:
        self._mine, theirs = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_write, args=(url, load, dict(variables), theirs))
        _start(self._process)
        theirs.close()

    def kill(self) -> None:
        self._process.kill()

    def answer(self) -> str | None:
        return _receive(self._mine, self._process)

    def close(self) -> None:
        self.kill()
        self._process.join()
        self._mine.close()


class Recoverer:
    """Recovers a table in a process of its own."""

    def __init__(self, url: str, variables: Mapping[str, str]) -> None:
        self._mine, theirs = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_recover, args=(url, dict(variables), theirs))
        _start(self._process)
        theirs.close()

    def kill(self) -> None:
        self._process.kill()

    def outcomes(self) -> list[dict[str, str]] | str | None:
        """Its outcomes, or its error; ``None`` when it was killed."""
        found = _receive(self._mine, self._process)
        self._process.join()
        return found


def recover_by_command(url: str, variables: Mapping[str, str]) -> list[dict[str, str]] | str:
    """``zero-rename recover URL --patience 0`` as a command."""
    return _command(variables, "recover", url, "--patience", "0", "--json")


def verify_by_command(url: str, variables: Mapping[str, str]) -> list[dict[str, str]] | str:
    """``zero-rename verify URL`` as a command."""
    return _command(variables, "verify", url, "--json")


def _command(variables: Mapping[str, str], *arguments: str) -> list[dict[str, str]] | str:
    program = "from zero_rename.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode == 2:
        return done.stderr
    return json.loads(done.stdout)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with other AWS variables, and with what we import."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = os.pathsep.join(dict.fromkeys([str(TESTS), *kept.get("PYTHONPATH", "").split(":")]))
    return {**kept, **variables, "PYTHONPATH": path.rstrip(":")}


def _start(process: Any) -> None:
    """Start a process; the server it is forked from takes its environment from the first."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = environment({})["PYTHONPATH"]
    try:
        process.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _receive(connection: Connection, process: Any) -> Any:
    give_up = time.monotonic() + _START
    while time.monotonic() < give_up:
        if connection.poll(0.02):
            try:
                return connection.recv()
            except EOFError:
                return None
        if not process.is_alive() and not connection.poll(0):
            return None
    raise TimeoutError("a writer has neither finished nor died")


def _enter(variables: Mapping[str, str]) -> None:
    os.environ.update(environment(variables))


def _write(url: str, load: Load, variables: Mapping[str, str], answer: Connection) -> None:
    """Runs in the writer's process."""
    _enter(variables)
    files = FileOptions(rows_per_file=load.rows_per_file, part_bytes=5 * 1024 * 1024)
    try:
        job = Table(url).job(
            load.table().schema,
            mode=load.mode,
            partition_by=load.partition_by,
            once=load.once,
            on_repeat=OnRepeat(load.on_repeat),
            during_apply=DuringApply(load.during_apply),
            files=files,
        )
        with job:
            data = load.table()
            for at in range(0, data.num_rows, 4):
                job.write(data.slice(at, 4))
        assert job.committed is not None
        answer.send("repeated" if job.committed.repeated else "committed")
    except ZeroRenameError as error:
        answer.send(f"{type(error).__name__}: {error}")
    signal.pause()


def _recover(url: str, variables: Mapping[str, str], answer: Connection) -> None:
    """Runs in the recoverer's process."""
    _enter(variables)
    try:
        outcomes = Table(url).recover(patience=0.0)
        answer.send([{"job": o.job, "outcome": str(o.outcome)} for o in outcomes])
    except ZeroRenameError as error:
        answer.send(f"{type(error).__name__}: {error}")


_SPARK = """
import json, signal, sys
from pyspark.sql import SparkSession, functions as F
url, load, given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]")
for name, value in given.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
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
    "duringApply": load["during_apply"],
    "onRepeat": load["on_repeat"],
}
if load["partitioned"]:
    options["partitionBy"] = "day"
if load["once"]:
    options["once"] = load["once"]
mode = "overwrite" if load["mode"] == "replace" else "append"
try:
    frame.write.format("zero_rename").mode(mode).options(**options).save(url)
except Exception as error:
    print("answer " + str(error).replace(chr(10), " ")[:2000], flush=True)
else:
    print("answer committed", flush=True)
signal.pause()
"""


class SparkWriter:
    """A Spark driver on ``local[2]`` in a session of its own."""

    def __init__(self, url: str, load: Load, variables: Mapping[str, str], folder: Path) -> None:
        given = settings(folder)
        # The group of PySpark's daemon is not the driver's; the session is.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SPARK, json.dumps([url, asdict(load), given])],
            env=environment(variables)
            | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("wb"),
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

    def answer(self) -> str | None:
        try:
            return self._answers.get(timeout=240)
        except queue.Empty:
            raise TimeoutError("a Spark driver has neither finished nor died") from None

    def close(self) -> None:
        self.kill()
        self._process.wait()


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
