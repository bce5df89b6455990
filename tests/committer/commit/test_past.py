"""The past of a table that is read by heads: what can be read of it, and what brings it back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from support.faults import Crash, beside, on
from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, die_of, memory_table
from zero_rename.committer import (
    CommitConflictError,
    DamagedError,
    InvalidInputError,
    Owner,
    RefusedError,
    Table,
)
from zero_rename.committer.commit import commit
from zero_rename.committer.format.records.inputs import Inputs
from zero_rename.committer.format.records.kept_state import MOST_KEPT
from zero_rename.committer.job_steps import HeadSteps
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep.restoring import Restored, RestorePlan
from zero_rename.committer.write_job import WriteJob

SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])
HOUR = 3600.0
START = 1_700_000_000.0
WEEK = 7 * 24 * HOUR


def rows(value: int, *days: int) -> pa.Table:
    return pa.table({"value": [value] * len(days), "day": list(days)}, schema=SCHEMA)


class Past:
    """A table in memory, and what each of its moments held."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = MemoryStore(clock=self.clock)

    @property
    def table(self) -> Table:
        return memory_table(self.store)

    def load(self, value: int, *days: int, **policy: Any) -> str:
        """A job an hour after the last one; returns its id."""
        self.clock.advance(HOUR)
        policy = {"partition_by": ["day"], "readers": "heads", **policy}
        with self.table.job(SCHEMA, **policy) as job:
            job.write(rows(value, *(days or (1,))))
        assert job.job is not None
        return job.job

    def replace(self, value: int, *days: int, **policy: Any) -> str:
        return self.load(value, *days, mode="replace", **policy)

    def as_earlier_version(self, job: str, dropped: str) -> None:
        """Let a decision say what an earlier version of the package would have said."""
        key = ROOT.decision_key(job)
        found = self.store.objects[key]
        said = json.loads(found.body)
        said.pop("own_since", None)
        said["partitions"][0]["dropped_job"] = dropped
        self.store.objects[key] = replace(found, body=json.dumps(said).encode())

    def values(self, **asked: Any) -> list[tuple[int, int]]:
        return pairs(self.table.scan(**asked).to_arrow())

    def at(self, **asked: Any) -> list[tuple[int, int]]:
        table = self.table
        return pairs(table.scan(snapshot=table.at(**asked)).to_arrow())

    @property
    def data(self) -> list[str]:
        return self.store.keys(ROOT.data_prefix)


def pairs(found: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(found["day"].to_pylist(), found["value"].to_pylist(), strict=True))


def _sees_nothing(*looked: Any) -> Any:
    return
    yield


def overwrite(past: Past, value: int) -> None:
    """Replace the table and its columns."""
    schema = pa.schema([("other", pa.int64()), ("day", pa.int32())])
    with past.table.job(schema, mode="replace", replace_table=True, schema_mode="overwrite") as job:
        job.write(pa.table({"other": [value], "day": [1]}, schema=schema))


@pytest.fixture
def past() -> Past:
    return Past()


class TestVersions:
    def test_each_is_what_the_partition_held_then(self, past: Past) -> None:
        past.load(1)
        past.load(2)
        past.replace(3)
        past.load(4)
        past.load(5, idempotency_key="run")
        past.load(6, idempotency_key="run", on_repeat="replace_own")
        held = [[], [1], [1, 2], [3], [3, 4], [3, 4, 5], [3, 4, 6]]
        for version, values in enumerate(held):
            found = past.at(partition=DAY1, version=version)
            assert [value for _, value in found] == values, version
            assert past.values(partitions=[DAY1], as_of=version) == found

    def test_folding_takes_none_away(self, past: Past) -> None:
        """Neither as jobs do it, nor gc: the lists of files say whose each is."""
        for value in range(1, 31):
            past.load(value)
        head = past.table.partition_states([DAY1])[DAY1]
        assert past.store.keys(ROOT.manifests_prefix), "nothing was folded"
        past.clock.advance(2 * WEEK)
        assert past.table.gc(apply=True).folded
        past.load(31)
        for version in range(head.version + 1):
            found = past.at(partition=DAY1, version=version)
            assert [value for _, value in found] == list(range(1, version + 1))

    def test_an_unpartitioned_table_has_its_own(self, past: Past) -> None:
        table = past.table
        for value in (1, 2):
            with table.job(SCHEMA, mode="replace", replace_table=True, readers="heads") as job:
                job.write(rows(value, 1))
        assert past.at(version=1) == [(1, 1)]
        assert past.values(as_of="1") == [(1, 1)]

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"partition": DAY1, "version": 3}, "never had a version 3.*back to version 1"),
            ({"partition": DAY2, "version": 1}, "No job has changed.*never had a version 1"),
            ({"version": 1}, "Version 1 of which partition"),
            ({"version": 1, "time": 5.0}, "either a time or a version"),
            ({}, "either a time or a version"),
            ({"time": START + 1}, "was not there yet"),
            ({"time": START + 1, "partition": DAY1}, "was not there yet"),
            ({"time": START + 1, "partition": DAY2}, "was not there yet"),
            ({"time": START * 2}, "still to come"),
            ({"time": "yesterday"}, "neither a version nor a time"),
            ({"time": datetime(2023, 11, 15)}, "no time zone"),
        ],
    )
    def test_what_never_was_is_refused(self, past: Past, asked: Any, said: str) -> None:
        past.load(1)
        past.replace(2)
        with pytest.raises(InvalidInputError, match=f"(?s){said}"):
            past.at(**asked)

    def test_a_table_whose_readers_list_has_none(self, past: Past) -> None:
        past.load(1, readers=None)
        for asked in ({"time": START}, {"partition": DAY1, "version": 1}):
            with pytest.raises(InvalidInputError, match="keeps no history"):
                past.at(**asked)
        with pytest.raises(InvalidInputError, match="keeps no history"):
            past.table.undo("zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV")

    def test_files_of_other_columns_are_refused(self, past: Past) -> None:
        past.load(1)
        other = pa.schema([("text", pa.string()), ("day", pa.int32())])
        past.clock.advance(HOUR)
        how: dict[str, Any] = {"mode": "replace", "replace_table": True}
        with past.table.job(other, schema_mode="overwrite", **how) as job:
            job.write(pa.table({"text": ["a"], "day": [1]}, schema=other))
        with pytest.raises(InvalidInputError, match="other columns"):
            past.at(partition=DAY1, version=1)
        with pytest.raises(InvalidInputError, match="other columns"):
            past.table.undo(str(job.job))


class TestTimes:
    def test_a_time_shows_all_that_had_been_decided(self, past: Past) -> None:
        past.load(1, 1, 2)
        past.replace(2, 1)
        past.load(3, 2, 3)
        hour = [START + n * HOUR for n in range(5)]
        assert past.at(time=hour[1]) == [(1, 1), (2, 1)]
        assert past.at(time=hour[2]) == [(1, 2), (2, 1)]
        assert past.at(time=hour[3] - 1) == [(1, 2), (2, 1)]
        assert past.at(time=hour[3]) == [(1, 2), (2, 1), (2, 3), (3, 3)]
        text = datetime.fromtimestamp(hour[1], UTC).isoformat()
        assert past.values(as_of=text) == [(1, 1), (2, 1)]
        assert past.values(as_of=text, filter=[("day", "=", 2)]) == [(2, 1)]

    def test_a_partition_that_came_later_is_empty_where_another_tells_of_the_table(
        self, past: Past
    ) -> None:
        """One head more is read for that, of the partition that has not changed for longest."""
        for day in (1, 2, 3):
            past.load(day, day)
        then = START + HOUR
        table, heads = past.table, list[str]()

        def counting(request: s.Request, apply: Callable[[s.Request], Any]) -> Any:
            if isinstance(request, s.Get) and request.key.startswith(ROOT.heads_prefix):
                heads.append(request.key)
            return apply(request)

        table.driver.fault = counting  # type: ignore[attr-defined]
        for partition, more in ((DAY1, []), ("day=3", [DAY1]), ("day=9", [DAY1])):
            heads.clear()
            found = table.at(then, partition=partition)
            assert len(found.files) == (partition == DAY1)
            assert heads[-1:] == [ROOT.head_key(it) for it in more or [DAY1]]
            assert len(heads) == (2 if partition == "day=3" else 1)

    def test_where_nothing_tells_any_more_whether_there_was_a_table_it_is_refused(
        self, past: Past
    ) -> None:
        past.load(1, 1)
        past.replace(2, 1)
        past.load(3, 2)
        assert past.at(time=START + HOUR, partition=DAY2) == []
        past.table.purge(apply=True, keep=0)
        with pytest.raises(InvalidInputError, match="whether the table was there"):
            past.at(time=START + HOUR, partition=DAY2)

    def test_never_half_of_a_job_whoever_applies_which_half(self, past: Past) -> None:
        """Its owner moves one head and dies, and what comes later moves the other one."""
        past.load(1, 1, 2)
        world = World(past.store)
        past.clock.advance(HOUR)
        opened, results = world.written(DAY1, DAY2)
        moved: list[str] = []

        def dies(request: s.Request, apply: Callable[[s.Request], Any]) -> Any:
            past.clock.advance(1.0)
            if not isinstance(request, s.Put) or not request.key.startswith(ROOT.heads_prefix):
                return apply(request)
            if opened.job.encode() in request.body and b'"claim":null' in request.body:
                moved.append(request.key)
                if len(moved) == 2:
                    raise Crash
            return apply(request)

        die_of(dies, world, opened, results)
        past.clock.advance(HOUR)
        found = {
            tuple(sorted(past.table.at(time=START + HOUR + at).versions.values()))
            for at in range(0, int(HOUR) + 60, 1)
        }
        assert found == {(1, 1), (2, 2)}

    def test_a_job_that_may_count_from_before_is_waited_for(self, past: Past) -> None:
        """It holds its claims and has not decided: what it comes to would change the answer."""
        past.load(1)
        past.clock.advance(HOUR)
        world = World(past.store)
        opened, results = world.written(DAY1)
        die_of(on(s.Put, Crash, ROOT.decisions_prefix), world, opened, results)
        claimed = past.clock.now
        past.clock.advance(60.0)
        table = past.table
        waits = 0  # Two listings a look.

        def decided(request: s.Request, apply: Callable[[s.Request], Any]) -> Any:
            nonlocal waits
            waits += isinstance(request, s.ListObjects) and request.prefix == ROOT.heads_prefix
            if waits == 5:
                waits += 1
                world.commit(opened, results)
            return apply(request)

        table.driver.fault = decided  # type: ignore[attr-defined]
        assert table.at(time=claimed).versions == {DAY1: 2}
        assert waits > 5
        # What was before its claims does not wait.
        assert past.at(time=claimed - 1) == [(1, 1)]

    def test_a_partition_whose_head_is_gone_is_damaged_then_too(self, past: Past) -> None:
        """Where the index tells of it, or the job that is to be undone."""
        past.load(1, 1)
        then = past.clock.now
        last = past.load(2, 1, 2)
        past.load(3, 3)
        assert past.table.write_index()
        past.store.apply(s.Delete(ROOT.head_key(DAY1)))
        for asked in ({"time": then}, {"partition": DAY1, "version": 1}):
            with pytest.raises(DamagedError, match="head"):
                past.at(**asked)
        with pytest.raises(DamagedError, match="head"):
            past.table.undo(last)
        with pytest.raises(DamagedError, match="head"):
            past.values(partitions=[DAY1])
        with pytest.raises(DamagedError, match="head"):
            past.table.merge(rows(9, 1), ["value"])

    def test_the_second_that_is_asked_for_is_over_before_it_is_read(self, past: Past) -> None:
        """Dates are whole seconds: what is decided next would count from that one, too."""
        past.load(1)
        now = past.clock.now
        assert past.at(time=now) == [(1, 1)]
        with past.table.job(mode="replace") as job:
            job.write(rows(2, 1))
        assert past.at(time=now) == [(1, 1)]

    def test_of_a_time_that_is_partly_forgotten_nothing_is_shown(self, past: Past) -> None:
        past.load(1, 1, 2)
        past.replace(2, 1)
        past.table.purge(apply=True, keep=0)
        with pytest.raises(InvalidInputError, match=r"day=1 held .*not kept any more"):
            past.at(time=START + HOUR)
        assert past.at(time=START + 2 * HOUR) == [(1, 2), (2, 1)]
        # What is not forgotten can be read by itself.
        assert past.at(time=START + HOUR, partition=DAY2) == [(2, 1)]


class TestPlannedScan:
    def test_a_replace_takes_nothing_from_it(self, past: Past) -> None:
        past.load(1)
        scan = past.table.scan()
        assert scan.snapshot.versions == {DAY1: 1}
        for value in range(2, 6):
            past.replace(value)
            past.table.purge(apply=True)
            past.table.gc(0.0, apply=True)
        past.table.compact(apply=True)
        assert pairs(scan.to_arrow()) == [(1, 1)]


class TestUndo:
    def test_a_replace_is_undone_and_done_again_without_a_byte(self, past: Past) -> None:
        past.load(1, 1, 2)
        job = past.replace(9, 1, 2, 3)
        data = past.data
        found = past.table.undo(job)
        assert dict(found.versions) == {DAY1: 1, DAY2: 1, "day=3": 0}
        assert past.values() == [(1, 9), (2, 9), (3, 9)]
        done = past.table.undo(job, apply=True)
        assert past.values() == [(1, 1), (2, 1)]
        past.table.undo(str(done.job), apply=True)
        assert past.values() == [(1, 9), (2, 9), (3, 9)]
        assert past.data == data
        assert past.table.verify() == []
        kinds = past.table.history().to_pylist()
        assert {it["change"] for it in kinds if it["job"] == done.job} == {"restore 0", "restore 1"}

    def test_a_change_of_rows_is_undone_as_any_other(self, past: Past) -> None:
        past.load(1, 1, 2)
        before = past.data
        merged = past.table.merge(rows(2, 1, 3), on=["day"])
        deleted = past.table.delete([("day", "==", 2)])
        assert merged.committed is not None
        assert deleted.committed is not None
        assert past.values() == [(1, 2), (3, 2)]
        past.table.undo(deleted.committed.job, apply=True)
        assert past.values() == [(1, 2), (2, 1), (3, 2)]
        undone = past.table.undo(merged.committed.job, apply=True)
        assert past.values() == [(1, 1), (2, 1)]
        assert undone.job is not None
        past.table.undo(undone.job, apply=True)
        assert past.values() == [(1, 2), (2, 1), (3, 2)]
        assert set(past.data) > set(before), "a file was removed"

    def test_an_append_is_taken_out_also_where_it_was_folded(self, past: Past) -> None:
        for value in range(1, 20):
            past.load(value)
        job = past.load(20)
        past.clock.advance(2 * WEEK)
        assert past.table.gc(apply=True).folded
        past.table.undo(job, apply=True)
        assert [value for _, value in past.values()] == list(range(1, 20))
        past.load(21)
        assert [value for _, value in past.values()] == [*range(1, 20), 21]
        assert past.at(partition=DAY1, version=20)[-1] == (1, 20)

    def test_what_another_built_on_stays_as_a_whole(self, past: Past) -> None:
        past.load(1, 1, 2)
        job = past.replace(2, 1, 2)
        later = past.load(3, 2)
        with pytest.raises(InvalidInputError, match=f"{job} is not the last.*day=2: {later}"):
            past.table.undo(job, apply=True)
        assert past.values() == [(1, 2), (2, 2), (2, 3)]

    @pytest.mark.parametrize(
        ("between", "says", "left"),
        [
            (lambda past: past.load(3), "changed since", [(1, 2), (1, 3)]),
            (lambda past: past.table.purge(apply=True, keep=0), "not kept any more", [(1, 2)]),
        ],
        ids=["another job", "a purge that lets it be forgotten"],
    )
    def test_what_comes_between_refuses_it(
        self, past: Past, between: Callable[[Past], Any], says: str, left: list[tuple[int, int]]
    ) -> None:
        past.load(1)
        job = past.replace(2)
        table = past.table
        fault = beside(s.Put, lambda: between(past), ROOT.open_prefix, times=1)
        table.driver.fault = fault  # type: ignore[attr-defined]
        with pytest.raises(CommitConflictError, match=says):
            table.undo(job, apply=True)
        assert past.values() == left

    @pytest.mark.parametrize("brought_back", [1, 2])
    @pytest.mark.parametrize("folds", [False, True])
    def test_a_run_that_is_loaded_again_takes_the_place_of_its_try_that_was_brought_back(
        self, past: Past, brought_back: int, folds: bool
    ) -> None:
        past.load(9)
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        jobs = [past.load(value, 1, 2, **own) for value in (1, 2, 3)]
        if brought_back == 2:
            past.table.undo(jobs[-1], apply=True)
        else:
            past.table.restore(datetime.fromtimestamp(START + 2 * HOUR, UTC), apply=True)
        if folds:
            past.clock.advance(2 * WEEK)
            past.table.gc(0.0, apply=True)
        assert past.values() == [(1, brought_back), (1, 9), (2, brought_back)]
        past.load(4, 1, **own)
        assert past.values() == [(1, 4), (1, 9)]
        past.load(5, 1, **own)
        assert past.values() == [(1, 5), (1, 9)]

    @pytest.mark.parametrize("between", ["replaced", "undone", "restored"])
    def test_run_loaded_after_an_older_attempt_was_restored_leaves_no_row_of_it(
        self, past: Past, between: str
    ) -> None:
        """The attempt before the last is not always the one whose files the last one took out."""
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        past.load(1, **own)
        second = past.load(2, **own)
        if between == "replaced":
            past.replace(3)
        elif between == "undone":
            past.table.undo(second, apply=True)
        else:
            past.table.restore(1, partitions=[DAY1], apply=True)
        past.load(4, **own)
        past.table.restore(2, partitions=[DAY1], apply=True)
        assert past.values() == [(1, 2)]
        past.load(5, **own)
        assert past.values() == [(1, 5)]

    def test_run_loaded_by_append_and_then_again_keeps_the_rows_before_the_append(
        self, past: Past
    ) -> None:
        """Who adds once more means both; and that attempt is what is replaced later."""
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        past.load(1, **own)
        past.load(2, idempotency_key="run", on_repeat="append")
        past.load(3, **own)
        assert past.values() == [(1, 1), (1, 3)]
        past.load(4, **own)
        past.table.restore(2, partitions=[DAY1], apply=True)
        past.load(5, **own)
        assert past.values() == [(1, 1), (1, 5)]

    def test_run_of_which_two_attempts_are_there_takes_out_both(self, past: Past) -> None:
        """As an earlier version has left them, which knew each attempt by the files that it found
        alone."""
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        jobs = [past.load(1, **own), past.load(2, **own)]
        past.replace(3)
        jobs.append(past.load(4, **own))
        past.table.restore(2, partitions=[DAY1], apply=True)
        jobs.append(past.load(5, idempotency_key="run", on_repeat="append"))
        for job, dropped in zip(jobs[1:], jobs[:1] * 3, strict=True):
            past.as_earlier_version(job, dropped)
        assert past.values() == [(1, 2), (1, 5)]
        past.load(6, **own)
        assert past.values() == [(1, 6)]
        past.load(7, **own)
        assert past.values() == [(1, 7)]

    def test_a_run_is_not_loaded_beside_its_try_that_was_written_again(self, past: Past) -> None:
        own: dict[str, Any] = {"idempotency_key": "run", "on_repeat": "replace_own"}
        jobs = [past.load(value, **own) for value in (1, 2)]
        past.table.keep_rows(DAY1, undo=jobs[1], apply=True)
        assert past.values() == [(1, 1)]
        with pytest.raises(CommitConflictError, match="cannot be taken out"):
            past.load(3, **own)

    def test_restore_beside_an_overwrite_of_the_columns_leaves_a_table_that_can_be_read(
        self, past: Past
    ) -> None:
        """At each request of the restoration."""
        told = set[str]()
        for number in range(1, 80):
            past = Past()
            past.load(1)
            past.replace(2)
            table = past.table
            sent = count(1)

            def overwritten(
                request: Any,
                apply: Callable[[Any], Any],
                *,
                sent: Iterator[int] = sent,
                number: int = number,
                past: Past = past,
            ) -> Any:
                if next(sent) == number:
                    with suppress(RefusedError):
                        overwrite(past, 3)
                return apply(request)

            table.driver.fault = overwritten  # type: ignore[attr-defined]
            try:
                table.restore(1, partitions=[DAY1], apply=True)
                told.add("restored")
            except RefusedError as error:
                told.add(type(error).__name__)
            if next(sent) <= number:
                assert told == {
                    "restored",
                    "InvalidInputError",
                    "TableMismatchError",
                    "CommitConflictError",
                    "JobFencedError",
                }
                return
            assert past.table.verify() == []
            found = past.table.scan().to_arrow()
            assert found.select([0]).to_pydict() in ({"other": [3]}, {"value": [1]})
        raise AssertionError("the restoration does not end")

    def test_verify_names_a_partition_whose_files_have_former_columns(
        self, past: Past, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As an earlier version of the package may have restored it."""
        past.load(1)
        overwrite(past, 2)
        healthy = past.table.verify()
        table = past.table
        restored = Restored({DAY1: 1}, {DAY1: 2})
        spec = RestorePlan(ROOT.url, table.schema, ("day",), restored).spec(Owner())
        monkeypatch.setattr(commit, "check_kept", _sees_nothing)
        with WriteJob(HeadSteps(table.driver, table._context), spec, inputs=Inputs):
            pass
        (finding,) = past.table.verify()
        assert healthy == []
        assert (finding.partition, finding.kind) == (DAY1, "damaged")
        assert "has files of former columns" in finding.detail

    def test_of_what_is_gone_or_no_job(self, past: Past) -> None:
        past.load(1)
        job = past.replace(2)
        past.table.purge(apply=True, keep=0)
        with pytest.raises(InvalidInputError, match=r"not kept any more.*retention"):
            past.table.undo(job)
        with pytest.raises(InvalidInputError, match="committed nothing"):
            past.table.undo("zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV")

    @pytest.mark.parametrize("job", ["", "zr1-", "heads", "../zr1-01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    def test_what_is_no_jobs_id_is_refused_by_name(self, past: Past, job: str) -> None:
        """Also by who else takes one, before anything is read or done."""
        past.load(1)
        table, before = past.table, dict(past.store.objects)
        for act in (
            lambda: table.undo(job, apply=True),
            lambda: table.keep_rows(DAY1, undo=job, apply=True),
            lambda: table.repair(job=job),
            lambda: table.manifest(job),
        ):
            with pytest.raises(InvalidInputError, match=f"'{job}' is no job's id"):
                act()
        assert past.store.objects == before

    def test_who_writes_rows_again_by_decisions_alone_refuses_what_they_do_not_tell(
        self, past: Past
    ) -> None:
        """A decision that restores names no file."""
        past.load(1)
        past.table.undo(past.replace(2), apply=True)
        job = past.replace(3)
        with pytest.raises(InvalidInputError, match="brought back"):
            past.table.keep_rows(DAY1, undo=job)
        past.clock.advance(HOUR)
        del past.store.objects[ROOT.head_key(DAY1)]
        past.table.rebuild_heads(apply=True)
        assert past.values() == [(1, 3)]
        past.load(4)
        past.table.undo(past.replace(5), apply=True)
        del past.store.objects[ROOT.head_key(DAY1)]
        (left,) = past.table.rebuild_heads(apply=True)
        assert "brought back" in left.reason

    def test_it_dies_at_any_request(self) -> None:
        """All of its partitions or none are as before; recovery finishes it."""
        number, outcomes = 0, set()
        while True:
            past = Past()
            past.load(1, 1, 2)
            job = past.replace(2, 1, 2)
            table, sent = past.table, 0

            def crash(request: s.Request, apply: Any, number: int = number) -> Any:
                nonlocal sent
                sent += 1
                if sent == number + 1:
                    raise Crash
                return apply(request)

            table.driver.fault = crash  # type: ignore[attr-defined]
            with suppress(Crash):
                table.undo(job, apply=True)
            past.table.purge(patience=0.0, apply=True)
            found = past.values()
            assert found in ([(1, 1), (2, 1)], [(1, 2), (2, 2)])
            assert past.table.verify() == []
            outcomes.add(found[0][1])
            if sent <= number:
                break
            number += 1
        assert outcomes == {1, 2}


class TestRestore:
    def test_the_whole_table_as_of_a_time(self, past: Past) -> None:
        past.load(1, 1, 2)
        past.load(4, 4)
        past.replace(2, 1)
        past.load(3, 2, 3)
        data = past.data
        found = past.table.restore(as_of(2), apply=True)
        assert dict(found.versions) == {DAY1: 1, DAY2: 1, "day=3": 0}
        assert past.values() == [(1, 1), (2, 1), (4, 4)]
        assert past.data == data
        again = past.table.restore(as_of(2), apply=True)
        assert (again.versions, again.job) == ({}, None)
        past.table.undo(str(found.job), apply=True)
        assert past.values() == [(1, 2), (2, 1), (2, 3), (3, 3), (4, 4)]

    def test_one_partition_as_of_a_version(self, past: Past) -> None:
        past.load(1, 1, 2)
        past.replace(2, 1, 2)
        past.table.restore(1, [DAY1], apply=True)
        assert past.values() == [(1, 1), (2, 2)]

    def test_the_oldest_that_is_kept(self, past: Past) -> None:
        for value in range(MOST_KEPT + 2):
            past.replace(value)
        with pytest.raises(InvalidInputError, match="not kept"):
            past.table.restore(1, [DAY1])
        past.table.restore(2, [DAY1], apply=True)
        assert past.values() == [(1, 1)]


def as_of(hours: int) -> datetime:
    return datetime.fromtimestamp(START + hours * HOUR, UTC)


class TestPurge:
    def test_what_is_kept_goes_when_its_time_is_over(self, past: Past) -> None:
        past.load(1)
        past.replace(2)
        assert not past.table.purge(apply=True).entries
        past.clock.advance(WEEK + 1)
        planned = past.table.purge()
        data = past.data
        assert len(planned.entries) == 2
        done = past.table.purge(apply=True)
        assert [it.key for it in done.entries] == [it.key for it in planned.entries]
        assert len(past.data) == len(data) - 1
        assert past.values() == [(1, 2)]
        assert past.table.verify() == []
        with pytest.raises(InvalidInputError, match="not kept any more"):
            past.at(partition=DAY1, version=1)

    def test_the_retention_is_the_tables(self, past: Past) -> None:
        past.load(1)
        past.replace(2)
        assert past.table.retention == WEEK
        past.table.set_retention(30 * 24 * HOUR)
        past.clock.advance(29 * 24 * HOUR)
        past.table.purge(apply=True)
        assert past.at(partition=DAY1, version=1) == [(1, 1)]
        past.table.set_retention(24 * HOUR)
        past.table.purge(apply=True)
        assert len(past.data) == 1
        with pytest.raises(InvalidInputError, match="less than the 86400 s that a job may last"):
            past.table.set_retention(23 * HOUR)

    @pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e15])
    def test_a_retention_that_is_no_time_is_refused(self, past: Past, seconds: float) -> None:
        past.load(1)
        with pytest.raises(InvalidInputError, match="100 years"):
            past.table.set_retention(seconds)
        assert past.table.retention == WEEK

    def test_fewer_than_none_cannot_stay(self, past: Past) -> None:
        past.load(1)
        past.replace(2)
        with pytest.raises(InvalidInputError, match="keep is -1"):
            past.table.purge(apply=True, keep=-1)
        assert past.at(partition=DAY1, version=1) == [(1, 1)]

    @pytest.mark.parametrize("apply", [True, False])
    def test_where_readers_list_there_is_none_to_keep(self, past: Past, apply: bool) -> None:
        past.load(1, readers=None)
        with pytest.raises(InvalidInputError, match="keeps no history"):
            past.table.purge(apply=apply, keep=1)
        past.table.purge(apply=apply)

    def test_a_full_history_goes_but_for_one_state(self, past: Past) -> None:
        for value in range(70):
            past.replace(value)
        assert len(past.data) == 70  # No purge came; the head keeps 64.
        past.table.purge(apply=True, keep=1)
        assert len(past.data) == 2
        assert past.at(partition=DAY1, version=69) == [(1, 68)]
        assert past.table.verify() == []

    def test_so_many_stay(self, past: Past) -> None:
        for value in range(1, 6):
            past.replace(value)
        past.table.purge(apply=True, keep=1)
        assert len(past.data) == 2
        assert past.at(partition=DAY1, version=4) == [(1, 4)]
        past.table.purge(apply=True, keep=0)
        assert len(past.data) == 1
        assert past.values() == [(1, 5)]

    def test_files_that_two_states_share_stay_while_one_is_kept(self, past: Past) -> None:
        past.load(1)
        job = past.load(2)
        past.table.undo(job, apply=True)
        past.table.purge(apply=True, keep=0)
        assert past.values() == [(1, 1)]
        assert len(past.data) == 1

    def test_what_came_after_the_sweep_goes_with_the_next(self, past: Past) -> None:
        past.load(1)
        world = World(past.store)
        opened = world.open()
        world.abort(opened)
        late = ROOT.attempt_key(DAY1, "00000-1", opened.job, 0)
        past.store.apply(s.PutFile(late, b"late"))
        assert past.values() == [(1, 1)]
        (entry,) = past.table.purge(apply=True).entries
        assert (entry.key, entry.job) == (late, opened.job)
        assert late not in past.store.objects

    def test_it_leaves_what_an_open_job_wrote(self, past: Past) -> None:
        past.load(1)
        world = World(past.store)
        opened, results = world.written(DAY1)
        past.table.purge(apply=True, keep=0)
        world.commit(opened, results)
        assert past.table.verify() == []

    @pytest.mark.parametrize("record", ["head", "decision", "manifest", "head lost"])
    def test_it_leaves_what_it_cannot_tell(self, past: Past, record: str) -> None:
        for value in range(1, 12):
            past.load(value)
        job = past.replace(12)
        data = past.data
        keys = {
            "head": ROOT.head_key(DAY1),
            "decision": ROOT.decision_key(job),
            "manifest": past.store.keys(ROOT.manifests_prefix)[0],
            "head lost": ROOT.head_key(DAY1),
        }
        if record == "head lost":
            del past.store.objects[keys[record]]
        else:
            past.store.apply(s.Put(keys[record], b"{"))
        report = past.table.purge(apply=True, keep=64)
        assert past.data == data
        removed = {it.key for it in report.entries if it.action == "removed"}
        assert not removed & set(data)

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_file_that_is_gone_is_told_also_where_it_is_only_kept(
        self, past: Past, version: int
    ) -> None:
        past.load(1)
        past.replace(2)
        (file,) = past.table.at(partition=DAY1, version=version).files
        del past.store.objects[file.key]
        (finding,) = past.table.verify()
        assert (finding.key, finding.kind) == (file.key, "missing")
        assert ("only kept" in finding.detail) is (version == 1)

    def test_a_strangers_file_stays_and_is_named(self, past: Past) -> None:
        past.load(1)
        key = f"{ROOT.data_prefix}notes.txt"
        past.store.apply(s.Put(key, b"x"))
        (entry,) = past.table.purge(apply=True).entries
        assert (entry.key, entry.action) == (key, "kept")

    def test_gc_leaves_what_is_kept_whole(self, past: Past) -> None:
        for value in range(1, 12):
            past.load(value)
        past.replace(12)
        past.clock.advance(2 * WEEK)
        for _ in range(2):
            past.table.gc(0.0, apply=True)
        for version in range(12):
            found = past.at(partition=DAY1, version=version)
            assert [value for _, value in found] == list(range(1, version + 1))
        past.table.purge(apply=True, keep=0)
        assert past.table.gc(0.0, apply=True).condensed
        assert past.values() == [(1, 12)]
        assert past.table.verify() == []

    @pytest.mark.parametrize("folds", ["gc", "a job"])
    def test_a_list_stays_that_is_only_kept_when_its_swap_is_confirmed(
        self, past: Past, folds: str
    ) -> None:
        """The swap's answer is lost, and a replace comes before it is read back."""
        for value in range(1, 9):
            past.load(value)
        table, before = past.table, past.store.keys(ROOT.manifests_prefix)

        def replaced_meanwhile(request: Any, apply: Callable[[Any], Any]) -> Any:
            answer = apply(request)
            if not (isinstance(request, s.Put) and b'"manifest":{' in request.body):
                return answer
            table.driver.fault = None  # type: ignore[attr-defined]
            past.replace(10)
            return s.Unknown("lost")

        table.driver.fault = replaced_meanwhile  # type: ignore[attr-defined]
        if folds == "gc":
            table.gc(0.0, apply=True)
        else:
            with table.job(SCHEMA) as job:
                job.write(rows(9, 1))
        assert not before
        assert past.store.keys(ROOT.manifests_prefix)
        last = 9 if folds == "a job" else 8
        for version in range(1, last + 1):
            found = past.at(partition=DAY1, version=version)
            assert [value for _, value in found] == list(range(1, version + 1))


def test_a_head_stays_small(past: Past) -> None:
    """As many appends and replaces as the head tells of: a few kilobytes."""
    for value in range(MOST_KEPT):
        past.replace(value)
        past.load(value)
    body = past.store.objects[ROOT.head_key(DAY1)].body
    assert len(body) < 40_000
