"""The trigger of an asset's watcher, in its own loop, with the notes of one triggerer or two."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from support.airflow import SCHEMA, Tables, day_rows
from support.delta_log import commit
from zero_rename.committer import InvalidInputError, StoreUnreachableError
from zero_rename.orchestration.new_commits import new_commits
from zero_rename.provider import table_watch
from zero_rename.provider.assets import commit_trigger
from zero_rename.provider.assets.commit_trigger import TableCommitTrigger
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3


class Notes:
    """An asset's state store; the real one asks the triggerer's supervisor."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.asset_state_store = SimpleNamespace(_by_name={"flights": self}, _by_uri={})

    async def aget(self, key: str) -> Any:
        return self.kept.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value


@pytest.fixture(autouse=True)
def soon_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_trigger, "HANDED_OVER", 0.01)


def trigger(tables: Tables, notes: Notes | None, **more: Any) -> TableCommitTrigger:
    made = TableCommitTrigger(tables.url(), poke_interval=0.05, **more)
    _, kwargs = made.serialize()
    again = TableCommitTrigger(**kwargs)
    again.asset_state_store = None if notes is None else notes.asset_state_store  # pyrefly: ignore[bad-assignment]
    return again


class Triggerer:
    """A process that runs a trigger, and has handed over what it was given."""

    def __init__(self, run: TableCommitTrigger) -> None:
        self.told: list[dict[str, Any]] = []
        self._task = asyncio.create_task(self._run(run))

    async def _run(self, run: TableCommitTrigger) -> None:
        async for event in run.run():
            self.told += event.payload["commits"]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(300):
            while not condition():
                assert not self._task.done(), self._task.result()
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_each_commit_fires_once_across_triggerers(tables: Tables) -> None:
    tables.load(9)
    notes = Notes()

    async def play() -> list[dict[str, Any]]:
        first = Triggerer(trigger(tables, notes))
        await first.until(lambda: notes.kept)
        (before,) = notes.kept.values()
        one = (await asyncio.to_thread(tables.load, 1)).job
        await first.until(lambda: first.told)
        await first.until(lambda: [*notes.kept.values()] != [before])
        await first.stop()
        two = (await asyncio.to_thread(tables.load, 1, 2)).job
        second = Triggerer(trigger(tables, notes))
        await second.until(lambda: second.told)
        three = (await asyncio.to_thread(tables.load, 3)).job
        await second.until(lambda: len(second.told) == 2)
        await second.stop()
        told = first.told + second.told
        assert [report["job"] for report in told] == [one, two, three]
        return told

    told = asyncio.run(play())
    assert (told[0]["partition"], told[0]["version"], told[0]["rows"]) == ("day=1", 1, 2)
    assert [it["version"] for it in told[1]["partitions"]] == [2, 1]


def test_a_triggerer_that_dies_before_its_note_tells_again(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow has the event or not: nobody can tell. None is lost."""
    monkeypatch.setattr(commit_trigger, "HANDED_OVER", 60.0)
    notes = Notes()

    async def play() -> None:
        first = Triggerer(trigger(tables, notes))
        await first.until(lambda: notes.kept)
        job = (await asyncio.to_thread(tables.load, 1)).job
        await first.until(lambda: first.told)
        await first.stop()
        second = Triggerer(trigger(tables, notes))
        await second.until(lambda: second.told)
        await second.stop()
        assert [report["job"] for report in first.told + second.told] == [job, job]

    asyncio.run(play())


def test_position_that_cannot_be_noted_is_noted_later_and_the_commit_is_told_once(
    tables: Tables,
) -> None:
    notes, failures = Notes(), [OSError("the database is away"), OSError("the database is away")]
    keep = notes.aset

    async def flaky(key: str, value: Any) -> None:
        if notes.kept and failures:
            raise failures.pop()
        await keep(key, value)

    notes.aset = flaky

    async def play() -> None:
        running = Triggerer(trigger(tables, notes))
        await running.until(lambda: notes.kept)
        (before,) = notes.kept.values()
        job = (await asyncio.to_thread(tables.load, 1)).job
        await running.until(lambda: [*notes.kept.values()] != [before])
        await running.stop()
        assert [report["job"] for report in running.told] == [job]

    asyncio.run(play())
    assert failures == []


def test_without_notes_it_begins_now_or_at_a_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tables.load(1).job
    looks: list[Any] = []

    def looked(*given: Any) -> Any:
        looks.append(new_commits(*given))
        return looks[-1]

    monkeypatch.setattr(commit_trigger, "new_commits", looked)

    async def play(**more: Any) -> list[str]:
        looks.clear()
        running = Triggerer(trigger(tables, None, **more))
        await running.until(lambda: len(looks) > 2)
        await running.stop()
        return [report["job"] for report in running.told]

    assert asyncio.run(play(since="2013-01-01")) == [job]
    assert asyncio.run(play()) == []


def test_a_store_out_of_reach_does_not_end_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [StoreUnreachableError("no answer"), StoreUnreachableError("no answer")]

    def flaky(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return new_commits(*given)

    monkeypatch.setattr(commit_trigger, "new_commits", flaky)
    job = tables.load(1).job

    async def play() -> str:
        running = Triggerer(trigger(tables, Notes(), since="2013-01-01"))
        await running.until(lambda: running.told)
        await running.stop()
        return running.told[0]["job"]

    assert asyncio.run(play()) == job
    assert failures == []


@pytest.mark.parametrize(
    ("partition", "wanted"),
    [
        *(("region=eu", True), ("region=eu/day=1", True), ("region=eu/day=01", True)),
        *(("region=e", False), ("region=eu/day=11", False)),
    ],
)
def test_partitions_below_a_path(tables: Tables, partition: str, wanted: bool) -> None:
    """As the table spells them, once it is there."""
    asked, table = TableCommitTrigger(tables.url(), partition=partition), tables.table()
    assert asked._wanted(table)("region=eu/day=1") is (wanted and "01" not in partition)
    rows = pa.table({"region": ["eu"], "day": pa.array([1], pa.int32()), "n": [1]})
    with table.job(rows.schema, partition_by=("region", "day")) as job:
        job.write(rows)
    assert asked._wanted(table)("region=eu/day=1") is wanted


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": " "}, "names no table"),
        ({"partition": "eu"}, "not a partition path"),
        ({"since": "soon"}, "Invalid since='soon': not a time"),
    ],
)
def test_what_cannot_be_right_breaks_the_import(given: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"table": "s3://lake/wh/flights"} | given
    with pytest.raises(InvalidInputError, match=message):
        TableCommitTrigger(**arguments)


class TestDeltaTable:
    """The log tells, whoever wrote it."""

    @staticmethod
    def load(delta: DeltaTable, *days: int, rows: int = 2) -> str:
        with delta.job(SCHEMA, partition_by=["day"]) as job:
            job.write(day_rows(days, rows))
        return str(job.job)

    def test_each_commit_fires_once_across_triggerers_and_a_compaction_never(
        self, tables: Tables
    ) -> None:
        delta, notes = ZeroRenameHook().get_delta_table(tables.url()), Notes()
        self.load(delta, 9)

        def write_and_compact() -> str:
            self.load(delta, 9)
            assert delta.compact(["day=9"], apply=True)[0].job is not None
            return self.load(delta, 1, 2)

        async def play() -> list[dict[str, Any]]:
            first = Triggerer(trigger(tables, notes, partition="day=1"))
            await first.until(lambda: notes.kept)
            (before,) = notes.kept.values()
            one = await asyncio.to_thread(self.load, delta, 1)
            await first.until(lambda: first.told)
            await first.until(lambda: [*notes.kept.values()] != [before])
            await first.stop()
            two = await asyncio.to_thread(write_and_compact)
            second = Triggerer(trigger(tables, notes, partition="day=1"))
            await second.until(lambda: second.told)
            await second.stop()
            told = first.told + second.told
            assert [report["job"] for report in told] == [one, two]
            return told

        told = asyncio.run(play())
        assert [(it["partition"], it["version"], it["rows"]) for it in told] == [
            ("day=1", 1, 2),
            ("day=1", 4, 2),
        ]

    def test_table_that_comes_while_it_is_watched_fires_from_its_first_commit_on(
        self, tables: Tables
    ) -> None:
        notes = Notes()

        def make() -> list[str]:
            delta = ZeroRenameHook().get_delta_table(tables.url())
            return [self.load(delta, day) for day in (1, 2)]

        async def play() -> None:
            running = Triggerer(trigger(tables, notes))
            await running.until(lambda: notes.kept)
            jobs = await asyncio.to_thread(make)
            await running.until(lambda: len(running.told) == len(jobs))
            await running.stop()
            assert [report["job"] for report in running.told] == jobs

        asyncio.run(play())

    def test_table_that_was_made_anew_fires_from_its_first_commit_on(self, tables: Tables) -> None:
        notes = Notes()

        def load(*days: int) -> list[str]:
            delta = ZeroRenameHook().get_delta_table(tables.url())
            return [self.load(delta, day) for day in days]

        async def play() -> None:
            load(1, 2, 3)
            first = Triggerer(trigger(tables, notes))
            await first.until(lambda: notes.kept)
            await first.stop()
            tables.bucket.delete("wh/flights/")
            made = load(4, 5)
            second = Triggerer(trigger(tables, notes))
            await second.until(lambda: len(second.told) == 2)
            later = await asyncio.to_thread(load, 6)
            await second.until(lambda: len(second.told) == 3)
            await second.stop()
            assert [report["job"] for report in second.told] == made + later

        asyncio.run(play())

    def test_table_of_directories_in_its_place_fires_from_its_first_commit_on(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        notes = Notes()

        async def play() -> None:
            self.load(ZeroRenameHook().get_delta_table(tables.url()), 1)
            first = Triggerer(trigger(tables, notes))
            await first.until(lambda: notes.kept)
            await first.stop()
            tables.bucket.delete("wh/flights/")
            made = tables.load(4).job
            monkeypatch.setattr(table_watch, "_tables", table_watch.SharedTables())
            second = Triggerer(trigger(tables, notes))
            await second.until(lambda: second.told)
            await second.stop()
            assert [report["job"] for report in second.told] == [made]

        asyncio.run(play())

    def test_commit_of_another_engine_fires_and_without_notes_it_begins_at_a_time(
        self, tables: Tables
    ) -> None:
        delta = ZeroRenameHook().get_delta_table(tables.url())
        job = self.load(delta, 1)
        theirs = {"path": "day=7/part.parquet", "partitionValues": {"day": "7"}, "size": 9}
        add = {**theirs, "modificationTime": 1, "dataChange": True}
        commit(tables.bucket, {"add": add}, table="wh/flights")

        async def play(**more: Any) -> list[str]:
            running = Triggerer(trigger(tables, None, **more))
            await running.until(lambda: len(running.told) == 2)
            await running.stop()
            return [report["job"] for report in running.told]

        assert asyncio.run(play(since="2013-01-01")) == [job, None]


@pytest.mark.parametrize("interval", [0, -1.0, float("nan")])
def test_interval_without_a_pause_is_refused(interval: float) -> None:
    with pytest.raises(InvalidInputError, match="Invalid poke_interval"):
        TableCommitTrigger("s3://lake/flights", poke_interval=interval)
