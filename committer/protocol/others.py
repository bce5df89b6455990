"""Other jobs in a job's way: their troubles are told as theirs, with what holds for the job itself.

Meeting a committed job that cannot be finished, or one of which nobody can say whether it was
fenced, does not make the caller's own job committed or unknown: it has decided nothing.
"""

from __future__ import annotations

from typing import Any

from ..errors import (
    DamagedError,
    OtherJobError,
    OutcomeUnknownError,
    UnfinishedAbortError,
    UnfinishedCommitError,
)
from ..layout import TableRoot
from ..s3.requests import Step

_TROUBLES = (UnfinishedCommitError, UnfinishedAbortError, OutcomeUnknownError, DamagedError)


def about_other(root: TableRoot, job: str, other: str, step: Step[Any]) -> Step[Any]:
    """Carry out a step that settles another job, for a job that has not decided.

    :param job: the caller's own.
    :raises OtherJobError: the other job cannot be settled; nothing of ``job`` is visible.
    """
    try:
        return (yield from step)
    except _TROUBLES as error:
        settle = f"Settle {other} first: zero-rename recover {root.url}"
        if isinstance(error, DamagedError) and error.remedy:
            settle = error.remedy.rstrip(".")  # Recovery would meet the same damage.
        raise OtherJobError(
            f"Job {other} is in this job's way and cannot be settled: {error.message} So this job "
            "commits nothing: nothing of it is visible, and it can be run again.",
            table=root.url,
            job=job,
            other=other,
            key=error.key,
            remedy=f"{settle}. Then run this job again.",
        ) from error
