"""A verb of maintenance that the store fails midway never says that nothing happened."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.day_rows import load, rows
from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, memory_table
from zero_rename import Table
from zero_rename.committer.errors import RefusedError, StoreUnreachableError, ZeroRenameError
from zero_rename.committer.store import requests as s

#: Requests whose answer may be that nobody knows whether they were carried out.
UNSURE = (s.Put, s.Delete, s.DeleteMany, s.CompleteUpload, s.AbortUpload)


def filled(**policy: Any) -> MemoryStore:
    """A table of two days, one with several files."""
    store = MemoryStore()
    table = memory_table(store)
    for value in (1, 2):
        load(table, value, **policy)
    load(table, 3, day=2, **policy)
    return store


def foreign() -> MemoryStore:
    """A directory of two days whose files are nobody's."""
    store = MemoryStore()
    for day in (1, 2):
        body = io.BytesIO()
        pq.write_table(rows(day, day=day).drop(["day"]), body)
        store.apply(s.Put(f"{ROOT.prefix}/day={day}/part-0.parquet", body.getvalue()))
    return store


def dead() -> MemoryStore:
    """A table with two jobs whose processes have died, each with an upload."""
    store = filled()
    for day in (1, 2):
        job = memory_table(store).job(rows(4).schema, partition_by=["day"])
        job.__enter__()
        job.write(rows(4, day=day))
    clock = store.clock
    assert isinstance(clock, ManualClock)
    clock.advance(10 * 24 * 3600.0)
    return store


def headless() -> MemoryStore:
    store = filled()
    for day in (DAY1, DAY2):
        del store.objects[ROOT.head_key(day)]
    return store


VERBS: dict[str, tuple[Callable[[], MemoryStore], Callable[[Table], object]]] = {
    "adopt": (foreign, lambda it: it.adopt(apply=True)),
    "recover": (dead, lambda it: it.recover()),
    "purge": (dead, lambda it: it.purge(apply=True)),
    "gc": (dead, lambda it: it.gc(0.0, apply=True)),
    "rebuild_heads": (headless, lambda it: it.rebuild_heads(apply=True)),
    "compact": (filled, lambda it: it.compact(apply=True, sort_by=["value"])),
}


def gone_after(requests: int) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """The store answers so many requests, and then no more."""
    left = requests

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return apply(request)
        if isinstance(request, UNSURE):
            return s.Unknown("the store is gone")
        raise StoreUnreachableError("The store is gone.")

    return fault


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_the_store_fails_midway_is_refused_only_if_nothing_has_changed(
    verb: str,
) -> None:
    prepare, act = VERBS[verb]
    before = prepare()
    ends: list[ZeroRenameError] = []
    for requests in range(10_000):
        store = before.copy()
        table = memory_table(store)
        table.driver.fault = gone_after(requests)  # type: ignore[attr-defined]
        try:
            act(table)
        except ZeroRenameError as error:
            ends.append(error)
        else:
            break
        if isinstance(ends[-1], RefusedError):
            now, then = (store.objects, store.uploads), (before.objects, before.uploads)
            assert now == then, f"{ends[-1]!r} after {requests} requests"
    assert ends
