"""A sensor's query for partitions, against tables of ours and of Hadoop's committers."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.airflow import Tables
from support.memory_s3 import let_pass
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.orchestration.job_query import READY, WAITING, QueryResult
from zero_rename.orchestration.partitions_query import PartitionsQuery, table_query

pytestmark = pytest.mark.memory_s3


def ask(tables: Tables, *days: int, **asked: Any) -> QueryResult:
    query = PartitionsQuery(tables.url(), tuple(f"day={day}" for day in days), **asked)
    query.check()
    again = table_query(json.loads(json.dumps(query.as_dict())))
    assert again == query
    return query.ask(tables.table())


def report(result: QueryResult) -> dict[str, Any]:
    assert (result.state, result.explanation) == (READY, result.explanation)
    assert result.report is not None
    return result.report


class TestPartitions:
    def test_all_of_them(self, tables: Tables) -> None:
        absent = ask(tables, 1, 2).explanation
        assert "2 of 2 partitions are missing: day=1 (no commit)" in absent
        assert absent.endswith(
            "There is no table at this root yet: if there should be one, check its name."
        )
        first = tables.load(1).job
        result = ask(tables, 1, 2)
        assert (result.state, result.quiet) == (WAITING, True)
        assert result.explanation == "1 of 2 partitions are missing: day=2 (no commit)."
        second = tables.load(2, rows=3).job
        found = report(ask(tables, 1, 2))
        assert [entry["job"] for entry in found["partitions"]] == [first, second]
        assert [entry["version"] for entry in found["partitions"]] == [1, 1]
        assert (found["rows"], found["files"], found["job"]) == (5, 2, None)
        assert report(ask(tables, 2))["job"] == second

    @pytest.mark.parametrize("asked", [{}, {"min_partitions": 1}])
    def test_table_of_coordination_none_is_refused(
        self, tables: Tables, asked: dict[str, Any]
    ) -> None:
        days = () if asked else (1,)
        nothing = ask(tables, *days, **asked)
        assert (nothing.state, nothing.quiet) == (WAITING, False)
        tables.load(1, coordination="none")
        for manifest in (True, False):
            with pytest.raises(InvalidInputError, match="The table's coordination is none"):
                ask(tables, *days, require_manifest=manifest, **asked)

    def test_a_watermark(self, tables: Tables) -> None:
        committed = tables.load(1)
        at = committed.decided_at
        assert ask(tables, 1, newer_than=at - 1).state == READY
        stale = ask(tables, 1, newer_than=at)
        assert (stale.state, "day=1 (committed 20" in stale.explanation) == (WAITING, True)
        assert "day=1 (version 1)" in ask(tables, 1, newer_than_version=1).explanation
        tables.load(1)
        assert ask(tables, 1, newer_than_version=1).state == READY

    def test_compaction_is_no_commit_after_a_watermark(self, tables: Tables) -> None:
        """Also a second one, of rows that the first has left and of others."""
        tables.load(1)
        for rows in (1, 3):
            last = tables.load(1, rows=rows)
            version = last.partitions[0].version
            (compacted,) = tables.table().compact(["day=1"], apply=True)
            assert compacted.job is not None
            (found,) = report(ask(tables, 1))["partitions"]
            known = (found["job"], found["version"], found["decided_at"], found["files"])
            assert known == (last.job, version, last.decided_at, 1)
            assert "day=1 (version" in ask(tables, 1, newer_than_version=version).explanation
            assert ask(tables, 1, newer_than_version=version - 1).state == READY

    def test_settlement_that_leaves_the_rows_is_no_commit_after_a_watermark(
        self, tables: Tables
    ) -> None:
        for dag in ("one", "another"):
            owner = Owner(dag, "run", "load")
            last = tables.load(1, mode="replace", idempotency_key=dag, owner=owner)
        tables.table().conflicts()
        assert tables.table().resolve("newest_run", apply=True)[0].is_settled
        version = last.partitions[0].version
        assert report(ask(tables, 1))["job"] == last.job
        assert ask(tables, 1, newer_than_version=version).state == WAITING
        let_pass(2)  # Dates in listings have no fractions of a second.
        assert tables.table().gc(older_than=0, apply=True).condensed
        assert tables.table().gc(older_than=0, apply=True).left == 0
        assert ask(tables, 1, newer_than_version=version).state == WAITING

    def test_deletion_of_rows_is_a_commit_after_a_watermark_whatever_is_compacted_then(
        self, tables: Tables
    ) -> None:
        tables.load(1)
        version = tables.load(1).partitions[0].version
        tables.table().delete([("flight", "==", "1-0")], apply=True)
        tables.load(2)
        tables.table().compact(["day=1"], apply=True)
        assert ask(tables, 1, newer_than_version=version).state == READY

    def test_choice_of_rows_is_a_commit_after_a_watermark(self, tables: Tables) -> None:
        for _ in range(2):
            tables.load(1)
        last = tables.load(1)
        version = last.partitions[0].version
        chosen = tables.table().keep_rows("day=1", undo=last.job, apply=True).job
        assert report(ask(tables, 1))["job"] == chosen
        assert ask(tables, 1, newer_than_version=version).state == READY
        let_pass(2)  # Dates in listings have no fractions of a second.
        assert tables.table().gc(older_than=0, apply=True).condensed
        assert tables.table().gc(older_than=0, apply=True).left == 0
        assert ask(tables, 1, newer_than_version=version).state == READY

    def test_change_of_rows_that_was_compacted_since_is_a_commit_after_a_watermark(
        self, tables: Tables
    ) -> None:
        """By a choice of rows, and by a cleared run that takes its own rows out."""
        for run in (None, None, "run"):
            last = tables.load(1, idempotency_key=run)

        def compacted(job: str, *sorts: list[str]) -> int:
            for sort_by in sorts:
                tables.table().compact(["day=1"], sort_by=sort_by, apply=True)
            (found,) = report(ask(tables, 1))["partitions"]
            assert found["job"] == job
            let_pass(2)  # Dates in listings have no fractions of a second.
            assert tables.table().gc(older_than=0, apply=True).condensed
            assert report(ask(tables, 1))["partitions"] == [found]
            return found["version"]

        cleared = tables.load(2, idempotency_key="run", on_repeat="replace_own")
        assert compacted(cleared.job, [], ["flight"]) == last.partitions[0].version + 1
        added = tables.load(1)
        chosen = tables.table().keep_rows("day=1", undo=added.job, apply=True).job
        assert compacted(chosen, ["flight"]) == added.partitions[0].version + 1

    def test_what_each_holds(self, tables: Tables) -> None:
        """Of all its jobs, not of the last one."""
        tables.load(1, 2, rows=2)
        tables.load(1, rows=2)
        assert ask(tables, 1, min_rows=4, min_files=2).state == READY
        few = ask(tables, 1, 2, min_rows=4)
        assert few.explanation == "1 of 2 partitions are missing: day=2 (2 rows)."
        assert "day=2 (1 file)" in ask(tables, 1, 2, min_files=2).explanation

    def test_a_commit_that_is_not_applied(self, tables: Tables) -> None:
        tables.load(1)
        job = tables.decided(1)
        result = ask(tables, 1)
        assert f"job {job} is not yet applied to its end" in result.explanation
        assert not result.quiet
        assert report(ask(tables, 1, apply=True))["version"] == 2

    def test_the_first_commit_of_all_that_is_not_applied(self, tables: Tables) -> None:
        job = tables.decided(1)
        assert f"job {job} is not yet applied" in ask(tables, 1).explanation

    def test_a_claim_changes_nothing(self, tables: Tables) -> None:
        tables.claimed(1)
        result = ask(tables, 1)
        assert result.explanation.startswith("1 of 1 partition is missing: day=1 (no commit).")
        assert not result.quiet

    def test_every_file_is_there(self, tables: Tables) -> None:
        tables.load(1, 2)
        assert ask(tables, 1, 2, check_files=True).state == READY
        (file,) = tables.table().files("day=2")
        tables.bucket.put(file.key, b"x")
        assert f"1 of 1 file is not there, such as {file.key}" in (
            ask(tables, 1, 2, check_files=True).explanation
        )
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=file.key)
        assert ask(tables, 1, 2, check_files=True).state == WAITING
        assert ask(tables, 1, 2).state == READY

    def test_polls_of_31_partitions_take_one_request_after_the_first(self, tables: Tables) -> None:
        days = range(1, 32)
        tables.load(*days)
        names = tuple(f"day={day}" for day in days)
        table, query = tables.table(), PartitionsQuery(tables.url(), names, min_files=2)
        assert query.ask(table).state == WAITING
        tables.bucket.counter.reset()
        assert query.ask(table).explanation.startswith("31 of 31 partitions are missing")
        assert tables.bucket.counter.counts() == {"ListObjects": 1}

    def test_each_state_is_read_once_in_a_process(self, tables: Tables) -> None:
        tables.load(1, 2, 3)
        ask(tables, 1, 2, 3)
        tables.bucket.counter.reset()
        assert ask(tables, 1, 2, 3).state == READY
        assert tables.bucket.counter.counts() == {"ListObjects": 1}


class TestMarkers:
    def marker(self, tables: Tables, place: str, *names: str, **more: Any) -> None:
        """A ``_SUCCESS``, and the files that it names."""
        for name in names:
            self.rows(tables, name, 1)
        said = {
            "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
            "success": True,
            "timestamp": 1_359_700_000_000,
            "committer": "magic",
            "jobId": "2b1f",
            "filenames": [f"/wh/flights/{name}" for name in names],
        }
        tables.bucket.put(f"wh/flights/{place}_SUCCESS", json.dumps(said | more).encode())

    def rows(self, tables: Tables, name: str, rows: int) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"flight": ["f"] * rows}), sink)
        tables.bucket.put(f"wh/flights/{name}", sink.getvalue().to_pybytes())

    def test_of_partitions_and_of_the_table(self, tables: Tables) -> None:
        self.marker(tables, "day=1/", "day=1/a.parquet")
        assert ask(tables, 1, committer="magic").state == READY
        assert "day=1 (no commit)" in ask(tables, 1).explanation
        assert "day=2 (no commit)" in ask(tables, 1, 2, committer="magic").explanation
        self.marker(tables, "", "day=2/a.parquet", "day=2/b.parquet")
        found = report(ask(tables, 1, 2, committer="magic", min_files=1))
        assert [entry["files"] for entry in found["partitions"]] == [1, 2]
        assert (found["partitions"][0]["job"], found["rows"]) == ("2b1f", None)

    def test_a_folder_that_spark_names_otherwise(self, tables: Tables) -> None:
        self.marker(tables, "hour=05%3A00/", "hour=05%3A00/a.parquet")
        query = PartitionsQuery(tables.url(), ("hour=05:00",), committer="magic")
        assert "below hour=05%3A00: name it so" in query.ask(tables.table()).explanation

    def test_another_committer(self, tables: Tables) -> None:
        self.marker(tables, "day=1/", "day=1/a.parquet")
        result = ask(tables, 1, committer="partitioned")
        assert "day=1 (_SUCCESS is of the 'magic' committer)" in result.explanation
        tables.load(2)
        assert "'zero_rename' committer" in ask(tables, 2, committer="magic").explanation
        tables.bucket.put("wh/flights/day=3/_SUCCESS", b"")
        assert "marker is empty" in ask(tables, 3, committer="magic").explanation
        self.marker(tables, "day=4/", success=False)
        assert "says that its job failed" in ask(tables, 4, committer="magic").explanation

    def test_when_and_what(self, tables: Tables) -> None:
        self.marker(tables, "day=1/", "day=1/a.parquet")
        assert ask(tables, 1, committer="magic", newer_than=1_359_600_000.0).state == READY
        assert ask(tables, 1, committer="magic", newer_than=1_359_700_000.0).state == WAITING
        self.marker(tables, "day=1/", "day=1/a.parquet", "day=1/b.parquet")
        gone = "wh/flights/day=1/b.parquet"
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=gone)
        missing = ask(tables, 1, committer="magic", check_files=True)
        assert f"such as {gone}" in missing.explanation
        self.marker(tables, "day=1/", "day=1/a.parquet")
        self.rows(tables, "day=1/a.parquet", 3)
        assert ask(tables, 1, committer="magic", check_files=True, min_rows=3).state == READY
        assert "(3 rows)" in ask(tables, 1, committer="magic", min_rows=4).explanation


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"partitions": ()}, "no partition"),
        ({"partitions": ("2013",)}, "not a partition path"),
        ({"partitions": tuple(f"n={n}" for n in range(10_001))}, "more than one sensor's 10,000"),
        ({"min_rows": -1}, "no number of rows"),
        ({"min_files": -1}, "no number of files"),
        ({"committer": "delta"}, "'delta'"),
        ({"committer": "magic", "newer_than_version": 1}, "have no versions"),
    ],
)
def test_questions_that_cannot_be_answered(asked: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"partitions": ("day=1",)} | asked
    with pytest.raises(InvalidInputError, match=message):
        PartitionsQuery("s3://b/t", **given).check()
