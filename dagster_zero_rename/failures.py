"""Final failures: errors that a retry cannot correct, so Dagster shall not retry."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import dagster as dg
from dagster._core.storage.tags import MAX_RETRIES_TAG

from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.failure import Failure, is_final
from zero_rename.orchestration.runs.outcomes import names_overtaken

from .step_log import told_in

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun
    from dagster._core.execution.context.system import StepExecutionContext


#: Tag of a run that has failed for good: its id, and the limit of the daemon's retries that it had
#: before, empty if it had none.
_BEFORE = "zero_rename/max_retries"


class RunningStep(Protocol):
    """A step, as its own context or that of its function has it."""

    @property
    def instance(self) -> DagsterInstance: ...
    @property
    def run_id(self) -> str: ...
    @property
    def log(self) -> logging.Logger: ...


#: The remedy if another job has changed a partition, for a step that waits for other runs.
BEFORE_WAIT = (
    "The next attempt waits for other runs, and loads on top of what they have loaded. Where none "
    "is left, re-execute the run."
)


@contextmanager
def final_failures(step: RunningStep, waits: bool = False) -> Iterator[None]:
    """Turn errors in the block that a retry would meet again, or hide, into final failures. Neither
    the step's retry policy nor Dagster's daemon retries after one. What this package logs in the
    block is shown in the step's log.

    :param waits: the next attempt waits for other runs, and is to load on top of what they have
        loaded. So if another run has changed a partition, only this attempt ends.
    :raises Failure: in place of such an error, which is its cause.
    """
    try:
        with told_in(step.log):
            yield
    except ZeroRenameError as error:
        root = None if error.table is None else TableRoot.parse(error.table)
        if not is_final(error, root):
            raise
        met = getattr(error, "gave_way", {})
        if waits and root and names_overtaken(type(error).__name__, error.key, met, root):
            error.remedy = BEFORE_WAIT
            raise
        raise final_failure(step, str(error), type(error).__name__, error, error.table) from error


def final_failure(
    step: RunningStep, text: str, error: str, told: ZeroRenameError | Failure, table: str | None
) -> dg.Failure:
    """Build a failure that neither the step's retry policy nor the daemon's retries of runs repeat.

    :param text: what happened and what to do next.
    :param error: the error's class.
    :param told: the error, or the record of it that an application wrote.
    """
    forbid_retries(step)
    said = {"error": error, "table": table, "job": told.job, "key": told.key}
    said["remedy"] = told.remedy
    metadata = {f"zero_rename/{name}": value for name, value in said.items() if value}
    return dg.Failure(text, metadata, allow_retries=False)


def forbid_retries(step: RunningStep) -> None:
    """Keep the daemon from retrying the run of a step that fails for good."""
    run = step.instance.get_run_by_id(step.run_id)
    before = "" if run is None else run.tags.get(MAX_RETRIES_TAG, "")
    known = {} if run is None or _failed_finally(run) else {_BEFORE: f"{step.run_id} {before}"}
    step.instance.add_run_tags(step.run_id, {MAX_RETRIES_TAG: "0", **known})


def restore_retries(step: StepExecutionContext) -> None:
    """Let the daemon retry a run again if it was re-executed from a run that had failed for good.
    Dagster copies that run's tags."""
    run, instance = step.dagster_run, step.instance
    if _BEFORE not in run.tags or _failed_finally(run):
        return
    before = run.tags[_BEFORE].partition(" ")[2] or str(instance.run_retries_max_retries)
    if run.tags.get(MAX_RETRIES_TAG) == "0":
        now = instance.get_run_by_id(run.run_id)
        if now is None or not _failed_finally(now):
            instance.add_run_tags(run.run_id, {MAX_RETRIES_TAG: before})


def _failed_finally(run: DagsterRun) -> bool:
    """Return whether a step of this very run has failed for good."""
    return run.tags.get(_BEFORE, "").partition(" ")[0] == run.run_id
