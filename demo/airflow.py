"""The demonstration's side of :mod:`.airflow_worker`."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from .airflow_worker import CLEARED, FIRST, RETRIED
from .processes import kill_tree, started, tail
from .workspace import CHECKOUT, DemoError, shown

__all__ = ["CLEARED", "FIRST", "RETRIED", "Airflow", "airflow"]


@dataclass(frozen=True)
class Airflow:
    """A process that runs one DAG."""

    process: subprocess.Popen[str]
    log: Path

    def begin(self, day: date, how: str = FIRST, conf: Mapping[str, Any] | None = None) -> None:
        """Begin the run whose data interval is a day; returns at once."""
        assert self.process.stdin is not None
        # As a run by hand would be: made when the day is over, it covers that day.
        made = datetime.combine(day + timedelta(days=1), time(), UTC)
        request = {"date": made.isoformat(), "how": how, "conf": conf or {}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def wait(self) -> str:
        """Wait for the run. Returns its id.

        :raises DemoError: it did not succeed; with the end of the log.
        """
        answer = self._answer()
        if answer.get("state") != "success":
            raise DemoError(
                f"The DAG run ended as {answer.get('state')}: {answer.get('error', '')}\n"
                f"{shown(self.log)} ends with:\n{tail(self.log, 40)}"
            )
        return answer["run_id"]

    def run(self, day: date, how: str = FIRST, conf: Mapping[str, Any] | None = None) -> str:
        """Run a day's run to its end."""
        self.begin(day, how, conf)
        return self.wait()

    def wait_until_ready(self) -> None:
        """Airflow is imported and its database migrated."""
        self._answer()

    def has_answered(self, timeout: float) -> bool:
        """Whether the run has ended; waits at most ``timeout`` seconds for it."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], timeout)[0])

    def kill(self) -> int:
        """``kill -9`` the process and all it started, as when the machine fails."""
        return kill_tree(self.process.pid)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise DemoError(f"Airflow ended; {shown(self.log)} ends with:\n{tail(self.log, 40)}")
        return json.loads(line)


@contextlib.contextmanager
def airflow(
    dag_id: str, environment: Mapping[str, str], log: Path, migrate: bool = False
) -> Iterator[Airflow]:
    """Start Airflow; killed with all its children when the block ends.

    :param migrate: make its database first.
    """
    command = [sys.executable, "-m", "demo.airflow_worker", dag_id, *(["--migrate"] * migrate)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": CHECKOUT}
    with started(command, environment, log, **pipes) as process:
        yield Airflow(process, log)
