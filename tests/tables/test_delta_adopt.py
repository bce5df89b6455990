"""Directories of Parquet files that become Delta tables where they lie."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.delta_tables import on
from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename.committer.errors import (
    CommitConflictError,
    RefusedError,
    StoreUnfitError,
    StoreUnreachableError,
    TableMismatchError,
    TableNotFoundError,
    ZeroRenameError,
)
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.upkeep.adopt import AdoptAction
from zero_rename.tables import DeltaTable

ENTRY = "flights/_delta_log/00000000000000000000.json"


def parquet(data: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(data, sink, **options)
    return sink.getvalue()


def delays(*values: int) -> pa.Table:
    return pa.table({"delay": pa.array(values, pa.int64())})


def holding(files: dict[str, pa.Table | bytes]) -> MemoryStore:
    """A store with files below the root, by what follows it."""
    store = MemoryStore()
    for name, data in files.items():
        body = data if isinstance(data, bytes) else parquet(data)
        on(store).run(s.PutFile(f"flights/{name}", body))
    return store


def days() -> MemoryStore:
    return holding(
        {"day=2013-01-01/a.parquet": delays(1, 2), "day=2013-01-02/b.parquet": delays(3)}
    )


def rows(table: DeltaTable, *columns: str) -> list[tuple[Any, ...]]:
    found = table.scan(columns=columns or None).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def adds(store: MemoryStore) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, store.objects[ENTRY].body.splitlines())
    return {it["add"]["path"]: it["add"] for it in lines if "add" in it}


class TestAdopting:
    def test_files_stay_where_they_are_and_one_entry_names_them(self) -> None:
        store = days()
        before = {key: it.body for key, it in store.objects.items()}
        report = on(store).adopt(apply=True)
        assert [(it.partition, it.files, it.action) for it in report.entries] == [
            ("day=2013-01-01", 1, AdoptAction.ADOPTED),
            ("day=2013-01-02", 1, AdoptAction.ADOPTED),
        ]
        assert {key: store.objects[key].body for key in before} == before
        table = on(store)
        first, second = date(2013, 1, 1), date(2013, 1, 2)
        assert rows(table, "day", "delay") == [(first, 1), (first, 2), (second, 3)]
        assert table.partition_by == ("day",)
        assert table.verify() == []
        assert not table.open_jobs()

    def test_plan_writes_nothing(self) -> None:
        store = days()
        before = set(store.objects)
        report = on(store).adopt()
        assert {it.action for it in report.entries} == {AdoptAction.WOULD_ADOPT}
        assert report.columns == ("delay int64", "day date32[day]")
        assert set(store.objects) == before

    def test_jobs_go_on_from_an_adopted_table(self) -> None:
        store = days()
        on(store).adopt(apply=True)
        table = on(store)
        day = pa.array([date(2013, 1, 2)], pa.date32())
        more = pa.table({"delay": pa.array([9], pa.int64()), "day": day})
        with table.job(more.schema, mode="overwrite") as job:
            job.write(more)
        assert rows(table, "delay") == [(1,), (2,), (9,)]
        table.delete([("delay", "==", 1)])
        assert rows(table, "delay") == [(2,), (9,)]
        table.restore(0, apply=True)
        assert rows(table, "delay") == [(1,), (2,), (3,)]

    def test_unpartitioned_files_at_the_root_are_adopted(self) -> None:
        store = holding({"a.parquet": delays(1), "_SUCCESS": b"{}"})
        on(store).adopt(apply=True)
        assert rows(on(store)) == [(1,)]

    def test_columns_that_a_file_lacks_are_null(self) -> None:
        more = delays(1).append_column("gate", pa.array(["A"]))
        store = holding({"a.parquet": delays(2), "b.parquet": more})
        on(store).adopt(apply=True)
        assert rows(on(store), "delay", "gate") == [(1, "A"), (2, None)]

    def test_statistics_are_exact_or_absent(self) -> None:
        data = pa.table(
            {
                "id": pa.array([3, 1, None], pa.int32()),
                "money": pa.array([Decimal("1.10"), Decimal("-2.05"), None]),
                "name": ["b", "a", None],
                "score": [1.5, float("nan"), None],
                "at": pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
            }
        )
        store = holding({"a.parquet": data})
        on(store).adopt(apply=True)
        found = json.loads(adds(store)["a.parquet"]["stats"], parse_float=str)
        assert found == {
            "numRecords": 3,
            "minValues": {"id": 1, "money": "-2.05", "at": "2013-01-01T00:00:00.000Z"},
            "maxValues": {"id": 3, "money": "1.10", "at": "2013-01-01T00:00:00.000Z"},
            "nullCount": {"id": 1, "money": 1, "name": 1, "score": 1, "at": 0},
        }

    def test_dates_of_a_julian_calendar_have_no_bounds(self) -> None:
        data = pa.table({"day": pa.array([date(1500, 1, 1)])})
        marks = {b"org.apache.spark.version": b"2.4.0"}
        store = holding({"a.parquet": data.replace_schema_metadata(marks)})
        on(store).adopt(apply=True)
        found = json.loads(adds(store)["a.parquet"]["stats"])
        assert (found["minValues"], found["nullCount"]) == ({}, {"day": 0})

    def test_paths_are_uris_of_the_keys(self) -> None:
        names = {
            "at=2013-01-01 00:00:00/a b.parquet": "at=2013-01-01%2000%3A00%3A00/a%20b.parquet",
            "at=2013-01-02%2000%3A00%3A00/ü#?.parquet": (
                "at=2013-01-02%252000%253A00%253A00/%C3%BC%23%3F.parquet"
            ),
        }
        store = holding({name: delays(at) for at, name in enumerate(names)})
        on(store).adopt(apply=True)
        assert list(adds(store)) == list(names.values())
        first, second = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
        assert rows(on(store), "at", "delay") == [(first, 0), (second, 1)]

    @pytest.mark.parametrize(
        ("names", "values"),
        [
            (("n=01", "n=__HIVE_DEFAULT_PARTITION__"), {"1", None}),
            (("n=a%2Fb", "n=Z%C3%BCrich"), {"a/b", "Zürich"}),
            (("n=1.5", "n=2"), {"1.5", "2.0"}),
        ],
    )
    def test_partition_values_are_those_of_the_directories(
        self, names: tuple[str, ...], values: set[str | None]
    ) -> None:
        store = holding({f"{name}/a.parquet": delays(1) for name in names})
        on(store).adopt(apply=True)
        assert {it["partitionValues"]["n"] for it in adds(store).values()} == values


#: By name: the files, and words of the refusal.
UNFIT: dict[str, tuple[dict[str, pa.Table | bytes], str]] = {
    "another type": ({"a.parquet": delays(1), "b.parquet": pa.table({"delay": ["x"]})}, "delay"),
    "a narrower type": (
        {"a.parquet": delays(1), "b.parquet": pa.table({"delay": pa.array([1], pa.int32())})},
        "in other files",
    ),
    "another case": (
        {"a.parquet": delays(1), "b.parquet": pa.table({"Delay": pa.array([1], pa.int64())})},
        "in other files",
    ),
    "nanoseconds": (
        {"a.parquet": pa.table({"at": pa.array([1], pa.timestamp("ns"))})},
        "at has times of nanoseconds",
    ),
    "milliseconds": (
        {"a.parquet": pa.table({"at": pa.array([1], pa.timestamp("ms"))})},
        "at has times of milliseconds",
    ),
    "floats of 16 bits": (
        {"a.parquet": pa.table({"x": pa.array([1.5], pa.float16())})},
        "x has floats of 16 bits",
    ),
    "an unsigned type": (
        {"a.parquet": pa.table({"id": pa.array([1], pa.uint32())})},
        "no type for the columns of the files: id is uint32",
    ),
    "a time of day": ({"a.parquet": pa.table({"at": pa.array([1], pa.time64("us"))})}, "time64"),
    "a file that is no Parquet": ({"a.parquet": b"PAR1 no more"}, "Parquet"),
    "a file beside partitions": (
        {"day=1/a.parquet": delays(1), "b.parquet": delays(2)},
        "flights/b.parquet",
    ),
    "a text file": ({"day=1/a.parquet": delays(1), "day=1/notes.csv": b"x"}, "notes.csv"),
    "files in another folder": (
        {"day=1/a.parquet": delays(1), "old/a.parquet": delays(1)},
        "old/a.parquet",
    ),
    "a table below": (
        {"a.parquet": delays(1), "x/_zero_rename/table.json": b"{}", "x/b.parquet": delays(1)},
        "x/b.parquet",
    ),
    "partitions of two kinds": (
        {"day=1/a.parquet": delays(1), "hour=1/a.parquet": delays(1)},
        "not partitions of one table",
    ),
    "another value in the file": (
        {"day=1/a.parquet": pa.table({"delay": [1], "day": ["2"]})},
        "day",
    ),
    "a key that leads elsewhere": ({"day=1/../a.parquet": delays(1)}, ""),
    "a log of another format": (
        {"a.parquet": delays(1), ".hoodie/hoodie.properties": b"x"},
        "Hudi",
    ),
    "records of directories": (
        {"a.parquet": delays(1), "_zero_rename/table.json": b"{}"},
        "zero-rename copy s3://bucket/flights NEW --layout delta",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_directory_with_what_does_not_fit_is_refused_by_name(name: str) -> None:
    files, words = UNFIT[name]
    store = holding(files)
    before = set(store.objects)
    with pytest.raises(ZeroRenameError) as refused:
        on(store).adopt(apply=True)
    assert words in str(refused.value)
    left = {key for key in store.objects if "/probe/" not in key}
    assert left == before


@pytest.mark.parametrize("prefix", ["", "flights/_delta_log/", "flights/day=2013-01-02/"])
def test_directory_that_a_lifecycle_rule_expires_is_refused(prefix: str) -> None:
    store = days()
    store.rules = (LifecycleRule("tidy", prefix, expires=True),)
    for apply in (False, True):
        with pytest.raises(StoreUnfitError, match="rule 'tidy' deletes by age"):
            on(store).adopt(apply=apply)
    assert ENTRY not in store.objects
    assert not on(store).open_jobs()


def test_lifecycle_rule_of_what_is_not_adopted_refuses_no_adoption() -> None:
    store = days()
    store.rules = (LifecycleRule("temporary", "flights/_temporary/", expires=True),)
    on(store).adopt(apply=True)
    assert len(adds(store)) == 2


def test_nothing_to_adopt_is_said() -> None:
    with pytest.raises(TableNotFoundError, match="no Parquet files"):
        on(MemoryStore()).adopt(apply=True)


def test_delta_table_is_not_adopted_again() -> None:
    store = days()
    on(store).adopt(apply=True)
    with pytest.raises(TableMismatchError, match="its log names its files"):
        on(store).adopt(apply=True)


class TestMeanwhile:
    """Something happens before the n-th request of an adoption, for each n."""

    def each_moment(
        self, happens: Callable[[MemoryStore], object]
    ) -> list[tuple[MemoryStore, Any]]:
        found = []
        number = 0
        while True:
            store, left = days(), [number]

            def fault(
                request: Any, apply: Any, store: MemoryStore = store, left: list[int] = left
            ) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    happens(store)
                return apply(request)

            try:
                told: Any = on(store, fault).adopt(apply=True)
            except RefusedError as error:
                told = error
            if left[0] >= 0:
                return found
            found.append((store, told))
            number += 1

    def test_file_that_comes_is_adopted_refused_or_told(self) -> None:
        key = "flights/day=2013-01-03/late.parquet"
        moments = self.each_moment(lambda it: on(it).run(s.PutFile(key, parquet(delays(9)))))
        kinds = set()
        for store, told in moments:
            if isinstance(told, RefusedError):
                assert isinstance(told, TableMismatchError), told
                assert not on(store).exists()
                kinds.add("refused")
            else:
                is_there = (9,) in rows(on(store), "delay")
                kinds.add("adopted" if is_there else "told" if key in told.unfit else "unseen")
        # What comes after the last look is a file that comes to any Delta table.
        assert kinds - {"unseen"} == {"adopted", "refused", "told"}

    def test_file_that_changes_is_refused_or_told(self) -> None:
        key = "flights/day=2013-01-01/a.parquet"
        moments = self.each_moment(lambda it: on(it).run(s.PutFile(key, parquet(delays(7, 7, 7)))))
        refused = [told for _, told in moments if isinstance(told, RefusedError)]
        assert refused
        for store, told in moments:
            if not isinstance(told, RefusedError):
                size = adds(store)["day=2013-01-01/a.parquet"]["size"]
                changed = size != len(store.objects[key].body)
                assert key in told.unfit or not changed or told is moments[-1][1]

    def test_table_of_directories_that_appears_is_no_damage(self) -> None:
        """Once its files lie there."""

        def other(store: MemoryStore) -> None:
            data = delays(9).append_column("day", pa.array([date(2013, 1, 1)]))
            with (
                suppress(TableMismatchError),  # Once the entry is there.
                memory_table(store).job(data.schema, partition_by=["day"]) as job,
            ):
                job.write(data)

        moments = self.each_moment(other)
        kinds = set()
        for store, told in moments:
            if isinstance(told, RefusedError):
                assert isinstance(told, TableMismatchError), told
                kinds.add("refused")
            elif "flights/_zero_rename/table.json" in store.objects:
                assert told.unfit
                kinds.add("told")
        assert kinds == {"refused", "told"}

    def test_log_that_appears_is_a_conflict(self) -> None:
        def other(store: MemoryStore) -> None:
            body = b'{"commitInfo":{"txnId":"s"}}\n{"protocol":{"minReaderVersion":1,'
            body += b'"minWriterVersion":2}}\n{"metaData":{"id":"t","format":{"provider":"parquet"}'
            body += b',"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[]}",'
            body += b'"partitionColumns":[],"configuration":{}}}\n'
            on(store).run(s.Put(ENTRY, body, if_none_match=True))

        moments = self.each_moment(other)
        refused = [told for _, told in moments if isinstance(told, RefusedError)]
        assert any(isinstance(it, CommitConflictError) for it in refused)
        for store, told in moments:
            ours = b"zero_rename" in store.objects[ENTRY].body
            assert ours is not isinstance(told, RefusedError)
            assert not on(store).open_jobs()  # Else other runs would wait for the adoption.


@pytest.mark.parametrize("answered", [True, False])
def test_adoption_whose_store_fails_is_done_or_can_be_done_again(answered: bool) -> None:
    number = 0
    while True:
        store, left = days(), [number]

        def fault(
            request: Any, apply: Any, store: MemoryStore = store, left: list[int] = left
        ) -> Any:
            left[0] -= 1
            if left[0] != -1:
                return apply(request)
            if answered:
                apply(request)
            if isinstance(request, s.Put | s.Delete | s.DeleteMany):
                return s.Unknown("no answer")
            raise StoreUnreachableError("The store is gone.")

        told: BaseException | None = None
        try:
            on(store, fault).adopt(apply=True)
        except ZeroRenameError as error:
            told = error
        if left[0] >= 0:
            break
        table = on(store)
        if isinstance(told, RefusedError):
            assert not table.exists(), told
        if not table.exists():
            assert told is not None
            table.adopt(apply=True)
        assert rows(table, "delay") == [(1,), (2,), (3,)]
        table.recover(patience=0)
        number += 1
    assert number > 10
