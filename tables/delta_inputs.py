"""Inputs of jobs in a Delta table, recorded in the jobs' entries."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.job_state import OpenedJob
from ..committer.format.records.inputs import UNKNOWN_INPUTS, Inputs
from ..committer.format.records.typed_json import Unfit, from_members, to_members
from ..committer.store.requests import Step
from ..log.entries import LogEntry, LogFolder
from ..log.opening import read_entries
from ..log.repairing import INPUTS

#: How many entries are read at once.
_AT_ONCE = 64


def tell_inputs(opened: OpenedJob) -> dict[str, Any]:
    """Return the member of a job's entry with its inputs; nothing if they are not known."""
    inputs = opened.told_inputs
    return {INPUTS: to_members(inputs)} if inputs else {}


def inputs_told(entry: LogEntry | None) -> Inputs:
    """Return the inputs that an entry records for its rows.

    :param entry: ``None`` if it was cleaned from the log.
    """
    told = None if entry is None else entry.ours.get(INPUTS)
    try:
        return UNKNOWN_INPUTS if told is None else from_members(Inputs, told)
    except Unfit:
        return UNKNOWN_INPUTS  # Perhaps written by a later version of this package.


def inputs_of_rows(folder: LogFolder, state: Snapshot, partitions: Collection[str]) -> Step[Inputs]:
    """Read the inputs of the rows in partitions: one request for each job that has files there.

    A job that rewrites these rows records their inputs again, so they are kept as long as the
    rows."""
    jobs = sorted({file.job for file in state.of(partitions).files})
    versions = sorted({state.entries[job] for job in jobs if job in state.entries})
    told: dict[str | None, Inputs] = {}
    for start in range(0, len(versions), _AT_ONCE):
        entries = yield from read_entries(folder, versions[start : start + _AT_ONCE])
        told |= {it.job: inputs_told(it) for it in entries if it is not None}
    return Inputs.all_of(told.get(job, UNKNOWN_INPUTS) for job in jobs)
