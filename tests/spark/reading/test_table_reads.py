"""What an application has read of a table: what counts for a write, and for how long."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from zero_rename.committer import (
    UNPARTITIONED,
    Committed,
    JobSpec,
    OpenedJob,
    PartitionCommit,
    ReadBase,
    SnapshotGoneError,
    Table,
    TableRoot,
)
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.spark.reading import table_reads
from zero_rename.spark.reading.reader import TableReader, known_table
from zero_rename.spark.reading.table_reads import TableReads
from zero_rename.spark.worker import is_over

URL = "s3://bucket/t"


@pytest.fixture
def reads(tmp_path: Path) -> TableReads:
    return TableReads(URL, tmp_path / "t.json")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that no other application has."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(table_reads, "application", lambda: "one")
    return tmp_path


def whole(**versions: int) -> ReadBase:
    return ReadBase(URL, versions)


def some(**versions: int) -> ReadBase:
    return ReadBase(URL, versions, whole=False)


def commit(**versions: int) -> Committed:
    changes = tuple(
        PartitionCommit(name, version, 1, 1, 1, 0) for name, version in versions.items()
    )
    return Committed("zr1-x", URL, changes, 0.0)


def versions(reads: TableReads, *names: str) -> list[int | None]:
    return [reads.noted().base.version(name) for name in names]


def test_nothing_was_read(reads: TableReads) -> None:
    reads.loaded()
    reads.wrote(commit(a=1), replaced=True)
    assert versions(reads, "a") == [None]


def test_the_smallest_wins(reads: TableReads) -> None:
    reads.planned(whole(a=3, b=1), None)
    reads.planned(whole(a=2, b=4, c=1), None)
    assert versions(reads, "a", "b", "c", "d") == [2, 1, 0, 0]


def test_what_was_not_read_does_not_count(reads: TableReads) -> None:
    reads.planned(some(a=3), None)
    reads.planned(some(b=2), None)
    assert versions(reads, "a", "b", "c") == [3, 2, None]
    reads.planned(whole(a=5), None)
    assert versions(reads, "a", "b", "c") == [3, 0, 0]


def test_a_load_alone_forgets_nothing(reads: TableReads) -> None:
    reads.planned(whole(a=3), None)
    reads.loaded()
    reads.planned(whole(a=4), None)
    assert versions(reads, "a") == [3]


@pytest.mark.parametrize("done", [commit(b=7), None])
def test_a_load_after_a_write_forgets_what_was_read_before(
    reads: TableReads, done: Committed | None
) -> None:
    reads.planned(whole(a=3), None)
    reads.wrote(done, replaced=True)
    assert versions(reads, "a") == [3]  # The same frame may be written a second time.
    reads.loaded()
    assert versions(reads, "a") == [None]
    reads.planned(whole(a=4), None)
    reads.loaded()
    assert versions(reads, "a") == [4]


def test_what_an_overwrite_replaced_no_longer_counts(reads: TableReads) -> None:
    reads.planned(whole(a=3, b=1), None)
    reads.wrote(commit(a=4, c=1), replaced=True)
    assert versions(reads, "a", "b", "c") == [None, 1, None]
    reads.planned(whole(a=6, c=2), None)
    assert versions(reads, "a", "c") == [6, 2]


def test_an_own_append_is_no_conflict_and_anothers_is(reads: TableReads) -> None:
    reads.planned(whole(a=3, b=1), None)
    reads.wrote(commit(a=4, b=3, c=1), replaced=False)
    assert versions(reads, "a", "b", "c") == [4, 1, 1]


def test_a_partition_that_came_and_fits_a_filter_was_not_there(reads: TableReads) -> None:
    reads.planned(some(**{"p=2": 5}), "p >= 2")
    heads: dict[str, str] = dict.fromkeys(("p=1", "p=2", "p=3"), "etag")
    schema = pa.schema([("n", pa.int64()), ("p", pa.int32())])
    facts = StoreFacts()
    root = TableRoot.parse(URL)
    opened = OpenedJob("zr1-x", root, JobSpec(schema), schema, ("p",), facts, heads)
    base = reads.noted().base_of(opened)
    assert [base.version(name) for name in heads] == [None, 5, 0]
    anew = replace(opened, partition_by=("n",), base={"n=1": "etag"})
    assert reads.noted().base_of(anew).version("n=1") == 0


def test_the_note_does_not_grow_for_ever(reads: TableReads) -> None:
    for number in range(150):
        reads.planned(some(a=1), f"day > {number}")
    noted = reads.noted()
    assert (noted.filters, noted.base.whole) == ((), True)


def test_each_application_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(table_reads, "is_over", lambda name: name == "one")
    names = iter(["one", "two", "two"])
    monkeypatch.setattr(table_reads, "application", lambda: next(names))
    TableReads.here(URL).planned(whole(a=1), None)
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    TableReads.here(URL).planned(whole(a=2), None)
    assert versions(TableReads.here(URL), "a") == [2]
    assert [path.name for path in folder.iterdir()] == ["two"]


def test_what_one_session_of_spark_connect_reads_is_no_base_of_another(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users share a server, which is one JVM. Spark tells workers the session by a variable."""
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "1f3fc80b-d021-4a37-ab22-90d03371371a")
    TableReads.here(URL).planned(whole(a=1), None)
    assert versions(TableReads.here(URL), "a") == [1]
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "da344090-43d6-48e0-b5a7-1f25b66e1e02")
    assert versions(TableReads.here(URL), "a") == [None]


def test_somebody_elses_folder_is_not_used(alone: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = alone / f"zero-rename-reads-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        reads = TableReads.here(URL)
    reads.planned(whole(a=1), None)
    assert versions(reads, "a") == [None]
    assert "cannot be noted" in caplog.text


def test_which_applications_are_over() -> None:
    host = os.uname().nodename
    started = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
    assert not is_over(f"{host}-jvm-{os.getpid()}-{started}")
    assert is_over(f"{host}-jvm-{os.getpid()}-7")
    assert is_over(f"{host}-client-{os.getpid()}-7")
    assert not is_over(f"{host}-client-{os.getpid()}-{started}")
    assert not is_over("elsewhere-jvm-1-7")
    assert not is_over("a folder of somebody's")


def test_a_state_that_is_gone_no_longer_counts_once_the_table_is_loaded(
    s3_bucket: Any, alone: Path
) -> None:
    url = f"s3://{s3_bucket.name}/t"
    data = pa.table({"n": [1]})

    def overwrite() -> None:
        with Table(url).job(data.schema, mode="overwrite") as job:
            job.write(data)

    overwrite()
    known = known_table({"path": url})
    reader = TableReader(known, known.spark_schema)
    (group,) = reader.partitions()
    assert versions(TableReads.here(url), UNPARTITIONED) == [1]
    overwrite()
    with pytest.raises(SnapshotGoneError):
        list(reader.read(group))
    assert versions(TableReads.here(url), UNPARTITIONED) == [1]
    known_table({"path": url})
    assert versions(TableReads.here(url), UNPARTITIONED) == [None]
