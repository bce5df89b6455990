"""Unfinished maintenance: the store failed it after something may have been changed.

An error about a missing answer or right says that one request did nothing. It says nothing about
the requests before it. If it were reported as *refused*, the user would believe that nothing was
changed. So it is reported as *unfinished*: each verb of maintenance may be run again, and then does
the rest. The error of a missing fast root stays as it is, since it says itself what is safe and
what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ..errors import (
    FastRootGoneError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedUpkeepError,
    ZeroRenameError,
    first_few,
)
from ..store.requests import (
    AbortUpload,
    All,
    CompleteUpload,
    Delete,
    DeleteMany,
    Put,
    PutLifecycleRule,
    Refused,
    Step,
    Work,
)

T = TypeVar("T")
#: Requests that change the table, or its uploads or rules in the bucket.
_CHANGES = (Put, Delete, DeleteMany, CompleteUpload, AbortUpload, PutLifecycleRule)


def unless_begun(step: Step[T]) -> Step[T]:
    """Carry out a step of maintenance, and report its failure as unfinished if it had begun.

    :raises UnfinishedUpkeepError: the store failed it after it may have changed something.
    """
    changed: list[object] = []
    try:
        return (yield from _watched(step, changed))
    except (StoreRefusedError, StoreUnreachableError) as error:
        if not changed or isinstance(error, FastRootGoneError):
            raise
        raise _unfinished(error) from error


@contextmanager
def unfinished_where_failed(begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Report every failure of the store in the block as unfinished: its first request may already
    have changed something.

    :param begun: returns whether something may have been changed by the time of the failure.
    :raises UnfinishedUpkeepError: in place of the store's error.
    """
    try:
        yield
    except (StoreRefusedError, StoreUnreachableError) as error:
        if isinstance(error, FastRootGoneError) or not begun():
            raise
        raise _unfinished(error) from error


class ChangedPartition(Protocol):
    """The outcome for a partition; ``job``: the one that has changed it."""

    @property
    def partition(self) -> str: ...

    @property
    def job(self) -> str | None: ...


@contextmanager
def telling_of_jobs(done: Sequence[ChangedPartition]) -> Iterator[None]:
    """Add a note to an error: what earlier jobs of the same call have committed.

    The error itself is only about its own job.

    :param done: the outcomes so far; the block adds to them.
    :raises UnfinishedUpkeepError: the store failed one of the jobs.
    """
    try:
        with unfinished_where_failed():
            yield
    except ZeroRenameError as error:
        committed = [it.partition or "the table" for it in done if it.job is not None]
        if committed:
            error.add_note(f"Committed before, by other jobs: {first_few(committed)}.")
        raise


def _watched(work: Work[Any], changed: list[object]) -> Generator[Any, Any, Any]:
    """Carry out work, and add to ``changed`` the requests that may have changed something."""
    step, answer = iter(work), None
    failed: Exception | None = None
    try:
        while True:
            try:
                request = step.send(answer) if failed is None else step.throw(failed)
            except StopIteration as end:
                return end.value
            if isinstance(request, All):
                request = All(tuple(_watched(it, changed) for it in request.members))
            try:
                answer, failed = (yield request), None
            except Exception as error:
                failed = error
            else:
                if isinstance(request, _CHANGES) and not isinstance(answer, Refused):
                    changed.append(request)
    finally:
        step.close()


def _unfinished(error: StoreRefusedError | StoreUnreachableError) -> UnfinishedUpkeepError:
    return UnfinishedUpkeepError(
        f"It is begun and not finished: {error.message} The table is whole, and what was done "
        "before stays.",
        table=error.table,
        job=error.job,
        key=error.key,
        remedy=" ".join(filter(None, (error.remedy, "Run it again: it does the rest."))),
    )
