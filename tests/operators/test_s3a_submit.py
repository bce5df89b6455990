"""The submit operator with Hadoop's committers, around a stand-in that leaves what they leave."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.airflow import JOB_FILE, Tables, connection_variable, run_task, task_context
from support.fake_spark import IDLE, FakeSpark
from support.moto_server import ACCESS_KEY, SECRET_KEY
from support.s3a_stand_in import APPLICATION, marker
from zero_rename.committer import (
    OutcomeUnknownError,
    RecordDamagedError,
    RefusedError,
    StoreRefusedError,
    VerificationError,
)
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.s3a.hadoop.settings import PATH_PROTOCOL
from zero_rename.s3a.runs import ledger, try_record
from zero_rename.s3a.runs.try_record import StoredTry, TryRecord
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3
ONCE = "flights/scheduled__2013-02-02/load"


@pytest.fixture(autouse=True)
def _stand_in(spark: FakeSpark, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.runs(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Where the next application stops, and whether Spark says so; its heartbeats are past."""

    def set_to(name: str, fails: bool = False, **more: str) -> None:
        monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 0.0)
        monkeypatch.setenv("TEST_STAGE", name)
        monkeypatch.setenv("TEST_FAILS", str(int(fails)))
        for variable, value in more.items():
            monkeypatch.setenv(f"TEST_{variable.upper()}", value)

    return set_to


def operator(tables: Tables, **arguments: Any) -> ZeroRenameSparkSubmitOperator:
    given: dict[str, Any] = {
        "task_id": "load",
        "application": str(JOB_FILE),
        "table": tables.url(),
        "partition": "day=1",
        "mode": "append",
        "committer": "magic",
        "retries": 2,
    }
    return ZeroRenameSparkSubmitOperator(**given | arguments)


def run(task: Any, **context: Any) -> dict[str, Any]:
    return run_task(task, task_context(task, **context))


def killed(task: Any, **context: Any) -> None:
    with pytest.raises(AirflowException, match="Error code is: 9"):
        run(task, **context)


def records(tables: Tables) -> tuple[StoredTry, ...]:
    table = tables.table()
    return table.driver.run(ledger.tries_of(table.root, ONCE))


def tries(tables: Tables) -> list[str]:
    return [known.record.state for known in records(tables)]


def rows(tables: Tables) -> list[str]:
    """The tries whose rows are in the table."""
    return sorted(tables.table().to_arrow(["flight"]).column("flight").to_pylist())


def beat(tables: Tables, record: TryRecord) -> float:
    """The application sends a heartbeat. Returns its time."""
    table = tables.table()
    sent = ledger.change(table.root, record, lambda found, now: replace(found, beat_at=now))
    found = table.driver.run(sent)
    assert found is not None
    return found.beat_at


def settings(spark: FakeSpark, call: int = 0) -> dict[str, str]:
    (file,) = [f for n, f in spark.calls()[call]["files"].items() if n.endswith("properties")]
    assert file["mode"] == "0o600"
    return dict(line.partition("=")[::2] for line in file["text"].splitlines() if "=" in line)


class TestALoad:
    @pytest.mark.parametrize(
        ("committer", "mode"),
        [("magic", "append"), ("directory", "overwrite"), ("partitioned", "overwrite")],
    )
    def test_reports_what_was_verified(
        self, tables: Tables, spark: FakeSpark, committer: str, mode: str
    ) -> None:
        report = run(operator(tables, committer=committer, mode=mode))
        assert (report["partition"], report["files"], report["rows"]) == ("day=1", 1, 1)
        assert report["repeated"] is False
        assert report["committer"] == committer
        assert report["table"] == tables.url()
        assert report["jobs"] == [report["job"]]
        assert report["bytes"] == report["partitions"][0]["bytes"] > 0
        assert report["decided_at"] > 1_700_000_000
        assert report == json.loads(json.dumps(report))
        env = spark.calls()[0]["env"]
        assert try_record.write_uuid(env["ZERO_RENAME_S3A_RUN"], 1) == report["job"]
        assert env["ZERO_RENAME_COMMITTER"] == committer
        assert env["ZERO_RENAME_MODE"] == mode.replace("overwrite", "replace")
        assert json.loads(env["ZERO_RENAME_PARTITIONS"]) == ["day=1"]
        assert env["ZERO_RENAME_IDEMPOTENCY_KEY"] == ONCE

    def test_report_has_its_times_retries_and_the_settings_in_force(self, tables: Tables) -> None:
        task = operator(tables, conf={"spark.hadoop.fs.s3a.committer.threads": "9"})
        report = run(task, try_number=2)
        assert report["started_at"] <= report["ended_at"] == report["decided_at"]
        assert report["retries"] == 1
        settings = report["settings"]
        assert settings["fs.s3a.committer.name"] == "magic"
        assert settings["fs.s3a.committer.threads"] == "9"
        assert settings["spark.sql.sources.commitProtocolClass"] == PATH_PROTOCOL
        assert not [name for name in settings if "secret" in name or "access" in name]
        assert run(operator(tables), try_number=3)["settings"] == settings

    @pytest.mark.parametrize("policy", [None, "last_wins"])
    def test_log_names_the_policy_that_is_in_force(
        self, tables: Tables, capsys: pytest.CaptureFixture[str], policy: str | None
    ) -> None:
        run(operator(tables, on_conflict=policy))
        shown = capsys.readouterr().out
        assert f"on_conflict  {policy or 'fail'}" in shown
        assert "committer    magic" in shown

    def test_uploads_that_are_pending_as_it_begins_are_logged_and_reported(
        self, tables: Tables, caplog: pytest.LogCaptureFixture
    ) -> None:
        client, bucket = tables.bucket.client, tables.bucket.name
        key = "wh/flights/day=1/part-0.parquet"
        client.create_multipart_upload(Bucket=bucket, Key=key)
        client.create_multipart_upload(Bucket=bucket, Key="wh/flights2/part-0.parquet")
        assert run(operator(tables))["uploads_at_start"] == 1
        assert f"1 upload is pending below {tables.url()} as this load begins" in caplog.text
        assert key in caplog.text

    def test_buffer_that_others_may_enter_is_warned_of_before_submission(
        self, tables: Tables, caplog: pytest.LogCaptureFixture
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            run(operator(tables, conf={"spark.hadoop.fs.s3a.buffer.dir": folder}))
        assert f"fs.s3a.buffer.dir is {folder}, which other users" in caplog.text

    def test_load_goes_on_without_the_right_to_list_uploads(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refused(prefix: str) -> Any:
            raise StoreRefusedError("AccessDenied")
            yield

        monkeypatch.setattr("zero_rename.orchestration.s3a.load.uploads_below", refused)
        assert run(operator(tables))["uploads_at_start"] is None
        assert "could not be listed" in caplog.text
        assert "s3:ListBucketMultipartUploads" in caplog.text

    def test_has_the_members_of_a_native_one(self, tables: Tables) -> None:
        from zero_rename.orchestration.runs.reports import commit_report

        native = commit_report(tables.load(1, name="other"))
        report = run(operator(tables))
        assert set(native) <= set(report)
        assert set(native["partitions"][0]) == set(report["partitions"][0])

    def test_leaves_one_record(self, tables: Tables) -> None:
        run(operator(tables))
        table = tables.table()
        assert tries(tables) == [try_record.COMMITTED]
        assert table.driver.run(ledger.open_tries(table.root)).known == ()
        client, bucket = table.driver.clients.client, table.root.bucket
        keys = [e["Key"] for e in client.list_objects_v2(Bucket=bucket)["Contents"]]
        assert len([key for key in keys if "_zero_rename" in key]) == 1
        assert not [key for key in keys if key.startswith("wh/flights/_zero")]

    def test_is_configured_by_a_file(
        self, s3_server: object, tables: Tables, spark: FakeSpark
    ) -> None:
        """The user's own settings win. A process of its own, on a server."""
        (spark.folder / "spark-defaults.conf").write_text("spark.cluster.own 1\n")
        conf = {"spark.hadoop.fs.s3a.connection.maximum": "5"}
        options = {"threads": 16, "storage_class": "glacier_ir"}
        run(operator(tables, s3a_options=options, conf=conf))
        given = settings(spark)
        hadoop = "spark.hadoop.fs.s3a."
        assert given[f"{hadoop}committer.name"] == "magic"
        assert given[f"{hadoop}committer.threads"] == "16"
        assert given[f"{hadoop}create.storage.class"] == "glacier_ir"
        assert given[f"{hadoop}endpoint"].startswith("http://127.0.0.1")
        assert given[f"{hadoop}path.style.access"] == "true"
        assert given[f"{hadoop}aws.credentials.provider"].endswith(
            ".EnvironmentVariableCredentialsProvider"
        )
        (call,) = spark.calls()
        assert "spark.hadoop.fs.s3a.connection.maximum=5" in call["argv"]
        (text,) = [f["text"] for n, f in call["files"].items() if n.endswith("properties")]
        assert text.startswith("spark.cluster.own 1\n")
        assert given[f"{hadoop}committer.uuid"] == call["env"]["ZERO_RENAME_S3A_RUN"]
        assert call["env"]["AWS_SECRET_ACCESS_KEY"] == SECRET_KEY
        shown = json.dumps([call["argv"], call["files"]])
        assert SECRET_KEY not in shown
        assert ACCESS_KEY not in shown

    def test_more_partitions_than_a_variable_carries(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        days = [f"day={number:040}" for number in range(3_000)]
        with pytest.raises(AirflowFailException, match=r"3,000 partitions.*partition='\*'"):
            run(operator(tables, partition=days))
        assert spark.calls() == []
        assert tries(tables) == []

    def test_the_connection_says_the_word(
        self, tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        extra = {
            "table_root": tables.url(""),
            "committer": "partitioned",
            "s3a_options": {"threads": 12, "encryption": "SSE-S3"},
        }
        monkeypatch.setenv(*connection_variable("zr", conn_type="zero_rename", extra=extra))
        task = operator(
            tables, committer=None, zero_rename_conn_id="zr", s3a_options={"threads": 4}
        )
        assert run(task)["committer"] == "partitioned"
        given = settings(spark)
        assert given["spark.hadoop.fs.s3a.committer.threads"] == "4"
        assert given["spark.hadoop.fs.s3a.encryption.algorithm"] == "AES256"
        assert given["spark.hadoop.fs.s3a.committer.staging.conflict-mode"] == "append"

    @pytest.mark.parametrize(
        ("committer", "mode", "meant"),
        [
            ("partitioned", "append", "append"),
            ("directory", "append", "append"),
            ("partitioned", "overwrite", "replace"),
        ],
    )
    @pytest.mark.parametrize("asked", ["replace", "append", None])
    def test_mode_wins_over_a_conflict_mode_of_the_connection(
        self,
        tables: Tables,
        spark: FakeSpark,
        monkeypatch: pytest.MonkeyPatch,
        committer: str,
        mode: str,
        meant: str,
        asked: str | None,
    ) -> None:
        """An application without save() follows it, and other runs go by the mode."""
        extra = {"table_root": tables.url(""), "s3a_options": {"conflict_mode": asked}}
        monkeypatch.setenv(*connection_variable("zr", conn_type="zero_rename", extra=extra))
        run(operator(tables, committer=committer, mode=mode, zero_rename_conn_id="zr"))
        given = settings(spark)
        assert given["spark.hadoop.fs.s3a.committer.staging.conflict-mode"] == meant


class TestChecks:
    def test_conf_that_breaks_a_rule(self, tables: Tables, spark: FakeSpark) -> None:
        conf = {"spark.hadoop.fs.s3a.committer.name": "directory"}
        with pytest.raises(AirflowFailException, match=r"committer-name.*DAG conf"):
            run(operator(tables, conf=conf))
        assert spark.calls() == []
        assert tries(tables) == []

    def test_a_default_of_the_cluster_that_breaks_a_rule(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        other = "spark.hadoop.mapreduce.outputcommitter.factory.class x.Other\n"
        (spark.folder / "spark-defaults.conf").write_text(other)
        refused = r"factory-overridden.*spark-defaults\.conf"
        with pytest.raises(AirflowFailException, match=refused):
            run(operator(tables))
        assert spark.calls() == []

    def test_an_overwrite_that_nothing_confines(
        self, tables: Tables, spark: FakeSpark, tmp_path: Path
    ) -> None:
        """Without save(): Spark's own overwrite of a partitioned table."""
        job = tmp_path / "job.py"
        job.write_text("df.write.mode('overwrite').partitionBy('day').parquet(table)\n")
        with pytest.raises(AirflowFailException, match="overwrite-removes-table") as e:
            run(operator(tables, mode="overwrite", application=str(job)))
        assert "=STATIC" not in str(e.value)
        assert spark.calls() == []

    def test_a_clusters_dynamic_overwrite_stays_the_applications(
        self, tables: Tables, spark: FakeSpark, tmp_path: Path
    ) -> None:
        """save() says by write how it overwrites; another table's overwrite beside it has the
        cluster's word, which the binding protocol refuses, or its own."""
        dynamic = "spark.sql.sources.partitionOverwriteMode dynamic\n"
        (spark.folder / "spark-defaults.conf").write_text(dynamic)
        job = tmp_path / "job.py"
        summary = "s.write.mode('overwrite').partitionBy('day')%s.parquet(summary)\n"
        loads = "from zero_rename.spark import save\nsave(df, partition_by=['day'])\n"
        job.write_text(loads + summary % "")
        task = operator(tables, mode="overwrite", application=str(job))
        run(task)
        (call,) = spark.calls()
        (text,) = [f["text"] for n, f in call["files"].items() if n.endswith("properties")]
        assert dynamic in text
        assert text.count("partitionOverwriteMode") == 1

    def test_a_table_of_zero_rename(self, tables: Tables, spark: FakeSpark) -> None:
        tables.load(1)
        with pytest.raises(AirflowFailException, match="native-table"):
            run(operator(tables))
        assert spark.calls() == []

    @pytest.mark.parametrize(
        ("log", "name"),
        [
            ("_delta_log/00000000000000000000.json", "Delta Lake"),
            (".hoodie/hoodie.properties", "Apache Hudi"),
            ("metadata/v1.metadata.json", "Apache Iceberg"),
            ("_spark_metadata/0", "Spark's streaming file sink"),
        ],
    )
    def test_a_folder_of_another_format(
        self, tables: Tables, s3_bucket: Any, spark: FakeSpark, log: str, name: str
    ) -> None:
        key = f"{tables.url().removeprefix(f's3://{s3_bucket.name}/')}/{log}"
        s3_bucket.put(key, b"{}")
        with pytest.raises(AirflowFailException, match=f"is a table of {name}"):
            run(operator(tables, mode="overwrite"))
        assert spark.calls() == []
        assert s3_bucket.keys(key) == [key]

    def test_a_conflict_mode_in_conf_that_contradicts_the_mode(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        """An application without save() would replace rows, and count as an append."""
        conf = {"spark.hadoop.fs.s3a.committer.staging.conflict-mode": "replace"}
        given = {"mode": "append", "committer": "directory", "conf": conf}
        message = "conflict-mode.* is 'replace', and mode is append.*Nothing was submitted"
        with pytest.raises(AirflowFailException, match=message):
            run(operator(tables, **given))
        assert spark.calls() == []

    def test_warnings_are_logged(self, tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
        run(operator(tables, conf={"spark.yarn.maxAppAttempts": "2"}))
        assert "[driver-restarts]" in caplog.text


class TestVerification:
    def test_an_application_that_wrote_nothing(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(IDLE)
        with pytest.raises(VerificationError, match="no _SUCCESS marker"):
            run(operator(tables))
        assert tries(tables) == [try_record.FAILED]

    def test_a_committer_that_renamed(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        """The retry does not take it for committed, nor add the rows again."""
        stage("written", empty_marker="1")
        for number in (1, 2):
            with pytest.raises(VerificationError, match="classic rename committer ran, not magic"):
                run(operator(tables), try_number=number)
        assert len(spark.calls()) == 1

    def test_an_overwrite_that_was_not_verified_is_loaded_again(
        self, tables: Tables, stage: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage("written", empty_marker="1")
        with pytest.raises(VerificationError, match="classic rename committer ran, not magic"):
            run(operator(tables, mode="overwrite"))
        monkeypatch.delenv("TEST_EMPTY_MARKER")
        assert run(operator(tables, mode="overwrite"), try_number=2)["repeated"] is False
        assert rows(tables) == ["2"]

    def test_rows_that_are_not_in_the_files(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        """Nor does the retry take the try for committed, or add its rows again."""
        stage("written", rows="240")
        for number in (1, 2):
            with pytest.raises(VerificationError, match=r"Spark wrote 240 rows, .* hold 1"):
                run(operator(tables), try_number=number)
        assert len(spark.calls()) == 1

    @pytest.mark.parametrize("without", ["another job's", "no"])
    def test_days_that_are_loaded_side_by_side(
        self, tables: Tables, spark: FakeSpark, without: str
    ) -> None:
        """A later job's marker took the place of this one's, or it has removed it and not
        committed yet: this one's report says that it committed."""
        body = repr(marker("other", "magic", {})) if without == "another job's" else "None"
        spark.runs(OVERTAKEN % body)
        report = run(operator(tables))
        assert (report["files"], report["rows"], report["partition"]) == (1, 1, "day=1")

    def test_one_write_without_save(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(RAW)
        report = run(operator(tables))
        assert report["job"] == spark.calls()[0]["env"]["ZERO_RENAME_S3A_RUN"]
        assert report["files"] == 1

    def test_a_write_that_failed_and_was_passed_over(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        stage("begun", fails=True)
        spark.runs(PASSES_OVER)
        with pytest.raises(VerificationError, match="says failed"):
            run(operator(tables))


PASSES_OVER = """
from support.recorded import recorded
from support.s3a_stand_in import main
try:
    main()
except SystemExit:
    pass
"""
OVERTAKEN = """
import os
from support.recorded import recorded
from support.s3a_stand_in import main
from zero_rename.committer import Table
main()
table, body = Table(os.environ["ZERO_RENAME_TABLE"]), %s
place = {"Bucket": table.root.bucket, "Key": f"{table.root.prefix}/_SUCCESS"}
client = table.driver.clients.client
client.put_object(Body=body, **place) if body else client.delete_object(**place)
"""
RAW = """
import os
from support.recorded import recorded
from support.s3a_stand_in import Write, marker
from zero_rename.committer import Table
table = Table(os.environ["ZERO_RENAME_TABLE"])
run = os.environ["ZERO_RENAME_S3A_RUN"]
write = Write(table, run, 0, None, 1, 1, False)
keys = write._files()
write._mark(keys)
"""


class TestTries:
    def test_what_an_earlier_try_committed_is_reported(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        """The operator died after its application had committed."""
        stage("marked")
        killed(operator(tables))
        report = run(operator(tables), try_number=2)
        assert report["repeated"] is True
        assert (report["files"], report["rows"], report["partition"]) == (1, 1, "day=1")
        assert (len(spark.calls()), rows(tables)) == (1, ["1"])
        assert tries(tables) == [try_record.COMMITTED]
        assert run(operator(tables), try_number=3)["job"] == report["job"]

    def test_also_when_a_later_jobs_marker_took_its_place(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        stage("reported")
        killed(operator(tables))
        root = tables.table().root
        tables.bucket.client.put_object(
            Bucket=root.bucket, Key=f"{root.prefix}/_SUCCESS", Body=marker("other", "magic", {})
        )
        report = run(operator(tables), try_number=2)
        assert (report["repeated"], report["files"], report["partition"]) == (True, 1, "day=1")
        assert (len(spark.calls()), rows(tables)) == (1, ["1"])

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_try_that_left_nothing(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None], fails: bool
    ) -> None:
        stage("begun", fails)
        killed(operator(tables))
        stage("written")
        assert run(operator(tables), try_number=2)["repeated"] is False
        assert rows(tables) == ["2"]
        assert tries(tables) == [try_record.UNDONE, try_record.COMMITTED]

    def test_a_try_that_may_have_added_rows(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        """Half a commit, and files that do not say whose they are."""
        stage("files")
        killed(operator(tables))
        stage("written")
        task = operator(tables)
        with pytest.raises(RefusedError, match="without saying what it added") as e:
            run(task, try_number=2)
        assert len(spark.calls()) == 1
        # A part of its rows may be there: neither loading again nor leaving it so is right then.
        assert "1 file came to" in str(e.value)
        assert "remove them, and submit with on_repeat='append'" in str(e.value)
        insists = operator(tables, on_repeat="append")
        assert run(insists, try_number=3)["repeated"] is False
        assert rows(tables) == ["1", "3"]

    def test_a_replace_of_two_partitions_of_which_one_is_done(
        self, tables: Tables, stage: Callable[..., None]
    ) -> None:
        days = ["day=1", "day=2"]
        stage("begun")
        killed(operator(tables, mode="overwrite", partition=days))
        stage("written")
        report = run(operator(tables, mode="overwrite", partition=days), try_number=2)
        assert [entry["partition"] for entry in report["partitions"]] == days
        assert report["job"] == try_record.run_of(report["jobs"][0])
        assert rows(tables) == ["2", "2"]

    def test_a_cleared_task_cannot_replace_what_it_added(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        run(operator(tables))
        with pytest.raises(RefusedError, match="cannot be replaced, only added to"):
            run(operator(tables), try_number=2, max_tries=3)
        assert len(spark.calls()) == 1

    def test_another_word_between_tries_doubles_nothing(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        """What magic has committed for this run counts for zero_rename, too."""
        first = run(operator(tables))
        native = operator(tables, committer="zero_rename")
        again = run(native, try_number=2)
        assert (again["job"], again["repeated"]) == (first["job"], True)
        with pytest.raises(RefusedError, match="by the magic committer"):
            run(native, try_number=2, max_tries=3)
        assert len(spark.calls()) == 1

    def test_an_application_that_comes_back_while_the_next_is_submitted(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None], monkeypatch: Any
    ) -> None:
        """Its heartbeat is found although it had been settled."""
        stage("begun")
        killed(operator(tables))
        (first,) = [k.record for k in records(tables)]
        open_try = ledger.open_try

        def comes_back(root: Any, record: TryRecord) -> Any:
            if record.owner.try_number == 2:
                monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 90.0)
                beat(tables, first)
            return (yield from open_try(root, record))

        monkeypatch.setattr(ledger, "open_try", comes_back)
        with pytest.raises(OutcomeUnknownError, match="attempt 1 is still writing"):
            run(operator(tables), try_number=2)
        assert len(spark.calls()) == 1
        assert tries(tables) == [try_record.UNDONE, try_record.UNDONE]
        table = tables.table()
        # So that it ends its write, whoever loads next.
        assert table.driver.run(ledger.superseded(table.root, ONCE, first.uuid))

    def test_one_whose_record_is_damaged(self, tables: Tables, spark: FakeSpark) -> None:
        """It says nothing of what it wrote: nothing is loaded beside it."""
        root = tables.table().root
        key = ledger.open_key(root, ONCE, try_record.run_uuid())
        tables.bucket.client.put_object(Bucket=root.bucket, Key=key, Body=b"{")
        with pytest.raises(RecordDamagedError) as e:
            run(operator(tables))
        assert key in str(e.value)
        assert spark.calls() == []

    def test_an_application_that_commits_after_its_end(
        self, tables: Tables, spark: FakeSpark, stage: Callable[..., None]
    ) -> None:
        """It was paused in its commit, which nothing can refuse: at least it is told."""
        stage("begun")
        killed(operator(tables))
        (first,) = [k.record for k in records(tables)]
        stage("written", paused=first.uuid)
        with pytest.raises(
            VerificationError, match=r"attempt 1 was silent .* committed after all"
        ) as e:
            run(operator(tables), try_number=2)
        assert try_record.write_uuid(first.uuid, 1) in str(e.value)
        assert rows(tables) == ["1", "2"]
        with pytest.raises(VerificationError, match="committed after all"):
            run(operator(tables), try_number=3)
        assert len(spark.calls()) == 2

    def test_a_cleared_task_overwrites(self, tables: Tables, spark: FakeSpark) -> None:
        run(operator(tables, mode="overwrite"))
        report = run(operator(tables, mode="overwrite"), try_number=2, max_tries=3)
        assert report["repeated"] is False
        assert rows(tables) == ["2"]

    def test_a_run_that_was_made_anew_is_another(self, tables: Tables) -> None:
        """Its first try is number 1 again, and has a UUID of its own."""
        first = run(operator(tables, mode="overwrite"))
        made = datetime(2013, 2, 3, tzinfo=UTC)
        again = run(operator(tables, mode="overwrite"), made=made)
        assert first["job"] != again["job"]
        assert rows(tables) == ["1"]


class TestTheSensor:
    def sensor(self, tables: Tables, **arguments: Any) -> Any:
        sensor = SuccessManifestSensor(task_id="wait", table=tables.url(), **arguments)
        context: Any = task_context(sensor)
        sensor.render_template_fields(context)
        return sensor.poke(context)

    def test_waits_for_this_runs_job(self, tables: Tables) -> None:
        assert self.sensor(tables, upstream_task_id="load").is_done is False
        report = run(operator(tables))
        found = self.sensor(tables, upstream_task_id="load", min_rows=1)
        assert (found.is_done, found.xcom_value) == (True, report)
        by_job = self.sensor(tables, job=report["job"], partition="day=1")
        assert by_job.xcom_value["rows"] == 1

    def test_does_not_take_another_runs_job_for_it(self, tables: Tables) -> None:
        run(operator(tables), run_id="yesterday")
        assert self.sensor(tables, upstream_task_id="load").is_done is False

    def test_does_not_wait_in_vain(self, tables: Tables) -> None:
        run(operator(tables))
        with pytest.raises(AirflowFailException, match="fewer than the 2 rows"):
            self.sensor(tables, upstream_task_id="load", min_rows=2)
        with pytest.raises(AirflowFailException, match="did not change day=2"):
            self.sensor(tables, upstream_task_id="load", partition="day=2")

    def test_a_job_that_no_operator_ran(self, tables: Tables) -> None:
        job = try_record.run_uuid()
        assert self.sensor(tables, job=job).is_done is False
        root = tables.table().root
        body = b"PAR1"
        client = tables.bucket.client
        client.put_object(Bucket=root.bucket, Key=f"{root.prefix}/day=1/a.parquet", Body=body)
        keys = {f"{root.prefix}/day=1/a.parquet": len(body)}
        written = marker(job, "magic", keys)
        client.put_object(Bucket=root.bucket, Key=f"{root.prefix}/_SUCCESS", Body=written)
        found = self.sensor(tables, job=job)
        assert found.is_done
        assert (found.xcom_value["files"], found.xcom_value["rows"]) == (1, None)


def test_the_environment_is_left_alone() -> None:
    assert "ZERO_RENAME_S3A_RUN" not in os.environ
