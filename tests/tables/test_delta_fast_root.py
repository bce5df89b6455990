"""Delta tables whose files lie in a data root first: how the log names them, and who opens them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

import pyarrow as pa
import pytest

from support.delta_tables import URL, on, rows, write
from support.fast_stores import FastStores, fast_stores
from support.memory_s3 import MemoryS3, answering
from support.memory_store import ManualClock, MemoryStore
from support.moto_server import S3Server
from zero_rename.committer import Table
from zero_rename.committer.errors import (
    CommitConflictError,
    FastRootGoneError,
    InvalidInputError,
    RecordDamagedError,
    SupersededRunError,
    TableMismatchError,
    TableNotFoundError,
)
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.fast_root import is_fast
from zero_rename.committer.upkeep.checkpoint import CheckpointAction, Checkpointed
from zero_rename.committer.upkeep.compaction import CompactAction
from zero_rename.committer.upkeep.purging.purge import PurgeAction
from zero_rename.committer.upkeep.verify import FindingKind
from zero_rename.log.actions import AddFile
from zero_rename.log.change import COPY_OF
from zero_rename.log.job_steps import open_log_job
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgedDestination, PurgeOrder, purge_destination
from zero_rename.tables import DeltaTable, new_table
from zero_rename.tables.delta_files import layout_of

pytestmark = [pytest.mark.memory_s3]
#: Of tests in memory, where nothing is routed: the keys say where a file would lie.
FAST = "s3://fast/scratch"
#: A rank above that of any run of now.
LATER = datetime(2100, 1, 1, tzinfo=UTC)
FIRST = "flights/_delta_log/00000000000000000000.json"


def unpublished(table: DeltaTable, data: pa.Table) -> str:
    """Write a job that waits; return its id."""
    with table.job(data.schema, publish=False) as job:
        job.write(data)
    assert job.unpublished is not None
    return job.unpublished.job


def values(table: DeltaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["value"].to_pylist())


def live(store: MemoryStore) -> list[AddFile]:
    """The live files, as the log has them."""
    table = on(store)
    opened = table.run(open_log(layout_of(table.root), LogDepth.FILES))
    return [*opened.state.live.values()]


def paths(store: MemoryStore) -> list[str]:
    return [it.path for it in live(store)]


def metadata_of(store: MemoryStore) -> dict[str, Any]:
    """The first entry's ``metaData``."""
    lines = map(json.loads, store.objects[FIRST].body.splitlines())
    return next(it for it in lines if "metaData" in it)


@pytest.fixture
def stores(s3_env: S3Server) -> Iterator[FastStores]:
    with fast_stores() as found:
        yield found


@pytest.fixture
def store() -> MemoryStore:
    """A table of two days, whose files lie in a data root."""
    store = MemoryStore()
    write(on(store), rows(1), data_root=FAST)
    write(on(store), rows(2, day="2"))
    return store


class TestPlaces:
    def test_files_of_each_job_lie_in_the_data_root_and_readers_find_them(
        self, stores: FastStores
    ) -> None:
        write(DeltaTable(URL, stores.durable.client()), rows(1), data_root=stores.data_root)
        write(DeltaTable(URL, stores.durable.client()), rows(2, day="2"))
        assert len(stores.files) == 2
        own = stores.keys(stores.durable, "bucket")
        assert not [key for key in own if key.endswith(".parquet")]
        assert values(DeltaTable(URL, stores.durable.client())) == [1, 2]

    def test_log_names_files_of_a_data_root_by_urls_that_spark_reads(
        self, store: MemoryStore
    ) -> None:
        for path in paths(store):
            assert path.startswith("s3a://fast/scratch/bucket/flights/zr1-"), path

    def test_odd_characters_of_a_data_root_are_escaped_in_paths(self) -> None:
        store = MemoryStore()
        write(on(store), rows(1), data_root="s3://fast/odd %20é")
        (path,) = paths(store)
        assert path.startswith("s3a://fast/odd%20%2520%C3%A9/bucket/flights/zr1-")
        assert values(on(store)) == [1]

    def test_root_is_on_record_in_the_logs_first_entry(self, store: MemoryStore) -> None:
        properties = metadata_of(store)["metaData"]["configuration"]
        assert properties["zero_rename.dataRoot"] == FAST

    def test_job_that_asks_for_another_data_root_is_refused(self, store: MemoryStore) -> None:
        with pytest.raises(TableMismatchError, match="data root is s3://fast/scratch"):
            write(on(store), rows(3), data_root="s3://fast/other")
        assert values(on(store)) == [1, 2]

    def test_data_root_within_the_table_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="lies in the table itself"):
            write(on(MemoryStore()), rows(1), data_root="s3://bucket/flights/fast")

    def test_schema_change_and_restore_keep_the_data_root(self, store: MemoryStore) -> None:
        wider = rows(3).append_column("more", pa.array([1], pa.int64()))
        write(on(store), wider, schema_mode="merge")
        on(store).restore(0, apply=True)
        write(on(store), rows(4))
        assert all(is_fast(file.key) for file in on(store).state().files)
        assert values(on(store)) == [1, 4]


def put_entry(store: MemoryStore, version: int, *actions: dict[str, Any]) -> None:
    body = "".join(f"{json.dumps(it)}\n" for it in actions).encode()
    on(store).run(s.PutFile(f"flights/_delta_log/{version:020}.json", body))


class TestForeignPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "s3://fast/scratch/bucket/other/zr1-x/a.parquet",
            "s3://fast/scratch/a.parquet",
            "s3://fast/scratch/bucket/flights/../other/a.parquet",
            "s3://fast/scratch/bucket/flights/%2E%2E/other/a.parquet",
            "s3a://other/scratch/bucket/flights/a.parquet",
            f"_zero_rename/fast/{quote(quote('s3://other/x', safe=''))}/a.parquet",
            f"s3://bucket/flights/_zero_rename/fast/{quote(quote(FAST, safe=''))}/a.parquet",
        ],
    )
    def test_path_outside_of_the_table_and_its_roots_is_refused(
        self, store: MemoryStore, path: str
    ) -> None:
        add = {"path": path, "partitionValues": {"day": "1"}, "size": 1, "modificationTime": 1}
        put_entry(store, 2, {"commitInfo": {}}, {"add": {**add, "dataChange": True}})
        with pytest.raises(RecordDamagedError, match="Nothing was read there"):
            on(store).scan().to_arrow()

    def test_data_root_that_cannot_be_read_is_named(self, store: MemoryStore) -> None:
        changed = metadata_of(store)
        changed["metaData"]["configuration"]["zero_rename.dataRoot"] = "s3://fast?key=secret"
        put_entry(store, 2, {"commitInfo": {}}, changed)
        with pytest.raises(RecordDamagedError, match=r"zero_rename\.dataRoot is not a data root"):
            on(store).scan().to_arrow()


def lying_fast(store: MemoryStore) -> list[str]:
    return [it.partition for it in on(store).not_durable()]


def actions(check: CheckpointAction, found: list[Checkpointed]) -> list[str]:
    return [it.partition for it in found if it.action is check]


COPIED, CHANGED = CheckpointAction.COPIED, CheckpointAction.CHANGED_MEANWHILE


class TestCheckpoint:
    def test_checkpoint_copies_what_lies_in_the_data_root_and_says_so_before(
        self, store: MemoryStore
    ) -> None:
        planned = on(store).checkpoint()
        assert [it.action for it in planned] == [CheckpointAction.WOULD_COPY] * 2
        assert lying_fast(store) == ["day=1", "day=2"]
        done = on(store).checkpoint(apply=True)
        assert actions(COPIED, done) == ["day=1", "day=2"]
        assert lying_fast(store) == []
        assert values(on(store)) == [1, 2]
        assert all(path.startswith("data/") for path in paths(store))
        assert on(store).checkpoint(apply=True) == []
        assert not on(store).open_jobs()

    def test_latest_partitions_are_copied_first_where_that_is_asked(
        self, store: MemoryStore
    ) -> None:
        found = on(store).checkpoint(order="latest", apply=True)
        assert [it.partition for it in found] == ["day=2", "day=1"]

    def test_checkpoint_of_some_partitions_leaves_the_others(self, store: MemoryStore) -> None:
        on(store).checkpoint(["day=2"], apply=True)
        assert lying_fast(store) == ["day=1"]

    def test_copies_keep_job_rank_rows_and_statistics_of_their_files(self) -> None:
        store = MemoryStore()
        write(on(store), rows(1), data_root=FAST, run_rank=7, on_conflict="newest_run")
        (before,) = live(store)
        on(store).checkpoint(apply=True)
        (after,) = live(store)
        assert after.tags == {**before.tags, COPY_OF: before.path}
        assert (after.statistics, after.size) == (before.statistics, before.size)
        with pytest.raises(SupersededRunError):
            write(on(store), rows(2), mode="overwrite", run_rank=6, on_conflict="newest_run")

    def test_checkpoint_changes_no_rows_for_readers_of_changes(self, store: MemoryStore) -> None:
        on(store).checkpoint(apply=True)
        entry = store.objects["flights/_delta_log/00000000000000000002.json"].body
        files = [next(iter(json.loads(it).values())) for it in entry.splitlines()]
        changes = [it["dataChange"] for it in files if "dataChange" in it]
        assert changes
        assert not any(changes)

    def test_checkpoint_of_a_temporary_root_is_refused(self) -> None:
        store = MemoryStore()
        write(on(store), rows(1), data_root=f"{FAST}?temporary=true")
        with pytest.raises(InvalidInputError, match="temporary"):
            on(store).checkpoint(apply=True)

    def test_bytes_go_through_the_process_from_another_store_to_the_tables(
        self, stores: FastStores
    ) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1, 2), data_root=stores.data_root)
        assert actions(COPIED, table.checkpoint(apply=True)) == ["day=1"]
        stores.fast_end.close()
        assert values(DeltaTable(URL, stores.durable.client())) == [1, 2]

    def test_compaction_before_a_checkpoint_writes_in_the_data_root(
        self, store: MemoryStore
    ) -> None:
        write(on(store), rows(3))
        on(store).compact(apply=True)
        assert lying_fast(store) == ["day=1", "day=2"]
        on(store).checkpoint(apply=True)
        assert values(on(store)) == [1, 2, 3]

    def test_lost_file_is_reported_and_other_partitions_are_copied(
        self, store: MemoryStore
    ) -> None:
        del store.objects[on(store).state(["day=1"]).files[0].key]
        found = on(store).checkpoint(apply=True)
        assert actions(CheckpointAction.LOST, found) == ["day=1"]
        assert actions(COPIED, found) == ["day=2"]

    def test_root_that_cannot_be_reached_keeps_no_other_from_being_copied(
        self, stores: FastStores
    ) -> None:
        former = MemoryS3("http://127.0.0.1:2")
        table = DeltaTable(URL, stores.durable.client())
        with answering(former):
            former.client().create_bucket(Bucket="former")
            write(table, rows(1), data_root=f"s3://former/scratch?endpoint={former.endpoint}")
            write(table, rows(2, day="2"))
            table.set_data_root(stores.data_root, apply=True)
            write(table, rows(3, day="3"))
        with pytest.raises(FastRootGoneError, match="Beside that, 1 partition lay in other roots"):
            table.checkpoint(apply=True)
        assert [it.partition for it in table.not_durable()] == ["day=1", "day=2"]
        assert table.open_jobs() == []

    def test_restore_of_a_version_before_it_leaves_copies_in_place(
        self, store: MemoryStore
    ) -> None:
        on(store).checkpoint(apply=True)
        copies = paths(store)
        write(on(store), rows(3, day="3"))
        restored = on(store).restore(1, apply=True)
        assert (restored.returned, restored.lost) == (0, ())
        assert paths(store) == copies
        assert values(on(store)) == [1, 2]

    def test_restore_of_a_version_before_it_brings_back_a_copy_whose_source_is_gone(
        self, store: MemoryStore
    ) -> None:
        source = on(store).state(["day=1"]).files[0].key
        on(store).checkpoint(apply=True)
        copies = paths(store)
        write(on(store), rows(3), mode="overwrite", replace_partitions=["day=1"])
        del store.objects[source]
        restored = on(store).restore(1, apply=True)
        assert (restored.returned, restored.lost) == (1, ())
        assert sorted(paths(store)) == sorted(copies)
        assert values(on(store)) == [1, 2]

    def test_purge_deletes_files_that_a_checkpoint_has_copied(self, store: MemoryStore) -> None:
        on(store).checkpoint(apply=True)
        assert isinstance(store.clock, ManualClock)
        store.clock.now = time.time() + 30 * 24 * 3600.0
        gone = on(store).purge(apply=True)
        assert len(gone) == 2
        assert all(map(is_fast, gone))
        assert values(on(store)) == [1, 2]
        assert on(store).verify() == []


def checkpoint(of: MemoryStore | DeltaTable) -> list[Checkpointed]:
    return (of if isinstance(of, DeltaTable) else on(of)).checkpoint(apply=True)


def before_entry(act: Callable[[], Any]) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """The fault of a process that sleeps before it writes its entry, while another one acts."""
    acted: list[bool] = []

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        is_entry = isinstance(request, s.Put) and request.key.endswith(".json")
        if is_entry and "/_delta_log/" in request.key and not acted:
            acted.append(True)
            act()
        return apply(request)

    return fault


#: By name: a job beside a checkpoint, and the values after both.
BESIDE: dict[str, tuple[Callable[[DeltaTable], Any], list[int]]] = {
    "append": (lambda it: write(it, rows(9)), [1, 2, 3, 9]),
    "replace": (lambda it: write(it, rows(9), mode="overwrite"), [3, 9]),
    "replace, last wins": (
        lambda it: write(it, rows(9), mode="overwrite", on_conflict="last_wins"),
        [3, 9],
    ),
    "replace, newest run": (
        lambda it: write(it, rows(9), mode="overwrite", on_conflict="newest_run", run_rank=LATER),
        [3, 9],
    ),
    "replace of the table": (
        lambda it: write(it, rows(9), mode="overwrite", replace_table=True),
        [9],
    ),
    "rerun": (
        lambda it: write(it, rows(9), idempotency_key="run", on_repeat="replace_own"),
        [2, 3, 9],
    ),
    "delete": (lambda it: it.delete([("value", "==", 1)]), [2, 3]),
    "merge": (lambda it: it.merge(rows(1, 9), ["value"]), [1, 2, 3, 9]),
    "compact": (lambda it: it.compact(apply=True)[0].action, [1, 2, 3]),
    "restore": (lambda it: it.restore(1, apply=True), [1, 2]),
}


class TestBesideOthers:
    """Before the entry of one is written the other runs as a whole."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Two files in the first day, of which a run has written one, and one in the second."""
        store = MemoryStore()
        write(on(store), rows(1), data_root=FAST, idempotency_key="run")
        write(on(store), rows(2))
        write(on(store), rows(3, day="2"))
        return store

    @pytest.mark.parametrize("verb", BESIDE)
    def test_job_that_meets_a_checkpoint_goes_on(self, store: MemoryStore, verb: str) -> None:
        act, after = BESIDE[verb]
        done: list[Checkpointed] = []
        table = on(store, before_entry(lambda: done.extend(checkpoint(store))))
        assert act(table) is not CompactAction.CHANGED_MEANWHILE
        assert values(on(store)) == after
        sent = table.driver.requests  # type: ignore[attr-defined]
        opened = [it for it in sent if "/open/" in getattr(it, "key", "")]
        assert sum(isinstance(it, s.Put) for it in opened) == 1  # It was not run again.
        assert sorted(actions(COPIED, done)) == ["day=1", "day=2"]

    @pytest.mark.parametrize("verb", BESIDE)
    def test_job_after_a_checkpoint_finds_the_same_rows(
        self, store: MemoryStore, verb: str
    ) -> None:
        act, after = BESIDE[verb]
        checkpoint(store)
        act(on(store))
        assert values(on(store)) == after

    @pytest.mark.parametrize("verb", BESIDE)
    def test_checkpoint_that_meets_a_job_leaves_what_that_has_changed(
        self, store: MemoryStore, verb: str
    ) -> None:
        act, after = BESIDE[verb]
        found = checkpoint(on(store, before_entry(lambda: act(on(store)))))
        assert values(on(store)) == after
        assert bool(actions(CHANGED, found)) == (verb != "append")
        assert not on(store).open_jobs()
        checkpoint(store)
        assert lying_fast(store) == []
        assert values(on(store)) == after

    def test_of_two_checkpoints_at_once_one_copies_and_the_other_says_so(
        self, store: MemoryStore
    ) -> None:
        first: list[Checkpointed] = []
        found = checkpoint(on(store, before_entry(lambda: first.extend(checkpoint(store)))))
        assert sorted(actions(COPIED, first)) == ["day=1", "day=2"]
        assert sorted(actions(CHANGED, found)) == ["day=1", "day=2"]
        assert values(on(store)) == [1, 2, 3]
        objects = {key for key in store.objects if "/data/" in key}
        assert objects == {file.key for file in on(store).state().files}

    def test_job_that_waits_is_published_after_a_checkpoint_of_what_it_removes(
        self, store: MemoryStore
    ) -> None:
        with on(store).job(
            rows(9).schema, idempotency_key="run", on_repeat="replace_own", publish=False
        ) as job:
            job.write(rows(9))
        checkpoint(store)
        assert job.unpublished is not None
        on(store).publish(job.unpublished.job)
        assert values(on(store)) == [2, 3, 9]

    def test_rerun_removes_no_copy_whose_source_a_restore_has_brought_back_and_others_changed(
        self, store: MemoryStore
    ) -> None:
        checkpoint(store)
        on(store).restore(2, apply=True)  # Its files lie in the data root again.
        on(store).delete([("value", "==", 2)])  # The run's row is written again.
        with pytest.raises(CommitConflictError, match="wrote the rows of"):
            write(on(store), rows(9), idempotency_key="run", on_repeat="replace_own")


class TestChange:
    def test_files_of_a_former_data_root_are_found_after_a_change(self, store: MemoryStore) -> None:
        change = on(store).set_data_root("s3://fast/other", apply=True)
        assert [it.partition for it in change.not_durable] == ["day=1", "day=2"]
        write(on(store), rows(3))
        assert paths(store)[-1].startswith("s3a://fast/other/bucket/flights/zr1-")
        on(store).set_data_root(None, apply=True)
        write(on(store), rows(4))
        assert paths(store)[-1].startswith("data/")
        assert values(on(store)) == [1, 2, 3, 4]
        assert sorted(actions(COPIED, checkpoint(store))) == ["day=1", "day=2"]
        assert values(on(store)) == [1, 2, 3, 4]

    def test_former_states_and_waiting_jobs_are_read_from_a_root_that_is_reached_otherwise(
        self, stores: FastStores
    ) -> None:
        moved = MemoryS3("http://127.0.0.1:2", buckets=cast(MemoryS3, stores.fast).buckets)
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        job = write(table, rows(2), mode="overwrite").job
        waits = [unpublished(table, rows(it, day="2")) for it in (3, 4)]
        stores.fast_end.close()
        with answering(moved):
            table = DeltaTable(URL, stores.durable.client())
            table.set_data_root(f"s3://fast/scratch?endpoint={moved.endpoint}", apply=True)
            found = [table.scan(as_of=0), table.scan(job=job), table.scan(job=waits[0])]
            assert [it.to_arrow()["value"].to_pylist() for it in found] == [[1], [2], [3]]
            table.abort(waits[1])
            assert len(stores.keys(moved, "fast")) == 4
            table.publish(waits[0])
            assert values(table) == [2, 3]

    def test_change_is_made_beside_a_job_that_is_open(self, store: MemoryStore) -> None:
        change = before_entry(lambda: on(store).set_data_root(None, apply=True))
        write(on(store, change), rows(3))
        assert values(on(store)) == [1, 2, 3]

    def test_restore_of_a_version_before_a_data_root_keeps_it(self) -> None:
        store = MemoryStore()
        write(on(store), rows(1))
        on(store).set_data_root(FAST, apply=True)
        write(on(store), rows(2))
        on(store).restore(0, apply=True)
        assert str(on(store).data_root) == FAST
        on(store).restore(2, apply=True)
        assert values(on(store)) == [1, 2]

    def test_change_without_apply_changes_nothing(self, store: MemoryStore) -> None:
        change = on(store).set_data_root(None)
        assert (str(change.before), change.after) == (FAST, None)
        assert str(on(store).data_root) == FAST

    def test_change_of_no_table_is_refused(self) -> None:
        with pytest.raises(TableNotFoundError):
            on(MemoryStore()).set_data_root(FAST, apply=True)


MARK = "scratch/bucket/flights/_table.json"


class TestTwoStores:
    """Tables of two stores, both ``s3://bucket/flights``, by one data root."""

    @pytest.fixture
    def other(self) -> Iterator[DeltaTable]:
        """The table of the other store."""
        server = MemoryS3("http://other.invalid")
        with answering(server):
            server.client().create_bucket(Bucket="bucket")
            yield DeltaTable(URL, server.client())

    def first(self, stores: FastStores) -> DeltaTable:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        return table

    def test_first_load_marks_the_folder_as_the_tables_own(self, stores: FastStores) -> None:
        table = self.first(stores)
        body = stores.fast.client().get_object(Bucket="fast", Key=MARK)["Body"].read()
        state = table.run(open_log(layout_of(table.root), LogDepth.BLIND)).state
        assert json.loads(body) == {"table": state.table_id}
        write(table, rows(2))
        assert table.purge(apply=True) == []

    def test_first_load_of_the_second_is_refused(
        self, stores: FastStores, other: DeltaTable
    ) -> None:
        table = self.first(stores)
        with pytest.raises(InvalidInputError, match="has files of another one"):
            write(other, rows(2), data_root=stores.data_root)
        assert not other.exists()
        assert other.open_jobs() == []
        assert values(table) == [1]

    def test_change_of_the_seconds_data_root_is_refused(
        self, stores: FastStores, other: DeltaTable
    ) -> None:
        self.first(stores)
        write(other, rows(2))
        with pytest.raises(InvalidInputError, match="has files of another one"):
            other.set_data_root(stores.data_root, apply=True)
        assert other.data_root is None

    def test_purge_leaves_a_folder_that_is_not_marked_as_the_tables_own(
        self, stores: FastStores, other: DeltaTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Both first loads saw no mark, as only two at once can."""
        table = self.first(stores)
        fast = stores.fast.client()
        mark = fast.get_object(Bucket="fast", Key=MARK)["Body"].read()
        fast.delete_object(Bucket="fast", Key=MARK)
        write(other, rows(2), data_root=stores.data_root)
        assert table.purge(apply=True) == []
        assert "not marked as its own" in caplog.text
        assert (values(table), values(other)) == ([1], [2])
        assert table.data_root_prefixes == ()
        fast.put_object(Bucket="fast", Key=MARK, Body=mark)
        assert other.purge(apply=True) == []

    def test_folder_whose_mark_was_lost_with_the_root_is_marked_again_and_purged(
        self, stores: FastStores, other: DeltaTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A fast store that comes back empty, as one in memory does."""
        table, fast = self.first(stores), stores.fast.client()
        table.checkpoint(apply=True)
        for key in stores.keys(stores.fast, "fast"):
            fast.delete_object(Bucket="fast", Key=key)
        write(table, rows(2))
        with pytest.raises(InvalidInputError, match="has files of another one"):
            write(other, rows(3), data_root=stores.data_root)
        table.purge(apply=True)
        assert "not marked as its own" not in caplog.text
        assert values(table) == [1, 2]

    def test_load_is_refused_where_another_table_has_marked_the_folder_since(
        self, stores: FastStores, other: DeltaTable
    ) -> None:
        """The other one's purge would delete its files."""
        table, fast = self.first(stores), stores.fast.client()
        table.checkpoint(apply=True)
        for key in stores.keys(stores.fast, "fast"):
            fast.delete_object(Bucket="fast", Key=key)
        write(other, rows(3), data_root=stores.data_root)
        with pytest.raises(TableMismatchError, match="marked as that of another one"):
            write(table, rows(2))
        assert table.open_jobs() == []
        table.set_data_root(None, apply=True)
        write(table, rows(2))
        assert (values(table), values(other)) == ([1, 2], [3])

    def test_first_load_of_a_table_that_another_first_load_makes_goes_on(
        self, store: MemoryStore
    ) -> None:
        made = MemoryStore()
        steps: list[str] = []

        def meanwhile(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, s.Get) and request.key.endswith("_table.json") and not steps:
                steps.append("met")
                write(on(made), rows(1), data_root=FAST)
            return apply(request)

        write(on(made, meanwhile), rows(2), data_root=FAST)
        assert steps
        assert values(on(made)) == [1, 2]


class TestVerify:
    def test_verify_finds_files_in_the_data_root_and_names_those_that_are_gone(
        self, store: MemoryStore
    ) -> None:
        assert on(store).verify() == []
        gone = on(store).state(["day=2"]).files[0].key
        del store.objects[gone]
        (found,) = on(store).verify()
        assert (found.partition, found.key, found.kind) == ("day=2", gone, FindingKind.MISSING)

    def test_files_of_a_lost_data_root_are_missing_and_loaded_again(
        self, stores: FastStores
    ) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        table.checkpoint(apply=True)
        write(table, rows(2, day="2"))
        stores.fast_end.close()
        (found,) = table.verify()
        assert (found.partition, found.kind) == ("day=2", FindingKind.MISSING)
        assert found.key not in table.keys_there()
        table.set_data_root(None, apply=True)
        write(table, rows(3, day="2"), mode="overwrite")
        assert values(table) == [1, 3]
        assert table.verify() == []

    @pytest.mark.parametrize("is_back", [False, True])
    def test_job_whose_files_are_lost_with_the_data_root_is_not_published(
        self, stores: FastStores, is_back: bool
    ) -> None:
        """It would take out rows that are durable. That the store is back helps nothing."""
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        table.checkpoint(apply=True)
        with table.job(rows(9).schema, mode="overwrite", publish=False) as job:
            job.write(rows(9))
        assert job.unpublished is not None
        for key in stores.files:
            stores.fast.client().delete_object(Bucket="fast", Key=key)
        if not is_back:
            stores.fast_end.close()
        kind = CommitConflictError if is_back else FastRootGoneError
        with pytest.raises(kind, match="are gone from the data root" if is_back else "be reached"):
            table.publish(job.unpublished.job)
        assert values(table) == [1]
        table.abort(job.unpublished.job)
        assert table.unpublished() == []


class TestDoctor:
    def test_doctor_names_what_lies_in_the_data_root_for_days(self, store: MemoryStore) -> None:
        assert isinstance(store.clock, ManualClock)
        store.clock.now = time.time()
        assert "not durable" not in [it.what for it in on(store).doctor()]
        store.clock.advance(2 * 24 * 3600.0)
        (late,) = [it for it in on(store).doctor() if it.what == "not durable"]
        assert "zero-rename checkpoint s3://bucket/flights --apply" in late.remedy
        checkpoint(store)
        assert "not durable" not in [it.what for it in on(store).doctor()]

    def test_doctor_names_a_data_root_that_cannot_be_reached(self, stores: FastStores) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        assert "fast root out of reach" not in [it.what for it in table.doctor()]
        stores.fast_end.close()
        assert "fast root out of reach" in [it.what for it in table.doctor()]


OPEN, CLOSED = "zr1-01J0000000000000000000000A", "zr1-01J0000000000000000000000B"


def purged(stores: FastStores, foreign_age: float | None = None) -> PurgedDestination:
    """Purge all that lies at the table's root, as a maintenance task does."""
    directory = Table(URL, stores.durable.client())
    place = directory.run(destination_at(directory.root))
    return purge_destination(directory, place, PurgeOrder(apply=True, foreign_age=foreign_age))


class TestPurge:
    def test_purge_deletes_what_nothing_names_in_the_data_root(self, store: MemoryStore) -> None:
        write(on(store), rows(3), mode="overwrite")
        assert isinstance(store.clock, ManualClock)
        assert on(store).purge() == []
        store.clock.now = time.time() + 30 * 24 * 3600.0
        (gone,) = on(store).purge(apply=True)
        assert is_fast(gone)
        assert values(on(store)) == [2, 3]

    def test_purge_spares_files_of_an_overwritten_entry_where_the_data_roots_clock_is_ahead(
        self, store: MemoryStore
    ) -> None:
        """A file's time is of another clock than its entry's; a repair may need the file."""
        second = FIRST.replace("0.json", "1.json")
        store.apply(s.Put(second, b'{"commitInfo": {}}\n'))
        write(on(store), rows(3))  # From now on openings tell nothing of it.

        def ahead(request: Any, apply: Callable[[Any], Any]) -> Any:
            answer = apply(request)
            if not isinstance(request, s.ListObjects) or not is_fast(request.prefix):
                return answer
            items = (replace(it, last_modified=it.last_modified + 7200) for it in answer.objects)
            return replace(answer, objects=tuple(items), date=answer.date + 7200)

        assert on(store).purge() == []
        assert on(store, ahead).purge() == []

    def test_purge_of_the_destination_aborts_uploads_of_closed_jobs_in_the_data_root(
        self, stores: FastStores
    ) -> None:
        """A worker was killed between two parts, and its job was aborted; another one is open."""
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        (place,) = table.data_root_prefixes
        opened = table.run(open_log_job(layout_of(table.root), iter([OPEN]), {}))
        for job in (opened.job, CLOSED):
            table.run(s.CreateUpload(f"{place}{job}/0.parquet"))
        stores.fast.client().create_multipart_upload(Bucket="fast", Key="others/file")
        done = purged(stores)
        assert [it.job for it in done.reported if it.action is PurgeAction.ABORTED] == [CLOSED]
        assert [it.job for it in done.reported if it.action is PurgeAction.KEPT] == [OPEN]
        found = stores.fast.client().list_multipart_uploads(Bucket="fast")["Uploads"]
        assert [it["Key"] for it in found] == [
            "others/file",
            f"scratch/bucket/flights/{OPEN}/0.parquet",
        ]

    @pytest.mark.parametrize("name", ["below", "data"])
    def test_purge_of_the_destination_leaves_uploads_of_a_table_below_it(
        self, stores: FastStores, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its files lie in the same data root, below the same folder: as a table that is made there
        while the one above it is, which is not seen."""
        monkeypatch.setattr(new_table, "refuse_below_swept", lambda _: iter(()))
        client = stores.durable.client()
        below = DeltaTable(f"{URL}/{name}", client)
        for table in (DeltaTable(URL, client), below):
            write(table, rows(1), data_root=stores.data_root)
        (place,) = below.data_root_prefixes
        below.run(open_log_job(layout_of(below.root), iter([OPEN]), {}))
        below.run(s.CreateUpload(f"{place}{OPEN}/0.parquet"))
        assert [it.action for it in purged(stores, 0.0).reported] == [PurgeAction.KEPT]
        found = stores.fast.client().list_multipart_uploads(Bucket="fast")["Uploads"]
        assert len(found) == 1

    def test_purge_of_the_destination_without_its_data_root_goes_on(
        self, stores: FastStores, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        stores.fast_end.close()
        purged(stores)
        assert "Uploads there were not purged" in caplog.text

    def test_purge_of_a_lost_data_root_deletes_nothing_and_goes_on(
        self, stores: FastStores, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        stores.fast_end.close()
        assert table.purge(apply=True) == []
        assert "Files there were not purged" in caplog.text
