"""A host as the run sees it: a tree of processes that is told what to do, timed and looked at."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

#: What a process of a tree is.
GROUPS = ("driver", "jvm", "workers")


@dataclass(frozen=True)
class _Used:
    """Seconds of CPU of a process, and of its children that ended."""

    group: str
    parent: int
    own: float
    dead: float


CpuTimes = dict[int, _Used]


def cpu_between(before: CpuTimes, after: CpuTimes) -> dict[str, float]:
    """Seconds of CPU by group. A process that has ended is counted with its parent, where that
    waited for it, and was counted until ``before`` as itself."""
    used: dict[str, float] = {}
    for pid, now in after.items():
        then = before.get(pid, _Used(now.group, now.parent, 0, 0))
        dead = now.dead - then.dead
        for gone in before.keys() - after.keys():
            known = before[gone].own + before[gone].dead
            if before[gone].parent == pid and dead >= known:
                dead -= known
        used[now.group] = used.get(now.group, 0) + now.own - then.own + dead
    return {group: round(seconds, 2) for group, seconds in used.items()}


class HostError(Exception):
    """A host that did not start, ended, or took longer than it may."""


class Host:
    """A running host.

    :param command: that starts it.
    :param log: where its standard error goes.
    :raises HostError: it is not ready within ``timeout`` seconds.
    """

    def __init__(
        self, command: list[str], variables: Mapping[str, str], log: Path, timeout: float
    ) -> None:
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._tree = psutil.Process(self._process.pid)
        try:
            self._answer(timeout)
        except HostError:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, timeout: float, **what: Any) -> dict[str, Any]:
        """What the host answers.

        :raises HostError: it ended, or did not answer in time; it is then no more.
        """
        assert self._process.stdin is not None
        try:
            print(json.dumps(what), file=self._process.stdin, flush=True)
            return self._answer(timeout)
        except (HostError, OSError):
            self.end()
            raise

    def cpu(self) -> CpuTimes:
        """What the tree has used so far."""
        times: CpuTimes = {}
        for process in self._all():
            try:
                used, group = process.cpu_times(), _group(process, self._tree)
                own, dead = used.user + used.system, used.children_user + used.children_system
                times[process.pid] = _Used(group, process.ppid(), own, dead)
            except psutil.Error:
                continue
        return times

    def forget_memory(self) -> None:
        """Begin :meth:`memory` anew."""
        for process in self._all():
            _write(Path(f"/proc/{process.pid}/clear_refs"), "5")

    def memory(self) -> dict[str, int]:
        """Bytes, the most that a process of each group has had, of those that are there."""
        most: dict[str, int] = {}
        for process in self._all():
            try:
                group, peak = _group(process, self._tree), _peak(process)
            except (psutil.Error, OSError):
                continue
            most[group] = max(most.get(group, 0), peak)
        return most

    def end(self) -> None:
        """End the tree; Spark's workers are in process groups of their own."""
        processes = self._all()
        for process in processes:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(processes, 10)
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self, timeout: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        began = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise HostError(f"took longer than {time.monotonic() - began:.0f} s")
        line = out.readline()
        if not line:
            raise HostError(f"its process ended; {self._log} says why")
        return json.loads(line)

    def _all(self) -> list[psutil.Process]:
        try:
            return [self._tree, *self._tree.children(recursive=True)]
        except psutil.Error:
            return []


def _group(process: psutil.Process, driver: psutil.Process) -> str:
    if process.pid == driver.pid:
        return "driver"
    return "jvm" if process.name() == "java" else "workers"


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():  # Not Linux: what it has now.
        return process.memory_info().rss
    lines = [it for it in status.read_text().splitlines() if it.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError:  # Gone, or another system.
        return
