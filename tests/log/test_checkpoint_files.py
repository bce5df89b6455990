"""A checkpoint that is made of the columns of the one before and the entries since: it is the state
that the entries add up to."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.log_tables import LAYOUT, LOG, NOW, LogTable, base_of, day
from support.memory_store import MemoryDriver
from zero_rename.committer.errors import RecordDamagedError
from zero_rename.committer.store import requests as s
from zero_rename.log.actions import AddFile, CommitInfo, RemoveFile, write_actions
from zero_rename.log.change import LogChange
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.job_steps import commit_job
from zero_rename.log.opening import LogDepth
from zero_rename.log.replay import LogState
from zero_rename.log.restoring import plan_restore

WEEK = 7 * 86_400_000
DAYS = ("1", "2", None)


def checkpoint(table: LogTable, now: int = NOW) -> int:
    version = table.run(make_checkpoint(LAYOUT, now))
    assert version is not None
    return version


def state_by(table: LogTable, *, checkpoint_of: int | None) -> LogState:
    """The state by one checkpoint and the entries since, or by entries alone."""
    objects = table.store.objects
    hidden = [key for key in table.store.keys(LOG.prefix) if key.endswith((".crc", ".parquet"))]
    hidden = [
        key for key in hidden if checkpoint_of is None or key != LOG.checkpoint(checkpoint_of)
    ]
    kept = {key: objects.pop(key) for key in hidden}
    try:
        return table.open(LogDepth.WHOLE).state
    finally:
        objects.update(kept)


def facts(state: LogState) -> tuple[object, ...]:
    """Return what a checkpoint keeps of a state: all but whether a file has changed data."""
    files = {path: replace(it, changes_data=False) for path, it in state.live.items()}
    removed = {path: replace(it, changes_data=False) for path, it in (state.removed or {}).items()}
    return (
        *(state.version, state.protocol, state.metadata, dict(state.transactions)),
        *(dict(state.domains), files, removed),
    )


def added(table: LogTable, version: int) -> pa.StructArray:
    """The rows of live files of a checkpoint, each of which is there once."""
    body = table.store.objects[LOG.checkpoint(version)].body
    rows = pq.read_table(io.BytesIO(body)).column("add").combine_chunks().drop_null()
    paths = rows.field("path").to_pylist()
    assert len(paths) == len(set(paths))
    return rows


def assert_kept(table: LogTable) -> None:
    version = checkpoint(table)
    added(table, version)
    assert facts(state_by(table, checkpoint_of=version)) == facts(
        state_by(table, checkpoint_of=None)
    )


class RandomPast:
    """Random jobs of each kind that adds files, removes some or brings them back."""

    def __init__(self, seed: int) -> None:
        self.table, self.random = LogTable(), random.Random(seed)
        self.table.make()

    def step(self) -> None:
        self.random.choice([self.append, self.replace, self.rewrite, self.restore, self.foreign])()

    def append(self) -> None:
        days = self.random.choices(DAYS, k=self.random.randint(1, 3))
        self.table.append(*days, run=f"run {self.random.randrange(9)}-{self.random.random()}")

    def replace(self) -> None:
        chosen = self.random.choice(DAYS)
        self.table.append(chosen, replaced=day(chosen))

    def rewrite(self) -> None:
        live = sorted(self.table.live())
        gone = frozenset(self.random.sample(live, min(len(live), 2)))
        change = self.table.job("1", removes=gone, changes_data=False, operation="OPTIMIZE")
        self.table.commit(change)

    def restore(self) -> None:
        version = self.random.randint(0, self.table.open().state.version)
        plan = self.table.run(plan_restore(LAYOUT, f"r{self.random.random()}", version, NOW, {}))
        if plan.is_needed:
            self.table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))

    def foreign(self) -> None:
        """Another engine adds a live file again, which its statistics were renewed of."""
        state = self.table.open().state
        live = list(state.live.values())[:1]
        renewed = [replace(it, statistics=f'{{"numRecords":{state.version}}}') for it in live]
        body = write_actions([CommitInfo({"txnId": f"f{state.version}"}), *renewed])
        self.table.put(LOG.entry(state.version + 1).removeprefix(LOG.prefix), body)


@pytest.mark.parametrize("seed", range(20))
def test_state_of_a_checkpoint_is_that_of_the_entries(seed: int) -> None:
    past = RandomPast(seed)
    for _ in range(4):
        for _ in range(past.random.randint(0, 6)):
            past.step()
        assert_kept(past.table)


@pytest.fixture
def table() -> LogTable:
    """A table with a checkpoint, after which one of its files was removed and one was added."""
    table = LogTable()
    table.make()
    for it in ("1", "2", None):
        table.append(it, run=f"run {it}")
    checkpoint(table)
    table.replace("2")
    return table


def test_former_file_stands_in_the_next_checkpoint_until_it_is_removed(table: LogTable) -> None:
    files = state_by(table, checkpoint_of=checkpoint(table)).live
    assert sorted(it.values["day"] or "" for it in files.values()) == ["", "1", "2"]
    table.replace("1")
    assert_kept(table)


def test_file_that_comes_back_is_there_once(table: LogTable) -> None:
    plan = table.run(plan_restore(LAYOUT, "back", 3, NOW, {}))
    table.run(commit_job(LAYOUT, plan.opened, plan.change, NOW))
    assert len(set(added(table, checkpoint(table)).field("path").to_pylist())) == 3
    assert_kept(table)


def test_tombstones_stay_until_they_are_out_of_date(table: LogTable) -> None:
    assert len(state_by(table, checkpoint_of=checkpoint(table)).removed or {}) == 1
    table.append("1")
    assert not state_by(table, checkpoint_of=checkpoint(table, NOW + 2 * WEEK)).removed


def test_tombstone_that_purge_has_forgotten_is_left_out(table: LogTable) -> None:
    state = table.open(LogDepth.WHOLE).state
    assert state.removed
    forgotten = tuple(RemoveFile(it, NOW) for it in state.removed)
    change = LogChange("purge", base_of(state), forgets=forgotten, changes_data=False)
    table.commit(change)
    assert not state_by(table, checkpoint_of=checkpoint(table)).removed


def test_requests_are_those_of_one_opening_and_two_writes(table: LogTable) -> None:
    driver = MemoryDriver(table.store)
    driver.run(make_checkpoint(LAYOUT, NOW))
    sent = [type(it) for it in driver.requests]
    assert sent.count(s.Put) == 2
    assert sent.count(s.Get) <= 5


def viewed(kind: Any) -> Any:
    """A type with Arrow's views in place of its texts."""
    if kind == pa.string():
        return pa.string_view()
    if isinstance(kind, pa.StructType):
        return pa.struct([it.with_type(viewed(it.type)) for it in kind])
    if isinstance(kind, pa.MapType):
        return pa.map_(pa.string_view(), pa.string_view())
    return kind


class TestCheckpointOfAnotherEngine:
    """The one before was not written by this package."""

    def rewritten(self, table: LogTable, change: Callable[[pa.Table], pa.Table]) -> None:
        stored = table.store.objects[LOG.checkpoint(3)]
        out = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(stored.body))), out)
        table.put(LOG.checkpoint(3).removeprefix(LOG.prefix), out.getvalue())

    def with_members(self, rows: pa.Table, **members: pa.Array) -> pa.Table:
        adds = rows.column("add").combine_chunks()
        named = {it.name: adds.field(it.name) for it in adds.type} | members
        kept = {name: it for name, it in named.items() if it is not None}
        column = pa.StructArray.from_arrays(
            list(kept.values()), names=list(kept), mask=adds.is_null()
        )
        return rows.set_column(rows.schema.get_field_index("add"), "add", column)

    def test_members_that_are_not_kept_here_are_left_out(self, table: LogTable) -> None:
        def change(rows: pa.Table) -> pa.Table:
            parsed = pa.array([{"numRecords": 1}] * len(rows))
            return self.with_members(rows, stats_parsed=parsed)

        self.rewritten(table, change)
        assert_kept(table)

    def test_members_that_files_may_lack_are_none(self, table: LogTable) -> None:
        self.rewritten(table, lambda rows: self.with_members(rows, tags=None, stats=None))
        files = state_by(table, checkpoint_of=checkpoint(table)).live
        assert [len(it.tags) for it in files.values() if it.values["day"] != "2"] == [0, 0]

    def test_files_without_partition_values_have_none(self, table: LogTable) -> None:
        def change(rows: pa.Table) -> pa.Table:
            values = rows.column("add").combine_chunks().field("partitionValues").to_pylist()
            some = [None if it == [("day", None)] else it for it in values]
            kind = pa.map_(pa.string(), pa.string())
            return self.with_members(rows, partitionValues=pa.array(some, kind))

        self.rewritten(table, change)
        stored = added(table, checkpoint(table)).field("partitionValues").to_pylist()
        assert sorted(stored) == [[], [("day", "1")], [("day", "2")]]

    def test_parts_are_all_taken(self, table: LogTable) -> None:
        rows = pq.read_table(io.BytesIO(table.store.objects.pop(LOG.checkpoint(3)).body))
        for part in (1, 2):
            out, half = io.BytesIO(), len(rows) // 2
            pq.write_table(rows.slice(0, half) if part == 1 else rows.slice(half), out)
            table.put(f"{3:020d}.checkpoint.{part:010d}.{2:010d}.parquet", out.getvalue())
        assert_kept(table)

    def test_file_that_is_live_and_removed_is_either_in_the_next(self, table: LogTable) -> None:
        def change(rows: pa.Table) -> pa.Table:
            live = next(it for it in rows.column("add").to_pylist() if it)
            removed = {"path": live["path"], "deletionTimestamp": NOW}
            more = pa.Table.from_pylist([{"remove": removed}], rows.schema)
            return pa.concat_tables([rows, more])

        self.rewritten(table, change)
        version, seen = checkpoint(table), table.open(LogDepth.WHOLE).state
        state = state_by(table, checkpoint_of=version)
        body = table.store.objects[LOG.checkpoint(version)].body
        rows = pq.read_table(io.BytesIO(body), columns=["add", "remove"]).to_pylist()
        removed = {it["remove"]["path"] for it in rows if it["remove"]}
        assert not removed & {it["add"]["path"] for it in rows if it["add"]}
        assert (len(state.live), facts(state)) == (3, facts(seen))

    @pytest.mark.parametrize("order", [1, -1])
    def test_file_that_another_part_removes_is_live_whichever_is_first(
        self, table: LogTable, order: int
    ) -> None:
        rows = pq.read_table(io.BytesIO(table.store.objects.pop(LOG.checkpoint(3)).body))
        live = next(it for it in rows.column("add").to_pylist() if it)
        removed = {"remove": {"path": live["path"], "deletionTimestamp": NOW}}
        parts = [rows, pa.Table.from_pylist([removed], rows.schema)][::order]
        for number, part in enumerate(parts, 1):
            out = io.BytesIO()
            pq.write_table(part, out)
            table.put(f"{3:020d}.checkpoint.{number:010d}.{2:010d}.parquet", out.getvalue())
        for version in range(3):
            del table.store.objects[LOG.entry(version)]
        assert live["path"] in table.open(LogDepth.WHOLE).state.live
        assert live["path"] in added(table, checkpoint(table)).field("path").to_pylist()

    @pytest.mark.parametrize("member", ["path", "size", "modificationTime"])
    def test_damaged_one_is_left_for_the_entries(self, table: LogTable, member: str) -> None:
        def change(rows: pa.Table) -> pa.Table:
            kind = rows.schema.field("add").type.field(member).type
            return self.with_members(rows, **{member: pa.nulls(len(rows), kind)})

        self.rewritten(table, change)
        assert_kept(table)

    def test_texts_of_arrows_view_type_are_read(self, table: LogTable) -> None:
        def change(rows: pa.Table) -> pa.Table:
            return rows.cast(pa.schema([it.with_type(viewed(it.type)) for it in rows.schema]))

        wanted = facts(table.open(LogDepth.WHOLE).state)
        self.rewritten(table, change)
        for version in range(3):
            del table.store.objects[LOG.entry(version)]
        assert facts(table.open(LogDepth.WHOLE).state) == wanted
        again = checkpoint(table)
        assert facts(state_by(table, checkpoint_of=again)) == wanted

    @pytest.mark.parametrize("kind", ["add", "txn"])
    def test_checkpoint_with_texts_that_are_not_utf_8_is_named_as_damaged(
        self, table: LogTable, kind: str
    ) -> None:
        name = {"add": "path", "txn": "appId"}[kind]

        def change(rows: pa.Table) -> pa.Table:
            column = rows.column(kind).combine_chunks()
            texts = pa.array([b"\xff"] * len(rows), pa.binary())
            wrong = pa.Array.from_buffers(pa.string(), len(rows), texts.buffers())
            members = [wrong if it.name == name else column.field(it.name) for it in column.type]
            made = pa.StructArray.from_arrays(
                members, fields=list(column.type), mask=column.is_null()
            )
            return rows.set_column(rows.schema.get_field_index(kind), kind, made)

        self.rewritten(table, change)
        for version in range(3):
            del table.store.objects[LOG.entry(version)]
        for read in (checkpoint, lambda it: it.open(LogDepth.WHOLE)):
            with pytest.raises(RecordDamagedError, match="not UTF-8"):
                read(table)
        assert LOG.checkpoint(4) not in table.store.objects

    def test_damaged_one_whose_entries_were_cleaned_is_refused(self, table: LogTable) -> None:
        stored = table.store.objects[LOG.checkpoint(3)]
        self.rewritten(
            table, lambda rows: self.with_members(rows, size=pa.repeat(pa.scalar(-1), len(rows)))
        )
        for version in range(3):
            del table.store.objects[LOG.entry(version)]
        with pytest.raises(RecordDamagedError, match="size must not be negative"):
            checkpoint(table)
        assert LOG.checkpoint(4) not in table.store.objects
        table.store.objects[LOG.checkpoint(3)] = stored
        assert checkpoint(table) == 4


@pytest.mark.parametrize("damage", ["cut", "a transaction without version"])
def test_older_checkpoint_is_taken_where_the_newest_is_damaged(
    table: LogTable, damage: str
) -> None:
    newest = checkpoint(table)
    body = table.store.objects[LOG.checkpoint(newest)].body
    if damage == "cut":
        body = body[:500]
    else:
        rows, out = pq.read_table(io.BytesIO(body)), io.BytesIO()
        runs = rows.column("txn").combine_chunks()
        nameless = pa.StructArray.from_arrays(
            [runs.field("appId")], names=["appId"], mask=runs.is_null()
        )
        at = rows.schema.get_field_index("txn")
        pq.write_table(rows.set_column(at, "txn", nameless), out)
        body = out.getvalue()
    table.put(LOG.checkpoint(newest).removeprefix(LOG.prefix), body)
    table.append("1")
    for version in range(3):
        del table.store.objects[LOG.entry(version)]
    wanted = facts(table.open(LogDepth.WHOLE).state)
    again = checkpoint(table)
    assert again > newest
    assert len(added(table, again)) == 4
    assert facts(state_by(table, checkpoint_of=again)) == wanted


def test_table_that_is_not_there_has_no_checkpoint() -> None:
    assert LogTable().run(make_checkpoint(LAYOUT, NOW)) is None


def test_added_file_of_the_newest_entry_wins_over_its_former_row(table: LogTable) -> None:
    state = table.open().state
    former = next(it for it in state.live.values() if it.values["day"] == "1")
    renewed: Any = replace(former, statistics='{"numRecords":9}')
    body = write_actions([CommitInfo({"txnId": "other"}), renewed])
    table.put(LOG.entry(state.version + 1).removeprefix(LOG.prefix), body)
    found: AddFile = state_by(table, checkpoint_of=checkpoint(table)).live[former.path]
    assert found.statistics == renewed.statistics
