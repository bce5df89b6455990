"""Heartbeats for open jobs, from the one process that lives as long as the application.

Spark opens a job in a Python worker that ends soon after, so a thread there would stop during a
long shuffle. The user's own process lives longer. :func:`zero_rename.spark.register` makes
a private folder, passes its name to the data source's workers in their environment, and starts a
thread in the user's process. Workers write a note into the folder for each job that they open, and
the thread renews the open records of these jobs. Planner, commit and the user's process share a
host in local, client and cluster mode. Without the folder (no ``register``), a job counts as dead
only after its option ``maxDuration``.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..committer.commit.state.heartbeat import OF_TASKS
from ..committer.errors import ZeroRenameError
from ..committer.format.handoff import OPEN_JOBS
from ..committer.format.layout import is_job_id
from ..committer.store.encryption import Encryption
from ..committer.table import Table

logger = logging.getLogger("zero_rename.spark.heartbeat")
_LOOK_EVERY = 1.0


def announce(job: str, table: str, encryption: Encryption | None = None) -> None:
    """Write a note on an open job, so that heartbeats are sent for it.

    Does nothing if there is no folder for notes. If the note cannot be written, a warning is
    logged, and the job counts as dead after its maximum duration.

    :param encryption: of its records; ``None``: the bucket's own.
    """
    folder = os.environ.get(OPEN_JOBS)
    if not folder:
        return
    note, part = Path(folder, f"{job}.json"), Path(folder, f".{job}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            said = None if encryption is None else str(encryption)
            json.dump({"job": job, "table": table, "encryption": said}, file)
        part.rename(note)
    except OSError as error:
        logger.warning("no heartbeats for job %s: %s", job, error)


def withdraw(job: str) -> None:
    """Remove the note on a job that is over."""
    folder = os.environ.get(OPEN_JOBS)
    if folder:
        try:
            Path(folder, f"{job}.json").unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the note on job %s stays: %s", job, error)


class Heartbeat(threading.Thread):
    """Thread that sends heartbeats for the jobs with notes in a folder, until :meth:`stop`.

    It never raises: a failed heartbeat is logged, and tried again after an interval.

    :param folder: the folder with the workers' notes.
    :param alive: returns whether the application still runs.
    :param send: sends a heartbeat; its arguments are the job, the table and the encryption of its
        records. Returns ``False`` when the job is over.
    """

    def __init__(
        self,
        folder: Path,
        alive: Callable[[], bool],
        send: Callable[[str, str, Encryption | None], bool] | None = None,
        interval: float = OF_TASKS.interval,
    ) -> None:
        super().__init__(name="zero-rename-heartbeat", daemon=True)
        self.folder = folder
        self._alive = alive
        self._send = send or self._send_to_store
        self._interval = interval
        self._stopped = threading.Event()
        self._due: dict[Path, float] = {}
        self._tables: dict[str, Table] = {}

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stopped.set()

    def run(self) -> None:
        try:
            while not self._stopped.wait(_LOOK_EVERY) and self._alive():
                self.look(time.monotonic())
        except Exception:
            logger.exception("heartbeats have ended; open jobs keep their maximum duration")

    def look(self, now: float) -> None:
        """Send the heartbeats that are due.

        :param now: seconds, by a clock that does not jump.
        """
        notes = list(self.folder.glob("*.json"))
        self._due = {note: self._due.get(note, now + OF_TASKS.first) for note in notes}
        for note in sorted(notes):
            if now >= self._due[note]:
                self._due[note] = now + self._interval
                self._heartbeat(note)

    def _heartbeat(self, note: Path) -> None:
        try:
            content = json.loads(note.read_text("utf-8"))
            job, table, said = content["job"], content["table"], content["encryption"]
            encryption = None if said is None else Encryption.parse(said)
            if not is_job_id(job) or not self._send(job, table, encryption):
                note.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # The job is over.
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("a note on an open job cannot be used, %s: %s", note.name, error)
        except ZeroRenameError as error:
            logger.warning("no heartbeat this time: %s", error)

    def _send_to_store(self, job: str, table: str, encryption: Encryption | None) -> bool:
        known = self._tables.get(table)
        if known is None:
            known = self._tables[table] = Table(table)
        known.driver.encrypt_by_default(encryption, known.root.prefix)
        return known.send_heartbeat(job, self._interval)
