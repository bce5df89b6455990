"""The checks, looked at before submission, with the settings that will be in force, and in the
job once more, before its first write."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...committer.errors import InvalidInputError, SettingsRefusedError
from .table import CHECKS, Check, JobFacts, Severity

__all__ = [
    "ACCEPT_KEY",
    "CHECKS",
    "Check",
    "CheckFinding",
    "JobFacts",
    "Severity",
    "inspect",
    "refuse",
]

_log = logging.getLogger("zero_rename.s3a.checks.run")
#: A setting of Spark's with the ids of checks to pass over, separated by commas: it counts
#: wherever settings do, so before submission and in the job.
ACCEPT_KEY = "spark.zero_rename.s3a.accept"


@dataclass(frozen=True)
class CheckFinding:
    """A check that fired.

    :param detail: the keys concerned, their values and where each came from.
    """

    check: Check
    detail: str

    def __str__(self) -> str:
        return f"[{self.check.id}] {self.check.title}: {self.detail}. {self.check.remedy}"


def inspect(facts: JobFacts) -> tuple[CheckFinding, ...]:
    """Everything that is wrong and not accepted, errors first. Asks nobody, and takes no time to
    speak of.

    :raises InvalidInputError: what is accepted is no check.
    """
    accepted = set(re.findall(r"[^\s,]+", facts.value(ACCEPT_KEY)))
    if unknown := sorted(accepted - {check.id for check in CHECKS}):
        raise InvalidInputError(
            f"{facts.describe(ACCEPT_KEY)} names no check: {', '.join(unknown)}.",
            remedy="zero-rename checks lists them.",
        )
    found = [
        CheckFinding(check, detail)
        for check in CHECKS
        if facts.committer in check.committers and check.id not in accepted
        if (detail := check.detail(facts)) is not None
    ]
    return tuple(sorted(found, key=lambda finding: finding.check.severity is not Severity.ERROR))


def refuse(findings: Sequence[CheckFinding]) -> None:
    """Let no job run whose settings are known to be wrong; log the warnings.

    :raises SettingsRefusedError: names every error with its id, settings and remedy.
    """
    errors = [f for f in findings if f.check.severity is Severity.ERROR]
    for finding in findings[len(errors) :]:
        _log.warning("%s", finding)
    if not errors:
        return
    raise SettingsRefusedError(
        f"{len(errors)} setting{'' if len(errors) == 1 else 's'} would lose or double rows, or "
        "cannot work; nothing was submitted or written.\n"
        + "\n".join(f"* {finding}" for finding in errors),
        remedy="docs/s3a.md has the reason and the source of each check. One that does not hold "
        f"of your set-up is passed over by {ACCEPT_KEY}=<its id>.",
    )
