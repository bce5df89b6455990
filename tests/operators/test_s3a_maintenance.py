from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    ErrorType,
)
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from support.airflow import Connect, Tables, run_task, task_context
from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, StagingJob, a_try
from zero_rename.committer import ZeroRenameError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import TableRoot
from zero_rename.operators.maintenance import MaintainTablesOperator, PurgeStaleUploadsOperator
from zero_rename.operators.s3a_maintenance import RecoverS3AJobsOperator
from zero_rename.provider.task_states import task_states
from zero_rename.s3a.recovery.liveness import JobLiveness
from zero_rename.s3a.runs.ledger import closed_key, open_tries, open_try

pytestmark = pytest.mark.memory_s3

OWNER = Owner("flights", "scheduled__2013-02-01", "load", -1, 1)
TRY = a_try(JOB, OWNER, idempotency_key="flights/scheduled__2013-02-01/load", beat_at=1.0)


def refusing_to_list() -> Any:
    """What botocore does where the user has no right to list uploads."""
    call = BaseClient._make_api_call  # pyrefly: ignore[missing-attribute]

    def refuse(client: Any, operation: str, given: Any) -> Any:
        if operation == "ListMultipartUploads":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        return call(client, operation, given)

    return refuse


class Scheduler:
    """What Airflow says of task instances."""

    def __init__(self, state: str | None = None, error: Exception | None = None) -> None:
        self.state = state
        self.error = error
        self.asked: list[dict[str, Any]] = []

    def get_task_states(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        return {asked["run_ids"][0]: {"load": self.state, "load_3": "failed"}} if self.state else {}


def run(tables: Tables, state: str | None = None, **arguments: Any) -> dict[str, Any]:
    task = RecoverS3AJobsOperator(
        task_id="maintain", tables=arguments.pop("names", tables.url()), **arguments
    )
    context = task_context(task)
    context["ti"].get_task_states = Scheduler(state).get_task_states
    report = run_task(task, context)
    assert json.loads(json.dumps(report)) == report
    return report


def halfway(tables: Tables, name: str = "flights", **given: Any) -> MagicJob:
    root = TableRoot(tables.bucket.name, f"wh/{name}")
    job = MagicJob(tables.table(name).driver.perform, root, **given).begin()
    job.task(0)
    job.task(1)
    job.complete(job.files[0])
    return job


def record(tables: Tables) -> None:
    """Of a try that has been silent for long."""
    table = tables.table()
    table.driver.run(open_try(table.root, TRY))


def data(tables: Tables) -> list[str]:
    return [key for key in tables.bucket.keys("wh/flights/day=") if key.endswith(".parquet")]


class TestTables:
    def test_reports_by_default(self, tables: Tables) -> None:
        job = halfway(tables)
        record(tables)
        before = tables.bucket.keys(), tables.bucket.uploads()
        (report,) = run(tables, "failed", patience=0)["tables"]
        assert report["outcomes"] == {"would-roll-forward": 1}
        assert report["table"] == tables.url()
        (found,) = report["jobs"]
        assert (found["job"], found["state"], found["files"], found["written"]) == (
            JOB,
            "dead",
            4,
            1,
        )
        assert "of 4 files 1 is written" in found["reason"]
        assert (tables.bucket.keys(), tables.bucket.uploads()) == before
        assert found["destination"] == job.root.url

    def test_settles_a_job_whose_run_is_over(
        self, tables: Tables, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = halfway(tables)
        record(tables)
        with caplog.at_level(logging.INFO):
            (report,) = run(tables, "failed", apply=True, patience=0)["tables"]
        assert report["outcomes"] == {"rolled-forward": 1}
        assert (report["failed"], report["jobs"][0]["marker"]) == (0, "written")
        assert data(tables) == job.keys
        assert tables.bucket.uploads() == []
        assert json.loads(tables.bucket.read("wh/flights/_SUCCESS"))["jobId"] == JOB
        assert "all of 2 pending sets can be read" in caplog.text
        (known,) = tables.table().driver.run(open_tries(job.root)).known
        assert known.record.recovered == (JOB,)

    def test_leaves_a_job_whose_run_is_at_work(self, tables: Tables) -> None:
        halfway(tables)
        record(tables)
        (report,) = run(tables, "running", apply=True, force=True, patience=0)["tables"]
        assert report["outcomes"] == {"left": 1}
        assert report["jobs"][0]["state_reason"].endswith("attempt 1 is at work")
        assert len(tables.bucket.uploads()) == 3

    @pytest.mark.parametrize("complete", [True, False])
    def test_leaves_what_is_visible_of_a_task_that_somebody_marked_as_successful(
        self, tables: Tables, complete: bool
    ) -> None:
        """Nothing is loaded again: taken back, the rows would be lost."""
        job = halfway(tables)
        record(tables)
        if complete:
            job.complete(*job.files[1:])
        there = data(tables)
        with pytest.raises(ZeroRenameError, match="could not be recovered"):
            run(tables, "success", apply=True, patience=0)
        assert data(tables) == there
        (report,) = run(tables, "success", apply=True, patience=0, direction="forward")["tables"]
        assert report["outcomes"] == {"rolled-forward": 1}
        assert data(tables) == job.keys

    def test_takes_back_what_is_loaded_again(self, tables: Tables) -> None:
        halfway(tables)
        record(tables)
        (report,) = run(tables, "up_for_retry", apply=True, patience=0)["tables"]
        assert report["outcomes"] == {"rolled-back": 1}
        assert data(tables) == []
        assert tables.bucket.keys("wh/") == [closed_key(ROOT, TRY.idempotency_key, JOB)]
        assert tables.bucket.uploads() == []

    def test_leaves_what_nobody_knows_unless_forced(self, tables: Tables) -> None:
        job = halfway(tables)
        (report,) = run(tables, apply=True)["tables"]
        assert report["jobs"][0]["state"] == "live"
        (report,) = run(tables, apply=True, patience=0)["tables"]
        assert report["outcomes"] == {"rolled-forward": 1}
        assert data(tables) == job.keys

    def test_a_job_with_foreign_keys_fails_the_task(self, tables: Tables) -> None:
        job = halfway(tables)
        (made,) = [job.upload("day=9/x.parquet")]
        job.pending_set(5, [made.commit("bucket", JOB, "", destinationKey="wh/other/x")])
        other = halfway(tables, "second", uuid=OTHER)
        with pytest.raises(ZeroRenameError, match="1 job could not be recovered"):
            run(tables, apply=True, patience=0, names=[tables.url(), tables.url("second")])
        assert len(data(tables)) == 1
        assert set(other.keys) <= set(tables.bucket.keys("wh/second/"))

    def test_nothing_is_left(self, tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
        (report,) = run(tables, apply=True, deep=True)["tables"]
        assert report["jobs"] == []
        assert "nothing is left of S3A jobs" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "arguments", [{"direction": "sideways"}, {"patience": -1}, {"folders": ["a/../b"]}]
    )
    def test_arguments_that_are_refused(self, tables: Tables, arguments: dict[str, Any]) -> None:
        with pytest.raises((AirflowFailException, ZeroRenameError)):
            run(tables, **arguments)


class TestMaintenanceOfAll:
    """The operators that are not of one committer."""

    def purge(self, tables: Tables, state: str | None = None, **given: Any) -> dict[str, Any]:
        given = {"apply": True, **given}
        names = given.pop("names", tables.url())
        task = PurgeStaleUploadsOperator(task_id="purge", tables=names, **given)
        context = task_context(task)
        context["ti"].get_task_states = Scheduler(state).get_task_states
        report = run_task(task, context)
        assert json.loads(json.dumps(report)) == report
        return report

    def test_purge_of_an_s3a_destination_settles_its_dead_job(self, tables: Tables) -> None:
        job = halfway(tables)
        record(tables)
        (report,) = self.purge(tables, "failed", s3a_patience=0)["tables"]
        assert report["kind"] == "s3a"
        assert [(it["job"], it["committer"], it["outcome"]) for it in report["recovered"]] == [
            (JOB, "magic", "rolled-forward")
        ]
        assert data(tables) == job.keys
        assert tables.bucket.uploads() == []

    def test_purge_leaves_what_a_run_at_work_has_begun(self, tables: Tables) -> None:
        """Its heartbeat is silent for long; its task is known to run."""
        halfway(tables)
        record(tables)
        given = {"s3a_patience": 0, "foreign": True, "older_than": 7 * 86400.0}
        (report,) = self.purge(tables, "running", **given)["tables"]
        assert (report["kept"], report["aborted"], report["failed"]) == (3, 0, 0)
        (row,) = {(it["job"], it["bytes"] is not None) for it in report["uploads"]}
        assert row == (JOB, True)
        assert len(tables.bucket.uploads()) == 3

    def test_purge_fails_for_a_job_that_a_person_has_to_judge(
        self, tables: Tables, tmp_path: Path
    ) -> None:
        root = TableRoot(tables.bucket.name, "wh/flights")
        StagingJob(tables.table().driver.perform, root, staging=tmp_path).begin().task(0)
        with pytest.raises(ZeroRenameError, match="1 job could not be recovered"):
            self.purge(tables, s3a_patience=0, foreign=True)
        assert len(tables.bucket.uploads()) == 2
        (report,) = self.purge(tables, s3a_patience=0, staging=str(tmp_path))["tables"]
        assert report["aborted"] == 2
        assert tables.bucket.uploads() == []

    def test_purge_removes_what_the_tasks_of_a_dead_job_left_on_the_workers_disk(
        self, tables: Tables, tmp_path: Path
    ) -> None:
        root = TableRoot(tables.bucket.name, "wh/flights")
        staging, buffer = tmp_path / "staging", tmp_path / "s3a"
        StagingJob(tables.table().driver.perform, root, staging=staging).begin().task(0)
        left = buffer / f"{JOB}-attempt_202611261622517213038093591278216_0003_m_000001_7"
        left.mkdir(parents=True)
        os.utime(left, (0, 0))
        given = {"staging": str(staging), "buffer_dir": f"{buffer},hdfs://nn/tmp"}
        done = self.purge(tables, s3a_patience=0, **given)
        assert [(it["path"], it["action"]) for it in done["residue"]] == [(str(left), "removed")]
        assert done["unreachable"] == ["hdfs://nn/tmp is no folder of this machine."]
        assert not left.exists()

    def test_purge_of_a_folder_treats_all_that_lies_below(self, tables: Tables) -> None:
        tables.load(1, name="ours")
        halfway(tables, "magic")
        report = self.purge(tables, names=tables.url("").rstrip("/"), s3a_patience=0)
        assert {it["table"]: it["kind"] for it in report["tables"]} == {
            tables.url("magic"): "s3a",
            tables.url("ours"): "table",
            tables.url("").rstrip("/"): "directory",
        }
        assert tables.bucket.uploads() == []

    def test_purge_of_what_is_to_hold_data_finds_nothing(self, tables: Tables) -> None:
        (report,) = self.purge(tables, names=tables.url("later"))["tables"]
        assert (report["kind"], report["uploads"], report["recovered"]) == ("directory", [], [])

    def test_purge_without_the_right_to_list_uploads_says_so_and_changes_nothing(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        halfway(tables)
        record(tables)
        before = data(tables), tables.bucket.uploads()
        refuse = refusing_to_list()
        with monkeypatch.context() as patch:
            patch.setattr(BaseClient, "_make_api_call", refuse)
            with pytest.raises(ZeroRenameError, match="s3:ListBucketMultipartUploads"):
                self.purge(tables, "failed", s3a_patience=0, foreign=True)
        assert (data(tables), tables.bucket.uploads()) == before

    def test_upkeep_without_the_right_to_list_uploads_says_so_and_changes_nothing(
        self, tables: Tables, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connect("zr", extra={"table_root": tables.url("").rstrip("/")})
        halfway(tables)
        record(tables)
        before = data(tables), tables.bucket.uploads()
        task = MaintainTablesOperator(
            task_id="maintain", zero_rename_conn_id="zr", apply=True, s3a_patience=0
        )
        context: Any = task_context(task)
        context["ti"].get_task_states = Scheduler("failed").get_task_states
        context["ti"].xcom_push = lambda **_: None
        with monkeypatch.context() as patch:
            patch.setattr(BaseClient, "_make_api_call", refusing_to_list())
            with pytest.raises(
                (ZeroRenameError, AirflowException), match="s3:ListBucketMultipartUploads"
            ):
                run_task(task, context)
        assert (data(tables), tables.bucket.uploads()) == before

    def test_purge_of_a_buckets_root_is_refused(self, tables: Tables) -> None:
        with pytest.raises(AirflowFailException, match="A table root is s3://bucket/prefix"):
            self.purge(tables, names=f"s3://{tables.bucket.name}")

    def test_upkeep_names_a_committed_file_that_is_gone(
        self, tables: Tables, connect: Connect
    ) -> None:
        connect("zr", extra={"table_root": tables.url("").rstrip("/")})
        tables.load(1, name="ours")
        job = halfway(tables)
        record(tables)
        task = MaintainTablesOperator(
            task_id="maintain", zero_rename_conn_id="zr", apply=True, s3a_patience=0
        )
        pushed: dict[str, Any] = {}

        def maintain(state: str) -> dict[str, Any]:
            context = task_context(task)
            context["ti"].get_task_states = Scheduler(state).get_task_states
            context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
            return run_task(task, context)

        report = maintain("failed")
        assert {it["table"]: (it["kind"], it["jobs"]) for it in report["tables"]} == {
            tables.url("flights"): ("s3a", {"rolled-forward": 1}),
            tables.url("ours"): ("table", {}),
        }
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=job.keys[0])
        with pytest.raises(AirflowFailException, match="Action is needed") as caught:
            maintain("failed")
        assert f"missing: {job.keys[0]}" in str(caught.value)
        assert "| s3a | none | none | 1 missing |" in pushed["markdown"]


class TestStates:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ("running", JobLiveness.LIVE),
            ("queued", JobLiveness.LIVE),
            ("deferred", JobLiveness.LIVE),
            ("success", JobLiveness.UNKNOWN),
            ("up_for_retry", JobLiveness.SUPERSEDED),
            ("failed", JobLiveness.DEAD),
            ("removed", JobLiveness.DEAD),
            ("something new", None),
            (None, None),
        ],
    )
    def test_of_a_task_instance(self, state: str | None, expected: JobLiveness | None) -> None:
        scheduler = Scheduler(state)
        ask = task_states(scheduler)
        assert ask(TRY) is expected
        assert scheduler.asked == [
            {"dag_id": "flights", "task_ids": ["load"], "run_ids": ["scheduled__2013-02-01"]}
        ]

    def test_of_a_mapped_one(self) -> None:
        ask = task_states(Scheduler("running"))
        for index, expected in ((3, JobLiveness.DEAD), (4, None)):
            mapped = a_try(owner=OWNER, idempotency_key=f"flights/r/load/{index}")
            assert ask(mapped) is expected

    def test_that_cannot_be_had(self, caplog: pytest.LogCaptureFixture) -> None:
        detail: Any = SimpleNamespace(error=ErrorType.GENERIC_ERROR, detail={"status": 500})
        ask = task_states(Scheduler(error=AirflowRuntimeError(detail)))
        assert ask(TRY) is None
        assert "are not known" in caplog.text

    def test_of_nobody(self) -> None:
        scheduler = Scheduler("running")
        assert task_states(scheduler)(a_try()) is None
        assert scheduler.asked == []


def test_a_staging_committers_job_needs_its_folder(tables: Tables, tmp_path: Path) -> None:
    """Without it, somebody has to look: its uploads may be the only copy."""
    root = TableRoot(tables.bucket.name, "wh/flights")
    job = StagingJob(tables.table().driver.perform, root, staging=tmp_path).begin()
    job.task(0)
    job.task(1)
    job.complete(job.files[0])
    with pytest.raises(ZeroRenameError, match="1 job could not be recovered"):
        run(tables, apply=True, patience=0)
    assert len(tables.bucket.uploads()) == 3
    (table,) = run(tables, apply=True, patience=0, staging=str(tmp_path))["tables"]
    assert table["outcomes"] == {"rolled-forward": 1}
    assert tables.bucket.uploads() == []
