"""Commits since the last look, on a real S3 server, with clocks passed in."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from support.airflow import Tables
from support.memory_s3 import let_pass
from zero_rename.committer import Owner
from zero_rename.committer.store.requests import Delete
from zero_rename.orchestration.new_commits import (
    LONGEST,
    OVERLAP,
    ListingCursor,
    LogCursor,
    new_commits,
    new_entries,
    present,
)
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

NOW = time.time()


def everything(_: str) -> bool:
    return True


def look(
    tables: Tables, cursor: ListingCursor, wanted: Any = everything, now: float = NOW
) -> tuple[list[dict[str, Any]], ListingCursor]:
    found = new_commits(tables.table(), cursor, now, wanted)
    return list(found.reports), ListingCursor.decode(found.cursor.encode())


def jobs(found: list[dict[str, Any]]) -> list[str]:
    return [report["job"] for report in found]


def test_each_commit_is_told_once(tables: Tables) -> None:
    before = tables.load(1)
    cursor = present(tables.table(), None, NOW)
    assert look(tables, cursor)[0] == []
    first, second = tables.load(1).job, tables.load(1, 2, rows=3, idempotency_key="d/r/t").job
    found, cursor = look(tables, cursor)
    assert jobs(found) == [first, second]
    assert before.job not in jobs(found)
    report = found[1]
    assert [(it["partition"], it["version"], it["rows"]) for it in report["partitions"]] == [
        ("day=1", 3, 3),
        ("day=2", 1, 3),
    ]
    assert found[0]["partition"] == "day=1"
    assert report["owner"]["host"]
    assert look(tables, cursor) == ([], cursor)


def test_a_table_that_is_not_there_yet(tables: Tables) -> None:
    cursor = present(tables.table(), None, NOW)
    assert look(tables, cursor)[0] == []
    job = tables.load(1).job
    assert jobs(look(tables, cursor)[0]) == [job]


def test_since_a_time(tables: Tables) -> None:
    committed = tables.load(1)
    at = committed.decided_at
    assert jobs(look(tables, present(tables.table(), at, NOW))[0]) == [committed.job]
    assert look(tables, present(tables.table(), at + 1, NOW))[0] == []


def test_a_commit_is_told_when_it_can_be_seen(tables: Tables) -> None:
    """However long its owner has been dead, and however many came after it."""
    tables.load(9)
    dead = tables.decided(1)
    cursor = present(tables.table(), None, NOW)
    after = tables.load(2).job
    found, cursor = look(tables, cursor)
    assert jobs(found) == [after]
    decision = tables.table().root.decision_key(dead)
    written = tables.bucket.client.head_object(Bucket=tables.bucket.name, Key=decision)
    assert cursor.at <= written["LastModified"].timestamp()
    tables.table().recover()
    found, cursor = look(tables, cursor)
    assert jobs(found) == [dead]
    assert look(tables, cursor)[0] == []


def test_damaged_decision_hides_no_other_commit_and_is_reported_once_restored(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended each poll, so that no commit after it was reported for a week."""
    cursor = present(tables.table(), None, NOW)
    first, second = tables.load(1).job, tables.load(2).job
    key = tables.table().root.decision_key(str(first))
    whole = tables.bucket.read(key)
    tables.bucket.put(key, b"{")
    found, cursor = look(tables, cursor)
    assert (jobs(found), key in caplog.text) == ([second], True)
    third = tables.load(3).job
    found, cursor = look(tables, cursor)
    assert jobs(found) == [third]
    tables.bucket.put(key, whole)
    found, cursor = look(tables, cursor)
    assert jobs(found) == [first]
    assert look(tables, cursor)[0] == []


def test_entries_that_were_cleaned_before_they_were_told_are_named(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """By another engine, while no trigger ran."""
    table = DeltaTable(tables.url(), tables.bucket.client)
    job = [_load(table) for _ in range(4)][-1]
    table.checkpoint_log()
    for version in (0, 1):
        assert new_entries(table, LogCursor(version), None, everything).reports
        table.driver.perform(Delete(f"{table.root.prefix}/_delta_log/{version:020}.json"))
    assert "were cleaned" not in caplog.text
    found = new_entries(table, LogCursor(0), None, everything)
    assert [it["job"] for it in found.reports][1:] == [job]
    assert "were cleaned from the log of s3://" in caplog.text


def _load(table: DeltaTable) -> str:
    with table.job(pa.schema([("n", pa.int64())])) as job:
        job.write(pa.table({"n": [1]}))
    return str(job.job)


def test_choice_of_rows_is_told(tables: Tables) -> None:
    """And what takes it back: it writes rows that were there, and the partition holds others."""
    tables.load(1)
    added = tables.load(1).job
    cursor = present(tables.table(), None, NOW)
    chosen = tables.table().keep_rows("day=1", undo=added, apply=True).job
    assert chosen is not None
    found, cursor = look(tables, cursor)
    assert jobs(found) == [chosen]
    back = tables.table().keep_rows("day=1", undo=chosen, apply=True).job
    assert jobs(look(tables, cursor)[0]) == [back]


def test_aborted_jobs_and_compactions_are_none(tables: Tables) -> None:
    tables.load(1)
    tables.load(1)
    cursor = present(tables.table(), None, NOW)
    tables.undecided(2)
    tables.table().recover(patience=0.0)
    tables.table().compact(apply=True)
    assert len(tables.table().files("day=1")) == 1
    found, after = look(tables, cursor)
    assert found == []
    assert len(after.seen) > len(cursor.seen)


def test_settlement_of_a_conflict_that_leaves_the_rows_is_none(tables: Tables) -> None:
    """It was reported as a commit, and started DAGs once more."""
    for dag in ("one", "another"):
        tables.load(1, mode="replace", idempotency_key=dag, owner=Owner(dag, "run", "load"))
    tables.table().conflicts()
    cursor = present(tables.table(), None, NOW)
    assert tables.table().resolve("newest_run", apply=True)[0].is_settled
    assert look(tables, cursor)[0] == []


def test_only_some_partitions(tables: Tables) -> None:
    cursor = present(tables.table(), None, NOW)
    tables.load(1)
    job = tables.load(1, 2).job
    found, _ = look(tables, cursor, lambda partition: partition == "day=2")
    assert jobs(found) == [job]
    assert [it["partition"] for it in found[0]["partitions"]] == ["day=2"]


@pytest.mark.parametrize("later", [-80_000, LONGEST, 40 * 86_400, 400 * 86_400])
def test_commit_is_found_however_long_no_poll_was_made(tables: Tables, later: float) -> None:
    """Ids sort by when jobs began, so that old ones need not be listed."""
    cursor = present(tables.table(), None, NOW)
    job = tables.load(1).job
    found, after = look(tables, cursor, now=NOW + later)
    assert jobs(found) == [job]
    assert look(tables, after, now=NOW + later)[0] == []


def test_since_a_time_long_ago(tables: Tables) -> None:
    job = tables.load(1).job
    now = NOW + 40 * 86_400
    assert jobs(look(tables, present(tables.table(), NOW - 60, now), now=now)[0]) == [job]


def test_cursor_of_a_quiet_table_moves_on(tables: Tables) -> None:
    """So that its polls list few decisions."""
    tables.load(1)
    old = ListingCursor(NOW - 100 * 86_400)
    _, cursor = look(tables, old, lambda _: False)
    assert cursor.at > NOW - 60
    undecided = tables.decided(2)
    let_pass(2 * 86_400)
    later = NOW + 2 * 86_400
    _, left = look(tables, old, lambda _: False, later)
    tables.table().recover()
    assert jobs(look(tables, left, now=later)[0]) == [undecided]


def test_a_decision_that_is_written_anew_is_no_commit(tables: Tables) -> None:
    """It is condensed, or a loss is accepted: right after it was told, or long after."""
    cursor = present(tables.table(), None, NOW)
    job = tables.load(1).job
    found, cursor = look(tables, cursor)
    assert jobs(found) == [job]
    key = tables.table().root.decision_key(job)
    tables.bucket.put(key, tables.bucket.read(key) + b"\n")
    assert look(tables, cursor)[0] == []
    assert look(tables, ListingCursor(at=time.time() + 2 * OVERLAP))[0] == []
