"""Rows that wait on local disk: all come back, and no file is left or to be seen."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zero_rename.committer.errors import StreamError
from zero_rename.committer.format.parquet.spill import Spill

SCHEMA = pa.schema([("v", pa.int64()), ("s", pa.string())])


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"v": n, "s": f"text {n}"} for n in numbers], SCHEMA)


@given(
    sent=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 7)), max_size=20),
    buffer_bytes=st.sampled_from([1, 100, 10**9]),
    batch_rows=st.sampled_from([1, 3, 1000]),
)
def test_rows_come_back_by_partition_in_order(
    sent: list[tuple[str, int]], buffer_bytes: int, batch_rows: int
) -> None:
    spill = Spill(SCHEMA, buffer_bytes, batch_rows)
    expected: dict[str, list[dict]] = {}
    start = 0
    for partition, count in sent:
        rows = batch(*range(start, start + count))
        start += count
        spill.add(partition, rows)
        assert partition in spill
        expected.setdefault(partition, []).extend(rows.to_pylist())
    spill.seal()
    assert spill.partitions == sorted(expected)
    assert spill.rows == start
    found = {p: [row for b in spill.read(p) for row in b.to_pylist()] for p in spill.partitions}
    assert found == expected
    spill.close()


def test_memory_is_freed_to_disk() -> None:
    spill = Spill(SCHEMA, buffer_bytes=20_000)
    for number in range(200):
        spill.add(f"p{number % 3}", batch(number))
        assert sum(map(len, spill._gathered.values())) < 10
    assert spill.bytes_on_disk > 0
    spill.seal()
    kept = [row["v"] for b in spill.read("p1") for row in b.to_pylist()]
    spill.close()
    assert kept == list(range(1, 200, 3))


def test_slices_outlive_the_spill() -> None:
    spill = Spill(SCHEMA, buffer_bytes=1)
    spill.add("p", batch(1, 2))
    spill.seal()
    rows = list(spill.read("p"))
    spill.close()
    spill.close()
    assert pa.Table.from_batches(rows).to_pylist() == batch(1, 2).to_pylist()


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    spill = Spill(SCHEMA, buffer_bytes=1)
    spill.add("p", batch(1))
    assert spill.bytes_on_disk > 0
    assert list(tmp_path.iterdir()) == []
    spill.close()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_or_missing_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    spill = Spill(SCHEMA, buffer_bytes=1)
    with pytest.raises(StreamError, match="local disk") as caught:
        spill.add("p", batch(1))
    assert "TMPDIR" in str(caught.value)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_write_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zero_rename.committer.format.parquet.spill.tempfile.TemporaryFile",
        lambda **_: open("/dev/full", "wb", buffering=0),  # noqa: SIM115
    )
    spill = Spill(SCHEMA, buffer_bytes=1)
    with pytest.raises(StreamError, match="local disk"):
        spill.add("p", batch(1))
    spill.close()
