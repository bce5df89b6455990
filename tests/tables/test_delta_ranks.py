"""Late runs of a Delta table under ``newest_run``: which rows stay, and what is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename.committer import CommitConflictError, RunRanks, SupersededRunError
from zero_rename.committer.errors import InvalidInputError, StoreUnreachableError
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Step
from zero_rename.tables import DeltaTable, delta_commit

pytestmark = [pytest.mark.memory_s3]
SCHEMA = pa.schema([("day", pa.string()), ("n", pa.int64())])


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    return DeltaTable(f"s3://{s3_bucket.name}/flights")


def load(
    table: DeltaTable,
    rank: object,
    *days: str,
    by: tuple[str, ...] = ("day",),
    beside: Callable[[], Any] | None = None,
    **policy: Any,
) -> Any:
    """Load the days by a run: a row with its rank in each.

    :param beside: what happens while the job is open.
    """
    given: dict[str, Any] = {
        "mode": "overwrite",
        "on_conflict": "newest_run",
        "run_rank": rank,
        **policy,
    }
    with table.job(SCHEMA, partition_by=by, **given) as job:
        n = rank if isinstance(rank, int) else 0
        job.write(pa.table({"day": list(days), "n": [n] * len(days)}, schema=SCHEMA))
        if beside is not None:
            beside()
    return job.committed


def rows(table: DeltaTable) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in table.scan().to_arrow().to_pylist():
        found.setdefault(row["day"], []).append(row["n"])
    return {day: sorted(found[day]) for day in sorted(found)}


def test_late_run_does_not_replace_rows_of_a_newer_one(table: DeltaTable) -> None:
    newer = load(table, 3, "a", "b")
    with pytest.raises(SupersededRunError, match=rf"day=a \(by {newer.job}\)") as caught:
        load(table, 2, "a", "c")
    assert caught.value.partitions == {"day=a": newer.job}
    assert caught.value.run_ranks
    assert rows(table) == {"a": [3], "b": [3]}
    assert table.open_jobs() == []
    load(table, 4, "a")
    assert rows(table) == {"a": [4], "b": [3]}


def test_late_run_leaves_out_what_newer_ones_have_loaded_where_it_says_so(
    table: DeltaTable,
) -> None:
    newer = load(table, 3, "a", "b")
    done = load(table, 2, "a", "b", "c", on_superseded="skip", idempotency_key="late")
    assert [it.partition for it in done.partitions] == ["day=c"]
    assert dict(done.superseded) == {"day=a": newer.job, "day=b": newer.job}
    assert (done.rows, done.left_out) == (1, 2)
    assert rows(table) == {"a": [3], "b": [3], "c": [2]}
    files = {file.key for file in table.state().files}
    stored = table.run(list_objects(f"{table.root.prefix}/data/")).keys
    assert set(stored) == files
    told = table.result(done.job)
    assert told is not None
    assert (told.superseded, told.left_out) == (done.superseded, 2)
    with pytest.raises(SupersededRunError) as caught:
        load(table, 1, "a", "b", on_superseded="skip")
    assert caught.value.skips


def test_job_is_committed_though_files_that_it_leaves_out_cannot_be_deleted(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(table, 3, "a")

    def refuse(keys: Iterable[str]) -> Step[None]:
        yield from ()
        if [*keys]:
            raise StoreUnreachableError("The store did not answer.")

    monkeypatch.setattr(delta_commit, "delete_files", refuse)
    done = load(table, 2, "a", "b", on_superseded="skip")
    assert [it.partition for it in done.partitions] == ["day=b"]
    assert rows(table) == {"a": [3], "b": [2]}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_run_that_loads_again_keeps_its_rows_where_it_leaves_a_partition_to_newer_ones(
    table: DeltaTable, is_compacted: bool
) -> None:
    load(table, 1, "a", "b", mode="append", idempotency_key="late")
    load(table, 2, "a", mode="append")
    if is_compacted:
        assert table.compact(apply=True)
    again: dict[str, Any] = {"idempotency_key": "late", "on_repeat": "replace_own"}
    done = load(table, 1, "a", "b", "c", on_superseded="skip", **again)
    assert [it.partition for it in done.partitions] == ["day=b", "day=c"]
    assert rows(table) == {"a": [1, 2], "b": [1], "c": [1]}


def test_run_whose_named_partitions_are_superseded_is_refused_as_it_opens(
    table: DeltaTable,
) -> None:
    load(table, 3, "a")
    for on_superseded in ("fail", "skip"):
        with pytest.raises(SupersededRunError, match="day=a"):
            load(
                table,
                2,
                replace_partitions=["day=a"],
                beside=lambda: pytest.fail("The job was opened."),
                on_superseded=on_superseded,
            )


def test_newer_run_that_commits_meanwhile_is_noticed_at_the_commit(table: DeltaTable) -> None:
    load(table, 1, "a")
    with pytest.raises(SupersededRunError):
        load(table, 2, "a", beside=lambda: load(table, 3, "a"))
    assert rows(table) == {"a": [3]}


def test_run_as_new_as_one_that_commits_meanwhile_is_a_conflict(table: DeltaTable) -> None:
    load(table, 1, "a")
    with pytest.raises(CommitConflictError, match="as new as this"):
        load(table, 2, "a", beside=lambda: load(table, 2, "a", "b"))
    assert rows(table) == {"a": [2], "b": [2]}
    load(table, 2, "a")


def test_older_run_that_commits_meanwhile_is_replaced(table: DeltaTable) -> None:
    load(table, 1, "a")
    load(table, 3, "a", beside=lambda: load(table, 2, "a"))
    assert rows(table) == {"a": [3]}


def test_what_was_read_is_bound_under_newest_run_too(table: DeltaTable) -> None:
    load(table, 1, "a")
    state = table.snapshot()
    load(table, 2, "a")
    with pytest.raises(CommitConflictError, match="was read"):
        load(table, 3, "a", base=state)


def test_late_append_gives_way_to_a_replace_alone(table: DeltaTable) -> None:
    load(table, 3, "a", mode="append")
    load(table, 1, "a", mode="append")
    load(table, 3, "b")
    with pytest.raises(SupersededRunError):
        load(table, 2, "b", mode="append")
    assert rows(table) == {"a": [1, 3], "b": [3]}


def test_rows_written_again_keep_their_rank_and_a_restore_brings_it_back(table: DeltaTable) -> None:
    load(table, 3, "a", mode="append")
    load(table, 2, "a", mode="append")
    assert table.compact(apply=True)[0].job is not None
    table.merge(pa.table({"day": ["a"], "n": [9]}), on=["n"])
    table.checkpoint_log()
    with pytest.raises(SupersededRunError):
        load(table, 2, "a")
    load(table, 1, "a", on_conflict="last_wins")
    load(table, 2, "a")
    table.restore(3, apply=True)
    with pytest.raises(SupersededRunError):
        load(table, 2, "a")
    table.delete([("n", ">", 0)])
    with pytest.raises(SupersededRunError):
        load(table, 2, "a")


def test_rank_of_a_job_that_nobody_ranks_is_its_opening(table: DeltaTable) -> None:
    load(table, None, "a")
    with pytest.raises(SupersededRunError):
        load(table, "2013-01-01", "a")
    with pytest.raises(InvalidInputError, match="a number and a time"):
        load(table, 7, "a")
    load(table, None, "a")


def test_table_without_partitions_is_one(table: DeltaTable) -> None:
    flat = {"by": (), "replace_table": True}
    load(table, 3, "a", **flat)
    with pytest.raises(SupersededRunError, match="the table"):
        load(table, 2, "b", **flat)
    load(table, 4, "c", **flat)
    assert rows(table) == {"c": [4]}


def test_whole_table_is_not_replaced_over_one_partition_of_a_newer_run(table: DeltaTable) -> None:
    load(table, 3, "a")
    load(table, 1, "b")
    with pytest.raises(SupersededRunError, match="day=a"):
        load(table, 2, "b", replace_table=True)
    assert rows(table) == {"a": [3], "b": [1]}


def test_look_before_a_run_names_what_newer_ones_have_loaded(table: DeltaTable) -> None:
    ranks = RunRanks.of(2)
    assert table.newer_runs(["day=a"], ranks, True) == {}
    newer = load(table, 3, "a")
    load(table, 1, "b")
    found = table.newer_runs(["day=a", "day=b", "day=c"], ranks, True)
    assert {name: it.job for name, it in found.items()} == {"day=a": newer.job}
    assert table.newer_runs(["day=a"], RunRanks.of(4), True) == {}
