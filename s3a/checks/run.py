"""The checks: every known way in which S3A settings lose, double or half show rows.

Each is in the module of its theme and in ``docs/s3a.md``. Looked at before submission, with the
settings that will be in force, and in the job once more, before its first write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...committer.errors import InvalidInputError, SettingsRefusedError
from . import attempts, binding, classes, contradictions, folders, overwrite, uploads
from .check import REGISTRY, Check, CheckFinding, Severity
from .job_facts import JobFacts

__all__ = [
    "ACCEPT_KEY",
    "CHECKS",
    "Check",
    "CheckFinding",
    "JobFacts",
    "Severity",
    "accepted",
    "by_theme",
    "inspect",
    "refuse",
    "warnings",
]

#: A setting of Spark's with the ids of checks to pass over, separated by commas: it counts
#: wherever settings do, so before submission and in the job.
ACCEPT_KEY = "spark.zero_rename.s3a.accept"
#: The themes, in the order in which they are documented.
THEMES = (
    contradictions,
    binding,
    classes,
    overwrite,
    attempts,
    uploads,
    folders,
)
_ORDER = {theme.__name__: place for place, theme in enumerate(THEMES)}
_ENTRIES = sorted(REGISTRY, key=lambda entry: _ORDER[entry[1].__module__])

CHECKS: tuple[Check, ...] = tuple(check for check, _ in _ENTRIES)


def accepted(facts: JobFacts) -> frozenset[str]:
    """The checks that :data:`ACCEPT_KEY` passes over.

    :raises InvalidInputError: it names one that there is not.
    """
    ids = frozenset(re.findall(r"[^\s,]+", facts.value(ACCEPT_KEY)))
    unknown = sorted(ids - {check.id for check in CHECKS})
    if unknown:
        raise InvalidInputError(
            f"{facts.describe(ACCEPT_KEY)} names no check: {', '.join(unknown)}.",
            remedy="zero-rename checks lists them.",
        )
    return ids


def inspect(facts: JobFacts) -> tuple[CheckFinding, ...]:
    """Everything that is wrong and not accepted, errors first. Asks nobody, and takes no time to
    speak of.

    :raises InvalidInputError: what is accepted is no check.
    """
    passed = accepted(facts)
    found = [
        CheckFinding(check, detail)
        for check, probe in _ENTRIES
        if facts.committer in check.committers and check.id not in passed
        for detail in probe(facts)
    ]
    return tuple(sorted(found, key=lambda finding: finding.check.severity is not Severity.ERROR))


def by_theme() -> dict[str, tuple[Check, ...]]:
    """The checks by what their theme asks, in its own words."""
    return {
        (theme.__doc__ or "").strip(): tuple(
            check for check, probe in _ENTRIES if probe.__module__ == theme.__name__
        )
        for theme in THEMES
    }


def warnings(findings: Sequence[CheckFinding]) -> tuple[CheckFinding, ...]:
    """Those that do not stop the job."""
    return tuple(f for f in findings if f.check.severity is Severity.WARNING)


def refuse(findings: Sequence[CheckFinding]) -> None:
    """Let no job run whose settings are known to be wrong.

    :raises SettingsRefusedError: names every error with its id, settings and remedy.
    """
    errors = [f for f in findings if f.check.severity is Severity.ERROR]
    if not errors:
        return
    one = len(errors) == 1
    raise SettingsRefusedError(
        f"{len(errors)} setting{'' if one else 's'} would lose or double rows, or cannot work; "
        "nothing was submitted or written.\n" + "\n".join(f"* {finding}" for finding in errors),
        remedy="docs/s3a.md has the reason and the source of each check. One that does not hold "
        f"of your set-up is passed over by {ACCEPT_KEY}=<its id>.",
    )
