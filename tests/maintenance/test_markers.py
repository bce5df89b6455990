"""Destinations of Hadoop's committers, compared with what their ``_SUCCESS`` files name."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import memory_table
from support.s3a_jobs import JOB, OTHER, ROOT, WRITE, a_try
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.success_marker import success_data
from zero_rename.committer.store.requests import Put
from zero_rename.maintenance.destinations import Destination
from zero_rename.maintenance.purging import PurgeOrder
from zero_rename.maintenance.upkeep import look_after
from zero_rename.s3a.runs.ledger import open_try
from zero_rename.s3a.runs.try_record import COMMITTED, FAILED, UNDONE
from zero_rename.s3a.verification.markers import MissingFile, verify_markers

A, B = (f"wh/flights/day={n}/part-0-{WRITE}.parquet" for n in (1, 2))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """Two files of a job, and its marker."""
    store = MemoryStore(clock)
    for key in (A, B):
        store.apply(Put(key, b"x"))
    store.apply(Put("wh/flights/_SUCCESS", marker(A, B)))
    clock.advance(10)
    return store


def marker(*keys: str, **more: object) -> bytes:
    head = {"committer": "magic", "jobId": JOB, "success": True}
    return success_data(head | more, 0.0, keys)


def missing(store: MemoryStore) -> list[MissingFile]:
    return list(memory_table(store, ROOT.url).run(verify_markers(ROOT)).missing)


def test_destination_whose_files_are_all_there_has_none_missing(store: MemoryStore) -> None:
    assert missing(store) == []


def test_file_that_is_gone_is_told_with_its_job(store: MemoryStore) -> None:
    del store.objects[A]
    assert missing(store) == [MissingFile(A, "wh/flights/_SUCCESS", JOB)]


def test_file_that_a_later_write_replaced_is_not_missing(store: MemoryStore) -> None:
    del store.objects[A]
    store.apply(Put(f"wh/flights/day=1/part-0-{OTHER}.parquet", b"x"))
    assert missing(store) == []


@pytest.mark.parametrize(
    ("changes", "is_missing"),
    [
        ({}, False),
        ({"state": COMMITTED}, False),
        ({"state": FAILED}, True),
        ({"state": UNDONE}, True),
        ({"mode": "append"}, True),
        ({"partitions": ("day=2",)}, True),
    ],
)
def test_file_is_not_missing_where_a_later_run_has_taken_it_away_or_may_have(
    store: MemoryStore, changes: dict[str, Any], is_missing: bool
) -> None:
    """Magic's overwrite takes away first, and a run may have no row for the day."""
    given: dict[str, Any] = {"mode": "replace", "partitions": ("day=1",), **changes}
    table = memory_table(store, ROOT.url)
    table.run(open_try(ROOT, a_try(OTHER, **given)))
    del store.objects[A]
    assert [it.key for it in missing(store)] == ([A] if is_missing else [])


def test_file_beside_an_older_write_is_missing(store: MemoryStore, clock: ManualClock) -> None:
    store.apply(Put(f"wh/flights/day=1/part-0-{OTHER}.parquet", b"x"))
    clock.advance(10)
    store.apply(Put("wh/flights/_SUCCESS", marker(A, B)))
    del store.objects[A]
    assert [it.key for it in missing(store)] == [A]


@pytest.fixture
def unnamed(store: MemoryStore) -> list[str]:
    """Files of a job whose names have no UUID, as of MapReduce, and its marker."""
    keys = [f"wh/flights/part-r-0000{n}" for n in (0, 1)]
    for key in keys:
        store.apply(Put(key, b"x"))
    store.apply(Put("wh/flights/_SUCCESS", marker(*keys)))
    return keys


def test_file_without_uuid_is_missing_beside_another_of_its_job(
    store: MemoryStore, unnamed: list[str]
) -> None:
    del store.objects[unnamed[0]]
    assert [it.key for it in missing(store)] == unnamed[:1]


@pytest.mark.parametrize("name", ["part-m-00000", f"part-0-{OTHER}.parquet"])
def test_file_without_uuid_that_a_later_write_replaced_is_not_missing(
    store: MemoryStore, clock: ManualClock, unnamed: list[str], name: str
) -> None:
    del store.objects[unnamed[0]]
    clock.advance(10)
    store.apply(Put(f"wh/flights/{name}", b"x"))
    assert missing(store) == []


def test_file_that_a_later_write_of_its_application_replaced_is_not_missing(
    store: MemoryStore, clock: ManualClock
) -> None:
    """All jobs of an application may have its committer's UUID, which staging committers add."""
    first, later = (f"wh/flights/day=1/part-0-{it}-{JOB}.parquet" for it in (WRITE, OTHER))
    store.apply(Put("wh/flights/_SUCCESS", marker(first)))
    clock.advance(10)
    store.apply(Put(later, b"x"))
    assert missing(store) == []


def test_marker_of_a_partition_is_read_too(store: MemoryStore) -> None:
    store.apply(Put("wh/flights/day=3/_SUCCESS", marker("wh/flights/day=3/x.parquet")))
    assert [it.marker for it in missing(store)] == ["wh/flights/day=3/_SUCCESS"]


@pytest.mark.parametrize("body", [b"", b"{", marker("wh/flights/gone", success=False)])
def test_marker_that_names_nothing_committed_tells_of_nothing(
    store: MemoryStore, body: bytes
) -> None:
    store.apply(Put("wh/flights/_SUCCESS", body))
    del store.objects[A]
    assert missing(store) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"{", "is not JSON"), (b" " * 50_000_000, "has more than 8388608 bytes")],
    ids=["no JSON", "50 MB"],
)
def test_marker_that_cannot_be_read_is_named_and_hides_no_other(
    store: MemoryStore, body: bytes, why: str
) -> None:
    store.apply(Put("wh/flights/day=3/_SUCCESS", body))
    store.apply(Put("wh/flights/day=4/_SUCCESS", b""))
    del store.objects[A]
    table = memory_table(store, ROOT.url)
    done = look_after(table, Destination(ROOT, is_s3a=True), PurgeOrder())
    assert done.findings == {"missing": 1, "unread": 1}
    (note,) = done.notes
    assert (why in note, "wh/flights/day=3/_SUCCESS" in note) == (True, True)
    assert [A in it for it in done.person] == [True]


def test_marker_that_was_copied_from_another_destination_is_a_note(store: MemoryStore) -> None:
    """By `aws s3 sync`, with the files."""
    copy = TableRoot("bucket", "wh/copy")
    for key in (A, B):
        store.apply(Put(key.replace("flights", "copy"), b"x"))
    store.apply(Put("wh/copy/_SUCCESS", marker(A, B)))
    done = look_after(memory_table(store, copy.url), Destination(copy, is_s3a=True), PurgeOrder())
    assert (done.person, done.findings) == ([], {"unread": 1})
    assert "wh/copy/_SUCCESS names files elsewhere, such as wh/flights/day=1/" in done.notes[0]


def test_file_that_a_run_beside_the_table_has_replaced_is_not_missing_in_its_partitions_folder(
    store: MemoryStore,
) -> None:
    folder = TableRoot("bucket", "wh/flights/day=1")
    store.apply(Put("wh/flights/day=1/_SUCCESS", marker(A)))
    del store.objects[A]
    table = memory_table(store, folder.url)
    assert [it.key for it in table.run(verify_markers(folder)).missing] == [A]
    table.run(open_try(ROOT, a_try(mode="replace", partitions=("day=1",))))
    assert table.run(verify_markers(folder)).missing == ()
