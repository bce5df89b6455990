"""Objects read by ranges: one version, several ranges at once, errors in the driver's words."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest

from support.faulty_server import FaultyServer, Received, Reply, s3_error
from support.memory_store import MemoryDriver
from zero_rename.committer.errors import (
    DamagedError,
    SnapshotGoneError,
    StoreRefusedError,
    StoreUnreachableError,
)
from zero_rename.committer.store import range_reader
from zero_rename.committer.store.range_reader import RangeFile
from zero_rename.committer.store.requests import Delete, Put

BODY = bytes(range(256)) * 40
SIZE = len(BODY)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_TAIL", 100)
    monkeypatch.setattr(range_reader, "_GAP", 10)
    monkeypatch.setattr(range_reader, "_LARGEST", 1000)


@pytest.fixture
def driver() -> MemoryDriver:
    driver = MemoryDriver()
    driver.run(Put("key", BODY))
    driver.requests.clear()
    return driver


def parts(driver: MemoryDriver) -> list[tuple[int, int]]:
    return [(request.part.first, request.part.last) for request in driver.requests]


def test_it_reads_as_a_file_does(driver: MemoryDriver) -> None:
    file, plain = RangeFile(driver, "key", SIZE), io.BytesIO(BODY)
    for offset, whence, count in ((0, 0, 10), (5, 1, 300), (-50, 2, 60), (SIZE - 150, 0, -1)):
        assert file.seek(offset, whence) == plain.seek(offset, whence)
        assert file.read(count) == plain.read(count)
        assert file.tell() == plain.tell()


def test_what_was_read_ahead_costs_no_request(driver: MemoryDriver) -> None:
    file = RangeFile(driver, "key", SIZE)
    file.prefetch([(0, 50), (55, 80), (1000, 3500), (SIZE - 20, SIZE)])
    asked = parts(driver)
    assert asked[0] == (SIZE - 100, SIZE - 1)
    # The near ones are one, the long one is three, and the tail is there.
    assert sorted(asked[1:]) == [(0, 79), (1000, 1999), (2000, 2999), (3000, 3499)]
    for start, end in ((0, 80), (1000, 3500), (SIZE - 20, SIZE)):
        file.seek(start)
        assert file.read(end - start) == BODY[start:end]
    assert parts(driver) == asked


def test_later_reads_demand_the_first_ones_version(driver: MemoryDriver) -> None:
    file = RangeFile(driver, "key", SIZE)
    driver.run(Put("key", BODY[::-1]))
    with pytest.raises(SnapshotGoneError, match="key"):
        file.read(10)
    with pytest.raises(SnapshotGoneError, match="key"):
        file.prefetch([(0, 10), (2000, 2010)])


def test_an_object_that_is_gone_is_a_gone_snapshot(driver: MemoryDriver) -> None:
    file = RangeFile(driver, "key", SIZE)
    driver.run(Delete("key"))
    with pytest.raises(SnapshotGoneError):
        file.read(10)
    with pytest.raises(SnapshotGoneError):
        RangeFile(driver, "key", SIZE)


@pytest.mark.parametrize(
    ("size", "found"), [(SIZE - 1, f"has {SIZE}"), (SIZE + 1, f"has {SIZE}"), (2 * SIZE, "fewer")]
)
def test_another_size_is_damage(driver: MemoryDriver, size: int, found: str) -> None:
    with pytest.raises(DamagedError, match=f"should have {size} bytes; the store.*{found}"):
        RangeFile(driver, "key", size)


def answer(got: Received) -> Reply:
    """What a store answers to a range of BODY."""
    first, last = (int(number) for number in got.headers["range"].split("=")[1].split("-"))
    given = {
        "ETag": '"version"',
        "Last-Modified": "Thu, 01 Jan 1970 00:16:40 GMT",
        "Content-Range": f"bytes {first}-{last}/{SIZE}",
    }
    return Reply(206, BODY[first : last + 1], given)


def test_four_ranges_are_under_way_together(at: Any) -> None:
    together = threading.Barrier(4, timeout=120)
    conditions = []

    def meet(got: Received, _: Any) -> Reply:
        conditions.append(got.headers.get("if-match"))
        if len(conditions) > 1:
            together.wait()
        return answer(got)

    with FaultyServer(meet) as server:
        file = RangeFile(at(server.endpoint), "key", SIZE)
        file.prefetch([(0, 4000)])
        assert file.read(4000) == BODY[:4000]
    assert conditions == [None, *['"version"'] * 4]


def test_errors_are_the_drivers(at: Any) -> None:
    with (
        FaultyServer(lambda *_: s3_error(403, "AccessDenied")) as server,
        pytest.raises(StoreRefusedError, match="s3:GetObject"),
    ):
        RangeFile(at(server.endpoint), "key", SIZE)
    with pytest.raises(StoreUnreachableError, match="No connection"):
        RangeFile(at("http://127.0.0.1:9"), "key", SIZE)
