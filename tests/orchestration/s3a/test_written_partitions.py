"""Partitions that Hadoop's committers wrote, as sensors see them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from support.airflow import Tables
from support.memory_s3 import let_pass
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.job_spec import NOBODY
from zero_rename.orchestration.job_query import READY, WAITING, QueryResult
from zero_rename.orchestration.partitions_query import PartitionsQuery, table_query
from zero_rename.orchestration.s3a.load import report_of_job
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    HEARTBEAT_TIMEOUT,
    UNDONE,
    TryRecord,
    WriteRecord,
    run_uuid,
    write_uuid,
)

pytestmark = pytest.mark.memory_s3
AT = 1_359_700_000.0
WRITE = "0b1c2d3e-0000-4000-8000-00000000000{}"


def ask(tables: Tables, *days: int, **asked: Any) -> QueryResult:
    return asking(tables.table(), tables.url(), *days, **asked)


def asking(table: Table, url: str, *days: int, **asked: Any) -> QueryResult:
    query = PartitionsQuery(url, tuple(f"day={day}" for day in days), committer="magic", **asked)
    query.check()
    return query.ask(table)


def put_files(tables: Tables, day: int, count: int, write: int = 1) -> list[str]:
    keys = [
        f"wh/flights/day={day}/part-{number:05}-{WRITE.format(write)}.c000.parquet"
        for number in range(count)
    ]
    for key in keys:
        tables.bucket.put(key, b"rows")
    return keys


def put_marker(tables: Tables, keys: list[str], job: str, at: float = AT, place: str = "") -> None:
    said = {
        "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
        "success": True,
        "timestamp": int(at * 1000),
        "committer": "magic",
        "jobId": job,
        "filenames": [f"/{key}" for key in keys[:100]],
        "iostatistics": {"counters": {"committer_commits_completed": len(keys)}},
    }
    tables.bucket.put(f"wh/flights/{place}_SUCCESS", json.dumps(said).encode())


def put_report(tables: Tables, at: float, started: float | None = None, **files: int) -> str:
    """What an operator's load leaves beside the table."""
    table, run = tables.table(), run_uuid()
    entries = [
        {"partition": name.replace("_", "="), "files": count, "rows": 1, "bytes": 4 * count}
        for name, count in files.items()
    ]
    report: dict[str, Any] = {"job": run, "jobs": [run], "decided_at": at, "committer": "magic"}
    report["started_at"] = started
    record = TryRecord(run, f"flights/{run}/load", NOBODY, "magic", "overwrite")
    record = table.run(ledger.open_try(table.root, record))
    report["partitions"] = entries
    table.run(ledger.close_try(table.root, record, state=COMMITTED, report=report))
    return run


def test_partitions_stay_ready_after_loads_of_other_days(tables: Tables) -> None:
    jobs = []
    for day in range(1, 8):
        keys = put_files(tables, day, 1, day)
        jobs.append(put_report(tables, AT + day, **{f"day_{day}": 1}))
        put_marker(tables, keys, jobs[-1], AT + day)
    result = ask(tables, *range(1, 8))
    assert (result.state, result.quiet) == (READY, False)
    assert [it["job"] for it in (result.report or {})["partitions"]] == jobs


def test_last_day_of_a_month_of_248_files_is_ready_by_the_write_that_names_share(
    tables: Tables,
) -> None:
    keys = [key for day in range(10, 41) for key in put_files(tables, day, 8)]
    put_marker(tables, keys, "2b1f")
    result = ask(tables, *range(10, 41), min_files=8)
    assert (result.state, (result.report or {})["files"]) == (READY, 248)


def test_files_of_another_write_do_not_make_a_partition_ready(tables: Tables) -> None:
    put_marker(tables, put_files(tables, 1, 2), "2b1f")
    put_files(tables, 2, 2, write=2)
    assert "day=2 (no commit)" in ask(tables, 1, 2).explanation


@pytest.mark.parametrize("told_by", ["report", "marker"])
def test_partition_of_150_files_has_150_and_misses_the_one_that_is_deleted(
    tables: Tables, told_by: str
) -> None:
    keys = put_files(tables, 1, 150)
    if told_by == "report":
        put_report(tables, AT, day_1=150)
    else:
        put_marker(tables, keys, "2b1f", place="day=1/")
    result = ask(tables, 1, min_files=120, check_files=True)
    assert (result.state, (result.report or {})["files"]) == (READY, 150)
    assert (result.report or {})["bytes"] == 600
    tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=keys[149])
    missing = ask(tables, 1, min_files=120, check_files=True)
    assert missing.state == WAITING
    assert "day=1 (1 of 150 files are not there)" in missing.explanation


def test_later_marker_of_a_job_that_nobody_recorded_counts_before_the_report(
    tables: Tables,
) -> None:
    run = put_report(tables, AT, day_1=1)
    keys = put_files(tables, 1, 1)
    put_marker(tables, keys, "2b1f", AT - 1, "day=1/")
    assert (ask(tables, 1).report or {})["job"] == run
    put_marker(tables, keys, "2b1f", AT + 1, "day=1/")
    assert (ask(tables, 1).report or {})["job"] == "2b1f"


def test_later_marker_at_the_root_counts_before_the_partition_s_own(tables: Tables) -> None:
    """It had a marker of its own from a load of this partition alone, and was never ready again."""
    put_marker(tables, put_files(tables, 1, 1), "2b1f", AT, "day=1/")
    loaded = [*put_files(tables, 1, 2), *put_files(tables, 2, 1)]
    put_marker(tables, loaded, "3c2e", AT - 1)
    assert ask(tables, 1, newer_than=AT).state == WAITING
    put_marker(tables, loaded, "3c2e", AT + 1)
    result = ask(tables, 1, newer_than=AT)
    assert (result.state, (result.report or {})["job"]) == (READY, "3c2e")
    tables.bucket.put("wh/flights/day=1/_SUCCESS", b"{")
    assert "is not JSON" in ask(tables, 1, newer_than=AT).explanation


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "marker is empty"),
        (b"{", "is not JSON"),
        (b" " * 50_000_000, "has more than 8388608 bytes"),
    ],
    ids=["empty", "no JSON", "50 MB"],
)
def test_marker_that_says_nothing_is_named_and_hides_no_report(
    tables: Tables, body: bytes, why: str
) -> None:
    put_files(tables, 1, 1)
    tables.bucket.put("wh/flights/day=1/_SUCCESS", body)
    assert why in ask(tables, 1).explanation
    put_report(tables, AT, day_1=1)
    assert ask(tables, 1).state == READY


def test_job_without_uuid_in_its_names_tells_of_the_files_that_its_marker_names(
    tables: Tables,
) -> None:
    keys = [f"wh/flights/day={day}/part-{n:05}.parquet" for day in (1, 2) for n in range(100)]
    for key in keys:
        tables.bucket.put(key, b"rows")
    put_marker(tables, keys, "2b1f")
    assert ask(tables, 1, min_files=100).state == READY
    explanation = ask(tables, 1, 2).explanation
    assert "1 of 2 partitions are missing: day=2 (the _SUCCESS marker at the root" in explanation
    assert "names 100 of its job's 200 files, and their names have no UUID" in explanation


@pytest.mark.parametrize("named", [("day=1",), ()], ids=["named", "any"])
def test_report_does_not_count_while_another_try_may_replace_the_files(
    tables: Tables, named: tuple[str, ...]
) -> None:
    put_files(tables, 1, 1)
    put_report(tables, AT, day_1=1)
    table, run = tables.table(), run_uuid()
    record = TryRecord(run, "flights/again/load", NOBODY, "magic", "overwrite", named)
    record = table.run(ledger.open_try(table.root, record))
    assert "day=1 (the run flights/again/load loads it" in ask(tables, 1).explanation
    table.run(ledger.close_try(table.root, record, state=UNDONE))
    assert ask(tables, 1).state == READY


@pytest.mark.parametrize(("later", "state"), [(1, READY), (0, WAITING)])
def test_report_counts_beside_a_try_that_died_before_its_load_began(
    tables: Tables, later: int, state: str
) -> None:
    """Its run has failed for good, and nobody will ever settle it."""
    put_files(tables, 1, 1)
    table, run = tables.table(), run_uuid()
    record = TryRecord(run, "flights/failed/load", NOBODY, "magic", "replace", ("day=1",), FAILED)
    died = table.run(ledger.open_try(table.root, record)).beat_at
    put_report(tables, died + 60, started=died + later, day_1=1)
    assert ask(tables, 1).state == state


@pytest.mark.parametrize("place", ["", "day=1/"], ids=["root", "partition"])
def test_marker_does_not_count_once_another_try_has_removed_all_of_its_files(
    tables: Tables, place: str
) -> None:
    """An append leaves its marker at the root, and an overwrite of the partition removes its files
    and not that marker: the sensor was ready over an empty partition."""
    keys = put_files(tables, 1, 2)
    put_marker(tables, keys, "2b1f", place=place)
    assert ask(tables, 1).state == READY
    for key in keys:
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=key)
    assert "day=1 (none of the 2 files of job 2b1f" in ask(tables, 1).explanation
    put_files(tables, 1, 1, write=2)
    assert "day=1 (none of the 2 files of job 2b1f" in ask(tables, 1).explanation


def test_marker_does_not_count_while_another_try_may_replace_the_files(tables: Tables) -> None:
    put_marker(tables, put_files(tables, 1, 1), "2b1f")
    table, run = tables.table(), run_uuid()
    record = TryRecord(run, "flights/again/load", NOBODY, "magic", "replace", ("day=1",))
    record = table.run(ledger.open_try(table.root, record))
    assert "day=1 (the run flights/again/load loads it" in ask(tables, 1).explanation
    put_marker(tables, put_files(tables, 1, 1), write_uuid(run, 1))
    assert ask(tables, 1).state == READY
    put_marker(tables, put_files(tables, 1, 1), "2b1f")
    table.run(ledger.close_try(table.root, record, state=UNDONE))
    assert ask(tables, 1).state == READY


@pytest.mark.parametrize("told_by", ["report", "marker"])
@pytest.mark.parametrize("state", [UNDONE, FAILED])
def test_partition_that_an_attempt_began_to_replace_counts_only_if_all_files_are_there(
    tables: Tables, told_by: str, state: str
) -> None:
    """It was killed amidst its deletes, and undone: a half of the rows was ready."""
    keys = put_files(tables, 1, 2)
    if told_by == "report":
        put_report(tables, AT, day_1=2)
    else:
        put_marker(tables, keys, "2b1f", AT)
    table, run = tables.table(), run_uuid()
    record = TryRecord(run, "flights/killed/load", NOBODY, "magic", "replace", ("day=1",))
    place = f"{tables.url()}/day=1"
    begun = WriteRecord(write_uuid(run, 1), 1, "magic", place, "replace", "day=1")
    record = table.run(ledger.open_try(table.root, replace(record, writes=(begun,))))
    table.run(ledger.close_try(table.root, record, state=state))
    assert ask(tables, 1).state == READY
    tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=keys[1])
    assert "day=1 (the run flights/killed/load began to replace it" in ask(tables, 1).explanation
    put_files(tables, 1, 1)
    put_report(tables, AT + 60, started=record.beat_at + 1, day_1=1)
    assert ask(tables, 1).state == READY


def test_partition_that_a_dead_run_of_any_partitions_has_replaced_in_part_is_not_ready(
    tables: Tables,
) -> None:
    """Nobody has settled it yet, and it names no partition: what it had removed counted as there,
    once it had been silent for a while."""
    keys = [*put_files(tables, 1, 2), *put_files(tables, 2, 1)]
    put_report(tables, AT, day_1=2, day_2=1)
    table, run = tables.table(), run_uuid()
    record = TryRecord(run, "flights/killed/load", NOBODY, "partitioned", "replace")
    begun = WriteRecord(write_uuid(run, 1), 1, "partitioned", tables.url(), "replace")
    table.run(ledger.open_try(table.root, replace(record, writes=(begun,))))
    tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=keys[1])
    let_pass(HEARTBEAT_TIMEOUT + 1)
    assert "day=1 (the run flights/killed/load began to replace it" in ask(tables, 1).explanation
    assert ask(tables, 2).state == READY


def test_partition_whose_files_are_all_gone_is_not_ready(tables: Tables) -> None:
    put_report(tables, AT, day_1=2, day_2=0)
    assert "day=1 (none of the 2 files of job" in ask(tables, 1).explanation
    assert ask(tables, 2).state == READY


def test_damaged_report_is_named_and_does_not_hide_others(tables: Tables) -> None:
    put_files(tables, 1, 1)
    put_report(tables, AT, day_1=1)
    key = ledger.closed_key(tables.table().root, "flights/other/load", run_uuid())
    tables.bucket.put(key, b"{")
    assert ask(tables, 1).state == READY
    assert f"({key})" in ask(tables, 2).explanation


@pytest.mark.parametrize("told_by", ["report", "marker"])
def test_polls_of_31_partitions_take_three_requests_after_the_first(
    tables: Tables, told_by: str
) -> None:
    days = range(10, 41)
    for day in days:
        keys = put_files(tables, day, 2, day % 10)
        if told_by == "report":
            put_report(tables, AT + day, **{f"day_{day}": 2})
        else:
            put_marker(tables, keys, "2b1f", place=f"day={day}/")
    put_marker(tables, [], "2b1f")
    table = tables.table()
    assert asking(table, tables.url(), *days, min_files=3).state == WAITING
    tables.bucket.counter.reset()
    assert asking(table, tables.url(), *days, min_files=3).state == WAITING
    assert tables.bucket.counter.counts() == {"ListObjects": 2, "GetObject": 1}


class TestOutput:
    """An output without partitions, by the ``_SUCCESS`` at its root."""

    def ask(self, tables: Tables, table: Table | None = None, **asked: Any) -> QueryResult:
        given: dict[str, Any] = {"committer": "magic"} | asked
        query = PartitionsQuery(tables.url(), ("_unpartitioned",), **given)
        query.check()
        assert table_query(json.loads(json.dumps(query.as_dict()))) == query
        return query.ask(table or tables.table())

    def put_output(self, tables: Tables, at: float = AT) -> list[str]:
        keys = [f"wh/flights/part-{number:05}-{WRITE.format(1)}.parquet" for number in range(150)]
        for key in keys:
            tables.bucket.put(key, b"rows")
        put_marker(tables, keys, "2b1f", at)
        return keys

    def test_newer_marker_of_any_job_makes_the_whole_output_ready(self, tables: Tables) -> None:
        assert "_unpartitioned (no commit)" in self.ask(tables, newer_than=AT).explanation
        self.put_output(tables)
        assert "(committed 2013-02-01" in self.ask(tables, newer_than=AT).explanation
        result = self.ask(tables, newer_than=AT - 1, min_files=150)
        assert (result.state, (result.report or {})["job"]) == (READY, "2b1f")
        assert (result.report or {})["bytes"] == 600

    def test_deleted_file_is_missing_from_the_whole_output(self, tables: Tables) -> None:
        keys = self.put_output(tables)
        assert self.ask(tables, newer_than=0.0, check_files=True).state == READY
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=keys[149])
        result = self.ask(tables, newer_than=0.0, check_files=True)
        assert "1 of 150 files are not there" in result.explanation

    def test_marker_of_no_bytes_counts_only_where_no_manifest_is_required(
        self, tables: Tables
    ) -> None:
        tables.bucket.put("wh/flights/part-0.parquet", b"rows")
        tables.bucket.put("wh/flights/_SUCCESS", b"")
        at = tables.bucket.client.head_object(Bucket=tables.bucket.name, Key="wh/flights/_SUCCESS")
        written = at["LastModified"].timestamp()
        refused = self.ask(tables, newer_than=0.0)
        assert "marker is empty, as Spark's plain commit" in refused.explanation
        plain: Any = {"committer": "zero_rename", "require_manifest": False}
        assert self.ask(tables, newer_than=written, **plain).state == WAITING
        result = self.ask(tables, newer_than=written - 1, **plain)
        assert (result.state, (result.report or {})["files"]) == (READY, 1)
        assert (result.report or {})["partitions"][0]["decided_at"] == written

    def test_marker_of_no_bytes_that_is_written_again_is_newer_for_a_sensor_that_has_read_it(
        self, tables: Tables
    ) -> None:
        """All objects of no bytes have one ETag."""
        tables.bucket.put("wh/flights/part-0.parquet", b"rows")
        tables.bucket.put("wh/flights/_SUCCESS", b"")
        at = tables.bucket.client.head_object(Bucket=tables.bucket.name, Key="wh/flights/_SUCCESS")
        written, table = at["LastModified"].timestamp(), tables.table()
        plain: Any = {"committer": "zero_rename", "require_manifest": False}
        assert self.ask(tables, table, newer_than=written, **plain).state == WAITING
        time.sleep(1.1)
        tables.bucket.put("wh/flights/_SUCCESS", b"")
        assert self.ask(tables, table, newer_than=written, **plain).state == READY

    @pytest.mark.parametrize(
        ("body", "why"),
        [(b"{", "is not JSON"), (b" " * 50_000_000, "has more than 8388608 bytes")],
        ids=["no JSON", "50 MB"],
    )
    def test_marker_that_cannot_be_read_is_named_and_is_no_job_s(
        self, tables: Tables, body: bytes, why: str
    ) -> None:
        tables.bucket.put("wh/flights/_SUCCESS", body)
        assert why in self.ask(tables, newer_than=0.0).explanation
        assert report_of_job(tables.table(), run_uuid(), None) is None

    def test_marker_of_a_native_table_does_not_count_without_its_heads(
        self, tables: Tables
    ) -> None:
        tables.load(1)
        result = self.ask(tables, committer="zero_rename", require_manifest=False)
        assert "of a table of zero_rename" in result.explanation

    def test_policy_that_no_marker_can_honour_is_refused(self, tables: Tables) -> None:
        with pytest.raises(InvalidInputError, match="does not say which committer"):
            self.ask(tables, require_manifest=False)
        with pytest.raises(InvalidInputError, match="have no versions"):
            self.ask(tables, committer="zero_rename", require_manifest=False, newer_than_version=1)


def test_plain_marker_counts_in_its_own_partition_and_not_at_the_root(tables: Tables) -> None:
    put_files(tables, 1, 1)
    put_files(tables, 2, 1)
    tables.bucket.put("wh/flights/_SUCCESS", b"")
    tables.bucket.put("wh/flights/day=1/_SUCCESS", b"")
    query = PartitionsQuery(tables.url(), ("day=1", "day=2"), require_manifest=False)
    explanation = query.ask(tables.table()).explanation
    assert explanation.startswith("1 of 2 partitions are missing: day=2 (the _SUCCESS marker at")


class TestDirectory:
    """Partitions below a directory, counted."""

    def ask(self, tables: Tables, least: int, **asked: Any) -> QueryResult:
        query = PartitionsQuery(tables.url(), (), min_partitions=least, **asked)
        query.check()
        assert table_query(json.loads(json.dumps(query.as_dict()))) == query
        return query.ask(tables.table())

    def test_enough_partitions_by_a_committer_are_ready(self, tables: Tables) -> None:
        keys = [
            f"wh/flights/month={month}/day={day}/part-0-{WRITE.format(1)}.parquet"
            for month in (1, 2)
            for day in (1, 2, 3)
        ]
        for key in keys:
            tables.bucket.put(key, b"rows")
        put_marker(tables, keys[:5], "2b1f")
        tables.bucket.put("wh/flights/month=2/day=4/part-0.parquet", b"a stray file")
        of_magic: Any = {"committer": "magic", "directory": "month=2"}
        result = self.ask(tables, 3, **of_magic)
        assert (result.state, (result.report or {})["files"]) == (READY, 3)
        short = self.ask(tables, 4, **of_magic).explanation
        assert short.startswith("3 of 4 partitions are below month=2. 1 of 4 partitions are")
        assert "month=2/day=4 (no commit)" in short
        assert self.ask(tables, 6, committer="magic").state == READY
        assert self.ask(tables, 1, committer="magic", directory="month=20").state == WAITING

    def test_polls_of_a_directory_take_four_requests_after_the_first(self, tables: Tables) -> None:
        for day in range(10, 41):
            put_files(tables, day, 2, day % 10)
            put_report(tables, AT + day, **{f"day_{day}": 2})
        table = tables.table()
        query = PartitionsQuery(tables.url(), (), min_partitions=32, committer="magic")
        query.ask(table)
        tables.bucket.counter.reset()
        assert query.ask(table).explanation == "31 of 32 partitions are below /."
        assert sum(tables.bucket.counter.counts().values()) == 4

    def test_emptied_partition_of_a_table_is_not_counted(self, tables: Tables) -> None:
        tables.load(1, 2)
        assert self.ask(tables, 2).state == READY
        tables.load(2, rows=0, mode="replace", replace_partitions=("day=2",))
        assert "day=2 (0 files)" in self.ask(tables, 2).explanation
        assert self.ask(tables, 1).state == READY
