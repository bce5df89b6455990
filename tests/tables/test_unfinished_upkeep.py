"""A verb of maintenance on a Delta table that the store fails midway never says that nothing
happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.delta_tables import on, rows, write
from support.memory_store import ManualClock, MemoryStore
from zero_rename.committer.errors import (
    FastRootGoneError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    ZeroRenameError,
)
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep import checkpoint
from zero_rename.tables import DeltaTable

#: Requests whose answer may be that nobody knows whether they were carried out.
UNSURE = (s.Put, s.Delete, s.DeleteMany, s.CompleteUpload, s.AbortUpload)
WEEKS = 20 * 24 * 3600.0


def filled() -> MemoryStore:
    """A table of two days whose files were replaced long ago."""
    store = MemoryStore()
    for mode in ("append", "overwrite"):
        for day in ("1", "2"):
            for value in (1, 2):
                write(on(store), rows(value, day=day), mode=mode, idempotency_key=f"{mode} {day}")
    return _later(store)


def small() -> MemoryStore:
    """A table of two days, each of two files."""
    store = MemoryStore()
    for day in ("1", "2"):
        for value in (1, 2):
            write(on(store), rows(value, day=day))
    return store


def dead() -> MemoryStore:
    """A table with two jobs whose processes have died."""
    store = small()
    for day in ("1", "2"):
        job = on(store).job(rows(4).schema, partition_by=["day"])
        job.__enter__()
        job.write(rows(4, day=day))
    return _later(store)


def overwritten() -> MemoryStore:
    """A table of which another writer has written over two entries."""
    store = small()
    for version in (1, 3):
        log = f"flights/_delta_log/{version:020d}.json"
        store.apply(s.PutFile(log, b'{"commitInfo":{"txnId":"other"}}\n'))
    return store


def fast() -> MemoryStore:
    """A table whose days lie in a data root, each to be copied by a job of its own."""
    store = MemoryStore()
    for day in ("1", "2"):
        write(on(store), rows(1, day=day), data_root="s3://fast/scratch")
    return store


def _later(store: MemoryStore) -> MemoryStore:
    clock = store.clock
    assert isinstance(clock, ManualClock)
    clock.advance(WEEKS)
    return store


VERBS: dict[str, tuple[Callable[[], MemoryStore], Callable[[DeltaTable], object]]] = {
    "recover": (dead, lambda it: it.recover(0.0)),
    "settle": (dead, lambda it: it.settle({job.job for job in it.open_jobs()})),
    "give_up": (dead, lambda it: it.give_up([job.job for job in it.open_jobs()])),
    "purge": (filled, lambda it: it.purge(apply=True)),
    "purge_records": (filled, lambda it: it.purge_records(0.0, apply=True)),
    "repair": (overwritten, lambda it: it.repair(apply=True)),
    "compact": (small, lambda it: it.compact(apply=True, sort_by=["value"])),
    "checkpoint": (fast, lambda it: it.checkpoint(apply=True)),
}


Fault = Callable[[Any, Callable[[Any], Any]], Any]


def gone_after(requests: int) -> Fault:
    """The store answers so many requests, and then no more."""

    def gone(request: Any) -> s.Unknown:
        if isinstance(request, UNSURE):
            return s.Unknown("the store is gone")
        raise StoreUnreachableError("The store is gone.")

    return _after(requests, gone)


def refused_after(requests: int) -> Fault:
    """The store carries out so many requests. Then the credentials have expired."""

    def refused(request: Any) -> None:
        raise StoreRefusedError("The session has expired.", lacks_right=True)

    return _after(requests, refused)


def _after(requests: int, fail: Callable[[Any], Any]) -> Fault:
    left = requests

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal left
        left -= 1
        return apply(request) if left >= 0 else fail(request)

    return fault


@pytest.mark.parametrize("fault", [gone_after, refused_after])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_the_store_fails_midway_is_refused_only_if_nothing_has_changed(
    verb: str, fault: Callable[[int], Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_TOGETHER", 1)
    prepare, act = VERBS[verb]
    before = prepare()
    ends: list[ZeroRenameError] = []
    for requests in range(10_000):
        store = before.copy()
        try:
            act(on(store, fault(requests)))
        except ZeroRenameError as error:
            ends.append(error)
        else:
            break
        # A missing fast root says itself what is copied.
        if isinstance(ends[-1], RefusedError) and not isinstance(ends[-1], FastRootGoneError):
            now, then = (store.objects, store.uploads), (before.objects, before.uploads)
            assert now == then, f"{ends[-1]!r} after {requests} requests"
    assert ends
