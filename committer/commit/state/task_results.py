"""Results of tasks, checked before anything is decided."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import DestinationExistsError, TaskResultsError, counted
from ...format.layout import UNPARTITIONED, job_in_key
from ...format.records.pending_file import PendingFile, TaskResult
from .job_state import OpenedJob


def check_results(
    opened: OpenedJob, results: Sequence[TaskResult], expected_tasks: int | None
) -> None:
    """Refuse results that do not add up to one job, before anything is decided.

    :raises TaskResultsError: a missing or doubled task, a foreign job, two files with one key, a
        key outside its partition or the table.
    """
    tasks = [result.task for result in results]
    problem = None
    if expected_tasks is not None and len(results) != expected_tasks:
        problem = f"{len(results)} of {counted(expected_tasks, 'task')} reported"
    elif len(set(tasks)) != len(tasks):
        problem = f"task {_doubled(tasks)} reported twice"
    elif foreign := [result.job for result in results if result.job != opened.job]:
        problem = f"a task reported for another job, {foreign[0]}"
    else:
        problem = _bad_file(opened, [file for result in results for file in result.files])
    if problem is not None:
        raise TaskResultsError(
            f"The tasks' results do not add up: {problem}. Nothing was decided.",
            remedy="Run the job again.",
        )


def _bad_file(opened: OpenedJob, files: list[PendingFile]) -> str | None:
    keys = [file.key for file in files]
    if len(set(keys)) != len(keys):
        return f"two files have the key {_doubled(keys)}"
    allowed, narrowed = opened.spec.allowed_partitions, opened.narrowed
    misplaced = _beside_heads if opened.log is None else _beside_the_log
    for file in files:
        problem = misplaced(opened, file)
        if problem is not None:
            return problem
        if any(some is not None and file.partition not in some for some in (allowed, narrowed)):
            return f"{file.key} lies in none of the partitions that this job may write"
    return None


def _beside_the_log(opened: OpenedJob, file: PendingFile) -> str | None:
    """Describe what is wrong with the place of a file of a table that is kept in a log."""
    assert opened.log is not None
    if not file.is_whole or not file.etags or not file.key.startswith(opened.log.data):
        return f"{file.key} is not written as files of this job are"
    return None


def _beside_heads(opened: OpenedJob, file: PendingFile) -> str | None:
    """Describe what is wrong with the place of a file of a table with heads."""
    if opened.root.partition_of_data_key(file.key) != file.partition:
        return f"the key {file.key} lies outside its partition {file.partition}"
    if job_in_key(file.key) != opened.job:
        return f"the key {file.key} does not carry this job's id"
    if not file.etags:
        return f"the upload of {file.key} has no parts"
    if file.is_whole:
        return f"{file.key} has no upload that the commit could complete"
    return None


def _doubled(values: list) -> object:
    return next(value for value in values if values.count(value) > 1)


def destination_exists(partition: str, there: Sequence[str]) -> DestinationExistsError:
    """Build the error of a job of mode fail-if-exists that met files, given by their keys."""
    whole = partition == UNPARTITIONED
    where = "table" if whole else f"partition {partition}"
    return DestinationExistsError(
        f"The {where} already holds {counted(len(there), 'file')}, and the mode is "
        "fail-if-exists. Nothing of this job is visible.",
        key=there[0],
        remedy="Append or overwrite instead, or write to another "
        f"{'table' if whole else 'partition'}.",
    )
