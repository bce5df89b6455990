"""A table's state by checksum file, checkpoint and entries; and logs that nobody should trust."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable, day
from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer.errors import (
    InvalidInputError,
    RecordDamagedError,
    SnapshotGoneError,
    TableMismatchError,
)
from zero_rename.committer.store import requests as s
from zero_rename.log import entries
from zero_rename.log.actions import AddFile, CommitInfo, LogProtocol, read_actions, write_actions
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.job_steps import commit_job
from zero_rename.log.opening import LogDepth, OpenedLog, open_log, read_files


@pytest.fixture
def table() -> LogTable:
    """A table of ten files that went one by one, with a run and a checkpoint in between."""
    table = LogTable()
    table.make()
    for number in range(5):
        table.append("1", None, run=f"run{number}")
    table.run(make_checkpoint(LAYOUT, NOW))
    table.replace("1")
    table.append("2")
    return table


def facts(opened: OpenedLog) -> tuple[object, ...]:
    state = opened.state
    return (state.version, state.protocol, state.metadata, dict(state.transactions))


def test_actions_survive_writing_and_reading(table: LogTable) -> None:
    entry = table.open().state
    for version in table.versions():
        body = table.store.objects[LOG.entry(version)].body
        assert write_actions(read_actions(body, "key")) == body
    assert entry.version == 7


@pytest.mark.parametrize("depth", LogDepth)
def test_checksum_checkpoint_and_entries_tell_the_same(table: LogTable, depth: LogDepth) -> None:
    seen = [table.open(depth)]
    for version in table.versions():
        table.store.objects.pop(LOG.checksum(version), None)
    seen.append(table.open(depth))
    del table.store.objects[LOG.checkpoint(5)]
    seen.append(table.open(depth))
    assert facts(seen[0]) == facts(seen[1]) == facts(seen[2])
    files = [it.state.files for it in seen if it.state.files is not None]
    live = [{path: (it.values, it.size, it.tags) for path, it in f.items()} for f in files]
    assert all(it == live[0] for it in live)
    assert len(files) >= 2
    whole = [it.state.removed for it in seen if it.state.removed is not None]
    assert all(len(it) == 5 for it in whole)
    assert len(whole) >= 1


def test_former_version_is_what_it_was(table: LogTable) -> None:
    assert [len(table.open(version=it).state.live) for it in (0, 3, 5, 6, 7)] == [0, 6, 10, 6, 7]
    with pytest.raises(InvalidInputError, match="no version 8"):
        table.open(version=8)


def test_former_version_whose_entries_were_cleaned_is_gone(table: LogTable) -> None:
    for version in range(5):
        del table.store.objects[LOG.entry(version)]
    assert table.open().state.version == 7
    with pytest.raises(SnapshotGoneError):
        table.open(version=3)


def test_former_version_after_the_oldest_entry_that_was_left_is_gone(table: LogTable) -> None:
    """Engines clean by age alone, so some entries before a checkpoint are left without one."""
    for version in range(3):
        del table.store.objects[LOG.entry(version)]
    assert table.open(version=5).state.version == 5
    with pytest.raises(SnapshotGoneError, match="Version 4 is no longer in the log"):
        table.open(LogDepth.WHOLE, version=4)


@pytest.mark.parametrize("missing", [(1,), (0, 1, 3), (6,)])
def test_hole_among_the_entries_before_a_version_is_damage(
    table: LogTable, missing: tuple[int, ...]
) -> None:
    for version in missing:
        del table.store.objects[LOG.entry(version)]
    with pytest.raises(RecordDamagedError, match=r"Entry \d of the log is missing"):
        table.open(LogDepth.WHOLE, version=7 if 6 in missing else 4)


class TestBudget:
    def requests(self, table: LogTable, depth: LogDepth) -> int:
        driver = MemoryDriver(table.store)
        LogTable(table.store, driver).open(depth)
        return len(driver.requests)

    def test_opening_for_an_append_takes_three_requests_at_any_age(self) -> None:
        table = LogTable()
        table.make()
        for number in range(25):
            table.append("1", run=f"r{number}")
            if number % 10 == 9:
                table.run(make_checkpoint(LAYOUT, NOW))
            assert self.requests(table, LogDepth.BLIND) == 3

    def test_opening_with_files_takes_three_requests(self, table: LogTable) -> None:
        assert self.requests(table, LogDepth.FILES) == 3

    def test_opening_of_a_log_of_another_engine_reads_its_entry_too(self, table: LogTable) -> None:
        key = LOG.checksum(7)
        members = json.loads(table.store.objects[key].body)
        del members["zeroRename"]
        table.put(key.removeprefix(LOG.prefix), json.dumps(members).encode())
        assert self.requests(table, LogDepth.BLIND) == 4


@pytest.mark.parametrize("lacks", ["checksum file", "entry"])
@pytest.mark.parametrize("depth", LogDepth)
def test_checksum_file_or_entry_without_a_transaction_reports_no_overwritten_entry(
    table: LogTable, depth: LogDepth, lacks: str
) -> None:
    """Delta's protocol makes ``txnId`` optional: an engine built on its kernel may leave it out."""
    wanted = facts(table.open(depth))
    key = LOG.checksum(7)
    members = json.loads(table.store.objects[key].body)
    del members["zeroRename"]
    if lacks == "checksum file":
        del members["txnId"]
    else:
        lines = table.store.objects[LOG.entry(7)].body.splitlines(keepends=True)
        assert b"commitInfo" in lines[0]
        table.put("00000000000000000007.json", b"".join(lines[1:]))
    table.put(key.removeprefix(LOG.prefix), json.dumps(members).encode())
    opened = table.open(depth)
    assert (opened.overwritten, facts(opened)) == ((), wanted)
    assert table.run(make_checkpoint(LAYOUT, NOW)) == 7


class TestOpeningAgain:
    """By what an opening has shown before."""

    def again(
        self, table: LogTable, before: OpenedLog, depth: LogDepth = LogDepth.BLIND
    ) -> tuple[OpenedLog, list[type]]:
        driver = MemoryDriver(table.store)
        opened = driver.run(open_log(LAYOUT, depth, before=before.state))
        assert facts(opened) == facts(table.open(depth))
        assert (opened.written_at, opened.overwritten) == (table.open(depth).written_at, ())
        return opened, [type(it) for it in driver.requests]

    def test_log_that_is_as_it_was_takes_a_listing(self, table: LogTable) -> None:
        _, sent = self.again(table, table.open(LogDepth.BLIND))
        assert sent == [s.ListObjects]

    def test_entries_since_are_read_alone(self, table: LogTable) -> None:
        before = table.open(LogDepth.FILES)
        table.append("1", run="later")
        table.replace("2")
        opened, sent = self.again(table, before, LogDepth.FILES)
        assert sent == [s.ListObjects, s.Get, s.Get]
        assert set(opened.state.live) == table.live()

    def test_state_without_what_is_asked_for_is_read_anew(self, table: LogTable) -> None:
        before = table.open(LogDepth.FILES)
        opened, sent = self.again(table, before, LogDepth.WHOLE)
        assert opened.state.removed is not None
        assert len(sent) > 3

    def test_newer_checkpoint_makes_all_be_read_anew(self, table: LogTable) -> None:
        before = table.open(LogDepth.BLIND)
        table.run(make_checkpoint(LAYOUT, NOW))
        opened, sent = self.again(table, before)
        assert (opened.state.checkpoint, len(sent)) == (opened.state.version, 4)

    def test_table_that_was_made_anew_is_read_anew(self, table: LogTable) -> None:
        before = table.open(LogDepth.BLIND)
        table.store.objects.clear()
        table.make()
        for number in range(12):
            table.append("1", job=f"other{number}")
        self.again(table, before)

    def test_table_that_is_gone_is_no_table(self, table: LogTable) -> None:
        before = table.open(LogDepth.BLIND)
        table.store.objects.clear()
        opened, _ = self.again(table, before)
        assert not opened.state.exists

    def test_log_that_others_have_cleaned_is_read_anew(self, table: LogTable) -> None:
        before = table.open(LogDepth.BLIND)
        table.run(make_checkpoint(LAYOUT, NOW))
        for key in table.store.keys(LOG.prefix):
            if key.endswith((".json", ".crc")):
                del table.store.objects[key]
        opened, _ = self.again(table, before)
        assert opened.state.version == before.state.version

    def test_files_are_read_though_the_checkpoint_is_gone(self, table: LogTable) -> None:
        """All entries are there: the state needs no checkpoint."""
        table.store.objects.pop(LOG.checksum(7))
        opened = table.open(LogDepth.BLIND)
        before = replace(opened, state=replace(opened.state, files=None, removed=None))
        del table.store.objects[LOG.checkpoint(5)]
        opened, _ = self.again(table, before)
        found = table.run(read_files(LAYOUT, opened, lambda _: True))
        assert set(found.state.live) == table.live()

    @pytest.mark.parametrize("version", [6, 7])
    def test_entry_that_was_written_over_is_reported(self, table: LogTable, version: int) -> None:
        before = table.open(LogDepth.FILES)
        body = write_actions([CommitInfo({"txnId": "x"})])
        table.put(LOG.entry(version).removeprefix(LOG.prefix), body)
        opened = table.run(open_log(LAYOUT, LogDepth.BLIND, before=before.state))
        assert opened.overwritten == (version,)
        assert facts(opened) == facts(table.open(LogDepth.BLIND))

    def test_hole_is_refused(self, table: LogTable) -> None:
        before = table.open(LogDepth.BLIND)
        table.put("00000000000000000009.json", write_actions([CommitInfo({"txnId": "x"})]))
        with pytest.raises(RecordDamagedError, match="Entry 8 of the log is missing"):
            table.run(open_log(LAYOUT, LogDepth.BLIND, before=before.state))


class TestBadInput:
    def test_hole_is_refused(self, table: LogTable) -> None:
        table.put("00000000000000000009.json", write_actions([CommitInfo({"txnId": "x"})]))
        with pytest.raises(RecordDamagedError, match="Entry 8 of the log is missing"):
            table.open()

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (b"no json", "line 1"),
            (b"[]", "line 1"),
            (b'{"add": 1}', "add"),
            (b'{"add": {"path": 1, "size": 7}}', "add.path"),
            (b'{"add": {"path": "a", "size": "7"}}', "add.size"),
            (b'{"add": {"path": "a", "size": -7, "modificationTime": 1}}', "add.size"),
            (b'{"add": {"path": "a", "size": true}}', "add.size"),
            (b'{"add": {"path": "a", "partitionValues": {"day": 1}, "size": 7}}', "add.partition"),
            (b'{"remove": {}}', "remove.path"),
            (b'{"protocol": {"minReaderVersion": 1}}', "protocol.minWriterVersion"),
            (b'{"txn": {"appId": "a"}}', "txn.version"),
            (b'{"add": {"path": "a"}, "txn": {}}', "line 1"),
            (b"[" * 100_000, "line 1"),
            (b'{"add": {"path": "a", "size": 1}}', "add.modificationTime"),
        ],
    )
    def test_entry_that_cannot_be_read_is_refused_by_object_and_field(
        self, table: LogTable, body: bytes, field: str
    ) -> None:
        table.put("00000000000000000008.json", body)
        with pytest.raises(RecordDamagedError) as caught:
            table.open()
        assert caught.value.key == LOG.entry(8)
        assert caught.value.field.startswith(field)

    @pytest.mark.parametrize("where", ["entry", "checksum", "checkpoint"])
    def test_live_file_with_a_deletion_vector_refuses_the_table_by_the_feature(
        self, table: LogTable, where: str
    ) -> None:
        features = frozenset({"deletionVectors"})
        vector = {"storageType": "u", "pathOrInlineDv": "a", "sizeInBytes": 1, "cardinality": 1}
        add = {"path": "a", "size": 1, "modificationTime": 1, "partitionValues": {"day": "1"}}
        entry = write_actions([CommitInfo({"txnId": "it"}), LogProtocol(3, 7, features, features)])
        line = json.dumps({"add": {**add, "deletionVector": vector}}).encode()
        table.put(f"{8:020d}.json", entry + line)
        if where == "checksum":
            members = json.loads(table.store.objects[LOG.checksum(7)].body)
            members |= {"txnId": "it", "allFiles": [{**add, "deletionVector": vector}]}
            del members["zeroRename"]
            table.put(f"{8:020d}.crc", json.dumps(members).encode())
        elif where == "checkpoint":
            rows = {"add": [{"path": "a", "size": 1, "deletionVector": vector}]}
            sink = io.BytesIO()
            pq.write_table(pa.table(rows), sink)
            table.put(f"{8:020d}.checkpoint.parquet", sink.getvalue())
        for depth in LogDepth:
            with pytest.raises(TableMismatchError, match=r"here: deletionVectors"):
                table.open(depth)

    def test_entry_that_is_too_big_is_not_read(
        self, table: LogTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(entries, "ENTRY_BYTES", 10_000)
        table.put("00000000000000000008.json", b" " * 10_001)
        with pytest.raises(RecordDamagedError, match="10,001 bytes"):
            table.open()

    @pytest.mark.parametrize(
        ("protocol", "name"),
        [
            (LogProtocol(3, 7, frozenset({"deletionVectors"}), frozenset()), "deletionVectors"),
            (LogProtocol(3, 7, frozenset({"fromTomorrow"}), frozenset()), "fromTomorrow"),
            (LogProtocol(4, 8), "reader version 4"),
        ],
    )
    def test_unknown_reader_feature_refuses_the_table_by_its_name(
        self, table: LogTable, protocol: LogProtocol, name: str
    ) -> None:
        table.put("00000000000000000008.json", write_actions([protocol]))
        with pytest.raises(TableMismatchError, match=name):
            table.open()

    def test_unknown_writer_feature_refuses_writing_alone(self, table: LogTable) -> None:
        protocol = LogProtocol(1, 7, None, frozenset({"appendOnly", "rowTracking"}))
        table.put("00000000000000000008.json", write_actions([protocol]))
        assert len(table.live()) == 7
        with pytest.raises(TableMismatchError, match="rowTracking"):
            table.append("1")

    def test_property_that_binds_writers_refuses_writing(self) -> None:
        table = LogTable()
        table.make(replace(COLUMNS, properties={"delta.constraints.positive": "value > 0"}))
        with pytest.raises(TableMismatchError, match="constraints"):
            table.append("1")

    def test_append_only_table_takes_appends_and_no_replace(self) -> None:
        table = LogTable()
        table.make(replace(COLUMNS, properties={"delta.appendOnly": "true"}))
        table.append("1")
        with pytest.raises(TableMismatchError, match="appendOnly"):
            table.replace("1")

    @pytest.mark.parametrize("keep", [0, 4, 500])
    def test_cut_checkpoint_falls_back_to_the_entries(self, table: LogTable, keep: int) -> None:
        wanted = table.live()
        key = LOG.checkpoint(5)
        table.put(key.removeprefix(LOG.prefix), table.store.objects[key].body[:keep])
        assert set(table.open(LogDepth.WHOLE).state.live) == wanted

    def test_cut_checkpoint_without_its_entries_is_refused(self, table: LogTable) -> None:
        key = LOG.checkpoint(5)
        table.put(key.removeprefix(LOG.prefix), table.store.objects[key].body[:500])
        for version in range(5):
            del table.store.objects[LOG.entry(version)]
        with pytest.raises(RecordDamagedError, match="not whole Parquet"):
            table.open(LogDepth.WHOLE)

    @pytest.mark.parametrize(
        "hint", [b'{"version": 900}', b"", b"{", b'{"version": -1}', b'{"version": "5"}', b"[]"]
    )
    def test_wrong_hint_changes_no_answer(self, table: LogTable, hint: bytes) -> None:
        wanted = facts(table.open(LogDepth.WHOLE))
        table.put("_last_checkpoint", hint)
        assert facts(table.open(LogDepth.WHOLE)) == wanted

    @pytest.mark.parametrize(
        "changed",
        [
            {"numFiles": None},
            {"numFiles": float("inf")},
            {"numFiles": -1},
            {"tableSizeBytes": [1]},
            {"zeroRename": {"checkpoint": 5}},
            {"metadata": []},
        ],
    )
    @pytest.mark.parametrize("depth", [LogDepth.BLIND, LogDepth.FILES])
    def test_damaged_checksum_file_changes_no_answer(
        self, table: LogTable, depth: LogDepth, changed: dict[str, object]
    ) -> None:
        wanted = facts(table.open(depth))
        key = LOG.checksum(7)
        members = json.loads(table.store.objects[key].body) | changed
        members = {name: it for name, it in members.items() if it is not None}
        table.put(key.removeprefix(LOG.prefix), json.dumps(members).encode())
        assert facts(table.open(depth)) == wanted

    def test_two_bodies_for_one_number_are_reported(self, table: LogTable) -> None:
        lost = AddFile("data/spark/0.parquet", {"day": "1"}, 7, NOW)
        table.put("00000000000000000007.json", write_actions([CommitInfo({}), lost]))
        opened = table.open(LogDepth.BLIND)
        assert opened.overwritten == (7,)
        assert lost.path in table.live()

    def test_entry_written_over_under_later_ones_is_reported(self, table: LogTable) -> None:
        table.put("00000000000000000006.json", write_actions([CommitInfo({"txnId": "spark"})]))
        assert table.open(LogDepth.BLIND).overwritten == (6,)
        assert len(table.live()) == 11

    def test_refused_checksum_file_of_our_own_number_looks_at_the_entry(self) -> None:
        store = MemoryStore()
        table = LogTable(store)
        table.make()
        job = table.job("1")

        def stock_writer(request: object, carry_out: object) -> object:
            answer = carry_out(request)  # type: ignore[operator]
            if isinstance(request, s.Put) and request.key == LOG.entry(1):
                table.put("00000000000000000001.json", write_actions([CommitInfo({})]))
                table.put("00000000000000000001.crc", b"{}")
            return answer

        racing = LogTable(store, MemoryDriver(store, stock_writer))
        done = racing.run(commit_job(LAYOUT, table.open(), job, NOW))
        assert done.overwritten == (1,)

    def test_commit_after_an_overwritten_entry_says_so(self, table: LogTable) -> None:
        table.put("00000000000000000006.json", write_actions([CommitInfo({"txnId": "spark"})]))
        assert table.append("1").overwritten == (6,)

    @pytest.mark.parametrize(
        "path",
        [
            "../other/a.parquet",
            "data/../../a.parquet",
            "data/%2e%2e/%2e%2e/a.parquet",
            "/etc/passwd",
            "file:///etc/passwd",
            "s3://elsewhere/flights/a.parquet",
            "s3://bucket/other/a.parquet",
            "s3a://bucket/flights/../a.parquet",
            "data//a.parquet",
            "",
        ],
    )
    def test_path_that_leaves_the_table_is_refused(self, path: str) -> None:
        with pytest.raises(RecordDamagedError, match="in the log"):
            LAYOUT.root.key_of(path)

    def test_path_of_the_table_is_its_key(self) -> None:
        assert LAYOUT.root.key_of("data/a%20b.parquet") == "flights/data/a b.parquet"
        assert LAYOUT.root.key_of("s3a://bucket/flights/a.parquet") == "flights/a.parquet"
        assert LAYOUT.root.path_of("flights/data/ü %.parquet") == "data/%C3%BC%20%25.parquet"


def test_checkpoint_of_newest_transactions_alone_is_never_made() -> None:
    table = LogTable()
    table.make()
    entry = table.append("1", run="old").entry
    from zero_rename.log import checksum

    opened = table.open(LogDepth.BLIND).state
    few = replace(opened, all_transactions=False)
    body = checksum.write_checksum(few, entry)
    assert body is not None
    assert "setTransactions" not in json.loads(body)
    from zero_rename.log.checkpoint import write_checkpoint

    with pytest.raises(ValueError, match="whole state"):
        write_checkpoint(replace(few, removed={}), 0, [])


def test_empty_partition_value_is_null(table: LogTable) -> None:
    table.append("")
    table.commit(table.job(replaced=day(None)))
    assert not [it for it in table.open().state.live.values() if not it.values["day"]]


class TestChosenPartitions:
    """A table of more files than a checksum file names."""

    @pytest.fixture
    def large(self) -> LogTable:
        table = LogTable()
        table.make()
        table.append(*(str(number % 3) for number in range(900)))
        table.run(make_checkpoint(LAYOUT, NOW))
        table.append("1", "2")
        table.replace("2")
        return table

    def chosen(self, table: LogTable, opened: OpenedLog, *days: str) -> list[str]:
        """The paths of the files of these days, read into a state that was opened without any."""
        wanted = day(*days)
        state = table.run(read_files(LAYOUT, opened, lambda it: it in wanted.partitions)).state
        assert state.version == opened.state.version
        return sorted(it.path for it in state.live.values() if it.values["day"] in days)

    @pytest.mark.parametrize("days", [("1",), ("2",), ("0", "1", "2"), ("7",)])
    def test_files_are_those_that_the_whole_state_has(
        self, large: LogTable, days: tuple[str, ...]
    ) -> None:
        opened = large.open(LogDepth.BLIND)
        assert opened.state.files is None
        every = large.open().state.live
        expected = sorted(it.path for it in every.values() if it.values["day"] in days)
        assert self.chosen(large, opened, *days) == expected

    def test_checkpoint_and_entries_since_are_read_and_nothing_is_listed(
        self, large: LogTable
    ) -> None:
        opened = large.open(LogDepth.BLIND)
        driver = MemoryDriver(large.store)
        driver.run(read_files(LAYOUT, opened, lambda it: it == ("1",)))
        assert [type(it) for it in driver.requests] == [s.Get] * 3

    def test_state_that_has_its_files_is_left_as_it_is(self, table: LogTable) -> None:
        opened, driver = table.open(LogDepth.BLIND), MemoryDriver(table.store)
        assert driver.run(read_files(LAYOUT, opened, lambda it: False)) is opened
        assert not driver.requests

    def test_log_that_was_cleaned_since_is_read_anew(self, large: LogTable) -> None:
        opened = large.open(LogDepth.BLIND)
        expected = self.chosen(large, opened, "1")
        large.run(make_checkpoint(LAYOUT, NOW))
        del large.store.objects[LOG.checkpoint(1)]
        for version in range(3):
            del large.store.objects[LOG.entry(version)]
        assert self.chosen(large, opened, "1") == expected

    def test_version_that_was_cleaned_since_is_told_as_gone(self, large: LogTable) -> None:
        opened = large.open(LogDepth.BLIND)
        large.append("1")
        large.run(make_checkpoint(LAYOUT, NOW))
        del large.store.objects[LOG.checkpoint(1)]
        for version in range(4):
            del large.store.objects[LOG.entry(version)]
        with pytest.raises(SnapshotGoneError):
            self.chosen(large, opened, "1")

    def test_cut_checkpoint_falls_back_to_the_entries(self, large: LogTable) -> None:
        expected = self.chosen(large, large.open(LogDepth.BLIND), "1")
        large.put(LOG.checkpoint(1).removeprefix(LOG.prefix), b"PAR1")
        assert self.chosen(large, large.open(LogDepth.BLIND), "1") == expected


def test_checkpoint_that_is_there_stays_as_old_as_it_is(table: LogTable) -> None:
    version = table.run(make_checkpoint(LAYOUT, NOW))
    before = dict(table.store.objects)
    assert table.run(make_checkpoint(LAYOUT, NOW)) == version
    assert table.store.objects == before
