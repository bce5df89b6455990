"""The sensor's query against tables in every state."""

from __future__ import annotations

from typing import Any

import pytest

from support.airflow import Tables
from zero_rename.committer import InvalidInputError, OnRepeat
from zero_rename.committer.format.layout import new_job_id
from zero_rename.committer.store.backoff import Backoff
from zero_rename.orchestration.job_query import FAILED, READY, WAITING, JobQuery, QueryResult

pytestmark = pytest.mark.memory_s3


def ask(tables: Tables, **query: Any) -> QueryResult:
    asked = JobQuery(tables.url(), **query)
    asked.check()
    return asked.ask(tables.table())


def test_an_answer_stays_while_nothing_is_about_to_change(tables: Tables) -> None:
    """What a head's listing does not show: the job that claims it decides."""
    first: dict[str, Any] = {"partition": "day=1", "newer_than_version": 1}
    tables.load(1)
    assert ask(tables, **first).quiet
    tables.claimed(1)
    assert not ask(tables, **first).quiet
    assert ask(tables, job=new_job_id()).quiet
    assert not ask(tables, job="8d7b1c52-7d2b-4a1c-9f43-0a1b2c3d4e5f").quiet


class TestAJob:
    def test_committed_and_closed(self, tables: Tables) -> None:
        job = tables.load(1, 2, rows=3).job
        result = ask(tables, job=job)
        assert result.state == READY
        assert result.report is not None
        assert (result.report["job"], result.report["rows"]) == (job, 6)
        assert [p["partition"] for p in result.report["partitions"]] == ["day=1", "day=2"]

    def test_one_of_its_partitions(self, tables: Tables) -> None:
        job = tables.load(1, 2, rows=3).job
        result = ask(tables, job=job, partition="day=2")
        assert result.report is not None
        assert (result.report["rows"], result.report["version"]) == (3, 1)

    def test_a_partition_it_did_not_change(self, tables: Tables) -> None:
        result = ask(tables, job=tables.load(1).job, partition="day=2")
        assert result.state == FAILED
        assert "did not change day=2, but: day=1" in result.explanation

    def test_yesterdays_job_does_not_count(self, tables: Tables) -> None:
        tables.load(1)
        result = ask(tables, job=new_job_id())
        assert result.state == WAITING
        assert "Nothing committed yet" in result.explanation

    def test_undecided(self, tables: Tables) -> None:
        result = ask(tables, job=tables.undecided(1))
        assert result.state == WAITING
        assert "has not decided yet" in result.explanation

    def test_aborted(self, tables: Tables) -> None:
        job = tables.undecided(1)
        tables.table().recover(patience=0.0)
        result = ask(tables, job=job)
        assert result.state == FAILED
        assert "was aborted" in result.explanation

    def test_committed_and_not_applied(self, tables: Tables) -> None:
        job = tables.decided(1)
        result = ask(tables, job=job)
        assert result.state == WAITING
        assert "not yet applied" in result.explanation
        assert ask(tables, job=job, apply=True).state == READY
        assert tables.table().open_jobs() == []

    def test_committed_and_not_to_be_applied(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its upload is gone: readers that list would see none of its rows."""
        monkeypatch.setattr("zero_rename.committer.commit.complete.COMPLETE", Backoff(6, 0.01))
        job = tables.decided(1)
        client, bucket = tables.bucket.client, tables.bucket.name
        (upload,) = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
        client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        answer = ask(tables, job=job, apply=True)
        assert answer.state == WAITING
        assert "could not be applied to its end" in answer.explanation
        assert answer.report is None

    def test_an_emptied_partition_is_ready_with_no_rows(self, tables: Tables) -> None:
        tables.load(1)
        job = tables.load(mode="replace", replace_partitions=("day=1",)).job
        result = ask(tables, job=job, partition="day=1")
        assert result.state == READY
        assert result.report is not None
        assert (result.report["rows"], result.report["version"]) == (0, 2)

    def test_too_few_rows(self, tables: Tables) -> None:
        job = tables.load(1, rows=2).job
        assert ask(tables, job=job, min_rows=2).state == READY
        result = ask(tables, job=job, min_rows=3)
        assert result.state == FAILED
        assert "min_rows" in result.explanation


class TestARun:
    def test_its_key(self, tables: Tables) -> None:
        assert ask(tables, idempotency_key="flights/run/load").state == WAITING
        job = tables.load(1, idempotency_key="flights/run/load").job
        result = ask(tables, idempotency_key="flights/run/load")
        assert result.report is not None
        assert result.report["job"] == job
        assert ask(tables, idempotency_key="flights/other/load").state == WAITING

    def test_a_decided_commit_is_seen(self, tables: Tables) -> None:
        tables.decided(1, idempotency_key="flights/run/load")
        assert "not yet applied" in ask(tables, idempotency_key="flights/run/load").explanation

    def test_the_last_job_of_a_run_that_was_repeated(self, tables: Tables) -> None:
        tables.load(1, idempotency_key="k")
        job = tables.load(1, idempotency_key="k", on_repeat=OnRepeat.REPLACE_OWN).job
        result = ask(tables, idempotency_key="k")
        assert result.report is not None
        assert result.report["job"] == job


class TestAPartition:
    def test_only_a_newer_version_counts(self, tables: Tables) -> None:
        assert ask(tables, partition="day=1", newer_than_version=0).state == WAITING
        tables.load(1)
        assert ask(tables, partition="day=1", newer_than_version=0).state == READY
        assert ask(tables, partition="day=1", newer_than_version=1).state == WAITING
        assert ask(tables, partition="day=10", newer_than_version=0).state == WAITING
        job = tables.load(1, 2).job
        result = ask(tables, partition="day=1", newer_than_version=1)
        assert result.report is not None
        assert (result.report["job"], result.report["version"]) == (job, 2)

    def test_a_decided_commit_waits_to_be_applied(self, tables: Tables) -> None:
        tables.load(1)
        job = tables.decided(1)
        result = ask(tables, partition="day=1", newer_than_version=1)
        assert result.state == WAITING
        assert job in result.explanation
        result = ask(tables, partition="day=1", newer_than_version=1, apply=True)
        assert result.state == READY

    def test_a_job_that_claimed_it_and_has_not_decided_changed_nothing(
        self, tables: Tables
    ) -> None:
        """It may hold the claim long, or never decide; what was committed before is there."""
        job = tables.load(1).job
        claimant = tables.claimed(1)
        answer = ask(tables, partition="day=1", newer_than_version=0)
        assert answer.state == READY
        assert answer.report is not None
        assert (answer.report["job"], answer.report["version"]) == (job, 1)
        assert ask(tables, partition="day=1", newer_than_version=1).state == WAITING
        tables.table().recover(patience=0.0)
        assert ask(tables, job=claimant).state == FAILED
        assert ask(tables, partition="day=1", newer_than_version=0).state == READY

    def test_markers_are_not_needed(self, tables: Tables) -> None:
        tables.load(1, success_markers="none")
        assert ask(tables, partition="day=1", newer_than_version=0).state == READY


class TestForeignMarkers:
    @pytest.mark.parametrize("place", ["wh/flights/day=1/_SUCCESS", "wh/flights/_SUCCESS"])
    def test_an_empty_one(self, tables: Tables, place: str) -> None:
        tables.bucket.put(place, b"")
        result = ask(tables, idempotency_key="k", partition="day=1")
        assert result.state == WAITING
        assert "classic rename committer" in result.explanation
        failed = ask(tables, idempotency_key="k", partition="day=1", on_foreign_marker="fail")
        assert (failed.state, failed.explanation) == (FAILED, result.explanation)

    def test_one_of_s3a(self, tables: Tables) -> None:
        body = b"""{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
            "success": true, "timestamp": 1, "hostname": "h", "committer": "magic",
            "jobId": "2b1f", "filenames": []}"""
        tables.bucket.put("wh/flights/_SUCCESS", body)
        result = ask(tables, job=new_job_id(), on_foreign_marker="fail")
        assert result.state == FAILED
        assert "'magic' committer" in result.explanation

    def test_ours_is_not_foreign(self, tables: Tables) -> None:
        tables.load(1)
        assert ask(tables, idempotency_key="k", on_foreign_marker="fail").state == WAITING


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "nothing says which"),
        ({"partition": "day=1"}, "nothing says which"),
        ({"job": new_job_id(), "idempotency_key": "k"}, "two arguments say which"),
        ({"newer_than_version": 1}, "none is named"),
        ({"job": "None"}, "'None' is not a job's id"),
        ({"idempotency_key": "k", "partition": "2013"}, "not a partition path"),
        ({"idempotency_key": "k", "on_foreign_marker": "ignore"}, "on_foreign_marker='ignore'"),
    ],
)
def test_questions_that_do_not_say_which_job(query: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        JobQuery("s3://b/t", **query).check()
