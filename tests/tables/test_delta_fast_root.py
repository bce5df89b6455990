"""Delta tables whose files lie in a data root first: how the log names them, and who opens them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from support.fast_stores import FastStores, fast_stores
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.moto_server import S3Server
from zero_rename.committer.errors import InvalidInputError, RecordDamagedError, TableMismatchError
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.fast_root import is_fast
from zero_rename.committer.upkeep.verify import FindingKind
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.tables import DeltaTable
from zero_rename.tables.delta_steps import layout_of

pytestmark = [pytest.mark.memory_s3]
URL = "s3://bucket/flights"
#: Of tests in memory, where nothing is routed: the keys say where a file would lie.
FAST = "s3://fast/scratch"
FIRST = "flights/_delta_log/00000000000000000000.json"


def on(store: MemoryStore, fault: Any = None) -> DeltaTable:
    """A table as another process meets it."""
    table = DeltaTable(URL)
    table.driver = MemoryDriver(store, fault)  # type: ignore[assignment]
    return table


def rows(*values: int, day: str = "1") -> pa.Table:
    return pa.table({"day": [day] * len(values), "value": pa.array(values, pa.int64())})


def write(table: DeltaTable, data: pa.Table, **options: Any) -> Any:
    with table.job(data.schema, partition_by=["day"], **options) as job:
        job.write(data)
    return job.committed


def values(table: DeltaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["value"].to_pylist())


def paths(table: DeltaTable) -> list[str]:
    """The paths of the live files, as the log has them."""
    return [*table.run(open_log(layout_of(table.root), LogDepth.FILES)).state.live]


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
        assert len(stores.keys(stores.fast, "fast")) == 2
        own = stores.keys(stores.durable, "bucket")
        assert not [key for key in own if key.endswith(".parquet")]
        assert values(DeltaTable(URL, stores.durable.client())) == [1, 2]

    def test_log_names_files_of_a_data_root_by_urls_that_spark_reads(
        self, store: MemoryStore
    ) -> None:
        for path in paths(on(store)):
            assert path.startswith("s3a://fast/scratch/bucket/flights/zr1-"), path

    def test_odd_characters_of_a_data_root_are_escaped_in_paths(self) -> None:
        store = MemoryStore()
        write(on(store), rows(1), data_root="s3://fast/odd %20é")
        (path,) = paths(on(store))
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
        on(store).restore(0)
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


class TestVerify:
    def test_verify_finds_files_in_the_data_root_and_names_those_that_are_gone(
        self, store: MemoryStore
    ) -> None:
        assert on(store).verify() == []
        gone = on(store).state(["day=2"]).files[0].key
        del store.objects[gone]
        (found,) = on(store).verify()
        assert (found.partition, found.key, found.kind) == ("day=2", gone, FindingKind.MISSING)


class TestPurge:
    def test_purge_deletes_what_nothing_names_in_the_data_root(self, store: MemoryStore) -> None:
        write(on(store), rows(3), mode="overwrite")
        assert isinstance(store.clock, ManualClock)
        assert on(store).purge() == []
        store.clock.now = time.time() + 30 * 24 * 3600.0
        (gone,) = on(store).purge(apply=True)
        assert is_fast(gone)
        assert values(on(store)) == [2, 3]

    def test_purge_of_a_lost_data_root_deletes_nothing_and_goes_on(
        self, stores: FastStores, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = DeltaTable(URL, stores.durable.client())
        write(table, rows(1), data_root=stores.data_root)
        stores.fast_end.close()
        assert table.purge(apply=True) == []
        assert "Files there were not purged" in caplog.text
