"""Liveness of attempts of loads by Hadoop's committers, by the states of Dagster's runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.tags import ROOT_RUN_ID_TAG

from zero_rename.s3a.recovery.liveness import JobLiveness
from zero_rename.s3a.runs.try_record import TryRecord

from .asset_step import APPLICATION, DOES_AGAIN

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun


def run_states(instance: DagsterInstance) -> Callable[[TryRecord], JobLiveness | None]:
    """Return a function that returns the liveness of an attempt: *live* while its run is at work,
    waits for a retry, or is executed again; else ``None``. A run that has ended does not prove that
    its application has.
    """

    def ask(record: TryRecord) -> JobLiveness | None:
        owner = record.owner
        if owner.application != APPLICATION or owner.run_id is None:
            return None
        for run in _runs_of(instance, owner.run_id):
            if not run.is_finished or run.is_complete_and_waiting_to_retry:
                return JobLiveness.LIVE
        return None

    return ask


def _runs_of(instance: DagsterInstance, run_id: str) -> Iterator[DagsterRun]:
    """Yield a run, and those that do its work again."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return
    yield run
    root = run.tags.get(DOES_AGAIN) or run.root_run_id or run.run_id
    for tag in (ROOT_RUN_ID_TAG, DOES_AGAIN):
        yield from instance.get_runs(dg.RunsFilter(tags={tag: root}))
