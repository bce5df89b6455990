"""Merges by Spark: what becomes of each row, and of what is there meanwhile.

Those of ``test_row_sequences.py`` and ``test_fields_by_name.py`` run with adaptive execution.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support import spark_tables
from support.spark_tables import held
from zero_rename.committer import (
    CommitConflictError,
    Committed,
    InvalidInputError,
    RefusedError,
    Table,
    TableMismatchError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.orchestration.runs.reports import commit_report
from zero_rename.spark import delete, load, merge, save, stream, update
from zero_rename.spark.changing import merge_join
from zero_rename.spark.reading.load import state_frame

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]

TIMED = "k long, v string, p string, at int"
#: A key of the write's own, as each batch of a stream has one.
OWN = {"idempotency_key": "own"}
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.string())])
put = partial(spark_tables.put, schema=SCHEMA)


def changes(spark: Any, *rows: tuple[Any, ...], schema: str = "k long, v string, p string") -> Any:
    return spark.createDataFrame(list(rows), schema)


def versions(url: str) -> dict[str, int]:
    return Table(url).snapshot().versions


def test_a_merge_that_makes_the_table_loses_no_column_that_a_condition_names(spark, url):
    source = changes(spark, (1, "a", "x"), (2, "b", "x"))
    rule = {"on": ["k"], "delete_when": "v = 'b'", "partition_by": ["p"]}
    merge(source, url, **rule)
    assert held(url) == [(1, "a", "x")]
    # The next day's goes by the source's column, which the table has now, too.
    merge(changes(spark, (1, "b", "x"), (3, "c", "x")), url, **rule)
    assert held(url) == [(3, "c", "x")]
    merge(changes(spark, (3, "C", "x")), url, on=["k"], delete_when="target.v = 'c'")
    assert held(url) == []


def test_bare_name_beside_one_of_the_tables_is_the_sources_column(spark, url):
    rule = "`v` = 'D' and V = 'D' and target.v <> 'v' and k < 9 -- the last"
    put(url, (1, "a", "x"), (2, "v", "x"), (3, "c", "x"), (9, "d", "x"))
    source = changes(spark, (1, "A", "x"), (2, "D", "x"), (3, "D", "x"), (9, "d", "x"))
    done = merge(source, url, on=["k"], delete_when=rule)
    assert held(url) == [(1, "A", "x"), (2, "D", "x"), (9, "d", "x")]
    assert done.rows == RowChanges(updated=2, deleted=1, unchanged=1)


def test_rows_are_updated_inserted_and_deleted_and_what_does_not_change_is_left(spark, url):
    put(url, (1, "a", "x"), (2, "b", "x"), (3, "c", "y"), (4, "d", "z"), (5, "e", "w"))
    source = changes(
        spark,
        *((1, "A", "x", "U"), (9, "new", "x", "U"), (3, None, "y", "D"), (4, "d", "z", "U")),
        *((8, None, "y", "D"), (7, "v", "v", "I")),
        schema="k long, v string, p string, op string",
    )
    done = merge(source, url, on=["k"], delete_when="op = 'D'")
    kept = [(1, "A", "x"), (2, "b", "x"), (4, "d", "z"), (5, "e", "w")]
    assert held(url) == [*kept, (7, "v", "v"), (9, "new", "x")]
    assert done.rows == RowChanges(inserted=2, updated=1, deleted=1, unchanged=2)
    assert (done.partitions, done.left) == (("p=v", "p=x", "p=y"), ("p=z",))
    assert versions(url) == {"p=v": 1, "p=w": 1, "p=x": 2, "p=y": 2, "p=z": 1}
    assert not Table(url).files("p=y")
    assert done.committed is not None
    assert done.committed.rows == 4
    assert done.committed.row_changes == done.rows
    told = commit_report(done.committed)
    assert (told["partitions_left"], told["bytes_read"]) == (1, done.bytes_read)
    again = merge(source, url, on=["k"], delete_when="op = 'D'")
    assert again.rows == RowChanges(unchanged=5)
    assert again.committed is None


def test_what_the_rows_come_of_is_told_and_the_table_s_own_state_is_no_input(spark, url):
    put(f"{url}_0", (1, "a", "x"))
    put(f"{url}_1", (1, "b", "x"))
    put(url, (1, "a", "x"), inputs=[Table(f"{url}_0").snapshot()])
    done = merge(load(spark, f"{url}_1"), url, on=["k"], code_version="4")
    assert done.committed is not None
    inputs = Table(url).inputs_of(done.committed.job)
    assert "4" in inputs.code_versions
    assert {f"{url}_0", f"{url}_1"} <= {it.table for it in inputs.tables}
    assert url not in {it.table for it in inputs.tables}
    assert not inputs.partly
    edited = update(url, set={"v": "'c'"}, where="k = 1", spark=spark)
    assert edited.committed is not None
    assert Table(url).inputs_of(edited.committed.job).tables == inputs.tables


class TestKeys:
    def test_duplicates_are_refused_with_a_count_and_an_example(self, spark, url):
        put(url, (1, "a", "x"))
        twice = changes(spark, (1, "b", "x"), (1, "c", "x"), (2, "d", "x"))
        with pytest.raises(InvalidInputError, match=r"1 key of the frame is there several.*k=1"):
            merge(twice, url, on=["k"])
        ties = changes(spark, (1, "b", "x", 1), (1, "c", "x", 2), (1, "d", "x", 2), schema=TIMED)
        with pytest.raises(InvalidInputError, match="also by the greatest at"):
            merge(ties, url, on=["k"], latest_by="at")
        assert held(url) == [(1, "a", "x")]
        assert versions(url) == {"p=x": 1}

    def test_the_last_of_several_counts(self, spark, url):
        put(url, (1, "a", "x"))
        late = changes(spark, (1, "b", "x", 1), (1, "c", "x", 2), (1, "n", "x", None), schema=TIMED)
        merge(late, url, on=["k"], latest_by="AT")
        assert held(url) == [(1, "c", "x")]

    def test_a_row_of_the_table_that_is_later_stays(self, spark, url):
        schema = SCHEMA.append(pa.field("at", pa.int32()))
        put(url, (1, "a", "x", 5), (2, "b", "x", 5), (3, "c", "x", None), schema=schema)
        late = [(1, "A", "y", 4), (2, "B", "x", 5), (3, "C", "x", None), (4, "D", "x", 1)]
        rule = {"on": ["k"], "latest_by": "AT", "across_partitions": True}
        done = merge(changes(spark, *late, schema=TIMED), url, **rule)
        after = [(1, "a", "x", 5), (2, "B", "x", 5), (3, "C", "x", None), (4, "D", "x", 1)]
        assert held(url) == after
        assert done.rows == RowChanges(inserted=1, updated=2, unchanged=1)
        gone = changes(spark, (1, "gone", "x", None), (2, "gone", "x", 9), schema=TIMED)
        done = merge(gone, url, delete_when="v = 'gone'", **rule)
        assert held(url) == [after[0], *after[2:]]
        # The days before once more, in any order: what came later is there all the same.
        assert merge(changes(spark, *late[2:], schema=TIMED), url, **rule).committed is None

    def test_null_keys_match_nothing_unless_they_are_to(self, spark, url):
        put(url, (None, "a", "x"), (1, "b", "x"))
        frame = changes(spark, (None, "n", "x"), (1, "B", "x"))
        merge(frame, url, on=["K"], null_safe=True)
        assert held(url) == [(1, "B", "x"), (None, "n", "x")]
        done = merge(frame, url, on=["k"])
        assert done.rows == RowChanges(inserted=1, unchanged=2)
        assert held(url) == [(1, "B", "x"), (None, "n", "x"), (None, "n", "x")]

    def test_keys_elsewhere_are_found_when_asked_for(self, spark, url):
        put(url, (1, "a", "x"), (2, "b", "x"), (3, "c", "y"), (4, "d", "z"))
        frame = changes(spark, (1, "A", "y"), (3, "C", "w"))
        done = merge(frame, url, on=["k"], across_partitions=True)
        assert held(url) == [(1, "A", "y"), (2, "b", "x"), (3, "C", "w"), (4, "d", "z")]
        assert done.rows == RowChanges(updated=2, unchanged=1)
        assert done.partitions == ("p=w", "p=x", "p=y")
        assert versions(url)["p=z"] == 1
        # Else in its own partition alone: the one in w is new there.
        done = merge(changes(spark, (2, "B", "w")), url, on=["k"])
        assert done.rows == RowChanges(inserted=1, unchanged=1)
        assert [row for row in held(url) if row[0] == 2] == [(2, "B", "w"), (2, "b", "x")]


class TestBatches:
    """A row matches those of its own partition alone, whichever rows come with it."""

    THERE = ((1, "a", "x"), (2, "b", "y"))
    GIVEN = ((1, "A", "y"), (3, "c", "x"))

    @pytest.mark.parametrize("across", [False, True])
    def test_rows_merged_at_once_leave_what_a_stream_of_them_leaves(
        self, spark, url, tmp_path, across
    ):
        put(url, *self.THERE)
        put(f"{url}2", *self.THERE)
        merge(changes(spark, *self.GIVEN), f"{url}2", on=["k"], across_partitions=across)
        nothing = merge(changes(spark), f"{url}2", on=["k"], across_partitions=across)
        assert nothing.committed is None
        for number, row in enumerate(self.GIVEN):
            one = changes(spark, row).coalesce(1)
            one.write.parquet(str(tmp_path / f"rows{number}"))
        kind = changes(spark).schema
        rows = spark.readStream.schema(kind).option("maxFilesPerTrigger", 1)
        rows = rows.parquet(str(tmp_path / "rows*"))
        words: dict[str, Any] = {
            "mode": "merge",
            "merge_on": ["k"],
            "trigger": {"availableNow": True},
        }
        words |= {"across_partitions": across}
        query = stream(rows, url, checkpoint=str(tmp_path / "checkpoint"), **words)
        query.awaitTermination()
        assert held(url) == held(f"{url}2") == sorted([*self.THERE[across:], *self.GIVEN])
        jobs = {it["job"] for it in Table(url).history().to_pylist()}
        assert len(jobs) == 3

    def test_one_key_in_two_partitions_is_two_rows_and_across_them_one(self, spark, url):
        rows = changes(spark, (1, "a", "x", 1), (1, "b", "y", 2), schema=TIMED)
        merge(rows, url, on=["k"], partition_by=["p"])
        assert merge(rows, url, on=["k"]).rows == RowChanges(unchanged=2)
        with pytest.raises(InvalidInputError, match=r"1 key of the frame is there .* k=1\."):
            merge(rows, url, on=["k"], across_partitions=True)
        three = [(1, "c", "x", 1), (1, "d", "x", 2), (1, "e", "y", 2)]
        twice = changes(spark, *three, schema=TIMED)
        with pytest.raises(InvalidInputError, match=r"1 key of the frame is there .* k=1, p='x'"):
            merge(twice, url, on=["k"])
        merge(twice, url, on=["k"], latest_by="at")
        assert held(url) == three[1:]


class TestRules:
    def test_expressions_and_words(self, spark, url):
        put(url, (1, "a", "x"), (2, "b", "x"))
        frame = changes(spark, (1, "1", "x"), (3, "3", "x"))
        done = merge(
            frame,
            url,
            on=["k"],
            when_matched={"V": "concat(target.v, source.v)"},
            when_not_matched="ignore",
        )
        assert held(url) == [(1, "a1", "x"), (2, "b", "x")]
        assert done.rows == RowChanges(updated=1, unchanged=1)
        merge(frame, url, on=["k"], when_matched="ignore")
        assert held(url) == [(1, "a1", "x"), (2, "b", "x"), (3, "3", "x")]
        # A partition that the frame has no rows for is read, too, where one moves there.
        put(url, (8, "h", "y"))
        moves = {"on": ["k"], "when_matched": {"P": "'y'"}}
        with pytest.raises(InvalidInputError, match=r"when_matched\['p'\].*across_part.* is not"):
            merge(frame, url, **moves)
        done = merge(frame, url, across_partitions=True, **moves)
        assert held(url) == [(1, "a1", "y"), (2, "b", "x"), (3, "3", "y"), (8, "h", "y")]
        assert done.rows == RowChanges(updated=2, unchanged=2)

    def test_new_columns(self, spark, url):
        put(url, (1, "a", "x"), (2, "b", "x"))
        frame = changes(spark, (1, "x", 7), (3, "x", 8), schema="k long, p string, n int")
        with pytest.raises(TableMismatchError, match=r"v is missing.*schema_mode"):
            merge(frame, url, on=["k"])
        merge(frame, url, on=["k"], schema_mode="merge")
        assert held(url) == [(1, "a", "x", 7), (2, "b", "x", None), (3, None, "x", 8)]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"on": "k"}, "on is the text"),
            ({"on": []}, "on names no column"),
            ({"on": ["nope"]}, "'nope', which is no column"),
            ({"on": ["f"]}, "type double"),
            ({"when_matched": "replace"}, "when_matched is 'replace'"),
            ({"when_not_matched": "update"}, "when_not_matched is 'update'"),
            ({"delete_when": "count(k) > 1"}, "no aggregate"),
            ({"delete_when": "k in (select 1)"}, "subquery"),
            ({"when_matched": {"nope": "1"}}, "'nope', which is no column"),
            ({"schema_mode": "overwrite"}, "schema_mode='overwrite'"),
            ({"attempts": 0}, "attempts is 0"),
            ({"options": {"base": "now"}}, "base says nothing"),
        ],
    )
    def test_what_cannot_be_right(self, spark, url, given, message):
        schema = SCHEMA.append(pa.field("f", pa.float64()))
        put(url, (1, "a", "x", 1.0), schema=schema)
        frame = changes(spark, (1, "b", "x", 2.0), schema="k long, v string, p string, f double")
        fields: dict[str, Any] = {"on": ["k"], **given}
        with pytest.raises(InvalidInputError, match=message):
            merge(frame, url, **fields)
        assert versions(url) == {"p=x": 1}

    def test_tables_and_frames_that_are_refused(self, spark, url, monkeypatch):
        put(url, (1, "a", "x"), coordination="none")
        frame = changes(spark, (1, "b", "x"))
        with pytest.raises(InvalidInputError, match="coordination=none"):
            merge(frame, url, on=["k"])
        put(f"{url}2", (1, "a", "x"))
        with pytest.raises(InvalidInputError, match="no column 'p'"):
            merge(frame.drop("p"), f"{url}2", on=["k"])
        monkeypatch.setenv("ZERO_RENAME_COMMITTER", "magic")
        with pytest.raises(InvalidInputError, match="the committer is magic"):
            merge(frame, f"{url}2", on=["k"])


class TestHandoff:
    """What a submitter asks for, of an application that calls ``save()``."""

    @pytest.fixture(autouse=True)
    def submitted(self, url, monkeypatch):
        said = Handoff(
            mode=Mode.MERGE,
            merge_on=("k",),
            delete_when="op = 'D'",
            latest_by="at",
            idempotency_key="run",
        )
        for name, value in said.encode().items():
            monkeypatch.setenv(name, value)

    def test_rows_are_merged_by_its_words(self, spark, url):
        put(url, (1, "a", "x"), (2, "b", "x"), (3, "c", "x"))
        rows = changes(
            spark,
            *((1, "A", "x", "U", 1), (1, "B", "x", "U", 2), (2, None, "x", "D", 1)),
            *((4, "d", "x", "I", 1), (5, None, "x", "D", 1)),
            schema="k long, v string, p string, op string, at int",
        )
        done = save(rows, url, code_version="4")
        assert isinstance(done, Committed)
        assert done.row_changes == RowChanges(inserted=1, updated=1, deleted=1, unchanged=1)
        assert "4" in Table(url).inputs_of(done.job).code_versions
        assert held(url) == [(1, "B", "x"), (3, "c", "x"), (4, "d", "x")]

    @pytest.mark.parametrize("across", [False, True])
    def test_rows_move_where_it_says_across_partitions_alone(self, spark, url, monkeypatch, across):
        put(url, (1, "a", "x"), (2, "b", "y"))
        said = Handoff(across_partitions=across or None)
        for name, value in said.encode().items():
            monkeypatch.setenv(name, value)
        schema = "k long, v string, p string, op string, at int"
        save(changes(spark, (1, "A", "y", "U", 1), schema=schema), url)
        here = [] if across else [(1, "a", "x")]
        assert held(url) == sorted([*here, (1, "A", "y"), (2, "b", "y")])

    def test_a_condition_beyond_a_row_is_refused(self, spark, url, monkeypatch):
        put(url, (1, "a", "x"))
        monkeypatch.setenv("ZERO_RENAME_DELETE_WHEN", "count(k) > 1")
        with pytest.raises(InvalidInputError, match="no aggregate"):
            save(changes(spark, (1, "A", "x", 1), schema=TIMED), url)
        assert versions(url) == {"p=x": 1}


class TestOthers:
    """Another job commits between the merge's read and its commit."""

    def test_it_is_read_and_joined_again(self, spark, url, beside):
        put(url, (1, "a", "x"), (2, "b", "y"))
        beside(lambda: put(url, (3, "c", "x")))
        done = merge(changes(spark, (1, "A", "x"), (3, "C", "x")), url, on=["k"])
        assert held(url) == [(1, "A", "x"), (2, "b", "y"), (3, "C", "x")]
        assert (done.attempts, done.rows) == (2, RowChanges(updated=2))

    def test_a_partition_that_was_not_there(self, spark, url, beside):
        put(url, (1, "a", "x"))
        beside(lambda: put(url, (5, "e", "new")))
        done = merge(changes(spark, (5, "E", "new")), url, on=["k"])
        assert held(url) == [(1, "a", "x"), (5, "E", "new")]
        assert done.attempts == 2

    def test_a_table_that_was_not_there(self, spark, url, beside):
        beside(lambda: put(url, (5, "e", "x")))
        done = merge(changes(spark, (5, "E", "x")), url, on=["k"], partition_by=["p"])
        assert held(url) == [(5, "E", "x")]
        assert done.attempts == 2

    def test_a_key_that_comes_to_another_partition_of_a_table_made_meanwhile_moves(
        self, spark, url, beside
    ):
        beside(lambda: put(url, (7, "theirs", "n")))
        rows, by = changes(spark, (7, "mine", "x")), ["p"]
        done = merge(rows, url, on=["k"], across_partitions=True, partition_by=by)
        assert (done.attempts, done.rows) == (2, RowChanges(updated=1))
        assert held(url) == [(7, "mine", "x")]

    def test_a_table_made_meanwhile_of_other_columns_is_merged_into(self, spark, url, beside):
        beside(lambda: put(url, (5, "e", "n")))
        rows = changes(spark, (1, "A", "x", "I"), schema="k long, v string, p string, op string")
        done = merge(rows, url, on=["k"], partition_by=["p"], delete_when="op = 'D'")
        assert (done.attempts, held(url)) == (2, [(1, "A", "x"), (5, "e", "n")])

    @pytest.mark.parametrize("verb", ["delete", "update"])
    def test_columns_that_others_overwrite_before_the_rows_are_read_are_read_too(
        self, spark, url, verb, monkeypatch
    ):
        put(url, (1, "a", "x"), (2, "b", "x"))
        waiting = [partial(_change_columns, url, "overwrites")]
        to_change = Table.state_to_change

        def lands(self, *given):
            while waiting:
                waiting.pop()()
            return to_change(self, *given)

        monkeypatch.setattr(Table, "state_to_change", lands)
        if verb == "update":
            with pytest.raises(InvalidInputError, match="set names 'v', which is no column of k"):
                _changed(spark, url, verb)
            return
        assert _changed(spark, url, verb).attempts == 1
        assert held(url) == [(2, "x", 2)]

    @pytest.mark.parametrize("verb", ["merge", "delete", "update"])
    def test_columns_that_others_overwrite_after_the_rows_were_read_are_a_conflict(
        self, spark, url, verb, beside
    ):
        put(url, (1, "a", "x"), (2, "b", "x"))
        beside(partial(_change_columns, url, "overwrites"))
        with pytest.raises(CommitConflictError, match="changed since its columns were read"):
            _changed(spark, url, verb, attempts=1)
        assert Table(url).schema.names == ["k", "p", "n"]
        if verb == "delete":
            beside(partial(_change_columns, url, "back"))
            assert _changed(spark, url, verb).attempts == 2

    @pytest.mark.parametrize("across", [False, True])
    def test_a_file_that_goes_while_its_rows_are_counted_is_a_conflict(
        self, spark, url, monkeypatch, across
    ):
        put(url, (1, "a", "x"), (2, "b", "x"))
        replaces = partial(put, url, (1, "b", "x"), (3, "c", "x"), mode="overwrite")
        waiting = [replaces]

        def goes(*given):
            frame = state_frame(*given)
            while waiting:
                waiting.pop()()
            return frame

        monkeypatch.setattr(merge_join, "state_frame", goes)
        done = merge(changes(spark, (1, "A", "x")), url, on=["k"], across_partitions=across)
        assert (done.attempts, done.rows) == (2, RowChanges(updated=1, unchanged=1))
        assert held(url) == [(1, "A", "x"), (3, "c", "x")]

    def test_it_is_refused_where_no_attempt_is_left(self, spark, url, beside):
        put(url, (1, "a", "x"))
        beside(lambda: put(url, (3, "c", "x"), mode="overwrite"))
        with pytest.raises(CommitConflictError, match="since this job read the table: p=x"):
            merge(changes(spark, (1, "A", "x")), url, on=["k"], attempts=1)
        assert held(url) == [(3, "c", "x")]


def _changed(spark, url, verb, **given):
    if verb == "merge":
        return merge(changes(spark, (1, "A", "x")), url, on=["k"], **given)
    if verb == "delete":
        return delete(url, where="k = 1", spark=spark, **given)
    return update(url, set={"v": "'A'"}, where="k = 1", spark=spark, **given)


def _change_columns(url, how):
    """Overwrite the columns with others, or with those that there were."""
    schema = SCHEMA
    if how == "overwrites":
        schema = pa.schema([SCHEMA.field("k"), SCHEMA.field("p"), pa.field("n", pa.int32())])
    rows = [(1, "x", 1), (2, "x", 2)] if how == "overwrites" else [(1, "a", "x"), (2, "b", "x")]
    policy = {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}
    put(url, *rows, schema=schema, **policy)


class TestRuns:
    """A retry, a cleared task, another job of the run."""

    def test_a_run_without_rows_makes_the_table_with_its_partitions(self, spark, url):
        merge(changes(spark), url, on=["k"], partition_by=["p"], options=OWN)
        assert Table(url).partition_by == ("p",)

    def test_a_retry_and_a_cleared_task_leave_what_one_run_leaves(self, spark, url):
        put(url, (1, "a", "x"), (2, "b", "y"))
        frame = changes(spark, (1, "A", "x"), (3, "c", "y"))
        first = merge(frame, url, on=["k"], options=OWN)
        put(url, (9, "later", "x"))
        retry = merge(frame, url, on=["k"], options=OWN)
        assert first.committed is not None
        assert retry.committed is not None
        assert (retry.committed.job, retry.committed.repeated) == (first.committed.job, True)
        assert retry.rows == first.rows == RowChanges(inserted=1, updated=1, unchanged=1)
        again = OWN | {"onRepeat": "replace_own"}
        cleared = merge(frame, url, on=["k"], options=again)
        assert cleared.rows == RowChanges(unchanged=4)
        assert cleared.committed is not None
        assert not cleared.committed.partitions
        assert Table(url).job_of_key("own") == cleared.committed.job
        corrected = changes(spark, (1, "A", "x"), (3, "C", "y"))
        assert merge(corrected, url, on=["k"], options=again).partitions == ("p=y",)
        assert held(url) == [(1, "A", "x"), (2, "b", "y"), (3, "C", "y"), (9, "later", "x")]

    def test_what_would_not_come_out_the_same_is_not_done_again(self, spark, url):
        put(url, (1, "a", "x"))
        frame = changes(spark, (1, "A", "x"))
        more = {"v": "concat(target.v, source.v)"}
        merge(frame, url, on=["k"], when_matched=more, options=OWN)
        again = OWN | {"onRepeat": "replace_own"}
        with pytest.raises(InvalidInputError, match="computed from what the table holds"):
            merge(frame, url, on=["k"], when_matched=more, options=again)
        assert held(url) == [(1, "aA", "x")]

    def test_rows_that_it_inserted_are_not_updated_by_its_repetition(self, spark, url):
        """It is made again where what it computes is what it inserts, or where it has inserted
        none."""
        put(url, (1, "a", "x"))
        again = OWN | {"onRepeat": "replace_own"}
        plain, upper = {"v": "source.v"}, {"v": "upper(source.v)"}
        one, two = changes(spark, (1, "b", "x")), changes(spark, (1, "c", "x"), (2, "d", "x"))
        merge(one, url, on=["k"], when_matched=upper, options=OWN)
        merge(two, url, on=["k"], when_matched=upper, options=again)
        merge(two, url, on=["k"], when_matched=plain, options=again)
        merge(one, url, on=["k"], when_matched=upper, options=again)
        assert held(url) == [(1, "B", "x"), (2, "d", "x")]
        merge(changes(spark, (3, "e", "x")), url, on=["k"], when_matched=upper, options=again)
        with pytest.raises(InvalidInputError, match="v of the rows that it has inserted"):
            merge(changes(spark, (3, "e", "x")), url, on=["k"], when_matched=upper, options=again)
        assert held(url) == [(1, "B", "x"), (2, "d", "x"), (3, "e", "x")]

    def test_deletion_by_a_column_of_the_frame_is_made_again(self, spark, url):
        """The table has a column of that name, too, which the condition does not use."""
        put(url, (1, "a", "x"), (2, "b", "x"))
        rule = {"on": ["k"], "delete_when": "v = 'D'"}
        merge(changes(spark, (1, "D", "x"), (2, "B", "x")), url, **rule, options=OWN)
        again = OWN | {"onRepeat": "replace_own"}
        merge(changes(spark, (1, "D", "x"), (2, "C", "x")), url, **rule, options=again)
        assert held(url) == [(2, "C", "x")]

    def test_a_run_whose_rows_were_merged_does_not_add_them_once_more(self, spark, url):
        put(url, (1, "a", "x"), idempotency_key="other")
        merge(changes(spark, (1, "A", "x"), (2, "b", "x")), url, on=["k"], options=OWN)
        with pytest.raises(CommitConflictError, match="or a merge"):
            put(url, (1, "a", "x"), idempotency_key="other", on_repeat="replace_own")
        # Nor does the merge's own run take away what others wrote.
        with pytest.raises(RefusedError, match="or a merge"):
            put(url, (7, "z", "x"), idempotency_key="own", on_repeat="replace_own")
        assert held(url) == [(1, "A", "x"), (2, "b", "x")]
