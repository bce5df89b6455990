"""Marks by which a service's jobs are known as those of a run, whoever looks for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_MARK = re.compile(r"(?<![0-9A-Za-z])zr-([0-9a-f]{16})-([0-9a-f]{8})-(\d{1,6})(?![0-9A-Za-z])")


@dataclass(frozen=True)
class JobMark:
    """One try of a run, as a text that fits into the name, the token and the tags of a job of any
    service: letters, digits and hyphens, 34 at most.

    It is made of what every try of the run knows, so that a job is found again without anything
    that the try which started it would have had to write down.

    :param load: digest of the table and of the run's idempotency key.
    :param series: digest of what the tries since the run was made or cleared have in common.
    :param number: of the try.
    """

    load: str
    series: str
    number: int

    @staticmethod
    def of(table: str, idempotency_key: str, series: str | None, number: int) -> JobMark:
        """:param table: the root's URL: two deployments may have runs of the same name."""
        load = sha256(f"{table}\0{idempotency_key}".encode()).hexdigest()[:16]
        return JobMark(load, sha256((series or "").encode()).hexdigest()[:8], number)

    @staticmethod
    def find(text: str) -> JobMark | None:
        """The mark in a job's name; ``None`` for a job of somebody else."""
        found = _MARK.search(text)
        return JobMark(found[1], found[2], int(found[3])) if found else None

    def __str__(self) -> str:
        return f"zr-{self.load}-{self.series}-{self.number}"

    def after(self, name: str, longest: int, separator: str = " ") -> str:
        """A job's own name with this mark, cut to the service's limit."""
        room = longest - len(f"{separator}{self}")
        return f"{name[:room]}{separator}{self}"


@dataclass(frozen=True)
class MarkedJob:
    """A job that a service runs for a run of ours.

    :param id: the service's.
    """

    id: str
    mark: JobMark
