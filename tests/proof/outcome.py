"""Outcome of one part of the proof."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "FAILED"
    PARTLY = "DID NOT RUN IN FULL"
    NOT_RUN = "DID NOT RUN"


@dataclass(frozen=True)
class Outcome:
    """What a part showed.

    :param why: why it did not run, or not in full; or what failed, in one line.
    :param command: that repeats it.
    :param details: lines of Markdown.
    """

    verdict: Verdict
    command: str
    details: tuple[str, ...] = ()
    why: str = ""
