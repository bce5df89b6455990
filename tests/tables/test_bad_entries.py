"""Tables whose log another writer has filled with what cannot be right: refused by name, reported,
and never the cause of a loss; nothing is read outside of the table."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from support.delta_tables import on
from support.faults import beside
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    RecordDamagedError,
    SupersededRunError,
    TableMismatchError,
    ZeroRenameError,
)
from zero_rename.committer.format.job_spec import NOBODY
from zero_rename.committer.store import requests as s
from zero_rename.log import checksum
from zero_rename.log.actions import write_actions
from zero_rename.log.opening import read_entries
from zero_rename.tables import Since
from zero_rename.tables.delta_files import layout_of

LOG = "flights/_delta_log/"
DAY = 86_400.0


def rows(*values: int, day: int = 1) -> pa.Table:
    days = pa.array([day] * len(values), pa.int32())
    return pa.table({"day": days, "value": pa.array(values, pa.int64())})


def write(store: MemoryStore, data: pa.Table, **options: Any) -> Any:
    with on(store).job(data.schema, partition_by=["day"], **options) as job:
        job.write(data)
    return job.committed


def write_beside(store: MemoryStore, happens: Callable[[], object], **options: Any) -> None:
    """Append a row; something happens when its file is there and its job is not committed."""
    table = on(store)
    with table.job(rows(3).schema, partition_by=["day"], **options) as job:
        writer = table.task_writer(job.opened, 0, 0)
        writer.write(rows(3))
        job.take([writer.close()], 1)
        happens()


def values(store: MemoryStore) -> list[int]:
    return sorted(on(store).scan().to_arrow()["value"].to_pylist())


def entry(store: MemoryStore, *actions: dict[str, Any]) -> int:
    """Write the next entry as another engine would; return its version."""
    version = len([key for key in store.keys(LOG) if key.endswith(".json")])
    if "commitInfo" not in actions[0]:
        actions = ({"commitInfo": {"txnId": "it"}}, *actions)
    body = "".join(f"{json.dumps(it)}\n" for it in actions)
    store.apply(s.PutFile(f"{LOG}{version:020d}.json", body.encode()))
    return version


def add(path: str, day: str | None = "1", size: int = 7) -> dict[str, Any]:
    members = {"path": path, "partitionValues": {"day": day}, "size": size}
    return {"add": {**members, "modificationTime": 1, "dataChange": True}}


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    write(store, rows(1, 2))
    return store


def test_partition_column_that_the_table_lacks_is_named(store: MemoryStore) -> None:
    lines = store.objects[f"{LOG}{0:020d}.json"].body.splitlines()
    made = next(it["metaData"] for it in map(json.loads, lines) if "metaData" in it)
    entry(store, {"metaData": {**made, "partitionColumns": ["hour"]}})
    with pytest.raises(RecordDamagedError, match="partitioned by 'hour'"):
        values(store)


@pytest.mark.parametrize(
    "path",
    [
        "../other/a.parquet",
        "day=1/../../other/a.parquet",
        "%2e%2e/other/a.parquet",
        "s3://elsewhere/flights/a.parquet",
        "s3a://bucket/other/a.parquet",
        "file:///etc/passwd",
        "/etc/passwd",
    ],
)
def test_a_path_that_leaves_the_table_is_refused_and_nothing_is_read_there(
    store: MemoryStore, path: str
) -> None:
    store.apply(s.PutFile("other/a.parquet", b"secret"))
    entry(store, add(path))
    asked: list[str] = []

    def watch(request: Any, apply: Any) -> Any:
        items = getattr(request, "items", ())
        asked.extend([getattr(request, "key", ""), *(it[0] for it in items)])
        return apply(request)

    table = on(store, watch)
    with pytest.raises(RecordDamagedError, match="in the log") as caught:
        table.scan().to_arrow()
    assert path in str(caught.value)
    assert "remove the file" not in str(caught.value.remedy)  # It may be another table's.
    for verb in (
        lambda: table.compact(apply=True),
        lambda: table.delete([("value", "==", 1)]),
        lambda: table.merge(rows(9), ["value"]),
        lambda: table.purge(apply=True),
        lambda: table.restore(0, apply=True),
    ):
        try:
            verb()
        except ZeroRenameError:
            continue
    assert not [key for key in asked if key and not key.startswith("flights/")]
    assert store.objects["other/a.parquet"].body == b"secret"


def test_a_file_that_is_not_there_is_named_by_readers_and_spoils_no_append(
    store: MemoryStore,
) -> None:
    entry(store, add("day=1/gone.parquet"))
    with pytest.raises(ZeroRenameError, match=r"day=1/gone\.parquet"):
        values(store)
    write(store, rows(3))
    write(store, rows(4), mode="overwrite")
    assert values(store) == [4]


def test_a_partition_value_of_another_type_keeps_no_replace_of_the_table_from_reporting(
    store: MemoryStore,
) -> None:
    entry(store, add("day=x/a.parquet", day="x"))
    with pytest.raises(RecordDamagedError, match="partition that the table cannot have"):
        values(store)
    done = write(store, rows(5), mode="overwrite", replace_table=True)
    assert {it.partition: it.removed for it in done.partitions} == {"day=1": 1, "day=x": 1}
    assert values(store) == [5]


def test_a_hole_is_refused_for_reading_and_writing(store: MemoryStore) -> None:
    write(store, rows(3))
    write(store, rows(4))
    del store.objects[f"{LOG}{1:020d}.json"]
    del store.objects[f"{LOG}{2:020d}.crc"]
    before = dict(store.objects)
    for act in (lambda: values(store), lambda: write(store, rows(5))):
        with pytest.raises(RecordDamagedError, match="Entry 1 of the log is missing"):
            act()
    assert {key for key in store.objects if not key.startswith("flights/_zero")} == {
        key for key in before if not key.startswith("flights/_zero")
    }


def test_a_reader_feature_that_is_not_known_is_refused_by_its_name(store: MemoryStore) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["fromTomorrow"], "writerFeatures": ["fromTomorrow"]}
    with pytest.raises(TableMismatchError, match="fromTomorrow"):
        write_beside(store, lambda: entry(store, {"protocol": {**protocol, **features}}))
    with pytest.raises(TableMismatchError, match="fromTomorrow"):
        values(store)
    assert len([key for key in store.keys(LOG) if key.endswith(".json")]) == 2


def test_a_hint_of_the_future_and_a_cut_checkpoint_change_no_row(store: MemoryStore) -> None:
    write(store, rows(3))
    on(store).checkpoint_log()
    write(store, rows(4))
    key = f"{LOG}{1:020d}.checkpoint.parquet"
    store.apply(s.PutFile(key, store.objects[key].body[:100]))
    store.apply(s.PutFile(f"{LOG}_last_checkpoint", b'{"version": 900}'))
    assert values(store) == [1, 2, 3, 4]
    write(store, rows(5))
    on(store).restore(1, apply=True)
    assert values(store) == [1, 2, 3]


class TestEntriesThatLackWhatIsOptional:
    """Sensors and triggers read them, by other engines."""

    def without_values(self, store: MemoryStore) -> dict[str, Any]:
        """A removal of the file of the first partition, which names no partition."""
        (file,) = on(store).state(["day=1"]).files
        path = file.key.removeprefix("flights/")
        return {"remove": {"path": path, "deletionTimestamp": 5, "dataChange": True}}

    def test_removal_without_partition_values_is_a_change_of_its_partition(
        self, store: MemoryStore
    ) -> None:
        write(store, rows(5, day=2))
        version = entry(store, self.without_values(store))
        (change,) = on(store).changes_since(Since(version - 1), 10).found
        assert change.partitions == {"day=1"}
        _, last = on(store).last_changes(["day=1", "day=2"], Since())
        assert {name: it.version for name, it in last.of.items()} == {
            "day=1": version,
            "day=2": version - 1,
        }

    def test_removal_of_a_file_that_no_entry_has_added_is_a_change_of_no_partition(
        self, store: MemoryStore
    ) -> None:
        gone = {"path": "gone.parquet", "deletionTimestamp": 5, "dataChange": True}
        entry(store, {"remove": gone})
        assert on(store).changes_since(Since(0), 10).found == ()
        _, last = on(store).last_changes(["day=1"], Since())
        assert last.of["day=1"].version == 0

    @pytest.mark.parametrize("stamp", ["2013-01-01", None, True, 10**20, -1, float("inf")])
    def test_entry_without_a_valid_time_is_reported_without_one(
        self, store: MemoryStore, stamp: Any
    ) -> None:
        info = {"commitInfo": {"txnId": "it", "timestamp": stamp}}
        entry(store, info, add("b.parquet", day="2"))
        assert on(store).history(1)[0].at is None
        (change,) = on(store).changes_since(Since(0), 10).found
        assert change.done.decided_at == 0.0

    def test_purge_of_files_without_an_entry_has_a_report(self, store: MemoryStore) -> None:
        with on(store).job(rows(9).schema) as job:
            assert job.opened.log is not None
            folder = job.opened.log.data
        store.apply(s.PutFile(f"{folder}orphan.parquet", b"rows of an attempt that died"))
        assert on(store).purge(apply=True) == [f"{folder}orphan.parquet"]
        (purge,) = on(store).history(1)
        assert purge.operation == "FORGET"
        assert purge.job is not None
        report = on(store).result(purge.job)
        assert report is not None
        assert report.partitions == ()


class TestVacuum:
    """VACUUM of another engine with no retention, beside a job whose files no entry names yet."""

    def vacuum(self, store: MemoryStore, *, ends: bool = True, retention: int = 0) -> None:
        entry(store, _vacuum("VACUUM START", specifiedRetentionMillis=str(retention)))
        live = {it.key for it in on(store).state().files}
        for key in store.keys("flights/data/"):
            if key not in live and not retention:
                del store.objects[key]
        if ends:
            entry(store, _vacuum("VACUUM END", status="COMPLETED"))

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_job_whose_files_it_deleted_is_refused(self, store: MemoryStore, mode: str) -> None:
        with pytest.raises(CommitConflictError, match="has deleted files"):
            write_beside(store, lambda: self.vacuum(store), mode=mode)
        assert values(store) == [1, 2]
        write(store, rows(3))
        assert values(store) == [1, 2, 3]

    def test_job_is_refused_while_it_is_deleting(self, store: MemoryStore) -> None:
        spared = [entry(store, _vacuum("VACUUM START", specifiedRetentionMillis="0"))]
        with pytest.raises(CommitConflictError, match="may be deleting"):
            write_beside(store, lambda: spared.append(entry(store, _START)))
        assert values(store) == [1, 2]

    def test_job_passes_one_that_keeps_younger_files(self, store: MemoryStore) -> None:
        write_beside(store, lambda: self.vacuum(store, ends=False, retention=7 * 86_400_000))
        assert values(store) == [1, 2, 3]


def _vacuum(operation: str, **parameters: Any) -> dict[str, Any]:
    """Its entry, as Spark and delta-rs write it: they change nothing but say so."""
    info = {"operation": operation, "operationParameters": parameters, "txnId": operation}
    return {"commitInfo": info}


_START = _vacuum("VACUUM START", specifiedRetentionMillis="0")


def _set_retention(store: MemoryStore, text: str) -> None:
    _set_property(store, "delta.deletedFileRetentionDuration", text)


def _set_property(store: MemoryStore, name: str, text: str) -> None:
    lines = store.objects[f"{LOG}{0:020d}.json"].body.splitlines()
    made = next(it["metaData"] for it in map(json.loads, lines) if "metaData" in it)
    properties = {**made["configuration"], name: text}
    entry(store, {"metaData": {**made, "configuration": properties}})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 604800000 milliseconds", 604_800),
        ("INTERVAL 1 DAY 500 MILLISECOND", 86_400.5),
        ("interval 7200000000 microseconds", 7_200),
        ("interval 2 weeks", 1_209_600),
    ],
)
def test_retention_has_any_unit_that_an_engine_may_write(
    store: MemoryStore, text: str, seconds: float
) -> None:
    _set_retention(store, text)
    assert on(store).retention == seconds


@pytest.mark.parametrize("text", ["soon", "interval 1 month", "interval -1 days", "interval 7"])
def test_retention_that_is_not_an_interval_is_refused_with_what_to_do(
    store: MemoryStore, text: str
) -> None:
    _set_retention(store, text)
    with pytest.raises(RecordDamagedError, match="not an interval") as caught:
        _ = on(store).retention
    assert caught.value.table == "s3://bucket/flights"
    assert "interval 7 days" in (caught.value.remedy or "")


@pytest.mark.parametrize("owner", [{"try_number": "first"}, {"dag_id": 5}])
def test_owner_of_a_form_that_is_not_known_is_nobody(
    store: MemoryStore, owner: dict[str, Any]
) -> None:
    """A later version of this package may record more."""
    ours = {"job": "zr1-01M8KKV5M7CFNT271DM09VVTWK", "owner": owner}
    info = {"txnId": ours["job"], "zeroRename": ours}
    entry(store, {"commitInfo": info}, add("b.parquet"))
    assert on(store).owner_of("zr1-01M8KKV5M7CFNT271DM09VVTWK") == NOBODY


@pytest.mark.parametrize("target_bytes", [0, -1])
@pytest.mark.parametrize("apply", [False, True])
def test_compaction_to_files_without_bytes_is_refused(
    store: MemoryStore, target_bytes: int, apply: bool
) -> None:
    write(store, rows(3))
    with pytest.raises(InvalidInputError, match="target_bytes"):
        on(store).compact(target_bytes=target_bytes, apply=apply)


@pytest.mark.parametrize("given", [5, None])
def test_nulls_of_a_column_whose_name_has_a_dot_are_counted(
    store: MemoryStore, given: int | None
) -> None:
    lines = store.objects[f"{LOG}{0:020d}.json"].body.splitlines()
    made = next(it["metaData"] for it in map(json.loads, lines) if "metaData" in it)
    columns = json.loads(made["schemaString"])
    never_null = {"name": "a.b", "type": "long", "nullable": False, "metadata": {}}
    columns["fields"].append(never_null)
    entry(store, {"metaData": {**made, "schemaString": json.dumps(columns)}})
    data = rows(3).append_column("a.b", pa.array([given], pa.int64()))
    if given is None:
        with pytest.raises(InvalidInputError, match=r"'a\.b' must not be null"):
            write(store, data)
        return
    write(store, data, mode="overwrite", replace_table=True)
    assert on(store).scan(filter=[("a.b", "==", 5)]).to_arrow()["value"].to_pylist() == [3]


def test_tags_without_a_value_end_no_comparison_of_runs(store: MemoryStore) -> None:
    """Another engine may write null for a tag."""
    live = add("data/b.parquet")
    names = ("job", "v", "ranks", "content", "sorted", "copyOf", "adopted")
    live["add"]["tags"] = dict.fromkeys(names)
    entry(store, live)
    assert on(store).conflicts().unread == ()
    write(store, rows(9), mode="overwrite", on_conflict="newest_run")
    old = datetime(2013, 1, 1, tzinfo=UTC)
    with pytest.raises(SupersededRunError):
        write(store, rows(8), mode="overwrite", on_conflict="newest_run", run_rank=old)
    assert values(store) == [9]


def test_statistics_that_are_nested_too_deep_are_none(store: MemoryStore) -> None:
    live = add("data/b.parquet")
    tags = {"job": "zr1-01M8KKV5M7CFNT271DM09VVTWK", "v": "0"}
    live["add"] |= {"stats": "[" * 100_000, "tags": tags}
    entry(store, live)
    assert sorted(it.rows for it in on(store).state().files) == [-1, 2]


def test_kept_entry_that_was_written_over_is_purged_only_after_its_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checksum, "ACTIONS", 0)  # Checksum files keep no entry.
    store = MemoryStore(ManualClock(time.time()))
    for value in (1, 2, 3):
        job = write(store, rows(value)).job
    on(store).set_retention(30 * DAY, apply=True)
    written_over = [key for key in store.keys("flights/_zero_rename/entries/") if job in key]
    store.apply(s.PutFile(f"{LOG}{2:020d}.json", b'{"commitInfo":{"txnId":"it"}}'))
    store.clock.advance(8 * DAY)  # type: ignore[attr-defined]
    assert written_over[0] not in {it.key for it in on(store).purge_records(apply=True)}
    assert store.keys("flights/_zero_rename/entries/") == written_over
    assert [it.outcome for it in on(store).repair(apply=True)] == ["committed"]
    assert values(store) == [1, 2, 3]
    store.clock.advance(8 * DAY)  # type: ignore[attr-defined]
    on(store).purge_records(apply=True)
    assert store.keys("flights/_zero_rename/entries/") == []


@pytest.mark.parametrize("on_repeat", ["skip", "replace_own", "append"])
def test_run_whose_entry_was_written_over_is_not_taken_for_done_by_its_report(
    store: MemoryStore, on_repeat: str
) -> None:
    run: dict[str, Any] = {"idempotency_key": "daily", "on_repeat": on_repeat}
    _set_property(store, "delta.setTransactionRetentionDuration", "interval 1 day")
    done = write(store, rows(3), **run)
    (version,) = {it.version for it in done.partitions}
    store.apply(s.PutFile(f"{LOG}{version:020d}.json", b'{"commitInfo":{"txnId":"it"}}'))
    assert values(store) == [1, 2]
    if on_repeat == "append":
        write(store, rows(4), **run)
        assert values(store) == [1, 2, 4]
        return
    with pytest.raises(CommitConflictError, match="written over its entry"):
        write(store, rows(4), **run)
    assert on(store).open_jobs() == []
    assert [it.outcome for it in on(store).repair(apply=True)] == ["committed"]
    write(store, rows(3), **run)
    assert values(store) == [1, 2, 3]


def test_run_in_a_checkpoint_is_done_though_its_entry_was_written_over(store: MemoryStore) -> None:
    done = write(store, rows(3), idempotency_key="daily")
    (version,) = {it.version for it in done.partitions}
    on(store).checkpoint_log()
    store.apply(s.PutFile(f"{LOG}{version:020d}.json", b'{"commitInfo":{"txnId":"it"}}'))
    again = write(store, rows(4), idempotency_key="daily")
    assert (again.repeated, again.job) == (True, "")
    assert values(store) == [1, 2, 3]


def test_change_that_meets_a_damaged_entry_leaves_no_open_job(store: MemoryStore) -> None:
    def damaged() -> None:
        store.apply(s.PutFile(f"{LOG}{1:020d}.json", b"{"))

    table = on(store)
    fault = beside(s.Put, damaged, "_delta_log/", times=1)
    table.driver = MemoryDriver(store, fault)  # type: ignore[assignment]
    with pytest.raises(RecordDamagedError):
        table.set_retention(30 * DAY, apply=True)
    assert on(store).open_jobs() == []


@pytest.mark.parametrize("made", [b"{", b"unsupported"])
def test_table_that_another_engine_makes_meanwhile_leaves_no_open_job(made: bytes) -> None:
    store, other = MemoryStore(), MemoryStore()
    write(other, rows(1))
    body = other.objects[f"{LOG}{0:020d}.json"].body
    feature = b'{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"]'
    unsupported = re.sub(rb'(?<="protocol":)\{[^}]*', feature, body)

    def happens() -> None:
        there = unsupported if made == b"unsupported" else made
        store.apply(s.PutFile(f"{LOG}{0:020d}.json", there))

    table = on(store, beside(s.Put, happens, "_delta_log/", times=1))
    job = table.job(rows(1).schema, partition_by=["day"], publish=False)
    with pytest.raises((RecordDamagedError, TableMismatchError)), job:
        job.write(rows(1))
    assert on(store).open_jobs() == []


def test_last_changes_of_partitions_given_by_a_generator_are_found(store: MemoryStore) -> None:
    write(store, rows(3, day=2))
    state, last = on(store).last_changes((f"day={it}" for it in (1, 2)), Since())  # type: ignore[arg-type]
    assert {it.partition for it in state.files} == {"day=1", "day=2"}
    assert {name: it.version for name, it in last.of.items()} == {"day=1": 0, "day=2": 1}


def test_table_that_only_takes_appends_is_compacted(store: MemoryStore) -> None:
    write(store, rows(3))
    _set_property(store, "delta.appendOnly", "true")
    (done,) = on(store).compact(apply=True)
    assert (done.action, done.files_after) == ("compacted", 1)
    assert values(store) == [1, 2, 3]
    with pytest.raises(TableMismatchError, match="appendOnly"):
        write(store, rows(4), mode="overwrite")


VECTOR = {"storageType": "u", "pathOrInlineDv": "a", "sizeInBytes": 1, "cardinality": 1}


@pytest.fixture
def dropped(store: MemoryStore) -> MemoryStore:
    """A table of which another engine has deleted the row 1 by a deletion vector, in version 1, has
    written the other rows again, in version 2, and has dropped the feature."""
    features = ["deletionVectors"]
    lists = {"readerFeatures": features, "writerFeatures": features}
    lines = map(json.loads, store.objects[f"{LOG}{0:020d}.json"].body.splitlines())
    first = next(it["add"] for it in lines if "add" in it)
    gone = {"path": first["path"], "deletionTimestamp": int(store.clock() * 1000)}
    gone |= {"dataChange": True, "partitionValues": {"day": "1"}, "tags": first["tags"]}
    entry(
        store,
        {"commitInfo": {"txnId": "delete", "operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **lists}},
        {"remove": gone},
        {"add": {**first, "deletionVector": VECTOR}},
    )
    other = MemoryStore()
    write(other, rows(2))
    (made,) = on(other).state().files
    store.apply(s.PutFile("flights/purged.parquet", other.objects[made.key].body))
    entry(
        store,
        {"commitInfo": {"txnId": "reorg", "operation": "REORG"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"remove": {**gone, "dataChange": False, "deletionVector": VECTOR}},
        {"add": {**add("purged.parquet", size=made.size)["add"], "dataChange": False}},
    )
    return store


class TestDroppedDeletionVectors:
    def test_table_is_read_and_written(self, dropped: MemoryStore) -> None:
        assert values(dropped) == [2]
        write(dropped, rows(3))
        assert on(dropped).checkpoint_log() == 3
        assert values(dropped) == [2, 3]
        assert [it.operation for it in on(dropped).history()] == [
            *("WRITE", "REORG", "DELETE", "WRITE")
        ]

    def test_conflicts_are_searched(self, dropped: MemoryStore) -> None:
        report = on(dropped).conflicts()
        assert (report.unread, report.conflicts) == ((), ())

    def test_conflicts_since_a_version_that_cannot_be_read_are_searched_after_it(
        self, dropped: MemoryStore
    ) -> None:
        other = dropped.copy()
        for version in (1, 2):
            del other.objects[f"{LOG}{version:020d}.json"]
        on(other).conflicts()  # It has read version 0.
        key = on(other).root.conflicts_key
        record = json.loads(other.objects[key].body)
        record["log_version"] = 1
        dropped.apply(s.PutFile(key, json.dumps(record).encode()))
        with pytest.raises(TableMismatchError, match="deletionVectors"):
            on(dropped).conflicts()
        on(dropped).checkpoint_log()
        (note,) = on(dropped).conflicts().notes
        assert "before version 3 need a feature that is not supported" in note

    def test_job_whose_rows_were_deleted_by_a_vector_is_not_undone(
        self, dropped: MemoryStore
    ) -> None:
        job = on(dropped).history()[-1].job
        with pytest.raises(InvalidInputError, match="version 1 of another engine"):
            on(dropped).undo(str(job), apply=True)
        assert values(dropped) == [2]

    def test_conflict_is_not_settled_by_a_file_of_which_a_vector_deleted_rows(
        self, store: MemoryStore, dropped: MemoryStore
    ) -> None:
        """The other engine replaces the partition instead of writing its rows again."""
        lines = [json.loads(it) for it in store.objects[f"{LOG}{2:020d}.json"].body.splitlines()]
        overwrite = {"txnId": "over", "operation": "WRITE", "readVersion": -1}
        lines[0]["commitInfo"] = overwrite | {"operationParameters": {"mode": "Overwrite"}}
        for it in lines[2:]:
            next(iter(it.values()))["dataChange"] = True
        body = "".join(f"{json.dumps(it)}\n" for it in lines)
        store.apply(s.PutFile(f"{LOG}{2:020d}.json", body.encode()))
        (conflict,) = on(store).conflicts().conflicts
        (job,) = (it.job for it in conflict.runs if it.job.startswith("zr1-"))
        (left,) = on(store).resolve({"keep": [job]}, apply=True)
        assert left.settlement is not None
        assert "deletion vectors" in left.settlement.error
        assert values(dropped) == [2]

    def test_only_versions_without_a_vector_are_restored(self, dropped: MemoryStore) -> None:
        with pytest.raises(TableMismatchError, match="deletionVectors"):
            on(dropped).restore(1, apply=True)
        on(dropped).restore(0, apply=True)
        assert values(dropped) == [1, 2]
        on(dropped).restore(2, apply=True)
        assert values(dropped) == [2]

    def test_vector_is_never_left_out_of_an_entry(self, dropped: MemoryStore) -> None:
        (entry,) = on(dropped).run(read_entries(layout_of(on(dropped).root).folder, [1]))
        assert entry is not None
        with pytest.raises(ValueError, match="has a deletion vector"):
            write_actions(entry.actions)
