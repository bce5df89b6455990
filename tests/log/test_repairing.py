"""Entries that a writer without conditions has written over, and their repair."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.faults import beside, on
from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable, day, file_of
from support.memory_store import MemoryDriver
from zero_rename.committer.store import requests as s
from zero_rename.log.actions import AddFile, write_actions
from zero_rename.log.change import RESTORE, LogBase
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.committing import EntryCommitted
from zero_rename.log.kept_entries import find_overwritten
from zero_rename.log.opening import LogDepth, read_entries
from zero_rename.log.purging import purge_log
from zero_rename.log.repairing import RepairedEntry, RepairOutcome, repair_log

MINUTE = 60_000


@pytest.fixture
def table() -> LogTable:
    table = LogTable()
    table.make()
    return table


def foreign(*adds: AddFile, removes: tuple[str, ...] = (), **info: Any) -> bytes:
    """An entry of another engine."""
    lines = [{"commitInfo": {"operation": "WRITE", "engineInfo": "Spark", "txnId": "s", **info}}]
    removed = [
        {"remove": {"path": it, "deletionTimestamp": NOW, "partitionValues": {"day": "1"}}}
        for it in removes
    ]
    body = "".join(f"{json.dumps(it)}\n" for it in [*lines, *removed])
    return body.encode() + write_actions(adds)


SPARK = file_of("spark")


def write_over(table: LogTable, version: int, body: bytes | None = None) -> None:
    table.put(f"{version:020d}.json", body or foreign(SPARK))


def then(table: LogTable, body: bytes) -> None:
    """Let another engine commit."""
    table.put(f"{table.versions()[-1] + 1:020d}.json", body)


def clean_around(table: LogTable, *versions: int) -> None:
    """Write over a job's entry, version 2, and clean entries of a log that has a checkpoint."""
    table.append("1")
    table.append("1", job="ours")
    write_over(table, 2)
    table.append("1")
    table.run(make_checkpoint(LAYOUT, NOW))
    for version in versions:
        for key in (LOG.entry(version), LOG.checksum(version)):
            table.store.objects.pop(key, None)


def repair(table: LogTable, apply: bool = True, accept_loss: bool = False) -> list[RepairedEntry]:
    return table.run(repair_log(LAYOUT, NOW + MINUTE, apply, accept_loss, "fencer"))


def only(table: LogTable, apply: bool = True) -> RepairedEntry:
    (found,) = repair(table, apply)
    return found


def jobs_live(table: LogTable) -> set[str]:
    return {path.split("/")[1] for path in table.live()}


class TestAppend:
    def test_append_that_was_written_over_is_committed_once(self, table: LogTable) -> None:
        done = table.append("1", job="ours")
        write_over(table, done.entry.version)
        assert jobs_live(table) == {"spark"}
        planned = only(table, apply=False)
        assert (planned.outcome, planned.by) == (RepairOutcome.WOULD_COMMIT, "Spark")
        assert jobs_live(table) == {"spark"}
        found = only(table)
        assert (found.outcome, found.committed) == (RepairOutcome.COMMITTED, 2)
        assert jobs_live(table) == {"spark", "ours"}
        again = only(table)
        assert (again.outcome, again.committed) == (RepairOutcome.REPEATED, 2)
        assert table.versions() == [0, 1, 2]

    def test_repair_finds_it_after_another_job_has_committed(self, table: LogTable) -> None:
        done = table.append("1", job="ours")
        write_over(table, done.entry.version)
        table.append("1", job="next")
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"spark", "ours", "next"}
        assert table.open(LogDepth.WHOLE).overwritten == ()

    def test_repaired_file_keeps_statistics_and_rows_of_its_job(self, table: LogTable) -> None:
        change = table.job("1", job="ours")
        add = replace(change.adds[0], statistics='{"numRecords":3}')
        table.commit(replace(change, adds=(add,)))
        write_over(table, 1)
        repair(table)
        live = table.open().state.live[add.path]
        assert (live.statistics, live.tags) == ('{"numRecords":3}', {"job": "ours", "v": "2"})

    def test_repaired_entry_tells_what_its_job_has_left_out(self, table: LogTable) -> None:
        left_out = {"narrows": "first", "superseded": {"day=2": "newer"}, "leftOut": 3}
        table.commit(replace(table.job("1", job="ours"), told=left_out))
        write_over(table, 1)
        assert only(table).committed == 2
        (entry,) = table.run(read_entries(LOG, [2]))
        assert entry is not None
        assert left_out.items() <= entry.ours.items()

    def test_run_counts_as_done_again_after_the_repair(self, table: LogTable) -> None:
        table.append("1", job="ours", run="day-1")
        write_over(table, 1)
        repair(table)
        again = table.commit(table.job("1", run="day-1"))
        assert not isinstance(again, EntryCommitted)
        assert again.version == 2

    def test_run_that_has_loaded_again_is_not_committed_twice(self, table: LogTable) -> None:
        table.append("1", job="ours", run="day-1")
        write_over(table, 1)
        table.append("1", job="again", run="day-1")
        assert only(table).outcome is RepairOutcome.REPEATED
        assert jobs_live(table) == {"spark", "again"}

    def test_run_of_a_table_that_drops_transactions_is_repaired_all_the_same(self) -> None:
        table = LogTable()
        dropping = {**COLUMNS.properties, "delta.setTransactionRetentionDuration": "1 day"}
        table.make(replace(COLUMNS, properties=dropping))
        table.append("1", job="ours", run="day-1")
        write_over(table, 1)
        assert only(table, apply=False).outcome is RepairOutcome.WOULD_COMMIT
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"spark", "ours"}
        assert only(table).outcome is RepairOutcome.REPEATED
        assert not isinstance(table.commit(table.job("1", run="day-1")), EntryCommitted)

    def test_files_that_are_gone_leave_the_job(self, table: LogTable) -> None:
        table.append("1", job="ours")
        write_over(table, 1)
        table.run(s.Delete(f"{LAYOUT.data}ours/0.parquet"))
        found = only(table)
        assert found.outcome is RepairOutcome.LEFT
        assert "1 file of 1 that it had added are gone" in found.reason

    def test_files_older_than_the_retention_leave_the_job(self, table: LogTable) -> None:
        table.append("1", job="ours")
        write_over(table, 1)
        late = NOW + 8 * 24 * 60 * MINUTE
        (found,) = table.run(repair_log(LAYOUT, late, True, False, "fencer"))
        assert "older than the table's retention" in found.reason


#: By name: what happened to partition 1 after the append was written over.
DECIDED: dict[str, Callable[[LogTable], object]] = {
    "its partition was replaced": lambda it: it.replace("1", job="new"),
    "all was replaced": lambda it: then(
        it, foreign(operationParameters={"mode": "Overwrite"}, operation="WRITE")
    ),
    "rows of it were deleted": lambda it: then(
        it, foreign(removes=(SPARK.path,), operation="DELETE")
    ),
    "a job of ours deleted rows": lambda it: it.commit(
        it.job(removes=frozenset({SPARK.path}), reads=day("1"), operation="DELETE")
    ),
    "a version was restored": lambda it: it.commit(it.job(operation=RESTORE)),
    "another engine restored a version": lambda it: then(it, foreign(operation=RESTORE)),
    "partitions were replaced by a condition": lambda it: it.replace(
        "2", told={"replacedWhere": True}
    ),
}


@pytest.mark.parametrize("happened", DECIDED)
def test_rows_that_may_have_been_removed_on_purpose_stay_away(
    table: LogTable, happened: str
) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    DECIDED[happened](table)
    live = table.live()
    assert only(table).outcome is RepairOutcome.LEFT
    assert table.live() == live


def test_replace_of_another_partition_does_not_hinder_a_repair(table: LogTable) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    table.replace("2", job="new")
    assert only(table).outcome is RepairOutcome.COMMITTED
    assert jobs_live(table) == {"spark", "ours", "new"}


class TestRemovals:
    def test_replace_that_was_written_over_removes_the_same_files_again(
        self, table: LogTable
    ) -> None:
        table.append("1", job="old")
        table.replace("1", job="ours")
        write_over(table, 2, foreign(file_of("spark", partition="2")))
        assert jobs_live(table) == {"old", "spark"}
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"ours", "spark"}

    def test_replace_is_left_where_its_partition_has_changed(self, table: LogTable) -> None:
        table.append("1", job="old")
        table.replace("1", job="ours")
        write_over(table, 2)  # In its very partition.
        found = only(table)
        assert found.outcome is RepairOutcome.LEFT
        assert "changed partition" in found.reason
        assert jobs_live(table) == {"old", "spark"}

    def test_merge_that_was_written_over_removes_what_it_has_read(self, table: LogTable) -> None:
        old = table.append("1", job="old").entry.of(AddFile)[0].path
        merge = table.job("1", job="ours", removes=frozenset({old}), reads=day("1"))
        table.commit(replace(merge, operation="MERGE"))
        write_over(table, 2, foreign(file_of("spark", partition="2")))
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"ours", "spark"}

    def test_merge_is_left_where_a_partition_that_it_has_read_changed(
        self, table: LogTable
    ) -> None:
        old = table.append("1", job="old").entry.of(AddFile)[0].path
        merge = table.job("1", job="ours", removes=frozenset({old}), reads=day("1"))
        table.commit(replace(merge, operation="MERGE"))
        write_over(table, 2)  # In its very partition.
        assert only(table).outcome is RepairOutcome.LEFT
        assert jobs_live(table) == {"old", "spark"}

    def test_compaction_that_was_written_over_needs_no_repair(self, table: LogTable) -> None:
        old = table.append("1", job="old").entry.of(AddFile)[0].path
        job = table.job("1", job="ours", removes=frozenset({old}), changes_data=False)
        table.commit(replace(job, operation="OPTIMIZE"))
        write_over(table, 2)
        assert only(table).outcome is RepairOutcome.NEEDLESS
        assert jobs_live(table) == {"old", "spark"}


def test_settlement_that_was_written_over_is_left(table: LogTable) -> None:
    said = {"settles": [[["1"], {}]]}
    entry = table.append("1", job="ours").entry
    body = table.store.objects[LOG.checksum(1)].body
    members = json.loads(body)
    kept = members["zeroRename"]["entry"]
    kept[0]["commitInfo"]["zeroRename"] |= said
    table.put("00000000000000000001.crc", json.dumps(members).encode())
    write_over(table, entry.version)
    found = only(table)
    assert found.outcome is RepairOutcome.LEFT
    assert "settle it again" in found.reason


class TestColumns:
    def test_columns_that_a_job_had_added_come_with_it(self, table: LogTable) -> None:
        wider = replace(COLUMNS, schema=COLUMNS.schema.replace('"long"', '"string"'))
        job = table.job("1", job="ours", metadata=wider)
        table.commit(replace(job, columns=wider))
        write_over(table, 1)
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert table.open().state.metadata == wider

    def test_job_that_made_the_table_is_left(self, table: LogTable) -> None:
        body = table.store.objects[LOG.entry(0)].body
        write_over(table, 0, body.replace(b'"txnId":"create"', b'"txnId":"other"'))
        found = only(table)
        assert found.outcome is RepairOutcome.LEFT
        assert "made the table" in found.reason


class TestEvidence:
    def test_entry_of_many_files_is_kept_beside_the_log(self, table: LogTable) -> None:
        table.append(*["1"] * 2_001, job="ours")
        write_over(table, 1)
        found = only(table)
        assert (found.outcome, found.files) == (RepairOutcome.COMMITTED, 2_001)
        assert len(table.live()) == 2_002

    def test_checksum_file_of_another_writer_hides_nothing(self, table: LogTable) -> None:
        table.put("00000000000000000001.crc", b"{}")

        def overwriting(request: Any, apply: Callable[[Any], Any]) -> Any:
            answer = apply(request)
            if isinstance(request, s.Put) and request.key == LOG.entry(1):
                write_over(table, 1)
            return answer

        table.driver = MemoryDriver(table.store, overwriting)
        assert table.append("1", job="ours").overwritten == (1,)
        table.driver = MemoryDriver(table.store)
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"spark", "ours"}

    def test_checksum_file_that_the_store_did_not_take_is_no_matter(self, table: LogTable) -> None:
        table.driver = MemoryDriver(
            table.store, on(s.Put, s.Unknown("no answer"), LOG.checksum(1), times=1)
        )
        table.append("1", job="ours")
        table.driver = MemoryDriver(table.store)
        write_over(table, 1)
        assert only(table).outcome is RepairOutcome.COMMITTED
        assert jobs_live(table) == {"spark", "ours"}

    def test_entry_after_a_cleaned_version_is_left_and_its_loss_can_be_accepted(
        self, table: LogTable
    ) -> None:
        clean_around(table, 0, 1)
        found = only(table)
        assert (found.outcome, "was cleaned" in found.reason) == (RepairOutcome.LEFT, True)
        (found,) = repair(table, accept_loss=True)
        assert found.outcome is RepairOutcome.ACCEPTED
        assert only(table).outcome is RepairOutcome.ACCEPTED

    def test_loss_is_not_accepted_where_nobody_can_tell_whether_it_was_repaired(
        self, table: LogTable
    ) -> None:
        """The entries of its time were cleaned."""
        clean_around(table, 0, 1, 3)
        (found,) = repair(table, accept_loss=True)
        assert found.outcome is RepairOutcome.UNKNOWN
        assert "nobody can tell" in found.reason

    def test_copied_log_with_other_etags_was_not_written_over(self, table: LogTable) -> None:
        table.append("1", job="ours")
        body = table.store.objects[LOG.entry(1)].body
        table.put("00000000000000000001.json", body + b"\n")
        assert table.run(find_overwritten(LAYOUT)) == ()


def test_purge_spares_files_of_an_entry_that_was_written_over(table: LogTable) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    table.append("1", job="next")  # From now on openings tell nothing of it.
    assert table.run(purge_log(LAYOUT, "purge", NOW + MINUTE)) == ()
    assert only(table).outcome is RepairOutcome.COMMITTED
    assert jobs_live(table) == {"spark", "ours", "next"}


def test_accepted_loss_is_told_no_more_and_not_brought_back(table: LogTable) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    table.replace("1", job="new")
    (planned,) = repair(table, apply=False, accept_loss=True)
    assert planned.outcome is RepairOutcome.WOULD_ACCEPT
    (found,) = repair(table, accept_loss=True)
    assert found.outcome is RepairOutcome.ACCEPTED
    again = only(table)
    assert (again.outcome, again.outcome.is_lost) == (RepairOutcome.ACCEPTED, False)
    assert jobs_live(table) == {"new"}


def test_loss_of_what_can_be_committed_again_is_not_accepted(table: LogTable) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    (found,) = repair(table, accept_loss=True)
    assert found.outcome is RepairOutcome.COMMITTED
    assert jobs_live(table) == {"spark", "ours"}


def test_base_of_a_repair_is_the_state_before_the_entry(table: LogTable) -> None:
    table.append("1", job="ours")
    write_over(table, 1)
    repair(table)
    assert table.open().state.version == 2
    (entry,) = [it for it in _entries(table) if it.job == "ours"]
    assert entry.ours["repairs"] == 1
    assert LogBase(entry.ours["base"]) == LogBase(0)


def _entries(table: LogTable) -> list[Any]:
    return [it for it in table.run(read_entries(LOG, table.versions())) if it is not None]


def test_checkpoint_during_which_an_entry_is_written_over_is_taken_away(table: LogTable) -> None:
    table.append("1", job="a")
    (version,) = table.versions()[-1:]
    driver = MemoryDriver(
        table.store,
        beside(s.Put, lambda: write_over(table, version), ".checkpoint.parquet", times=1),
    )
    assert driver.run(make_checkpoint(LAYOUT, NOW)) is None
    assert not [key for key in table.store.keys(LOG.prefix) if "checkpoint" in key]
    assert SPARK.path in table.open(LogDepth.FILES).state.live
    assert only(table).outcome is RepairOutcome.COMMITTED
    assert table.run(make_checkpoint(LAYOUT, NOW)) == version + 1
