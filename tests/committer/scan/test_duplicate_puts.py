"""A file's PUT that arrives once more, late: the same bytes, and under SSE-KMS another ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.memory_store import MemoryDriver, MemoryStore
from support.protocol import DAY1, memory_table
from zero_rename.committer import SnapshotGoneError, Table
from zero_rename.committer.format.parquet import reader
from zero_rename.committer.store import range_reader
from zero_rename.committer.store import requests as s

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


def made(readers: str) -> tuple[Encrypting, Table]:
    store = Encrypting()
    table = memory_table(store)
    for first in (0, COUNT):
        ids = list(range(first, first + COUNT))
        with table.job(SCHEMA, partition_by=["day"], readers=readers) as job:
            job.write(pa.table([ids, ids, [1] * COUNT], schema=SCHEMA))
    store.late = True
    return store, table


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


CHANGED = pa.table([[1, 2 * COUNT], [7, 7], [1, 1]], schema=SCHEMA)


def _elsewhere(table: Table) -> Table:
    """Another root, which another client reaches: the bytes go through this process."""
    return memory_table(table.driver.store, "s3://bucket/copied")  # type: ignore[attr-defined]


ALL = list(range(2 * COUNT))
#: What is done, what is there after that.
READS: dict[str, tuple[Callable[[Table], Any], list[int]]] = {
    "compaction": (lambda it: it.compact(apply=True), ALL),
    "sorting": (lambda it: it.compact(apply=True, sort_by=["value"]), ALL),
    "merge": (lambda it: it.merge(CHANGED, ["id"]), [*ALL, 2 * COUNT]),
    "deletion": (lambda it: it.delete([("id", "<", 10)]), ALL[10:]),
    "purge": (lambda it: it.purge(apply=True, keep=0, patience=0.0), ALL),
    "verification": (lambda it: it.verify(), ALL),
    "gc": (lambda it: it.gc(0.0, apply=True), ALL),
    "copy": (lambda it: it.copy(_elsewhere(it), "heads"), ALL),
}


@pytest.mark.parametrize("what", READS)
def test_who_reads_to_write_or_to_remove_takes_it_for_the_same_file(what: str) -> None:
    _, table = made("heads")
    act, after = READS[what]
    act(table)
    assert ids(table.to_arrow()) == after
    assert table.verify() == []


def test_readers_of_now_and_of_the_past() -> None:
    store, table = made("heads")
    before = store.again
    assert ids(table.to_arrow()) == ALL
    assert store.again - before > 4, "no file was read by ranges"
    assert ids(table.scan(filter=pc.field("value") < 5).to_arrow()) == ALL[:5]
    snapshot = table.snapshot()
    assert ids(table.scan(snapshot=snapshot, columns=["id"]).to_arrow()) == ALL
    assert ids(table.scan([DAY1], as_of=1).to_arrow()) == ALL[:COUNT]
    for file in snapshot.files:
        found = pa.Table.from_batches(table.read_file(snapshot, file))
        assert len(found) == COUNT


def test_a_copy_through_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    _, table = made("heads")
    monkeypatch.setattr("zero_rename.committer.table_copy._READ", 3_000)
    new = _elsewhere(table)
    new.driver = MemoryDriver(Encrypting())  # type: ignore[assignment]
    table.copy(new, "heads")
    assert ids(new.to_arrow()) == ALL


def test_where_readers_list_a_key_may_hold_another_file_by_then() -> None:
    """So there it is refused: an ETag is all that tells a stranger's file."""
    _, table = made("listing")
    with pytest.raises(SnapshotGoneError):
        table.to_arrow()
