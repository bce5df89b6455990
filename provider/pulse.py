"""Signs of life for a job while its operator holds the submission."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ..committer.errors import ZeroRenameError

if TYPE_CHECKING:
    from ..committer import Table
    from .runs import TaskRun

_log = logging.getLogger(__name__)


class Pulse:
    """Finds the jobs that this try has opened and keeps them alive, from a thread.

    PySpark runs a data source's methods in short-lived processes, so a thread there would die
    during a long shuffle; the operator lives as long as its submission. A job that is decided
    needs no more signs.

    :param interval: seconds between signs of life.
    """

    def __init__(self, table: Table, run: TaskRun, interval: float = 30.0) -> None:
        self._table = table
        self._run = run
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name="zero-rename-pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=self._interval)

    def _keep_on(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self.beat()
            except ZeroRenameError as error:
                # The job has its maximum duration; the next sign may get through.
                _log.warning("No sign of life could be given: %s", error)

    def beat(self) -> list[str]:
        """Give a sign of life for each job of this try that is open and undecided.

        :return: their ids.
        """
        alive = []
        for job in self._table.open_jobs():
            mine = self._run.owns(job.owner) and job.owner.try_number == self._run.try_number
            if mine and job.decided is None and self._table.beat(job.job, self._interval):
                alive.append(job.job)
        return alive
