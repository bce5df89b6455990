"""Errors of a store that comes after an entry was sent: a job that may be in the log is never told
as refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    OtherJobError,
    OutcomeUnknownError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedCommitError,
    UnfinishedUpkeepError,
    ZeroRenameError,
)
from zero_rename.committer.store import requests as s
from zero_rename.log import put_entry
from zero_rename.log.committing import commit_change
from zero_rename.log.job_steps import commit_job, finish_job
from zero_rename.log.opening import FRESH
from zero_rename.log.publishing import hand_over_job
from zero_rename.log.purging import purge_log

#: A table whose log others clean, so that a late answer is no proof.
CLEANED = replace(COLUMNS, properties={})
#: What becomes of the entry's PUT: carried out or not, answered or not.
ANSWERS = ("late", "lost", "never sent", "another's")


def gone(kind: type[ZeroRenameError]) -> ZeroRenameError:
    return kind("The store is gone. Nothing was changed.")


def failing_after(
    table: LogTable, what: str, number: int, error: type[ZeroRenameError]
) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """A store that is away from a number of requests after the entry's PUT on."""
    left, sent = number, False
    clock = table.store.clock
    assert isinstance(clock, ManualClock)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal left, sent
        if not sent:
            if not (isinstance(request, s.Put) and request.key == LOG.entry(1)):
                return apply(request)
            sent = True
            if what == "another's":
                table.append("2")
                return apply(request)
            answer = s.Unknown("time-out") if what == "never sent" else apply(request)
            if what != "lost":
                clock.advance(FRESH + 1)
            return answer if what == "late" else s.Unknown("time-out")
        left -= 1
        if left < 0:
            raise gone(error)
        return apply(request)

    return fault


@pytest.mark.parametrize("what", ANSWERS)
@pytest.mark.parametrize("error", [StoreUnreachableError, StoreRefusedError])
def test_job_is_told_as_it_is_whenever_the_store_fails_after_its_entry_was_sent(
    what: str, error: type[ZeroRenameError]
) -> None:
    kinds = set()
    for number in range(12):
        table = LogTable()
        table.make(CLEANED)
        job = table.job("1")
        opened = table.open()
        driver = MemoryDriver(table.store, failing_after(table, what, number, error))
        try:
            driver.run(commit_job(LAYOUT, opened, job, NOW))
            told: type = type(None)
        except (RefusedError, OutcomeUnknownError, UnfinishedCommitError) as caught:
            told = type(caught)
        names = {it.path for it in job.adds} & set(table.live())
        kinds.add(told)
        if issubclass(told, RefusedError):
            assert what == "another's", (number, told)
            assert not names
        elif not issubclass(told, OutcomeUnknownError):
            assert names, (number, told)
    assert len(kinds) > (what != "never sent")


def test_entry_that_cannot_be_read_after_a_lost_answer_leaves_the_job_unknown() -> None:
    table = LogTable()
    table.make()

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, s.Put) and request.key == LOG.entry(1):
            apply(request)
            table.put("00000000000000000001.json", b"no json")
            return s.Unknown("time-out")
        return apply(request)

    job = table.job("1")
    driver = MemoryDriver(table.store, fault)
    with pytest.raises(CommitStateUnknownError, match="line 1"):
        driver.run(commit_job(LAYOUT, table.open(), job, NOW))


def test_entry_that_nobody_could_read_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = LogTable()
    table.make()
    monkeypatch.setattr(put_entry, "ENTRY_BYTES", 100)
    with pytest.raises(InvalidInputError, match="bytes") as caught:
        table.append("1")
    assert "fewer" in (caught.value.remedy or "")
    assert table.versions() == [0]


def test_run_that_another_try_did_is_not_told_committed_where_finishing_that_fails() -> None:
    table = LogTable()
    table.make()
    one, two = table.job("1", run="daily"), table.job("1", run="daily")
    table.run(commit_change(LAYOUT, table.open(), one, NOW))

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, s.Put) and "/runs/" in request.key:
            raise gone(StoreUnreachableError)
        return apply(request)

    driver = MemoryDriver(table.store, fault)
    with pytest.raises(OtherJobError, match="was not committed") as caught:
        driver.run(commit_job(LAYOUT, table.open(), two, NOW))
    assert caught.value.other == one.job
    assert not set(table.live()) & {it.path for it in two.adds}


def test_purge_whose_deletion_fails_says_that_it_is_not_finished() -> None:
    table = LogTable()
    table.make()
    table.append("1", job="old")
    table.replace("1", job="new")

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, s.DeleteMany):
            apply(request)
            raise gone(StoreUnreachableError)
        return apply(request)

    driver = MemoryDriver(table.store, fault)
    with pytest.raises(UnfinishedUpkeepError, match="not all were deleted"):
        driver.run(purge_log(LAYOUT, "purge", NOW + 8 * 86_400_000))


@pytest.mark.parametrize("what", ["hand over", "close"])
def test_write_of_a_record_that_may_have_come_is_unknown(what: str) -> None:
    table = LogTable()
    table.make()
    job = table.job("1")
    done = None if what == "hand over" else table.run(commit_change(LAYOUT, table.open(), job, NOW))
    asked: list[Any] = []

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, s.Put | s.Delete) and job.job in request.key:
            asked.append(request)
            if len(asked) > 1:
                raise gone(StoreUnreachableError)
            apply(request)
            return s.Unknown("time-out")
        return apply(request)

    driver = MemoryDriver(table.store, fault)
    if done is None:
        with pytest.raises(OutcomeUnknownError):
            driver.run(hand_over_job(LAYOUT, job))
    else:
        with pytest.raises(UnfinishedCommitError):
            driver.run(finish_job(LAYOUT, job.job, done))


def test_job_that_adds_a_file_which_a_purge_forgot_is_a_conflict() -> None:
    table = LogTable()
    table.make()
    job = table.job("1")
    del table.store.objects[f"{LAYOUT.control}open/{job.job}.json"]
    table.run(purge_log(LAYOUT, "purge", NOW))
    with pytest.raises(CommitConflictError, match="removed"):
        table.commit(job)
    assert not table.live()


def test_numbers_and_texts_that_no_checkpoint_takes_are_damage(table_of_one: LogTable) -> None:
    for body in (
        b'{"add": {"path": "a", "size": 9223372036854775808, "modificationTime": 1}}',
        b'{"add": {"path": "\\ud800", "size": 1, "modificationTime": 1}}',
        b'{"txn": {"appId": "a", "version": 99999999999999999999}}',
        b'{"add": {"path": "a", "partitionValues": {"day": "\\udc00"}, "size": 1, '
        b'"modificationTime": 1}}',
    ):
        table_of_one.put("00000000000000000001.json", body)
        with pytest.raises(ZeroRenameError, match="cannot be read"):
            table_of_one.open()


@pytest.fixture
def table_of_one() -> LogTable:
    table = LogTable(MemoryStore())
    table.make()
    return table
