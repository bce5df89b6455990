"""Jobs in a Delta table: what they commit, what readers see, what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.delta_tables import on
from support.memory_store import Behaviour, MemoryStore
from support.waiting import until
from zero_rename import Table
from zero_rename.committer import FileOptions
from zero_rename.committer.errors import (
    CommitConflictError,
    DestinationExistsError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnfitError,
    TableMismatchError,
    TableNotFoundError,
    UnsupportedTypeError,
)
from zero_rename.committer.format.records.failure import is_final
from zero_rename.committer.format.schema.row_metadata import ROW_METADATA
from zero_rename.committer.format.schema.types import SPARK_VERSION
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Found, Get, PutFile
from zero_rename.committer.write_job import WriteJob
from zero_rename.tables import DeltaTable, after_commit

pytestmark = [pytest.mark.memory_s3]
COLUMNS = pa.schema([("day", pa.string()), ("delay", pa.int64())])
#: Rows of days that are numbers, so that 01 is 1.
NUMBERED = pa.table({"day": pa.array([1, 2], pa.int32()), "delay": pa.array([5, 6], pa.int64())})


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    return DeltaTable(f"s3://{s3_bucket.name}/flights")


def rows(*pairs: tuple[str | None, int | None]) -> pa.Table:
    days, delays = zip(*pairs, strict=True)
    return pa.table({"day": pa.array(days, pa.string()), "delay": pa.array(delays, pa.int64())})


def write(table: DeltaTable, data: pa.Table, **options: Any) -> Any:
    options.setdefault("partition_by", ["day"] if not table.exists() else None)
    with table.job(data.schema, **options) as job:
        job.write(data)
    return job.committed


def read(table: DeltaTable, **options: Any) -> list[tuple[Any, ...]]:
    found = table.scan(**options).to_arrow().to_pylist()
    return sorted((tuple(it.values()) for it in found), key=repr)


class TestWriting:
    def test_the_first_append_makes_the_table(self, table: DeltaTable) -> None:
        assert not table.exists()
        done = write(table, rows(("1", 5), ("2", 6), (None, 7)))
        assert table.schema.equals(COLUMNS)
        assert table.partition_by == ("day",)
        assert read(table) == [("1", 5), ("2", 6), (None, 7)]
        assert [(it.partition, it.rows, it.version) for it in done.partitions] == [
            ("day=1", 1, 0),
            ("day=2", 1, 0),
            ("day=__HIVE_DEFAULT_PARTITION__", 1, 0),
        ]

    def test_partition_columns_of_an_entry_are_json_for_any_name(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        names = ["it's", 'the "day"', "ü"]
        data = pa.table({**{name: ["1"] for name in names}, "delay": [5]})
        write(table, data, partition_by=names)
        first = s3_bucket.read("flights/_delta_log/00000000000000000000.json").splitlines()[0]
        said = json.loads(first)["commitInfo"]["operationParameters"]
        assert json.loads(said["partitionBy"]) == names

    def test_a_replace_removes_the_rows_of_its_partitions_only(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("2", 6)))
        done = write(table, rows(("1", 7)), mode="overwrite")
        assert read(table) == [("1", 7), ("2", 6)]
        assert [(it.partition, it.removed) for it in done.partitions] == [("day=1", 1)]

    def test_a_named_partition_is_emptied_without_rows(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("2", 6)))
        write(table, rows(("1", 5)).slice(0, 0), mode="overwrite", replace_partitions=["day=2"])
        assert read(table) == [("1", 5)]

    @pytest.mark.parametrize("policy", ["replace_partitions", "only_partitions"])
    def test_partition_that_a_job_names_in_another_spelling_is_the_tables(
        self, table: DeltaTable, policy: str
    ) -> None:
        write(table, NUMBERED)
        read_before = table.snapshot(["day=1"])
        for spelling in ("day=01", "Day=1", "/day=1/"):
            write(table, NUMBERED[:1], mode="overwrite", **{policy: [spelling]})
        assert read(table) == [(1, 5), (2, 6)]
        with pytest.raises(CommitConflictError, match="day=1"):
            write(
                table,
                NUMBERED[:0] if policy == "replace_partitions" else NUMBERED[:1],
                mode="overwrite",
                base=read_before,
                **{policy: ["day=01"]},
            )
        assert read(table) == [(1, 5), (2, 6)]
        with pytest.raises(InvalidInputError, match="is not a value of the partition column"):
            write(table, NUMBERED[:0], mode="overwrite", **{policy: ["day=a"]})

    def test_a_replace_of_the_table_leaves_the_new_rows(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("2", 6)))
        write(table, rows(("3", 7)), mode="overwrite", replace_table=True)
        assert read(table) == [("3", 7)]

    def test_an_unpartitioned_table_is_replaced_as_a_whole(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)), partition_by=[])
        write(table, rows(("1", 6)), mode="overwrite")
        assert read(table) == [("1", 6)]

    def test_fail_if_exists_takes_the_place_of_rows_of_its_own_run_and_of_no_others(
        self, table: DeltaTable
    ) -> None:
        again = {"mode": "fail-if-exists", "idempotency_key": "run", "on_repeat": "replace_own"}
        write(table, rows(("1", 5)), **again)
        write(table, rows(("1", 6)), **again)
        assert read(table) == [("1", 6)]
        write(table, rows(("1", 7)))
        with pytest.raises(DestinationExistsError, match="day=1"):
            write(table, rows(("1", 8)), **again)
        assert read(table) == [("1", 6), ("1", 7)]

    def test_fail_if_exists_refuses_a_partition_with_files(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        with pytest.raises(DestinationExistsError, match="day=1"):
            write(table, rows(("1", 6)), mode="fail-if-exists")
        write(table, rows(("2", 6)), mode="fail-if-exists")
        assert read(table) == [("1", 5), ("2", 6)]

    def test_an_aborted_job_leaves_neither_rows_nor_files(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        before = keys(table)
        with pytest.raises(RuntimeError):
            write_while(table, rows(("1", 6)), fail)
        assert read(table) == [("1", 5)]
        assert keys(table) == before

    def test_odd_partition_values_are_read_as_they_were_written(self, table: DeltaTable) -> None:
        odd = ["a b", "ü/%2F", "=&?#+", "'\"", "..", "a" * 60]
        write(table, rows(*((text, number) for number, text in enumerate(odd))))
        assert dict(read(table)) == {text: number for number, text in enumerate(odd)}
        assert all(it.isascii() and "day" not in it for it in keys(table) if "/data/" in it)


def write_while(
    table: DeltaTable, data: pa.Table, meanwhile: Callable[[], object], **options: Any
) -> None:
    with table.job(**options) as job:
        job.write(data)
        meanwhile()


def fail() -> None:
    raise RuntimeError


def keys(table: DeltaTable) -> list[str]:
    return list(table.driver.run(list_objects(f"{table.root.prefix}/")).keys)


class TestConflicts:
    def test_a_replace_beside_a_replace_of_its_partition_is_refused(
        self, table: DeltaTable
    ) -> None:
        write(table, rows(("1", 5)))
        other = partial(write, table, rows(("1", 7)), mode="overwrite")
        with pytest.raises(CommitConflictError):
            write_while(table, rows(("1", 6)), other, mode="overwrite")
        assert read(table) == [("1", 7)]

    def test_jobs_of_other_partitions_pass(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        with table.job(mode="overwrite") as job:
            job.write(rows(("1", 6)))
            write(table, rows(("2", 7)), mode="overwrite")
        assert read(table) == [("1", 6), ("2", 7)]

    def test_the_last_replace_wins_where_it_says_so(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        with table.job(mode="overwrite", on_conflict="last_wins") as job:
            job.write(rows(("1", 6)))
            write(table, rows(("1", 7)))
        assert read(table) == [("1", 6)]

    def test_a_change_since_the_rows_were_read_is_a_conflict(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        state = table.snapshot()
        write(table, rows(("1", 6)))
        with pytest.raises(CommitConflictError), table.job(mode="overwrite", base=state) as job:
            job.write(rows(("1", 10)))
        assert read(table) == [("1", 5), ("1", 6)]

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_of_two_first_jobs_of_one_kind_both_load(self, table: DeltaTable, mode: str) -> None:
        given: dict[str, Any] = {"partition_by": ["day"], "mode": mode}
        with table.job(COLUMNS, **given) as job:
            job.write(rows(("1", 5)))
            write(table, rows(("2", 6)), **given)
        assert job.committed is not None
        assert [it.partition for it in job.committed.partitions] == ["day=1"]
        assert read(table) == [("1", 5), ("2", 6)]

    def test_of_two_first_jobs_that_differ_one_makes_the_table(self, table: DeltaTable) -> None:
        other = partial(write, table, rows(("2", 6)), partition_by=[])
        with pytest.raises(CommitConflictError):
            write_while(table, rows(("1", 5)), other, schema=COLUMNS, partition_by=["day"])
        assert read(table) == [("2", 6)]
        assert table.partition_by == ()


class TestManyWriters:
    def test_appends_at_once_are_all_there_once(self, table: DeltaTable) -> None:
        write(table, rows(("0", 0)))

        def append(writer: int) -> None:
            mine = DeltaTable(table.root.url)
            for number in range(4):
                key = f"{writer}/{number}"
                for _ in range(2):
                    write(mine, rows((str(writer), number)), idempotency_key=key)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(1, 9)))
        expected = [("0", 0), *((str(w), n) for w in range(1, 9) for n in range(4))]
        assert read(table) == sorted(expected)
        assert len(table.history()) == 33

    def test_of_replaces_of_one_partition_the_rows_of_one_stay(self, table: DeltaTable) -> None:
        write(table, rows(("1", 0)))

        def replace(value: int) -> int | None:
            mine = DeltaTable(table.root.url)
            with suppress(CommitConflictError):
                return write(mine, rows(("1", value)), mode="overwrite").rows and value
            return None

        with ThreadPoolExecutor(8) as pool:
            told = [it for it in pool.map(replace, range(1, 17)) if it is not None]
        ((_, last),) = read(table)
        assert last in told
        assert len(table.history()) == len(told) + 1


class TestRuns:
    def test_a_second_try_of_a_run_writes_nothing(self, table: DeltaTable) -> None:
        first = write(table, rows(("1", 5)), idempotency_key="run")
        again = write(table, rows(("1", 5)), idempotency_key="run")
        assert again.repeated
        assert (again.job, again.rows) == (first.job, 1)
        assert read(table) == [("1", 5)]

    def test_a_run_that_loads_again_replaces_its_own_rows(self, table: DeltaTable) -> None:
        write(table, rows(("1", 1)))
        write(table, rows(("1", 5)), idempotency_key="run")
        for value in (6, 7):
            write(table, rows(("1", value)), idempotency_key="run", on_repeat="replace_own")
        assert read(table) == [("1", 1), ("1", 7)]

    def test_a_run_that_has_changed_rows_of_others_takes_none_of_them_out(
        self, table: DeltaTable
    ) -> None:
        write(table, rows(("1", 1), ("1", 2)))
        table.delete([("delay", "==", 2)], idempotency_key="run")
        words = {"idempotency_key": "run", "on_repeat": "replace_own"}
        with pytest.raises(CommitConflictError, match="wrote rows of others again"):
            write(table, rows(("1", 5)), **words)
        assert read(table) == [("1", 1)]
        write(table, rows(("1", 5)), mode="overwrite", **words)
        assert read(table) == [("1", 5)]

    def test_a_second_try_of_a_run_that_met_the_first_one_as_it_made_the_table_repeats_it(
        self, table: DeltaTable
    ) -> None:
        with table.job(COLUMNS, partition_by=["day"], idempotency_key="run") as second:
            second.write(rows(("1", 5)))
            first = write(DeltaTable(table.root.url), rows(("1", 5)), idempotency_key="run")
        assert second.committed is not None
        assert second.committed.repeated
        assert second.committed.job == first.job
        assert read(table) == [("1", 5)]

    def test_a_try_beside_another_one_of_its_run_fails_and_its_retry_reports_that_one(
        self, table: DeltaTable
    ) -> None:
        run = {"idempotency_key": "run", "on_repeat": "replace_own"}
        write(table, rows(("1", 5)), idempotency_key="run")

        def overtaken() -> None:
            with table.job(COLUMNS, partition_by=["day"], **run) as second:  # type: ignore[arg-type]
                second.write(rows(("1", 7)))
                write(DeltaTable(table.root.url), rows(("1", 6)), **run)

        with pytest.raises(CommitConflictError, match="Another attempt of this run") as caught:
            overtaken()
        assert not is_final(caught.value, table.root)
        assert read(table) == [("1", 6)]

    def test_a_run_may_append_again(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)), idempotency_key="run")
        write(table, rows(("1", 6)), idempotency_key="run", on_repeat="append")
        assert read(table) == [("1", 5), ("1", 6)]
        write(table, rows(("1", 7)), idempotency_key="run", on_repeat="replace_own")
        assert read(table) == [("1", 7)]


class TestColumns:
    def test_a_new_column_is_null_in_older_rows(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        more = rows(("1", 6)).append_column("gate", pa.array(["A"]))
        with pytest.raises(TableMismatchError, match="gate is not in the table"):
            write(table, more)
        write(table, more, schema_mode="merge")
        assert table.schema.names == ["day", "delay", "gate"]
        assert read(table) == [("1", 5, None), ("1", 6, "A")]

    def test_a_wider_type_is_refused_by_name(self, table: DeltaTable) -> None:
        narrow = pa.table({"day": ["1"], "delay": pa.array([1], pa.int32())})
        write(table, narrow)
        with pytest.raises(TableMismatchError, match="typeWidening"):
            write(table, rows(("1", 6)), schema_mode="merge")

    def test_times_in_nanoseconds_become_microseconds(self, table: DeltaTable) -> None:
        stamps = pa.array([1_700_000_000_123_456_000], pa.timestamp("ns"))
        write(table, pa.table({"at": stamps, "day": ["1"]}))
        assert table.schema.field("at").type == pa.timestamp("us")

    def test_a_type_that_delta_lacks_is_refused_by_its_column(self, table: DeltaTable) -> None:
        odd = pa.table({"day": ["1"], "took": pa.array([1], pa.duration("us"))})
        with pytest.raises(UnsupportedTypeError, match="'took' is duration"):
            write(table, odd)
        assert keys(table) == []

    @pytest.mark.parametrize("options", [{}, {"schema_mode": "merge"}, {"mode": "overwrite"}])
    def test_column_of_nothing_but_nulls_takes_the_tables_type(
        self, table: DeltaTable, options: dict[str, Any]
    ) -> None:
        first = pa.table({"day": ["1"], "delay": [5], "parts": [[{"a": 1}]]})
        write(table, first)
        nulls = pa.table({"day": [None], "delay": [None], "parts": [[{"a": None}]]})
        write(table, nulls, **options)
        assert table.schema.equals(first.schema)
        assert read(table) == [("1", 5, [{"a": 1}]), (None, None, [{"a": None}])]
        more = nulls.append_column("more", pa.nulls(1))
        with pytest.raises(UnsupportedTypeError, match="'more' is null"):
            write(table, more, schema_mode="merge")

    def test_variant_of_spark_is_refused_by_its_column(self, table: DeltaTable) -> None:
        marked = pa.field("metadata", pa.binary(), metadata={"variant": "true"})
        variant = pa.struct([pa.field("value", pa.binary()), marked])
        for kind in (variant, pa.list_(variant), pa.struct([("part", variant)])):
            with (
                pytest.raises(UnsupportedTypeError, match=r"'v.*' is a variant"),
                table.job(pa.schema([("v", kind)])),
            ):
                pass
        assert not table.exists()

    def test_null_in_a_column_that_must_not_be_null_is_refused(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        never_null(table, "delay")
        with pytest.raises(InvalidInputError, match="'delay' must not be null"):
            write(table, rows(("1", None)))
        write(table, rows(("1", 6)))
        assert read(table) == [("1", 5), ("1", 6)]

    def test_nan_is_taken_in_a_column_that_must_not_be_null(self, table: DeltaTable) -> None:
        """Columns with NaN have no statistics in the files."""

        def floats(*values: float | None) -> pa.Table:
            return pa.table({"x": pa.array(values, pa.float64()), "a.b": [1] * len(values)})

        write(table, floats(1.0), partition_by=[])
        never_null(table, "x")
        write(table, floats(float("nan"), 2.0), partition_by=[])
        with pytest.raises(InvalidInputError, match="'x' must not be null"):
            write(table, floats(float("nan"), None), partition_by=[])
        assert len(table.scan().to_arrow()) == 3
        stated = [it.statistics for it in table.state().files]
        assert [json.loads(it)["nullCount"]["x"] for it in stated] == [0, 0]

    def test_file_of_a_spark_job_says_its_version_and_hides_no_partition_column(
        self, table: DeltaTable
    ) -> None:
        """In files without a version, Spark 3.5 refuses dates before 1582."""
        delay = {"name": "delay", "type": "long", "nullable": True, "metadata": {}}
        described = json.dumps({"type": "struct", "fields": [delay]}).encode()
        said = {SPARK_VERSION: b"4.1.0", ROW_METADATA: described}
        for policy in ("keep", "keep", "merge"):
            given = rows(("1", 5)).replace_schema_metadata(said)
            write(table, given, schema_mode=policy)
        files = table.state().files
        assert len(files) == 3
        for file in files:
            found = table.driver.run(Get(file.key))
            assert isinstance(found, Found)
            metadata = pq.read_metadata(io.BytesIO(found.body)).metadata
            assert metadata[SPARK_VERSION] == b"4.1.0"
            assert ROW_METADATA not in metadata


def never_null(table: DeltaTable, column: str) -> None:
    """Forbid nulls in a column, by the next entry of the log, as another engine would."""
    log = f"{table.root.prefix}/_delta_log/{0:020}.json"
    found = table.driver.run(Get(log))
    assert isinstance(found, Found)
    body = found.body.decode()
    entry = json.loads(next(it for it in body.splitlines() if "metaData" in it))
    schema = json.loads(entry["metaData"]["schemaString"])
    for field in schema["fields"]:
        field["nullable"] = field["name"] != column
    entry["metaData"]["schemaString"] = json.dumps(schema)
    put(table, 1, entry)


def put(table: DeltaTable, version: int, *actions: Mapping[str, Any]) -> None:
    """Write an entry as another engine would."""
    key = f"{table.root.prefix}/_delta_log/{version:020}.json"
    body = "\n".join(json.dumps(it) for it in actions).encode()
    table.driver.run(PutFile(key, body))


class TestOtherWriters:
    def test_an_entry_that_was_written_over_is_told_by_the_next_commit(
        self, table: DeltaTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(table, rows(("1", 5)))
        write(table, rows(("1", 6)))
        put(table, 1, {"commitInfo": {"timestamp": 1, "operation": "WRITE"}})
        write(table, rows(("1", 7)))
        assert "the entries of versions 1 of its log are not those" in caplog.text
        assert read(table) == [("1", 5), ("1", 7)]


class TestStore:
    def test_a_store_that_keeps_no_condition_of_put_is_refused(self) -> None:
        store = MemoryStore(behaviour=Behaviour(conditional_put=False))
        with pytest.raises(StoreUnfitError, match="does not keep If-None-Match"):
            write(on(store), rows(("1", 5)), partition_by=["day"])
        assert not store.objects

    def test_a_store_that_writes_in_two_steps_holds_one_writer(self) -> None:
        store = MemoryStore(behaviour=Behaviour(server_name="Werkzeug/3"))
        write(on(store), rows(("1", 5)), partition_by=["day"])
        with on(store).job() as job:
            job.write(rows(("1", 6)))
            with pytest.raises(StoreUnfitError, match="another job is open"):
                write(on(store), rows(("1", 7)))
        assert read(on(store)) == [("1", 5), ("1", 6)]

    @pytest.mark.parametrize("prefix", ["", "flights/", "flights/data/", "flights/_delta_log/"])
    def test_a_first_write_is_refused_where_a_lifecycle_rule_expires_the_table(
        self, prefix: str
    ) -> None:
        store = MemoryStore()
        store.rules = (LifecycleRule("tidy", prefix, expires=True),)
        with pytest.raises(StoreUnfitError, match=r"rule 'tidy' deletes by age.*the table's log"):
            write(on(store), rows(("1", 5)), partition_by=["day"])
        assert not store.objects

    @pytest.mark.parametrize(
        "rule",
        [
            LifecycleRule("elsewhere", "flights_old/", expires=True),
            LifecycleRule("of some tags", "", expires=True, tags={"kind": "scratch"}),
            LifecycleRule("of empty objects", "", expires=True, smaller=1),
            LifecycleRule("of uploads", "", abort_days=7),
        ],
        ids=lambda rule: rule.name,
    )
    def test_lifecycle_rules_of_others_refuse_nothing_and_later_ones_are_the_doctors(
        self, rule: LifecycleRule
    ) -> None:
        store = MemoryStore()
        store.rules = (rule,)
        write(on(store), rows(("1", 5)), partition_by=["day"])
        store.rules = (LifecycleRule("later", "", expires=True),)
        write(on(store), rows(("1", 6)))
        assert read(on(store)) == [("1", 5), ("1", 6)]

    def test_a_lifecycle_rule_of_the_first_jobs_own_tags_refuses_it(self) -> None:
        store = MemoryStore()
        store.rules = (LifecycleRule("scratch", "", expires=True, tags={"kind": "scratch"}),)
        with pytest.raises(StoreUnfitError, match="rule 'scratch' deletes by age"):
            write(on(store), rows(("1", 5)), files=FileOptions(tags={"kind": "scratch"}))
        assert not store.objects

    def test_a_table_of_another_engine_is_written_where_its_store_keeps_conditions(self) -> None:
        store = MemoryStore()
        write(on(store), rows(("1", 5)), partition_by=["day"])
        log = f"flights/_delta_log/{0:020}.json"
        body = store.objects[log].body.decode()
        assert '"zero_rename.atomicPut":"true"' in body
        store.apply(PutFile(log, body.replace(',"zero_rename.atomicPut":"true"', "").encode()))
        theirs = on(store)
        write(theirs, rows(("1", 6)))
        asked = [it for it in theirs.driver.requests if "/probe/" in getattr(it, "key", "")]  # type: ignore[attr-defined]
        assert asked
        store.behaviour = replace(store.behaviour, conditional_put=False)
        with pytest.raises(StoreUnfitError):
            write(on(store), rows(("1", 7)))


class TestPlace:
    def test_a_root_with_files_is_refused(self, table: DeltaTable) -> None:
        with Table(table.root.url).job(COLUMNS, partition_by=["day"]) as job:
            job.write(rows(("1", 5)))
        with pytest.raises(TableMismatchError, match="A table of directories lies here"):
            write(table, rows(("1", 6)))

    def test_a_root_with_files_of_others_is_refused(
        self, table: DeltaTable, s3_bucket: Any
    ) -> None:
        key = f"{table.root.prefix}/day=1/part-0.parquet"
        s3_bucket.client.put_object(Bucket=s3_bucket.name, Key=key, Body=b"")
        with pytest.raises(TableMismatchError, match=r"no Delta table yet.* adopt s3://"):
            write(table, rows(("1", 6)))

    def test_there_is_nothing_to_read_without_a_table(self, table: DeltaTable) -> None:
        with pytest.raises(TableNotFoundError):
            table.scan().to_arrow()


class TestOtherRuns:
    """Jobs of other runs at work, whom a run waits for."""

    def opened(self, table: DeltaTable, *days: str, **policy: Any) -> WriteJob:
        given = {"mode": "overwrite", "replace_partitions": [f"day={day}" for day in days]}
        fields: dict[str, Any] = given | policy
        job = table.job(COLUMNS, partition_by=["day"], **fields)
        job.__enter__()
        return job

    def test_those_of_the_same_partitions_are_rivals(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        one = self.opened(table, "1", idempotency_key="one")
        whole = self.opened(table, replace_partitions=None, replace_table=True)
        adds = self.opened(table, mode="append", replace_partitions=None)

        def found(*days: str, appends: bool = False, run: str | None = None) -> set[str | None]:
            names = [f"day={day}" for day in days]  # Ids of one millisecond are in no order.
            return {it.job for it in table.rival_jobs(names, appends, run=run)}

        assert found("1") == {one.job, whole.job, adds.job}
        assert found("2") == {whole.job, adds.job}
        assert found("2", appends=True) == {whole.job}
        assert found(run="one") == {whole.job, adds.job}
        for job in (one, whole, adds):
            job.__exit__(ValueError, ValueError(), None)
        assert found("1") == set()

    def test_one_whose_record_is_damaged_is_left_to_recovery(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        write(table, rows(("1", 5)))
        one, other = self.opened(table, "1"), self.opened(table, "1")
        (key,) = [key for key in s3_bucket.keys(table.root.prefix) if f"/open/{one.job}" in key]
        record = json.loads(s3_bucket.read(key))
        record["owner"]["max_duration"] = "long"
        s3_bucket.put(key, json.dumps(record).encode())
        assert [it.job for it in table.rival_jobs(["day=1"], False)] == [other.job]

    def test_one_that_is_open_for_too_long_is_dead(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        self.opened(table, "1", max_duration=1e-9)
        until("the store's next second", lambda: not table.rival_jobs(["day=1"], False))

    def test_run_begins_on_what_the_other_one_has_committed(
        self, table: DeltaTable, pauses: Any
    ) -> None:
        write(table, rows(("1", 5)))
        other = self.opened(table, "1")
        other.write(rows(("1", 6)))
        pauses(lambda: other.__exit__(None, None, None))
        waits = {"replace_partitions": ["day=1"], "wait_for_other_runs": 60}
        write(table, rows(("1", 7)), mode="overwrite", **waits)
        assert read(table) == [("1", 7)]
        assert [it.added for it in table.history()] == [1, 1, 1]

    def test_wait_that_is_over_is_a_conflict(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        self.opened(table, "1")
        with pytest.raises(CommitConflictError, match="wait_for_other_runs"):
            write(table, rows(("1", 7)), mode="overwrite", wait_for_other_runs=1e-6)


class TestPast:
    def test_a_former_version_is_read(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        write(table, rows(("1", 6)), mode="overwrite")
        assert read(table, as_of=0) == [("1", 5)]
        assert [(it.version, it.operation, it.added, it.removed) for it in table.history()] == [
            (1, "WRITE", 1, 1),
            (0, "WRITE", 1, 0),
        ]

    def test_a_restored_version_is_there_again(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("2", 4)))
        write(table, rows(("1", 6)), mode="overwrite")
        done = table.restore(0, apply=True)
        assert read(table) == [("1", 5), ("2", 4)]
        assert (done.partitions, done.returned, done.removed) == (("day=1",), 1, 1)
        assert (done.version, done.present, done.lost) == (0, 1, ())
        assert table.history(1)[0].operation == "RESTORE"


def clean(bucket: Bucket, version: int) -> None:
    """Remove an entry of the log, as other engines do when it is old."""
    for name in ("json", "crc"):
        key = f"flights/_delta_log/{version:020d}.{name}"
        bucket.client.delete_object(Bucket=bucket.name, Key=key)


class TestRows:
    def test_a_merge_updates_inserts_and_deletes_by_key(self, table: DeltaTable) -> None:
        write(table, keyed(("1", 1, 5), ("1", 2, 6), ("2", 3, 7)))
        change = table.merge(
            keyed(("1", 1, 50), ("1", 2, 0), ("3", 4, 8)), ["id"], delete_when=[("delay", "==", 0)]
        )
        assert read(table) == [("1", 1, 50), ("2", 3, 7), ("3", 4, 8)]
        assert (change.rows.inserted, change.rows.updated, change.rows.deleted) == (1, 1, 1)
        assert table.history(1)[0].operation == "MERGE"

    def test_a_merge_makes_the_table(self, table: DeltaTable) -> None:
        table.merge(keyed(("1", 1, 5)), ["id"], partition_by=["day"])
        assert read(table) == [("1", 1, 5)]
        assert table.partition_by == ("day",)

    def test_a_merge_is_computed_again_after_a_change_beside_it(
        self, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(table, keyed(("1", 1, 5)))
        waiting = [partial(write, table, keyed(("1", 2, 6)))]
        policies = DeltaTable.rewrite_policies

        def lands(self: DeltaTable, *given: Any) -> Any:
            while waiting:
                waiting.pop()()
            return policies(self, *given)

        monkeypatch.setattr(DeltaTable, "rewrite_policies", lands)
        change = table.merge(keyed(("1", 2, 60)), ["id"])
        assert change.attempts == 2
        assert read(table) == [("1", 1, 5), ("1", 2, 60)]

    def test_of_two_first_merges_neither_is_lost(
        self, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting = [partial(write, table, keyed(("1", 1, 5)), partition_by=["day"])]
        policies = DeltaTable.rewrite_policies

        def lands(self: DeltaTable, *given: Any) -> Any:
            while waiting:
                waiting.pop()()
            return policies(self, *given)

        monkeypatch.setattr(DeltaTable, "rewrite_policies", lands)
        table.merge(keyed(("1", 2, 6)), ["id"], partition_by=["day"])
        assert read(table) == [("1", 1, 5), ("1", 2, 6)]

    def test_a_deletion_removes_rows_and_empty_files(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("1", 6), ("2", 7)))
        change = table.delete([("delay", ">", 5)])
        assert read(table) == [("1", 5)]
        assert change.rows.deleted == 2
        assert table.history(1)[0].operation == "DELETE"

    def test_a_run_whose_rows_were_merged_is_not_loaded_twice(self, table: DeltaTable) -> None:
        write(table, keyed(("1", 1, 5)), idempotency_key="run")
        table.merge(keyed(("1", 2, 6)), ["id"])
        with pytest.raises(CommitConflictError, match="may still be there"):
            write(table, keyed(("1", 1, 7)), idempotency_key="run", on_repeat="replace_own")
        assert read(table) == [("1", 1, 5), ("1", 2, 6)]

    def test_row_of_others_that_a_run_has_moved_is_not_lost_as_the_run_loads_again(
        self, table: DeltaTable
    ) -> None:
        write(table, keyed(("1", 1, 5)))
        run: dict[str, Any] = {"idempotency_key": "run"}
        table.merge(keyed(("2", 1, 6)), ["id"], across_partitions=True, **run)
        with pytest.raises(CommitConflictError, match="wrote rows of others again"):
            write(table, keyed(("3", 2, 7)), **run, on_repeat="replace_own")
        assert read(table) == [("2", 1, 6)]

    def test_merge_that_would_double_rows_is_refused_though_the_runs_entry_was_cleaned(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        """The version of the run's commit is known then, and the job is not."""
        given: Any = {"on": ["id"], "idempotency_key": "run"}
        table.merge(keyed(("1", None, 5)), **given)
        write(table, keyed(("2", 1, 6)))
        table.checkpoint_log()
        clean(s3_bucket, 0)
        assert table.merge(keyed(("1", None, 5)), **given).committed is not None  # A retry.
        with pytest.raises(InvalidInputError, match="null key match nothing"):
            table.merge(keyed(("1", None, 5)), **given, on_repeat="replace_own")
        assert read(table) == [("1", None, 5), ("2", 1, 6)]

    def test_run_whose_entry_was_cleaned_replaces_the_whole_table_again(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        whole: Any = {"idempotency_key": "run", "mode": "overwrite", "replace_table": True}
        write(table, rows(("1", 5), ("2", 5)), **whole)
        write(table, rows(("1", 6)))
        table.checkpoint_log()
        clean(s3_bucket, 0)
        write(table, rows(("3", 7)), **whole, on_repeat="replace_own")
        assert read(table) == [("3", 7)]
        assert table.job_of_key("run") == table.history(1)[0].job

    def test_run_whose_entry_was_cleaned_may_replace_its_partitions_as_the_error_says(
        self, table: DeltaTable, s3_bucket: Bucket
    ) -> None:
        """Where else it has loaded nobody knows."""
        day: Any = {"idempotency_key": "run", "mode": "overwrite"}
        write(table, rows(("1", 5)), **day)
        write(table, rows(("2", 6)))
        table.checkpoint_log()
        clean(s3_bucket, 0)
        with pytest.raises(CommitConflictError, match="entry 0 was cleaned") as refused:
            write(table, rows(("1", 7)), **day, on_repeat="replace_own")
        assert "load once with on_repeat='append'" in (refused.value.remedy or "")
        write(table, rows(("1", 7)), **day, on_repeat="append")
        assert read(table) == [("1", 7), ("2", 6)]

    def test_a_run_whose_rows_were_compacted_takes_their_place(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5), ("2", 5)))
        write(table, rows(("1", 6), ("2", 6)), idempotency_key="run")
        table.compact(apply=True)
        done = write(table, rows(("1", 7)), idempotency_key="run", on_repeat="replace_own")
        assert read(table) == [("1", 5), ("1", 7), ("2", 5)]
        told = [(it.partition, it.files, it.rows, it.removed) for it in done.partitions]
        assert told == [("day=1", 1, 1, 1), ("day=2", 0, 0, 1)]

    def test_a_run_whose_rows_were_merged_may_append_again(self, table: DeltaTable) -> None:
        write(table, keyed(("1", 1, 5)), idempotency_key="run")
        table.merge(keyed(("1", 2, 6)), ["id"])
        write(table, keyed(("1", 3, 7)), idempotency_key="run", on_repeat="append")
        assert read(table) == [("1", 1, 5), ("1", 2, 6), ("1", 3, 7)]

    def test_small_files_become_one_beside_an_append(self, table: DeltaTable) -> None:
        for value in range(3):
            write(table, rows(("1", value)))
        with table.job() as job:
            job.write(rows(("1", 9)))
            (found,) = table.compact(apply=True)
        assert (found.files, found.files_after, found.action) == (3, 1, "compacted")
        assert read(table) == [("1", 0), ("1", 1), ("1", 2), ("1", 9)]
        assert [(it.operation, it.removed) for it in table.history(2)] == [
            ("WRITE", 0),
            ("OPTIMIZE", 3),
        ]


def keyed(*found: tuple[str, int | None, int]) -> pa.Table:
    days, ids, delays = zip(*found, strict=True)
    return pa.table({"day": days, "id": pa.array(ids, pa.int64()), "delay": pa.array(delays)})


class TestUpkeep:
    def test_a_dead_job_is_settled_and_its_files_are_purged(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        job = table.job()
        job.__enter__()
        job.write(rows(("1", 6)))
        job._writer.close()  # type: ignore[union-attr]  # The process dies here.
        assert [it.outcome for it in table.recover()] == ["left"]  # It may take a day.
        (left,) = table.open_jobs()
        assert left.job == job.job
        assert [(it.job, it.outcome) for it in table.recover(patience=0)] == [(job.job, "aborted")]
        assert not any("/open/" in it for it in keys(table))
        doomed = table.purge()
        assert len(doomed) == 1
        assert str(job.job) in doomed[0]
        assert table.purge(apply=True) == doomed
        assert read(table) == [("1", 5)]

    def test_dead_job_whose_record_a_node_of_a_fast_clock_wrote_is_settled(self) -> None:
        class TwoNodes(MemoryStore):
            def _written(self, key: str) -> float:
                return self._now() + 2 * ("/open/" in key)

        store = TwoNodes()
        write(on(store), rows(("1", 5)))
        job = on(store).job()
        job.__enter__()
        assert [it.outcome for it in on(store).plan_recovery(patience=0)] == ["would-abort"]
        assert [it.outcome for it in on(store).give_up([str(job.job)])] == ["aborted"]
        assert on(store).open_jobs() == []

    def test_each_so_many_commits_leave_a_checkpoint(
        self, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(after_commit, "CHECKPOINT_INTERVAL", 3)
        for value in range(8):
            write(table, rows(("1", value)))
        found = [it.rpartition("/")[2] for it in keys(table) if ".checkpoint." in it]
        assert found == [f"{version:020}.checkpoint.parquet" for version in (3, 6)]
        assert [value for _, value in read(table)] == list(range(8))

    def test_a_checkpoint_that_cannot_be_written_fails_no_job(
        self, table: DeltaTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(*given: Any) -> Any:
            raise StoreRefusedError("No right.")

        monkeypatch.setattr(after_commit, "CHECKPOINT_INTERVAL", 1)
        monkeypatch.setattr(after_commit, "make_checkpoint", fails)
        for value in range(2):
            assert write(table, rows(("1", value))).rows == 1
        assert "no checkpoint was written: No right." in caplog.text

    def test_a_checkpoint_changes_nothing(self, table: DeltaTable) -> None:
        write(table, rows(("1", 5)))
        write(table, rows(("1", 6)))
        assert table.checkpoint_log() == 1
        write(table, rows(("1", 7)), mode="overwrite")
        assert read(table) == [("1", 7)]
