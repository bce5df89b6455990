"""Writer processes that can be killed, and processes that recover what they left."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from torture.loads import Load

from support.waiting import STUCK
from zero_rename import FileOptions, Table
from zero_rename.committer import OnRepeat
from zero_rename.committer.commit.state.context import Waiting
from zero_rename.committer.errors import ZeroRenameError

#: Processes are forked from one that has imported everything, so that a kill costs no start-up.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torture.writers", "torture.warm"])
TESTS = Path(__file__).resolve().parent.parent


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


class Child:
    """A function in a process of its own, which may be killed.

    :param work: is given the arguments, and a connection by which it tells and is told.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._mine, theirs = FORKS.Pipe()
        self._process = FORKS.Process(target=work, args=(*arguments, theirs))
        # The server that it is forked from takes its environment from the first.
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = environment({})["PYTHONPATH"]
        try:
            self._process.start()
        finally:
            os.environ["PYTHONPATH"] = before
        theirs.close()

    def kill(self) -> None:
        self._process.kill()

    def answer(self, patience: float = STUCK) -> Any:
        """What it has told; ``None``: it died first.

        :raises TimeoutError: it did neither within so many seconds.
        """
        give_up = time.monotonic() + patience
        while time.monotonic() < give_up:
            if self._mine.poll(0.02):
                try:
                    return self._mine.recv()
                except EOFError:
                    return None
            if not self._process.is_alive() and not self._mine.poll(0):
                return None
        raise TimeoutError("a writer has neither finished nor died")

    def close(self) -> None:
        self.kill()
        self._process.join()
        self._mine.close()


class PlainWriter(Child):
    """A job of plain Python, which then waits to be killed."""

    def __init__(self, url: str, load: Load, variables: Mapping[str, str]) -> None:
        super().__init__(_write, url, load, dict(variables))


class RacingWriter(Child):
    """A job of plain Python that is open, and goes on when it is told to.

    :param spec: further members of the job's policy.
    """

    #: Seconds for which a racing writer lets another one's claim be silent.
    SILENCE = 0.5

    def __init__(self, url: str, load: Load, variables: Mapping[str, str], **spec: Any) -> None:
        super().__init__(_race, url, load, dict(variables), spec)

    def opened(self) -> str:
        """The job's id, or the error that opening it met."""
        return str(self.answer())

    def go_on(self) -> None:
        self._mine.send("go on")


class Recoverer(Child):
    """Recovers a table."""

    def __init__(self, url: str, variables: Mapping[str, str], patience: float = 0.0) -> None:
        super().__init__(_recover, url, dict(variables), patience)

    def outcomes(self) -> list[dict[str, str]] | str | None:
        """Its outcomes, or its error; ``None`` when it was killed."""
        found = self.answer()
        self._process.join()
        return found


def recover_by_command(url: str, variables: Mapping[str, str]) -> list[dict[str, str]] | str:
    """``zero-rename recover URL --patience 0 --apply`` as a command."""
    return _command(variables, "recover", url, "--patience", "0", "--apply", "--json")


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
        timeout=STUCK,
    )
    if done.returncode == 2:
        return done.stderr
    return json.loads(done.stdout)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with other AWS variables, and with what we import."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = os.pathsep.join(dict.fromkeys([str(TESTS), *kept.get("PYTHONPATH", "").split(":")]))
    return {**kept, **variables, "PYTHONPATH": path.rstrip(":")}


def enter(variables: Mapping[str, str]) -> None:
    """Take over the environment, in a process that was forked."""
    os.environ.update(environment(variables))


def _write(url: str, load: Load, variables: Mapping[str, str], answer: Connection) -> None:
    """Runs in the writer's process."""
    enter(variables)
    files = FileOptions(rows_per_file=load.rows_per_file, part_bytes=5 * 1024 * 1024)
    try:
        job = Table(url).job(
            load.table().schema,
            mode=load.mode,
            partition_by=load.partition_by,
            idempotency_key=load.idempotency_key,
            on_repeat=OnRepeat(load.on_repeat),
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


def _race(
    url: str, load: Load, variables: Mapping[str, str], spec: Mapping[str, Any], told: Connection
) -> None:
    """Runs in the racing writer's process."""
    enter(variables)
    data = load.table()
    try:
        table = Table(url)
        waiting = Waiting(silence=RacingWriter.SILENCE, poll=0.05)
        table._context = replace(table._context, waiting=waiting)
        job = table.job(data.schema, mode=load.mode, partition_by=load.partition_by, **spec)
        with job:
            told.send(job.job)
            told.recv()
            job.write(data)
        told.send("committed")
    except ZeroRenameError as error:
        told.send(f"{type(error).__name__}: {error}")


def _recover(url: str, variables: Mapping[str, str], patience: float, answer: Connection) -> None:
    """Runs in the recoverer's process."""
    enter(variables)
    try:
        outcomes = Table(url).recover(patience)
        answer.send([{"job": o.job, "outcome": str(o.outcome)} for o in outcomes])
    except ZeroRenameError as error:
        answer.send(f"{type(error).__name__}: {error}")
