"""Two real processes and one partition."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import pytest
from torture.killed_races import kill_racers
from torture.loads import Load
from torture.servers import Store
from torture.writers import RacingWriter

from zero_rename import Table
from zero_rename.committer import OnConflict
from zero_rename.committer.commit.state.job_state import JobState

LOADS = [Load(number, "append", (1,), rows=3, rows_per_file=2) for number in (1, 2)]
#: The first finds the partition empty, the second one holding rows.
ROUNDS = 2


class TestWhereWritersMayRace:
    @pytest.fixture
    def table(self, atomic_store: Store) -> Table:
        client = atomic_store.client()
        bucket = f"races-{uuid.uuid4().hex}"
        client.create_bucket(Bucket=bucket)
        table = Table(f"s3://{bucket}/flights", client=client)
        with table.job(LOADS[0].table().schema, partition_by=("day",)):
            pass  # The table is made: what follows is about its partitions.
        return table

    def test_appends_both_commit(self, atomic_store: Store, table: Table) -> None:
        expected: Counter = Counter()
        for number in range(ROUNDS):
            loads = [replace(load, number=10 * number + load.number) for load in LOADS]
            assert race(atomic_store, table, loads) == ["committed", "committed"]
            for load in loads:
                expected.update(load.row_ids())
            assert rows(table) == expected

    def test_of_two_replaces_one_commits(self, atomic_store: Store, table: Table) -> None:
        for number in range(ROUNDS):
            loads = [
                replace(load, number=10 * number + load.number, mode="replace") for load in LOADS
            ]
            answers = race(atomic_store, table, loads)
            first, second = sorted(answers)
            assert first.startswith("CommitConflictError: Partitions changed"), answers
            assert second == "committed"
            assert rows(table) == Counter(loads[answers.index("committed")].row_ids())

    def test_last_wins_has_a_last_one(self, atomic_store: Store, table: Table) -> None:
        for number in range(ROUNDS):
            loads = [
                replace(load, number=10 * number + load.number, mode="replace") for load in LOADS
            ]
            answers = race(atomic_store, table, loads, on_conflict=OnConflict.LAST_WINS)
            assert answers == ["committed", "committed"]
            assert rows(table) in [Counter(load.row_ids()) for load in loads]


def test_one_of_two_is_killed(atomic_store: Store) -> None:
    """Whatever the victim was at, both fates are told apart, and no row is lost or doubled."""
    bucket = f"killed-races-{uuid.uuid4().hex}"
    atomic_store.client().create_bucket(Bucket=bucket)
    found = kill_racers(atomic_store, bucket, seed=1, races=4)
    assert found.fates.total() == 4
    assert found.good, found


def race(store: Store, table: Table, loads: list[Load], **spec: object) -> list[str]:
    """Two processes that open, then write and commit at the same time; nothing is left after."""
    writers = [RacingWriter(table.root.url, load, store.environment(), **spec) for load in loads]
    try:
        jobs = [writer.opened() for writer in writers]
        for writer in writers:
            writer.go_on()
        answers = [str(writer.answer()) for writer in writers]
    finally:
        for writer in writers:
            writer.close()
    states = [table.job_state(job) for job in jobs]
    committed = [state is JobState.COMMITTED for state in states]
    assert committed == [answer == "committed" for answer in answers], (states, answers)
    assert table.open_jobs() == []
    assert table.verify() == []
    return answers


def rows(table: Table) -> Counter:
    found = table.to_arrow(columns=["load", "row", "day"]).to_pylist()
    return Counter(tuple(row.values()) for row in found)


def test_where_they_may_not_the_second_is_refused(store: Store, url: str) -> None:
    """moto, and versitygw, check a condition and write in two steps. The second writer is told
    so, before anything is written, and the first is not disturbed."""
    first = RacingWriter(url, LOADS[0], store.environment())
    try:
        job = first.opened()
        second = RacingWriter(url, LOADS[1], store.environment())
        refused = second.opened()
        second.close()
        assert refused.startswith("StoreUnfitError: Another job is open on this table"), refused
        assert job in refused
        first.go_on()
        assert first.answer() == "committed"
    finally:
        first.close()
    assert rows(Table(url)) == Counter(LOADS[0].row_ids())
