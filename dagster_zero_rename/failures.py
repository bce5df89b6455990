"""Errors that no retry can mend, as failures that Dagster does not retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import dagster as dg
from dagster._core.storage.tags import MAX_RETRIES_TAG

from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.failure import Failure, is_final
from zero_rename.orchestration.runs.outcomes import names_overtaken

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun
    from dagster._core.execution.context.system import StepExecutionContext


#: Tag of a run that has failed for good: its id, and how often the daemon was to retry it before;
#: nothing where it was not said.
_BEFORE = "zero_rename/max_retries"


class RunningStep(Protocol):
    """A step, as its own context or that of its function has it."""

    @property
    def instance(self) -> DagsterInstance: ...
    @property
    def run_id(self) -> str: ...


#: What there is to do where another job has changed a partition, for a step that waits for others.
BEFORE_WAIT = (
    "The next try waits for other runs, and loads on top of what they have loaded. Where none is "
    "left, re-execute the run."
)


@contextmanager
def final_failures(step: RunningStep, waits: bool = False) -> Iterator[None]:
    """Let an error in the block that running the same again would meet again, or hide, fail its
    step for good: a retry policy does not retry it, and Dagster's daemon not the run.

    :param waits: the next try waits for other runs, and is to load on top of what they have loaded:
        one that has changed a partition ends only this try.
    :raises Failure: in place of such an error, which is its cause.
    """
    try:
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
    """A failure that neither the step's retry policy nor the daemon's retries of runs repeat.

    :param text: what happened and what to do next.
    :param error: the error's class.
    :param told: the error, or what an application put on record of it.
    """
    run = step.instance.get_run_by_id(step.run_id)
    before = "" if run is None else run.tags.get(MAX_RETRIES_TAG, "")
    known = {} if run is None or _failed_finally(run) else {_BEFORE: f"{step.run_id} {before}"}
    step.instance.add_run_tags(step.run_id, {MAX_RETRIES_TAG: "0", **known})
    said = {"error": error, "table": table, "job": told.job, "key": told.key}
    said["remedy"] = told.remedy
    metadata = {f"zero_rename/{name}": value for name, value in said.items() if value}
    return dg.Failure(text, metadata, allow_retries=False)


def restore_retries(step: StepExecutionContext) -> None:
    """Let the daemon retry a run again that was re-executed from one that had failed for good:
    Dagster hands on that run's tags."""
    run, instance = step.dagster_run, step.instance
    if _BEFORE not in run.tags or _failed_finally(run):
        return
    before = run.tags[_BEFORE].partition(" ")[2] or str(instance.run_retries_max_retries)
    if run.tags.get(MAX_RETRIES_TAG) == "0":
        now = instance.get_run_by_id(run.run_id)
        if now is None or not _failed_finally(now):
            instance.add_run_tags(run.run_id, {MAX_RETRIES_TAG: before})


def _failed_finally(run: DagsterRun) -> bool:
    """Tell whether a step of this very run has failed for good."""
    return run.tags.get(_BEFORE, "").partition(" ")[0] == run.run_id
