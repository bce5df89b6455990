"""A file's PUT that arrives once more, late: the same bytes, and under SSE-KMS another ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.memory_store import MemoryDriver, MemoryStore
from support.protocol import memory_table
from zero_rename.committer import SnapshotGoneError
from zero_rename.committer.format.parquet import reader
from zero_rename.committer.store import range_reader
from zero_rename.committer.store import requests as s
from zero_rename.tables import DeltaTable

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("day", pa.int32())])
COUNT = 2_000


class Encrypting(MemoryStore):
    """One whose ETags are no digests of content, and to whose data each read is preceded by the
    PUT of the very same bytes, as a proxy that sends a request again would do it."""

    again = 0
    late = False

    def _etag(self, body: bytes) -> str:
        self.again += 1
        return hashlib.md5(body + str(self.again).encode(), usedforsecurity=False).hexdigest()

    def apply(self, request: Any) -> Any:
        there = self.objects.get(getattr(request, "key", ""))
        data = isinstance(request, s.Get) and request.key.endswith(".parquet")
        if self.late and data and there is not None:
            super().apply(s.Put(request.key, there.body))
        return super().apply(request)


@pytest.fixture(autouse=True)
def ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read by ranges, in several requests."""
    for name in ("_SMALL", "_WHOLE", "_FILTERED"):
        monkeypatch.setattr(reader, name, 0)
    monkeypatch.setattr(range_reader, "_TAIL", 1_000)
    monkeypatch.setattr(range_reader, "_LARGEST", 3_000)


def made() -> tuple[Encrypting, DeltaTable]:
    store = Encrypting()
    table = DeltaTable("s3://bucket/flights", driver=MemoryDriver(store))  # type: ignore[arg-type]
    for first in (0, COUNT):
        ids = list(range(first, first + COUNT))
        with table.job(SCHEMA, partition_by=["day"]) as job:
            job.write(pa.table([ids, ids, [1] * COUNT], schema=SCHEMA))
    store.late = True
    return store, table


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


CHANGED = pa.table([[1, 2 * COUNT], [7, 7], [1, 1]], schema=SCHEMA)
ALL = list(range(2 * COUNT))
#: What is done, what is there after that.
CHANGES: dict[str, tuple[Callable[[DeltaTable], Any], list[int]]] = {
    "compaction": (lambda it: it.compact(apply=True), ALL),
    "merge": (lambda it: it.merge(CHANGED, ["id"]), [*ALL, 2 * COUNT]),
    "deletion": (lambda it: it.delete([("id", "<", 10)]), ALL[10:]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_rows_takes_it_for_the_same_file(what: str) -> None:
    _, table = made()
    change, after = CHANGES[what]
    change(table)
    assert ids(table.scan().to_arrow()) == after
    assert table.verify() == []


def test_reads_of_now_and_of_the_past_take_it_for_the_same_file() -> None:
    store, table = made()
    before = store.again
    assert ids(table.scan().to_arrow()) == ALL
    assert store.again - before > 4, "no file was read by ranges"
    assert ids(table.scan(filter=pc.field("value") < 5).to_arrow()) == ALL[:5]
    assert ids(table.scan(columns=["id"]).to_arrow()) == ALL
    assert ids(table.scan(as_of=0).to_arrow()) == ALL[:COUNT]


def test_a_table_of_directories_refuses_it_as_its_key_may_hold_another_file_by_then() -> None:
    """An ETag is all that tells a stranger's file there."""
    store = Encrypting()
    table = memory_table(store)
    with table.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table([ALL, ALL, [1] * len(ALL)], schema=SCHEMA))
    store.late = True
    with pytest.raises(SnapshotGoneError):
        table.to_arrow()
