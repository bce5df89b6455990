"""Definition of a check, and the list to which the modules of this room add theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from .job_facts import JobFacts

ALL = ("zero_rename", "magic", "directory", "partitioned", "classic")
S3A = ("magic", "directory", "partitioned", "classic")
#: The three that complete uploads, rather than rename.
COMMITTERS = ("magic", "directory", "partitioned")
STAGING = ("directory", "partitioned")


class Severity(StrEnum):
    """What a finding means for the job."""

    #: Rows would be lost, doubled or seen half-written, or the job cannot work: it is refused.
    ERROR = "error"
    #: It works, and something about it will hurt: it is logged.
    WARNING = "warning"


Stage = Literal["before", "in job"]
Probe = Callable[[JobFacts], Iterable[str]]


@dataclass(frozen=True)
class Check:
    """One known trap.

    :param id: in kebab case; it does not change between versions.
    :param title: the trap in a few words.
    :param reason: what happens, and why.
    :param source: where that is to be read: class, issue, or a test of this project.
    :param remedy: what to do.
    :param stage: ``before`` submission where the settings tell enough, else only ``in job``,
        before its first write. The former are looked at in the job once more, with the
        session's settings.
    :param committers: those it is about.
    """

    id: str
    severity: Severity
    title: str
    reason: str
    source: str
    remedy: str
    stage: Stage = "before"
    committers: tuple[str, ...] = S3A


@dataclass(frozen=True)
class CheckFinding:
    """A check that fired.

    :param detail: the keys concerned, their values and where each came from.
    """

    check: Check
    detail: str

    def __str__(self) -> str:
        return f"[{self.check.id}] {self.check.title}: {self.detail}. {self.check.remedy}"


REGISTRY: list[tuple[Check, Probe]] = []


def check(
    id: str,
    severity: Severity,
    title: str,
    *,
    reason: str,
    source: str,
    remedy: str,
    stage: Stage = "before",
    committers: tuple[str, ...] = S3A,
) -> Callable[[Probe], Probe]:
    """Add the decorated probe to the list: it yields one detail for every finding."""

    def add(probe: Probe) -> Probe:
        made = Check(id, severity, title, reason, source, remedy, stage, committers)
        REGISTRY.append((made, probe))
        return probe

    return add
