"""The trigger in an event loop of its own, against a real S3 server."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from airflow.sdk.module_loading import import_string  # pyright: ignore

from support.airflow import Tables, connection_variable
from zero_rename.orchestration.job_query import JobQuery
from zero_rename.provider.triggers import SuccessManifestTrigger

pytestmark = pytest.mark.memory_s3


def trigger(tables: Tables, **query: Any) -> SuccessManifestTrigger:
    asked = JobQuery(tables.url(), **query)
    return SuccessManifestTrigger(asked.as_dict(), "zero_rename_default", 0.05)


async def first(asked: SuccessManifestTrigger) -> dict[str, Any]:
    async for event in asked.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def test_it_survives_serialisation(tables: Tables) -> None:
    path, kwargs = trigger(tables, idempotency_key="k", min_rows=1, apply=True).serialize()
    again = import_string(path)(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)


def test_ready(tables: Tables) -> None:
    job = tables.load(1).job
    event = asyncio.run(first(trigger(tables, job=job)))
    assert event["state"] == "ready"
    assert event["report"]["job"] == job
    assert json.loads(json.dumps(event)) == event


def test_in_vain(tables: Tables) -> None:
    job = tables.undecided(1)
    tables.table().recover(patience=0.0)
    event = asyncio.run(first(trigger(tables, job=job)))
    assert (event["state"], event["report"]) == ("failed", None)


def test_it_waits_without_blocking_the_loop(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look runs in another thread; the job is committed after the first."""
    tables.load(9)
    looked = threading.Event()
    threads = set()
    after = JobQuery.after

    def watched(self: JobQuery, *given: Any) -> Any:
        threads.add(threading.get_ident())
        result = after(self, *given)
        looked.set()
        return result

    monkeypatch.setattr(JobQuery, "after", watched)

    async def play() -> dict[str, Any]:
        waiting = asyncio.create_task(first(trigger(tables, idempotency_key="k")))
        await asyncio.to_thread(looked.wait, 30)
        assert not waiting.done()
        await asyncio.to_thread(tables.load, 1, idempotency_key="k")
        return await asyncio.wait_for(waiting, 60)

    assert asyncio.run(play())["state"] == "ready"
    assert threading.get_ident() not in threads


def test_a_store_out_of_reach_is_asked_again(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zero_rename.committer import StoreUnreachableError

    job = tables.load(1).job
    failures = [StoreUnreachableError("no answer"), StoreUnreachableError("no answer")]
    ask = JobQuery.ask

    def flaky(self: JobQuery, table: Any) -> Any:
        if failures:
            raise failures.pop()
        return ask(self, table)

    monkeypatch.setattr(JobQuery, "ask", flaky)
    assert asyncio.run(first(trigger(tables, job=job)))["state"] == "ready"
    assert failures == []


def test_a_connection_that_cannot_be_right_ends_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*connection_variable("zr", conn_type="zero_rename", login="me"))
    asked = SuccessManifestTrigger(
        JobQuery(tables.url(), idempotency_key="k").as_dict(), "zr", 0.05
    )
    event = asyncio.run(first(asked))
    assert event["state"] == "failed"
    assert "holds a credential" in event["explanation"]
