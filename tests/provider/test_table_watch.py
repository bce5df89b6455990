"""Triggers of deferred sensors, and the looks that they share on one event loop, against a real S3
server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import botocore.session
import pytest
from airflow.sdk.module_loading import import_string

from support.airflow import Connect, Tables
from zero_rename.committer import (
    StoreRefusedError,
    StoreUnreachableError,
    Table,
    UnfinishedUpkeepError,
)
from zero_rename.committer.format.records.success_marker import success_data
from zero_rename.committer.store.requests import ListObjects
from zero_rename.orchestration.job_query import JobQuery, QueryResult
from zero_rename.orchestration.look import look
from zero_rename.orchestration.partitions_query import PartitionsQuery
from zero_rename.provider import table_watch
from zero_rename.provider.table_watch import REFRESH, SharedTables, TableWatch, _Waiter
from zero_rename.provider.triggers import SuccessManifestTrigger

pytestmark = pytest.mark.memory_s3

CONN = "zero_rename_default"


def trigger(tables: Tables, conn_id: str = CONN, **query: Any) -> SuccessManifestTrigger:
    return SuccessManifestTrigger(JobQuery(tables.url(), **query).as_dict(), conn_id, 0.05)


def waiting(tables: Tables, **query: Any) -> asyncio.Task[dict[str, Any]]:
    return asyncio.create_task(first_event(trigger(tables, **query)))


async def first_event(asked: SuccessManifestTrigger) -> dict[str, Any]:
    async for event in asked.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def idempotency_key(number: object) -> str:
    return f"flights/r{number}/load"


def test_it_survives_serialisation(tables: Tables) -> None:
    path, kwargs = trigger(tables, idempotency_key="k", min_rows=1, apply=True).serialize()
    again = import_string(path)(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)


def test_ready_or_in_vain(tables: Tables) -> None:
    job, dead = tables.load(1).job, tables.undecided(2)
    tables.table().recover(patience=0.0)
    event = asyncio.run(first_event(trigger(tables, job=job)))
    assert (event["state"], event["report"]["job"]) == ("ready", job)
    assert json.loads(json.dumps(event)) == event
    event = asyncio.run(first_event(trigger(tables, job=dead)))
    assert (event["state"], event["report"]) == ("failed", None)


def test_it_waits_without_blocking_the_loop(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look runs in another thread; the job is committed after the first."""
    tables.load(9)
    looked, threads, after = threading.Event(), set(), JobQuery.after

    def watched(self: JobQuery, *given: Any) -> Any:
        threads.add(threading.get_ident())
        result = after(self, *given)
        looked.set()
        return result

    monkeypatch.setattr(JobQuery, "after", watched)

    async def play() -> dict[str, Any]:
        task = waiting(tables, idempotency_key="k")
        await asyncio.to_thread(looked.wait, 30)
        assert not task.done()
        await asyncio.to_thread(tables.load, 1, idempotency_key="k")
        return await asyncio.wait_for(task, 60)

    assert asyncio.run(play())["state"] == "ready"
    assert threading.get_ident() not in threads


def test_a_store_out_of_reach_is_asked_again(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, ask = tables.load(1).job, JobQuery.ask
    failures = [StoreUnreachableError("no answer"), UnfinishedUpkeepError("begun")]

    def flaky(self: JobQuery, table: Any) -> Any:
        if failures:
            raise failures.pop()
        return ask(self, table)

    monkeypatch.setattr(JobQuery, "ask", flaky)
    assert asyncio.run(first_event(trigger(tables, job=job)))["state"] == "ready"
    assert failures == []


def test_a_connection_that_cannot_be_right_ends_it(tables: Tables, connect: Connect) -> None:
    connect("zr", login="me")
    event = asyncio.run(first_event(trigger(tables, "zr", idempotency_key="k")))
    assert event["state"] == "failed"
    assert "holds a credential" in event["explanation"]


@pytest.mark.parametrize("kind", ["runs", "partitions"])
def test_triggers_share_looks_and_clients(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tables.load(99)
    made: list[str] = []
    create = botocore.session.Session.create_client

    def counted(self: Any, name: str, *given: Any, **more: Any) -> Any:
        made.append(name)
        return create(self, name, *given, **more)

    monkeypatch.setattr(botocore.session.Session, "create_client", counted)

    async def play() -> int:
        queries: list[dict[str, Any]] = [
            {"idempotency_key": idempotency_key(n)}
            if kind == "runs"
            else {"partition": f"day={n}", "newer_than_version": 0}
            for n in range(40)
        ]
        tasks = [waiting(tables, **query) for query in queries]
        await asyncio.to_thread(tables.load, 7, idempotency_key=idempotency_key(7))
        before = tables.bucket.counter.total()
        assert (await asyncio.wait_for(tasks[7], 120))["state"] == "ready"
        rest = [task for task in tasks if task is not tasks[7]]
        assert not any(task.done() for task in rest)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return before

    asyncio.run(play())
    sent = tables.bucket.counter.counts()
    # The two loads' own, and one look's after the other.
    assert sent["GetObject"] < 80, sent
    assert made.count("s3") <= 3


def test_triggers_of_the_same_partitions_read_each_once(tables: Tables) -> None:
    """Eight days each; the last day comes while they wait."""
    tables.load(*range(1, 8))
    days = tuple(f"day={n}" for n in range(1, 9))

    async def play() -> list[dict[str, Any]]:
        asked = PartitionsQuery(tables.url(), days, min_rows=2).as_dict()
        tasks = [first_event(SuccessManifestTrigger(asked, CONN, 0.05)) for _ in range(10)]
        gathered = asyncio.gather(*tasks)
        await asyncio.to_thread(tables.load, 8)
        return await asyncio.wait_for(gathered, 60)

    tables.bucket.counter.reset()
    found = asyncio.run(play())
    assert {event["state"] for event in found} == {"ready"}
    assert [len(event["report"]["partitions"]) for event in found] == [8] * 10
    # Some four for each state, not for each state and trigger; besides the load's own.
    assert tables.bucket.counter.counts()["GetObject"] < 150


def test_look_at_31_partitions_by_magic_takes_three_requests_after_the_first(
    tables: Tables,
) -> None:
    days = range(10, 41)
    for day in days:
        key = f"wh/flights/day={day}/part-0.parquet"
        tables.bucket.put(key, b"rows")
        said = success_data({"committer": "magic", "jobId": f"j{day}"}, 1_359_700_000.0, [key])
        tables.bucket.put(f"wh/flights/day={day}/_SUCCESS", said)
    names = tuple(f"day={day}" for day in days)
    query = PartitionsQuery(tables.url(), names, min_files=2, committer="magic")
    watched = TableWatch(CONN, tables.url(), SharedTables())
    waiters = [_Waiter(query, 60.0)]
    watched._look(waiters)
    tables.bucket.counter.reset()
    ((_, result),) = watched._look(waiters)
    assert result.explanation.startswith("31 of 31 partitions are missing: day=10 (1 file)")
    assert tables.bucket.counter.counts() == {"ListObjects": 2, "GetObject": 1}


def test_partitions_are_spelled_as_their_table_does_once_it_is_there(tables: Tables) -> None:
    """A trigger that was deferred before the first load waited for ``day=01``."""

    async def play() -> list[dict[str, Any]]:
        said: dict[str, Any] = {"newer_than_version": 0}
        tasks = [waiting(tables, partition=name, **said) for name in ("day=01", "day=x")]
        asked = PartitionsQuery(tables.url(), ("day=01", "day=1")).as_dict()
        tasks.append(asyncio.create_task(first_event(SuccessManifestTrigger(asked, CONN, 0.05))))
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in tasks)
        await asyncio.to_thread(tables.load, 1)
        return [await asyncio.wait_for(task, 120) for task in tasks]

    one, none, several = asyncio.run(play())
    assert (one["state"], one["report"]["partition"]) == ("ready", "day=1")
    assert (none["state"], "'x'" in none["explanation"]) == ("failed", True)
    assert [it["partition"] for it in several["report"]["partitions"]] == ["day=1"]


def test_a_trigger_that_ends_leaves_the_others(tables: Tables) -> None:
    async def play() -> str:
        leaving, staying = (
            waiting(tables, idempotency_key=idempotency_key(1)),
            waiting(tables, idempotency_key=idempotency_key(2)),
        )
        await asyncio.to_thread(tables.load, 9)
        leaving.cancel()
        await asyncio.to_thread(tables.load, 1, idempotency_key=idempotency_key(2))
        return (await asyncio.wait_for(staying, 60))["state"]

    assert asyncio.run(play()) == "ready"


def test_a_task_that_was_marked_as_done_is_waited_for_in_vain_and_one_that_was_skipped_skips(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: dict[str, Any] = {"r1": {"load": "running"}, "r2": {"load_3": "running"}}
    asked: list[dict[str, Any]] = []

    def get_task_states(**given: Any) -> dict[str, Any]:
        asked.append(given)
        return states

    monkeypatch.setattr(table_watch, "_task_states", lambda: get_task_states)

    async def play() -> list[dict[str, Any]]:
        tasks = [
            waiting(tables, idempotency_key=idempotency_key(1)),
            waiting(tables, idempotency_key=f"{idempotency_key(2)}/3"),
        ]
        await asyncio.to_thread(tables.load, 9)
        assert not tasks[0].done()
        states.update({"r1": {"load": "success"}, "r2": {"load_3": "skipped"}})
        return await asyncio.wait_for(asyncio.gather(*tasks), 60)

    found = asyncio.run(play())
    assert [event["state"] for event in found] == ["failed", "skipped"]
    assert "state is 'success'" in found[0]["explanation"]
    assert asked[0] == {"dag_id": "flights", "task_ids": ["load"], "run_ids": ["r1", "r2"]}


class TestARefusal:
    @pytest.fixture
    def refuse(self, answered_by: Any) -> Callable[[int], None]:
        """So many listings, from now on."""
        left: list[None] = []

        def answer(request: Any) -> None:
            if isinstance(request, ListObjects) and left:
                left.pop()
                raise StoreRefusedError("ExpiredToken")

        answered_by(answer)
        return lambda times: left.extend([None] * times)

    def test_of_keys_that_were_changed_since(
        self, tables: Tables, refuse: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(table_watch, "_tables", SharedTables(lambda: now[0]))
        tables.load(1, idempotency_key=idempotency_key(1))

        async def play() -> dict[str, Any]:
            table_watch._tables.table(CONN, tables.url())
            now[0] = 60.0
            refuse(1)
            return await asyncio.wait_for(waiting(tables, idempotency_key=idempotency_key(1)), 60)

        assert asyncio.run(play())["state"] == "ready"

    def test_of_keys_that_were_just_read(
        self, tables: Tables, refuse: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_watch, "_tables", SharedTables(lambda: 0.0))
        refuse(100)

        async def play() -> dict[str, Any]:
            return await asyncio.wait_for(waiting(tables, idempotency_key=idempotency_key(1)), 60)

        found = asyncio.run(play())
        assert (found["state"], "ExpiredToken" in found["explanation"]) == ("error", True)


def test_an_error_that_nobody_thought_of_ends_the_triggers(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> list[Any]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(TableWatch, "_look", broken)

    async def play() -> dict[str, Any]:
        return await asyncio.wait_for(waiting(tables, idempotency_key=idempotency_key(1)), 60)

    found = asyncio.run(play())
    assert (found["state"], found["explanation"]) == ("error", "RuntimeError: no such thing")


def test_unexpected_error_of_one_query_leaves_the_other_triggers(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.load(1, idempotency_key=idempotency_key(2))
    ask = JobQuery.ask

    def broken(self: JobQuery, table: Any) -> Any:
        if self.idempotency_key == idempotency_key(1):
            raise RuntimeError("no such thing")
        return ask(self, table)

    monkeypatch.setattr(JobQuery, "ask", broken)
    monkeypatch.setattr(JobQuery, "not_there", broken)

    async def play() -> list[dict[str, Any]]:
        asked = [waiting(tables, idempotency_key=idempotency_key(it)) for it in (1, 2)]
        return await asyncio.wait_for(asyncio.gather(*asked), 60)

    first, second = asyncio.run(play())
    assert (first["state"], first["explanation"]) == ("error", "RuntimeError: no such thing")
    assert second["state"] == "ready"


def test_triggers_join_a_look_within_half_their_interval(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = [100.0], list[list[str]]()
    answered: dict[str, QueryResult] = {}

    def looked(self: TableWatch, joined: list[Any]) -> list[Any]:
        looks.append([waiter.query.idempotency_key for waiter in joined])
        now[0] += 4.0
        ready = QueryResult("ready", "there")
        waits = QueryResult("waiting", "not there")
        return [
            (w, answered.get(w.query.idempotency_key, ready if len(looks) > 3 else waits))
            for w in joined
        ]

    monkeypatch.setattr(TableWatch, "_look", looked)

    async def one(asked: TableWatch, name: str, interval: float) -> None:
        async for _ in asked.results(JobQuery(tables.url(), idempotency_key=name), interval):
            pass

    async def play() -> None:
        asked = TableWatch(CONN, tables.url(), SharedTables(), lambda: now[0])
        tasks = [one(asked, "slow", 20.0), one(asked, "quick", 4.0)]
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    monkeypatch.setattr(asyncio, "wait_for", waited(now, asyncio.wait_for))
    asyncio.run(play())
    # At 100, 108 (quick), 116 (quick, and slow, which is due at 124), …
    assert looks[:3] == [["slow", "quick"], ["quick"], ["slow", "quick"]]


def test_interval_of_zero_polls_once_a_second(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, polls = [100.0], list[float]()

    def looked(self: TableWatch, joined: list[Any]) -> list[Any]:
        polls.append(now[0])
        return [(it, QueryResult("ready" if len(polls) > 2 else "waiting", "")) for it in joined]

    monkeypatch.setattr(TableWatch, "_look", looked)

    async def play() -> None:
        asked = TableWatch(CONN, tables.url(), SharedTables(), lambda: now[0])
        async for _ in asked.results(JobQuery(tables.url(), idempotency_key="k"), 0.0):
            pass

    monkeypatch.setattr(asyncio, "wait_for", waited(now, asyncio.wait_for))
    asyncio.run(play())
    assert polls == [100.0, 101.0, 102.0]


def waited(now: list[float], wait_for: Any) -> Any:
    """Pauses of the watch pass at once."""

    async def wait(awaited: Any, pause: float) -> Any:
        if pause == 60:
            return await wait_for(awaited, pause)
        awaited.close()
        now[0] += pause
        await asyncio.sleep(0)
        raise TimeoutError

    return wait


def test_a_connection_is_read_again(tables: Tables) -> None:
    now = [0.0]
    shared = SharedTables(lambda: now[0])
    first = shared.table(CONN, tables.url())
    other = shared.table(CONN, tables.url("other"))
    assert shared.table(CONN, tables.url()) is first
    assert other.driver.clients is first.driver.clients
    now[0] = REFRESH
    assert shared.table(CONN, tables.url()).driver.clients is not first.driver.clients


def test_a_connection_is_forgotten_once_for_all_of_its_tables(tables: Tables) -> None:
    """Their polls meet the same old keys at once: each is asked again with the new ones."""
    now = [0.0]
    shared = SharedTables(lambda: now[0])
    first, second, third = (shared.table(CONN, tables.url(name)) for name in "abc")
    now[0] = 60.0
    assert shared.forget(CONN, first)
    assert shared.forget(CONN, second)
    again = shared.table(CONN, tables.url("a"))
    assert shared.forget(CONN, third)
    assert shared.table(CONN, tables.url("a")) is again
    assert not shared.forget(CONN, again)


class TestALook:
    def see(self, table: Table, *names: str, pages: dict[str, int] | None = None) -> dict[str, Any]:
        found = table.run(look(names, {} if pages is None else pages))
        return {name: [key for key, _ in state] for name, state in found.items()}

    def test_lists_a_folder_once(self, tables: Tables) -> None:
        for key in ("a/day=1.json", "a/day=10.json", "a/day=1.json.old", "b/x/1", "b/x/2", "b/y/1"):
            tables.bucket.put(key, b"x")
        tables.bucket.counter.reset()
        names = ("a/day=1.json", "a/day=2.json", "a/day=10.json", "b/x/", "b/z/")
        assert self.see(tables.table(), *names) == {
            "a/day=1.json": ["a/day=1.json"],
            "a/day=2.json": [],
            "a/day=10.json": ["a/day=10.json"],
            "b/x/": ["b/x/1", "b/x/2"],
            "b/z/": [],
        }
        assert tables.bucket.counter.counts() == {"ListObjects": 2}

    def test_lists_few_keys_of_a_large_folder_one_by_one(self, tables: Tables) -> None:
        tables.bucket.put("a/1.json", b"x")
        names = ("a/1.json", "a/2.json")
        found = self.see(tables.table(), *names, pages={"a/": 3})
        assert found == {"a/1.json": ["a/1.json"], "a/2.json": []}
        assert tables.bucket.counter.counts()["ListObjects"] == 2

    def test_lists_few_keys_of_a_large_folder_one_by_one_every_time(self, tables: Tables) -> None:
        pages = {"a/": 3}
        for polls in (1, 2, 3):
            self.see(tables.table(), "a/1.json", "a/2.json", pages=pages)
            assert tables.bucket.counter.counts()["ListObjects"] == 2 * polls
        assert pages == {"a/": 3}
