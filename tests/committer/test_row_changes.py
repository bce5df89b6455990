"""Merges and deletions in plain Python, against a dictionary; and what others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import faults, row_model
from support.faults import Crash, on
from support.memory_store import MemoryStore
from support.protocol import ROOT, memory_table
from support.row_model import Delete, Load, Merge, Model, Step, sequences
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    OtherJobError,
    Table,
    TableMismatchError,
    UnsupportedTypeError,
)
from zero_rename.committer.format.records.decision import CondensedDecision, Decision
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.committer.store.requests import (
    CompleteUpload,
    Deleted,
    DeleteMany,
    Get,
    Put,
    Unknown,
)
from zero_rename.orchestration.runs.reports import commit_report, one_line

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.float64()), ("p", pa.string())])
TIMED = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", pa.int64()), ("p", pa.string())])
NAN = float("nan")
Row = tuple[Any, ...]


@pytest.fixture
def table() -> Table:
    return memory_table(MemoryStore())


def arrow(*rows: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[] for _ in schema]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def put(table: Table, *rows: Row, schema: pa.Schema = SCHEMA, **policy: Any) -> None:
    with table.job(schema, partition_by=["p"], **policy) as job:
        job.write(arrow(*rows, schema=schema))


def put_again(table: Table, key: str, *rows: Row, **policy: Any) -> None:
    """As a run that is cleared, and replaces its own rows."""
    put(table, *rows, idempotency_key=key, on_repeat="replace_own", **policy)


def held(table: Table) -> list[str]:
    """By their texts, in which NaN is NaN."""
    return sorted(repr(tuple(row.values())) for row in table.to_arrow().to_pylist())


def texts(*rows: Row) -> list[str]:
    return sorted(map(repr, rows))


def versions(table: Table) -> dict[str, int]:
    return table.snapshot().versions


def decision_of(store: MemoryStore, job: str) -> Decision:
    key = ROOT.decision_key(job)
    return Decision.decode(store.objects[key].body, key, ROOT, job)


class TestMerge:
    def test_what_becomes_of_rows(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "a", 2.0, "x"), (3, "b", NAN, "y"), (4, "c", 4.0, "z"))
        put(table, (5, "d", None, "w"))
        schema = SCHEMA.append(pa.field("op", pa.string()))
        rows = arrow(
            *((1, "a", 10.0, "x", "U"), (9, "a", 9.0, "x", "U"), (4, "c", 0.0, "z", "D")),
            *((3, "b", NAN, "y", "U"), (8, "e", 8.0, "v", "U"), (7, "e", 7.0, "v", "D")),
            schema=schema,
        )
        deletes = pc.field("op") == "D"
        done = table.merge(rows, on=["k", "j"], delete_when=deletes)
        after = texts(
            *((1, "a", 10.0, "x"), (2, "a", 2.0, "x"), (9, "a", 9.0, "x"), (3, "b", NAN, "y")),
            *((8, "e", 8.0, "v"), (5, "d", None, "w")),
        )
        assert held(table) == after
        assert done.rows == RowChanges(inserted=2, updated=1, deleted=1, unchanged=2)
        assert (done.partitions, done.left) == (("p=v", "p=x", "p=z"), ("p=y",))
        assert versions(table) == {"p=v": 1, "p=w": 1, "p=x": 2, "p=y": 1, "p=z": 2}
        assert not table.files("p=z")
        assert table.merge(rows, on=["k", "j"], delete_when=deletes).committed is None

    @pytest.mark.parametrize("is_condensed", [False, True])
    def test_its_figures_are_on_record(self, is_condensed: bool) -> None:
        store = MemoryStore()
        table = memory_table(store)
        put(table, (1, "a", 1.0, "x"), (2, "a", 2.0, "x"), (3, "b", 3.0, "y"))
        rows = arrow((1, "a", 10.0, "x"), (9, "a", 9.0, "x"), (3, "b", 3.0, "y"))
        done = table.merge(rows, on=["k"], idempotency_key="run")
        assert done.rows == RowChanges(inserted=1, updated=1, unchanged=2)
        assert done.committed is not None
        assert done.committed.row_changes == done.rows
        decision = decision_of(store, done.committed.job)
        put(table, (4, "c", 4.0, "x"))
        if is_condensed:
            key = table.root.decision_key(decision.job)
            condensed = CondensedDecision.of(decision, done.committed.decided_at).encode()
            store.objects[key] = replace(store.objects[key], body=condensed)
        else:
            assert table.merge(rows, on=["k"], idempotency_key="run").rows == done.rows
        told = [it for it in table.history().to_pylist() if it["job"] == decision.job]
        assert [(it["partition"], it["change"]) for it in told] == [("p=x", "change")]
        kinds = ("inserted", "updated", "deleted", "unchanged")
        assert [told[0][f"rows_{kind}"] for kind in kinds] == [1, 1, 0, 1]
        assert told[0]["partitions_left"] == 1
        assert told[0]["bytes_read"] == done.bytes_read > 0
        assert told[0]["bytes"] == done.bytes_written

    def test_columns_of_nulls_and_nan_in_nested_values_are_the_same(self, table: Table) -> None:
        columns = {"k": [1, 2], "empty": pa.nulls(2), "p": ["x", "x"]}
        nested = [{"v": [1.0, NAN]}, {"v": None}]
        rows = pa.table({**columns, "nested": pa.array(nested)})
        with table.job(rows.schema, partition_by=["p"]) as job:
            job.write(rows)
        assert table.merge(rows, on=["k"]).rows == RowChanges(unchanged=2)
        other = pa.array([{"v": [1.0, 2.0]}, {"v": []}], rows.schema.field("nested").type)
        changed = rows.set_column(rows.column_names.index("nested"), "nested", other)
        assert table.merge(changed, on=["k"]).rows == RowChanges(updated=2)

    def test_nan_is_the_greatest_of_latest_by_in_whichever_order_rows_come(self) -> None:
        low, high = (1, "low", 5.0, "x"), (1, "high", NAN, "x")
        for batches in ([[low], [high]], [[high], [low]], [[low, high]], [[high, low]]):
            table = memory_table(MemoryStore())
            put(table, (1, "none", None, "x"))
            for rows in batches:
                table.merge(arrow(*rows), on=["k"], latest_by="v")
            assert held(table) == texts(high)

    @pytest.mark.parametrize("kind", [pa.duration("us"), pa.null(), pa.time64("us"), pa.float16()])
    def test_latest_by_of_any_ordered_type(self, table: Table, kind: pa.DataType) -> None:
        values: Any = [None, None] if kind == pa.null() else [2, 1]
        values = np.array(values, np.float16) if kind == pa.float16() else values
        rows = pa.table({"k": [1, 2], "at": pa.array(values, kind), "p": ["x", "x"]})
        with table.job(rows.schema, partition_by=["p"]) as job:
            job.write(rows)
        assert table.merge(rows, on=["k"], latest_by="at").rows == RowChanges(unchanged=2)
        both = rows.set_column(0, "k", pa.array([1, 1]))
        if kind == pa.null():
            with pytest.raises(InvalidInputError, match="1 key of the rows"):
                table.merge(both, on=["k"], latest_by="at")
        else:
            assert table.merge(both, on=["k"], latest_by="at").rows == RowChanges(unchanged=2)

    def test_latest_by_of_nested_values_is_refused(self, table: Table) -> None:
        rows = pa.table({"k": [1], "at": [[1]], "p": ["x"]})
        with pytest.raises(UnsupportedTypeError, match="latest_by='at' is of type list"):
            table.merge(rows, on=["k"], latest_by="at", partition_by=["p"])
        assert not table.exists()

    def test_a_run_that_changes_nothing_says_so(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"))
        done = table.merge(arrow((1, "a", 1.0, "x")), on=["k"], idempotency_key="run")
        assert done.committed is not None
        report = commit_report(done.committed)
        assert report["row_changes"] == asdict(RowChanges(unchanged=1))
        assert (report["partitions"], report["partitions_left"]) == ([], 1)
        assert report["bytes_read"] == done.bytes_read > 0
        assert "; rows 0 inserted, 0 updated, 0 deleted, 1 unchanged" in one_line(report)
        (told,) = [it for it in table.history().to_pylist() if it["idempotency_key"] == "run"]
        assert (told["partition"], told["partitions_left"]) == (None, 1)

    def test_rows_that_move(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", 2.0, "x"), (3, "c", 3.0, "y"))
        rows = arrow((1, "a", 1.0, "y"), (2, "b", 5.0, ""))
        assert table.merge(rows.slice(0, 1), on=["k"]).rows.inserted == 1
        table.delete([("k", "=", 1), ("p", "=", "y")])
        done = table.merge(rows, on=["k"], across_partitions=True)
        assert held(table) == texts((1, "a", 1.0, "y"), (2, "b", 5.0, None), (3, "c", 3.0, "y"))
        assert done.rows == RowChanges(updated=2, unchanged=1)
        assert done.partitions == ("p=__HIVE_DEFAULT_PARTITION__", "p=x", "p=y")
        assert table.merge(rows, on=["k"]).committed is None

    def test_keys(self, table: Table) -> None:
        put(table, (1, None, 1.0, "x"), (2, "b", 2.0, "x"))
        with pytest.raises(InvalidInputError, match=r"1 key of the rows is there.*k=2, j='b'"):
            table.merge(arrow(*[(2, "b", 1.0, "x")] * 3, (3, "c", 1.0, "x")), on=["k", "j"])
        twice = arrow((2, "b", 1.0, "x"), (2, "b", 9.0, "x"), (2, "b", None, "x"))
        with pytest.raises(InvalidInputError, match="also by the greatest p"):
            table.merge(twice, on=["k"], latest_by="p")
        table.merge(twice, on=["k"], latest_by="v")
        assert held(table) == texts((1, None, 1.0, "x"), (2, "b", 9.0, "x"))
        null = arrow((1, None, 7.0, "x"))
        assert table.merge(null, on=["k", "j"], null_safe=True).rows.updated == 1
        assert table.merge(null, on=["k", "j"]).rows == RowChanges(inserted=1, unchanged=2)

    def test_a_row_that_is_later_than_the_one_given_stays(self, table: Table) -> None:
        schema = TIMED.append(pa.field("op", pa.string()))
        there = [(1, "stored", 1), (2, "stored", 2), (3, "stored", 3), (4, "timeless", None)]
        put(table, *[(*row, "x") for row in there], schema=TIMED)
        given = [(1, "late", 0), (2, "same", 2), (3, "newer", 4), (4, "timed", None)]
        rows = [(k, v, at, "x", "U") for k, v, at in given]
        rule: dict[str, Any] = {"delete_when": pc.field("op") == "D", "latest_by": "at"}
        done = table.merge(arrow(*rows, schema=schema), on=["k"], **rule)
        after = [(1, "stored", 1), (2, "same", 2), (3, "newer", 4), (4, "timed", None)]
        assert held(table) == texts(*[(*row, "x") for row in after])
        assert done.rows == RowChanges(updated=3, unchanged=1)
        # Nor does a row delete or move what came later than itself.
        gone = [(1, "", None, "x", "D"), (2, "", 1, "x", "D"), (3, "", 4, "x", "D")]
        done = table.merge(arrow(*gone, schema=schema), on=["k"], **rule)
        assert done.rows == RowChanges(deleted=1, unchanged=3)
        moved = arrow((2, "moved", 1, "y", "U"), schema=schema)
        done = table.merge(moved, on=["k"], across_partitions=True, **rule)
        assert done.rows == RowChanges(unchanged=3)
        assert done.committed is None

    def test_columns(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", 2.0, "x"))
        schema = pa.schema([("k", pa.int32()), ("p", pa.string()), ("n", pa.list_(pa.int64()))])
        rows = arrow((1, "x", [1]), (3, "x", None), schema=schema)
        with pytest.raises(TableMismatchError, match="n is not in the table"):
            table.merge(rows, on=["k"])
        done = table.merge(rows, on=["k"], schema_mode="merge")
        kept = [(1, "a", 1.0, "x", [1]), (2, "b", 2.0, "x", None), (3, None, None, "x", None)]
        assert held(table) == texts(*kept)
        assert done.rows == RowChanges(inserted=1, updated=1, unchanged=1)
        assert table.merge(rows, on=["k"], schema_mode="merge").committed is None

    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
    def test_frames_of_others(self, table: Table, frame: Callable[..., Any]) -> None:
        rows = {"k": [1, 2], "j": ["a", "b"], "v": [1.0, 2.0], "p": ["x", "y"]}
        table.merge(frame(rows), on=["k"], partition_by=["p"])
        done = table.merge(frame(rows | {"v": [1.0, 3.0]}), on=["k"])
        assert done.rows == RowChanges(updated=1, unchanged=1)
        assert held(table) == texts((1, "a", 1.0, "x"), (2, "b", 3.0, "y"))

    def test_a_table_without_partitions(self, table: Table) -> None:
        assert table.merge(arrow((1, "a", 1.0, "x")), on=["k"]).rows.inserted == 1
        done = table.merge(arrow((1, "a", 1.0, "y"), (2, "b", 1.0, "y")), on=["k"])
        assert done.rows == RowChanges(inserted=1, updated=1)
        assert table.delete(pc.field("k") > 0).rows.deleted == 2
        assert not table.files()

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"on": "k"}, "on is the text"),
            ({"on": []}, "on names no column"),
            ({"on": ["nope"]}, "'nope' is no column"),
            ({"on": ["v"]}, "is of type double"),
            ({"latest_by": "nope"}, "'nope' is no column"),
            ({"when_matched": {"v": "1"}}, "when_matched is"),
            ({"when_not_matched": "update"}, "when_not_matched is 'update'"),
            ({"attempts": 0}, "attempts is 0"),
            ({"data": "rows"}, "builtins.str, which this package cannot write"),
            ({"data": arrow((1, "a", 1.0, "x")).drop(["p"])}, "'p' is no column"),
        ],
    )
    def test_what_cannot_be_right(self, table: Table, given: Any, message: str) -> None:
        put(table, (1, "a", 1.0, "x"))
        call: dict[str, Any] = {"data": arrow((1, "b", 2.0, "x")), "on": ["k"], **given}
        with pytest.raises(InvalidInputError, match=message):
            table.merge(**call)
        assert versions(table) == {"p=x": 1}

    def test_nothing_tells_writers_apart(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), coordination="none")
        for change in (
            lambda: table.merge(arrow((1, "b", 2.0, "x")), on=["k"]),
            lambda: table.delete(pc.field("k") == 1),
        ):
            with pytest.raises(InvalidInputError, match="coordination=none"):
                change()


class TestBatches:
    """A row matches those of its own partition alone, whichever rows come with it."""

    THERE = ((1, "a", 1.0, "x"), (2, "b", 2.0, "y"))
    GIVEN = ((1, "A", 1.0, "y"), (3, "c", 3.0, "x"))

    @pytest.mark.parametrize("cut", [0, 1, 2])
    def test_rows_merged_in_one_batch_or_two_leave_the_same(self, table: Table, cut: int) -> None:
        put(table, *self.THERE)
        for rows in (self.GIVEN[:cut], self.GIVEN[cut:]):
            table.merge(arrow(*rows), on=["k"])
        assert held(table) == texts(*self.THERE, *self.GIVEN)

    @pytest.mark.parametrize("cut", [0, 1, 2])
    def test_across_partitions_the_row_moves_in_one_batch_or_two(
        self, table: Table, cut: int
    ) -> None:
        put(table, *self.THERE)
        for rows in (self.GIVEN[:cut], self.GIVEN[cut:]):
            table.merge(arrow(*rows), on=["k"], across_partitions=True)
        assert held(table) == texts(self.THERE[1], *self.GIVEN)

    def test_a_row_deletes_in_its_own_partition_alone(self, table: Table) -> None:
        put(table, *self.THERE)
        schema = SCHEMA.append(pa.field("op", pa.string()))
        rows = arrow((1, "", 0.0, "y", "D"), (3, "c", 3.0, "x", "I"), schema=schema)
        done = table.merge(rows, on=["k"], delete_when=pc.field("op") == "D")
        assert done.rows == RowChanges(inserted=1, unchanged=2)
        assert held(table) == texts(*self.THERE, (3, "c", 3.0, "x"))

    def test_one_key_in_two_partitions_is_two_rows_and_across_them_one(self, table: Table) -> None:
        rows = arrow((1, "a", 1.0, "x"), (1, "b", 2.0, "y"))
        table.merge(rows, on=["k"], partition_by=["p"])
        assert table.merge(rows, on=["k"]).rows == RowChanges(unchanged=2)
        with pytest.raises(InvalidInputError, match=r"1 key of the rows is there .* k=1\."):
            table.merge(rows, on=["k"], across_partitions=True)
        twice = arrow((1, "c", 1.0, "x"), (1, "d", 2.0, "x"), (1, "e", 3.0, "y"))
        with pytest.raises(InvalidInputError, match=r"1 key of the rows is there .* k=1, p='x'"):
            table.merge(twice, on=["k"])
        table.merge(twice, on=["k"], latest_by="v")
        assert held(table) == texts((1, "d", 2.0, "x"), (1, "e", 3.0, "y"))


class TestDelete:
    def test_rows_of_which_the_filter_is_null_stay(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", None, "x"), (3, "c", 3.0, "y"), (4, "d", 0.0, "z"))
        counted = table.delete(pc.field("v") >= 1, apply=False)
        assert (counted.rows, counted.committed) == (RowChanges(deleted=2, unchanged=2), None)
        assert len(held(table)) == 4
        done = table.delete(pc.field("v") >= 1)
        assert (done.rows, done.partitions) == (counted.rows, ("p=x", "p=y"))
        assert held(table) == texts((2, "b", None, "x"), (4, "d", 0.0, "z"))
        assert versions(table) == {"p=x": 2, "p=y": 2, "p=z": 1}
        assert not table.files("p=y")
        assert table.delete([("p", "=", "z")], partitions=["p=x"]).committed is None
        assert table.delete([("p", "=", "z")]).rows == RowChanges(deleted=1)
        with pytest.raises(InvalidInputError, match="does not fit the table's columns"):
            table.delete(pc.field("nope") == 1)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let another job commit once, when a change has been worked out and its job is not open."""

    def let(commit: Callable[[], object]) -> None:
        waiting = [commit]
        policies = Table.rewrite_policies

        def lands(self: Table, *given: Any) -> Any:
            while waiting:
                waiting.pop()()
            return policies(self, *given)

        monkeypatch.setattr(Table, "rewrite_policies", lands)

    return let


class TestOthers:
    def test_what_they_commit_is_read_too(self, table: Table, beside: Any) -> None:
        put(table, (1, "a", 1.0, "x"))
        beside(lambda: put(table, (2, "b", 2.0, "x")))
        done = table.merge(arrow((1, "A", 1.0, "x"), (2, "B", 2.0, "x")), on=["k"])
        assert (done.attempts, done.rows) == (2, RowChanges(updated=2))
        beside(lambda: put(table, (3, "c", 3.0, "n")))
        assert table.merge(arrow((3, "C", 3.0, "n")), on=["k"]).attempts == 2
        beside(lambda: table.merge(arrow((1, "other", 1.0, "x")), on=["k"]))
        assert table.delete(pc.field("j") == "B").attempts == 2
        assert held(table) == texts((1, "other", 1.0, "x"), (3, "C", 3.0, "n"))

    @pytest.mark.parametrize("verb", ["merge", "delete"])
    def test_a_file_that_goes_while_its_rows_are_read(self, table: Table, verb: str) -> None:
        put(table, (1, "a", 1.0, "x"))
        driver: Any = table.driver
        replaces = partial(put, table, (1, "b", 2.0, "x"), (2, "b", 2.0, "x"), mode="overwrite")
        driver.fault = faults.beside(Get, replaces, ".parquet", times=1)
        if verb == "merge":
            done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"])
            assert (done.attempts, done.rows) == (2, RowChanges(updated=1, unchanged=1))
        else:
            done = table.delete(pc.field("k") == 1)
            assert (done.attempts, done.rows) == (2, RowChanges(deleted=1, unchanged=1))

    def test_a_first_job_beside(self, table: Table, beside: Any) -> None:
        beside(lambda: put(table, (1, "a", 1.0, "x")))
        done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"], partition_by=["p"])
        assert (done.attempts, held(table)) == (2, texts((1, "A", 1.0, "x")))

    @pytest.mark.parametrize("other", ["merge", "append"])
    def test_a_key_that_comes_to_another_partition_of_a_table_made_meanwhile_moves(
        self, table: Table, beside: Any, other: str
    ) -> None:
        across: Any = {"on": ["k"], "across_partitions": True, "partition_by": ["p"]}
        theirs = (7, "theirs", 1.0, "n")
        merges = other == "merge"
        beside(lambda: table.merge(arrow(theirs), **across) if merges else put(table, theirs))
        done = table.merge(arrow((7, "mine", 1.0, "x")), **across)
        assert (done.attempts, done.rows) == (2, RowChanges(updated=1))
        assert held(table) == texts((7, "mine", 1.0, "x"))

    def test_a_table_made_meanwhile_of_other_partitions_is_no_conflict(
        self, table: Table, beside: Any
    ) -> None:
        beside(lambda: put(table, (1, "a", 1.0, "n")))
        done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"], partition_by=["p"])
        assert (done.attempts, done.rows) == (1, RowChanges(inserted=1))
        assert held(table) == texts((1, "a", 1.0, "n"), (1, "A", 1.0, "x"))

    def test_a_table_made_meanwhile_of_other_columns_is_merged_into(
        self, table: Table, beside: Any
    ) -> None:
        beside(lambda: put(table, (1, "a", 1.0, "n")))
        schema = SCHEMA.append(pa.field("op", pa.string()))
        rows = arrow((1, "A", 1.0, "x", "I"), (2, "", 1.0, "x", "D"), schema=schema)
        deletes = pc.field("op") == "D"
        done = table.merge(rows, on=["k"], partition_by=["p"], delete_when=deletes)
        assert (done.attempts, done.rows) == (2, RowChanges(inserted=1))
        assert held(table) == texts((1, "a", 1.0, "n"), (1, "A", 1.0, "x"))

    def test_files_of_others_that_come_where_no_table_was_are_merged_into(
        self, table: Table, beside: Any
    ) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(arrow((1, "a", 1.0, "x")).drop(["p"]), sink)
        body = sink.getvalue().to_pybytes()
        beside(lambda: table.driver.run(Put(f"{ROOT.prefix}/p=x/theirs.parquet", body)))
        done = table.merge(arrow((1, "A", 2.0, "x")), on=["k"], partition_by=["p"])
        assert (done.attempts, done.rows) == (2, RowChanges(updated=1))
        assert held(table) == texts((1, "A", 2.0, "x"))

    @pytest.mark.parametrize("verb", ["merge", "delete"])
    @pytest.mark.parametrize("change", ["adds", "overwrites"])
    def test_columns_that_others_change_before_the_rows_are_read_are_read_too(
        self, table: Table, verb: str, change: str
    ) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", 2.0, "x"))
        after = _change_columns(table, change)
        driver: Any = table.driver
        driver.fault = faults.beside(Get, after, "table.json", applied=True, times=1)
        if verb == "delete" and change == "overwrites":
            with pytest.raises(InvalidInputError, match="does not fit the table's columns"):
                table.delete(pc.field("v") == 1.0)
        elif verb == "delete":
            done = table.delete(pc.field("k") == 1)
            assert (done.rows.deleted, done.attempts) == (1, 1)
        elif change == "adds":
            done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"])
            assert (done.rows, done.attempts) == (RowChanges(updated=1, unchanged=1), 1)
        else:
            with pytest.raises(TableMismatchError, match="j is not in the table"):
                table.merge(arrow((1, "A", 1.0, "x")), on=["k"])
        assert "n" in table.schema.names

    @pytest.mark.parametrize("verb", ["merge", "delete"])
    def test_columns_that_others_overwrite_after_the_rows_were_read_are_a_conflict(
        self, table: Table, beside: Any, verb: str
    ) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", 2.0, "x"))

        def change(**given: Any) -> object:
            if verb == "delete":
                return table.delete(pc.field("k") == 1, **given)
            fits: Any = {"when_not_matched": "ignore", "schema_mode": "merge"}
            rows = arrow((1, "x"), schema=pa.schema([SCHEMA.field("k"), SCHEMA.field("p")]))
            return table.merge(rows, on=["k"], delete_when=pc.field("k") == 1, **fits, **given)

        beside(_change_columns(table, "overwrites"))
        done: Any = change()
        assert (done.attempts, done.rows) == (2, RowChanges(deleted=1, unchanged=1))
        beside(_change_columns(table, "overwrites"))
        with pytest.raises(CommitConflictError, match="changed since its columns were read"):
            table.delete(pc.field("k") == 2, attempts=1)

    def test_a_compaction_beside_an_overwrite_of_the_columns_leaves_the_partition(
        self, table: Table
    ) -> None:
        for number in range(2):
            put(table, (number, "a", 1.0, "x"))
        driver: Any = table.driver
        driver.fault = faults.beside(Put, _change_columns(table, "overwrites"), "/open/", times=1)
        (done,) = table.compact(apply=True)
        assert done.action == "changed meanwhile"
        assert table.to_arrow(columns=["k"]).num_rows == 2

    @pytest.mark.parametrize("partition", ["x", "n"])
    def test_without_another_attempt_it_is_refused(
        self, table: Table, beside: Any, partition: str
    ) -> None:
        put(table, (1, "a", 1.0, "x"))
        beside(lambda: put(table, (2, "b", 2.0, partition)))
        with pytest.raises(CommitConflictError, match=f"read the table: p={partition}"):
            table.merge(arrow((1, "A", 1.0, partition)), on=["k"], attempts=1)
        assert held(table) == texts((1, "a", 1.0, "x"), (2, "b", 2.0, partition))

    def test_a_key_that_comes_to_a_partition_that_was_only_read(
        self, table: Table, beside: Any
    ) -> None:
        put(table, (1, "a", 1.0, "x"))
        key = [(7, "mine", 1.0, "x"), (7, "theirs", 1.0, "n")]
        beside(lambda: table.merge(arrow(key[1]), on=["k"], across_partitions=True))
        done = table.merge(arrow(key[0]), on=["k"], across_partitions=True)
        assert (done.attempts, done.rows.updated) == (2, 1)
        assert held(table) == texts((1, "a", 1.0, "x"), key[0])
        beside(lambda: put(table, (8, "b", 1.0, "n")))
        with pytest.raises(CommitConflictError, match="read the table: p=n"):
            table.merge(arrow((9, "c", 1.0, "x")), on=["k"], across_partitions=True, attempts=1)

    def test_a_job_that_died_with_a_claim_on_what_was_only_read(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), (2, "b", 1.0, "n"))
        driver: Any = table.driver
        driver.fault = on(Put, Crash, "_zero_rename/jobs/")
        with pytest.raises(Crash):
            put(table, (3, "c", 1.0, "n"), mode="overwrite")
        driver.fault = None
        done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"], across_partitions=True)
        assert (done.attempts, done.rows.updated) == (1, 1)

    def test_a_committed_job_that_cannot_be_finished_is_not_told_as_its_own(
        self, table: Table
    ) -> None:
        put(table, (1, "a", 1.0, "x"))
        driver: Any = table.driver
        driver.fault = on(CompleteUpload, Crash)
        with pytest.raises(Crash):
            put(table, (2, "b", 1.0, "x"), mode="overwrite")
        driver.fault = on(CompleteUpload, Unknown("no answer"))
        merge = partial(table.merge, arrow((2, "B", 1.0, "x")), on=["k"])
        for verb in (table.to_arrow, merge):
            with pytest.raises(OtherJobError, match="a committed job is not applied"):
                verb()
        driver.fault = lambda request, apply: (
            Deleted({key: "SlowDown" for key, _ in request.items})
            if isinstance(request, DeleteMany)
            else apply(request)
        )
        assert held(table) == texts((2, "b", 1.0, "x"))
        with pytest.raises(OtherJobError, match="could not be removed"):
            merge()
        driver.fault = None
        assert merge().rows.updated == 1

    def test_a_compaction_beside(self, table: Table, beside: Any) -> None:
        for number in range(3):
            put(table, (number, "a", 1.0, "x"))
        beside(lambda: table.compact(apply=True))
        done = table.merge(arrow((1, "A", 1.0, "x")), on=["k"])
        assert (done.attempts, done.rows.unchanged) == (2, 2)
        assert len(held(table)) == 3

    def test_it_is_undone_like_any_other_job(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"))
        done = table.merge(arrow((1, "A", 1.0, "x"), (2, "b", 1.0, "x")), on=["k"])
        assert done.committed is not None
        with pytest.raises(InvalidInputError, match="is gone"):
            table.keep_rows("p=x", undo=done.committed.job, apply=True)


def _change_columns(table: Table, how: str) -> Callable[[], None]:
    """Bring a column by rows of another partition, or overwrite all of them with others."""
    if how == "adds":
        schema = SCHEMA.append(pa.field("n", pa.int32()))
        row = (9, "n", 1.0, "n", 9)
        return lambda: put(table, row, schema=schema, schema_mode="merge")
    schemas = [
        pa.schema([SCHEMA.field("k"), SCHEMA.field("p"), pa.field("n", kind)])
        for kind in (pa.int32(), pa.string())
    ]

    def overwrite() -> None:
        schema = schemas["n" in table.schema.names]
        rows = [(1, "x", None), (2, "x", None)]
        policy: Any = {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}
        put(table, *rows, schema=schema, **policy)

    return overwrite


class TestRuns:
    def test_a_retry_and_a_cleared_run(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"))
        rows = arrow((1, "A", 1.0, "x"), (2, "b", 1.0, "y"))
        first = table.merge(rows, on=["k"], idempotency_key="run")
        retry = table.merge(rows, on=["k"], idempotency_key="run")
        assert first.committed is not None
        assert retry.committed is not None
        assert (retry.committed.job, retry.committed.repeated) == (first.committed.job, True)
        assert retry.rows == first.rows
        again: Any = {"on": ["k"], "idempotency_key": "run", "on_repeat": "replace_own"}
        cleared = table.merge(rows, **again)
        assert cleared.rows == RowChanges(unchanged=2)
        assert cleared.committed is not None
        assert table.job_of_key("run") == cleared.committed.job
        assert table.merge(rows.slice(0, 1), **again).rows == RowChanges(unchanged=1)
        assert held(table) == texts((1, "A", 1.0, "x"), (2, "b", 1.0, "y"))

    def test_what_would_double_rows_is_refused(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), idempotency_key="load")
        rows = arrow((1, "A", 1.0, "x"), (None, "n", 1.0, "x"))
        table.merge(rows, on=["k"], idempotency_key="run")
        with pytest.raises(InvalidInputError, match="null key match nothing"):
            table.merge(rows, on=["k"], idempotency_key="run", on_repeat="replace_own")
        for idempotency_key in ("load", "run"):
            with pytest.raises(CommitConflictError, match="or a merge"):
                put_again(table, idempotency_key, (1, "a", 1.0, "x"))
        assert len(held(table)) == 2

    def test_rows_that_have_moved_are_not_loaded_beside_themselves(self, table: Table) -> None:
        put(table, (1, "a", 1.0, "x"), idempotency_key="load")
        put(table, (2, "b", 1.0, "z"), idempotency_key="gone")
        table.merge(arrow((1, "a", 2.0, "y")), on=["k", "j"], across_partitions=True)
        with pytest.raises(CommitConflictError, match="moved to other partitions"):
            put_again(table, "load", (1, "a", 1.0, "x"))
        assert held(table) == texts((1, "a", 2.0, "y"), (2, "b", 1.0, "z"))
        table.delete(pc.field("p") == "z")
        put_again(table, "gone", (2, "b", 3.0, "z"))
        assert held(table) == texts((1, "a", 2.0, "y"), (2, "b", 3.0, "z"))


_DAYS = st.lists(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.sampled_from("xy")), st.sampled_from("abc"), min_size=1
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(days=_DAYS, data=st.data())
def test_days_that_are_merged_again_leave_what_one_run_of_each_leaves(
    days: list[dict[tuple[int, str], str]], data: st.DataObject
) -> None:
    """By a column that is stored, in whichever order they are cleared, or run at first."""

    def merge(into: Table, day: int) -> None:
        rows = [(key, text, day, place) for (key, place), text in days[day].items()]
        given = arrow(*rows, schema=TIMED)
        into.merge(given, on=["k", "p"], latest_by="at", partition_by=["p"])

    idempotency_key, often = memory_table(MemoryStore()), memory_table(MemoryStore())
    for day in range(len(days)):
        merge(idempotency_key, day)
    order = data.draw(st.permutations(range(len(days))))
    cleared = data.draw(st.lists(st.sampled_from(range(len(days))), max_size=4))
    for day in (*order, *cleared):
        merge(often, day)
    assert held(often) == held(idempotency_key)
    before = versions(often)
    merge(often, cleared[-1] if cleared else order[0])
    assert versions(often) == before


_KEYED = st.dictionaries(
    st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("xyz")),
    st.tuples(st.sampled_from("abc"), st.sampled_from("UD")),
    max_size=8,
)


@settings(max_examples=50, deadline=None)
@given(there=_KEYED, given_rows=_KEYED, across=st.booleans(), data=st.data())
def test_rows_leave_the_same_however_they_are_cut_into_batches(
    there: dict[Any, Any], given_rows: dict[Any, Any], across: bool, data: st.DataObject
) -> None:
    schema = SCHEMA.append(pa.field("op", pa.string()))
    rows = [(k, text, 0.0, place, op) for (k, place), (text, op) in given_rows.items()]
    if across:
        rows = list({row[0]: row for row in rows}.values())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    batches = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    tables = memory_table(MemoryStore()), memory_table(MemoryStore())
    for table, parts in zip(tables, ([rows], batches), strict=True):
        put(table, *[(k, text, 0.0, place) for (k, place), (text, _) in there.items()])
        for part in parts:
            table.merge(
                arrow(*part, schema=schema),
                on=["k"],
                delete_when=pc.field("op") == "D",
                across_partitions=across,
            )
    assert held(tables[0]) == held(tables[1])


@settings(max_examples=80, deadline=None)
@given(sequences(steps=6, rows=6))
def test_any_sequence_leaves_what_a_dictionary_says(
    sequence: tuple[Model, list[row_model.Row], list[Step]],
) -> None:
    model, first, steps = sequence
    table = memory_table(MemoryStore())
    model.load(table, first, replaces=False)
    model = model.after(Load(first, replaces=False))
    for step in steps:
        before, states = versions(table), model
        try:
            model = model.after(step)
        except InvalidInputError:
            with pytest.raises(InvalidInputError, match="several times"):
                _carry_out(table, states, step)
            assert versions(table) == before
            continue
        _carry_out(table, states, step)
        assert row_model.held(table) == model.texts
        if isinstance(step, Load):
            continue
        moved = {name for name, version in versions(table).items() if before.get(name) != version}
        assert moved == states.changed(model)


def _carry_out(table: Table, model: Model, step: Step) -> None:
    if isinstance(step, Load):
        model.load(table, step.rows, step.replaces)
    elif isinstance(step, Delete):
        table.delete(pc.field(step.column) == step.value)
    elif isinstance(step, Merge):
        table.merge(
            model.source(step),
            on=step.on,
            when_matched=step.matched,
            when_not_matched=step.not_matched,
            delete_when=pc.field("op") == "D" if step.deletes else None,
            latest_by="at" if step.latest else None,
            null_safe=step.null_safe,
            across_partitions=step.across,
            schema_mode="keep" if step.columns is None else "merge",
        )
