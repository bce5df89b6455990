"""Marks in the names of a service's jobs, by which any process finds the jobs of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_MARK = re.compile(r"(?<![0-9A-Za-z])zr-([0-9a-f]{16})-([0-9a-f]{8})-(\d{1,6})(?![0-9A-Za-z])")


@dataclass(frozen=True)
class JobMark:
    """One attempt of a run, as a text for the name, the token and the tags of a service's job.

    The text has at most 34 letters, digits and hyphens, which every service takes. It is made of
    facts that every attempt of the run knows. So a later attempt finds the job again, even if the
    attempt that started it wrote nothing down.

    :param load: digest of the table and of the run's idempotency key.
    :param series: digest of :attr:`.TaskRun.series`, the same in all attempts since the run was
        made or its task cleared.
    :param number: of the attempt.
    """

    load: str
    series: str
    number: int

    @staticmethod
    def of(table: str, idempotency_key: str, series: str | None, number: int) -> JobMark:
        """Make the mark of an attempt.

        :param table: the root's URL: two deployments may have runs of the same name.
        :param series: of the attempt (:attr:`.TaskRun.series`).
        :param number: of the attempt.
        """
        load = sha256(f"{table}\0{idempotency_key}".encode()).hexdigest()[:16]
        return JobMark(load, sha256((series or "").encode()).hexdigest()[:8], number)

    @staticmethod
    def find(text: str) -> JobMark | None:
        """Return the mark in a job's name; ``None`` if it has none: then it works for no run."""
        found = _MARK.search(text)
        return JobMark(found[1], found[2], int(found[3])) if found else None

    def __str__(self) -> str:
        return f"zr-{self.load}-{self.series}-{self.number}"

    def after(self, name: str, longest: int, separator: str = " ") -> str:
        """Return a job's own name with this mark; the name is cut to the service's limit."""
        room = longest - len(f"{separator}{self}")
        return f"{name[:room]}{separator}{self}"


@dataclass(frozen=True)
class MarkedJob:
    """A service's job with a mark: it works for a run.

    :param id: the service's id of the job.
    """

    id: str
    mark: JobMark
