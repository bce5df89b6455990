"""The submit operator, with a stand-in for spark-submit that really commits."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.airflow import SCHEMA, Connect, Tables, day_rows
from support.fake_spark import FAILS, FAILS_AFTERWARDS, IDLE, WRITES, FakeSpark
from support.moto_server import ACCESS_KEY, SECRET_KEY
from support.spark_loads import operator, refused, run
from support.waiting import until
from zero_rename.committer import (
    InvalidInputError,
    JobSpec,
    Owner,
    RefusedError,
    StoreUnreachableError,
)
from zero_rename.committer.store.client_settings import S3_CLIENT, ClientSettings
from zero_rename.operators import spark_submit
from zero_rename.orchestration.runs import heartbeat
from zero_rename.orchestration.submit import submission
from zero_rename.orchestration.submit.submission import Submission
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.spark_hook import MaskingSparkSubmitHook

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.memory_s3]
ONCE = "flights/scheduled__2013-02-02/load"


class TestALoad:
    def test_reports_what_this_run_committed(self, tables: Tables) -> None:
        report = run(operator(tables))
        assert report["job"] == tables.table().job_of_key(ONCE)
        assert report["rows"] == 1
        assert report["files"] == 1
        assert report["repeated"] is False
        assert (report["partition"], report["version"]) == ("day=1", 1)
        assert report["partitions"][0]["partition"] == "day=1"
        assert report == json.loads(json.dumps(report))
        assert tables.table().files()[0].job == report["job"]

    def test_hands_the_run_to_the_writer(self, tables: Tables, spark: FakeSpark) -> None:
        run(operator(tables, on_conflict="last_wins", mode="append"), try_number=2, map_index=4)
        env = spark.calls()[0]["env"]
        store = ClientSettings(tables.bucket.client.meta.endpoint_url)
        assert {name: env[name] for name in env if name.startswith("ZERO_RENAME_")} == {
            S3_CLIENT: store.encode(),
            "ZERO_RENAME_TABLE": tables.url(),
            "ZERO_RENAME_IDEMPOTENCY_KEY": f"{ONCE}/4",
            "ZERO_RENAME_ON_REPEAT": "skip",
            "ZERO_RENAME_ON_CONFLICT": "last_wins",
            "ZERO_RENAME_MODE": "append",
            "ZERO_RENAME_RUN_RANK": '{"_unpartitioned":[1359763200.0]}',
            "ZERO_RENAME_DAG": "flights",
            "ZERO_RENAME_RUN": "scheduled__2013-02-02",
            "ZERO_RENAME_TASK": "load",
            "ZERO_RENAME_MAP_INDEX": "4",
            "ZERO_RENAME_TRY_NUMBER": "2",
            "ZERO_RENAME_SERIES": "2013-02-02T00:00:00+00:00 0",
        }
        assert env["PYSPARK_PYTHON"] == sys.executable

    def test_policy_comes_from_the_connection_unless_given(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        connect("zr", extra={"table_root": tables.url(""), "on_conflict": "last_wins"})
        run(operator(table="flights", zero_rename_conn_id="zr"))
        run(operator(table="flights", zero_rename_conn_id="zr", on_conflict="fail"), run_id="r2")
        given = [call["env"]["ZERO_RENAME_ON_CONFLICT"] for call in spark.calls()]
        assert given == ["last_wins", "fail"]
        assert tables.table().exists()

    def test_templates_are_rendered(self, tables: Tables, spark: FakeSpark) -> None:
        task = operator(
            table=tables.url("{{ params.name }}"),
            partition="day={{ data_interval_start.day }}",
            mode="{{ params.mode }}",
        )
        report = run(task, params={"name": "flights", "mode": "overwrite"})
        assert report["table"] == tables.url()
        given = spark.calls()[0]["env"]["ZERO_RENAME_PARTITIONS"]
        assert json.loads(given) == ["day=1"]


class TestThePartition:
    def test_an_overwrite_without_rows_empties_it(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables.load(1)
        monkeypatch.setenv("TEST_DAYS", "")
        task = operator(tables, partition=None, partition_format="day=%-d", mode="overwrite")
        report = run(task)
        assert (report["partition"], report["rows"], report["version"]) == ("day=1", 0, 2)
        assert tables.table().files() == []

    def test_rows_for_another_are_refused(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TEST_DAYS", "1,2")
        with pytest.raises(AirflowFailException, match=r"^[^.]*day=2.*\(InvalidInputError\)"):
            run(operator(tables, partition="day=1", mode="overwrite"))
        assert not tables.table().exists()

    def test_appended_rows_for_another_are_found_out_for_good(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also by a retry, if the worker of the attempt that committed has died."""
        monkeypatch.setenv("TEST_DAYS", "1,2")
        for attempt in (1, 2):
            with pytest.raises(AirflowFailException, match="does not name: day=2"):
                run(operator(tables, partition="day=1", mode="append"), try_number=attempt)

    def test_retry_of_a_cleared_task_that_left_its_former_partition_reports_its_commit(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(operator(tables, partition="day=1", mode="append", retries=1))
        monkeypatch.setenv("TEST_DAYS", "2")
        moved = operator(tables, partition="day=2", mode="append", retries=1)
        cleared = run(moved, try_number=2, max_tries=2)
        again = run(moved, try_number=3, max_tries=2)
        assert (again["job"], again["repeated"]) == (cleared["job"], True)
        assert [it.partition for it in tables.table().files()] == ["day=2"]

    def test_more_than_a_variable_carries_fail_for_good(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        days = [f"day={number:040}" for number in range(3_000)]
        refused(spark, r"3,000 partitions.*partition='\*'", operator(tables, partition=days))

    def test_nothing_says_it(self, tables: Tables, spark: FakeSpark) -> None:
        refused(spark, r"Give partition='year=", operator(tables, partition=None))


class TestTries:
    def test_a_retry_reports_what_an_earlier_try_committed(
        self, tables: Tables, spark: FakeSpark, capsys: pytest.CaptureFixture[str]
    ) -> None:
        spark.runs(FAILS_AFTERWARDS)
        with pytest.raises(AirflowException, match="Error code is: 3") as caught:
            run(operator(tables, retries=2))
        job = tables.table().job_of_key(ONCE)
        assert f"it had committed job {job}: these rows are in the table" in str(caught.value)
        report = run(operator(tables, retries=2), try_number=2)
        assert (report["job"], report["repeated"], report["rows"]) == (job, True, 1)
        assert len(spark.calls()) == 1
        assert "Not submitted" in capsys.readouterr().out

    def test_a_retry_finishes_what_an_earlier_try_decided(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        job = tables.decided(1, idempotency_key=ONCE)
        report = run(operator(tables, retries=2), try_number=2)
        assert (report["job"], report["rows"]) == (job, 2)
        assert spark.calls() == []
        assert tables.table().open_jobs() == []

    def test_a_retry_fences_what_a_killed_try_left(self, tables: Tables) -> None:
        left = tables.undecided(1, idempotency_key=ONCE)
        report = run(operator(tables, retries=2), try_number=2)
        assert report["rows"] == 1
        assert report["job"] != left
        assert tables.table().job_state(left) == "aborted"
        assert tables.bucket.uploads() == []

    @pytest.mark.parametrize("ends", ["commits", "dies"])
    def test_a_retry_waits_for_an_application_that_lives(
        self,
        tables: Tables,
        spark: FakeSpark,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        ends: str,
    ) -> None:
        """Its worker was killed; it was fenced, minutes before its end."""
        caplog.set_level(logging.INFO)
        table, looks = tables.table(), list[float]()
        owner = Owner(
            dag_id="flights",
            run_id="scheduled__2013-02-02",
            task_id="load",
            map_index=-1,
            try_number=1,
            series="2013-02-02T00:00:00+00:00 2",
        )
        opened = table.open_job(
            JobSpec(SCHEMA, partition_by=("day",), idempotency_key=ONCE, owner=owner)
        )
        writer = table.task_writer(opened, 0, 0)
        writer.write(day_rows((1,), 5))

        def goes_on(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) < 3:
                assert table.send_heartbeat(opened.job)
            elif ends == "commits":
                table.commit(opened, [writer.close()])
            else:
                monkeypatch.setattr(heartbeat, "PATIENCE", 0.0)

        monkeypatch.setattr(heartbeat, "sleep", goes_on)
        report = run(operator(tables, retries=2), try_number=2)
        assert looks == [heartbeat.POLL] * 3
        assert caplog.text.count(f"its job {opened.job} gave a sign of life") == 1
        if ends == "commits":
            assert (report["job"], report["repeated"], report["rows"]) == (opened.job, True, 5)
            assert spark.calls() == []
        else:
            assert (report["repeated"], report["rows"]) == (False, 1)
            assert table.job_state(opened.job) == "aborted"

    def test_what_an_earlier_try_commits_meanwhile_is_a_repetition(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        """Its worker died, its application went on, and this try's application found that out."""
        first = {"TRY_NUMBER": "1", "ON_REPEAT": "skip"}
        lines = [f"os.environ['ZERO_RENAME_{name}'] = '{text}'" for name, text in first.items()]
        spark.runs(WRITES.replace("import os\n", "\n".join(["import os", *lines, ""]), 1))
        report = run(operator(tables, retries=2), try_number=2)
        assert (report["repeated"], report["rows"]) == (True, 1)

    @pytest.mark.parametrize("ends", [True, False])
    def test_a_kill_aborts_the_try_s_job(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch, ends: bool
    ) -> None:
        """Also where the application could not be ended, as without the command ``yarn``."""
        mine: dict[str, Any] = {
            "dag_id": "flights",
            "run_id": "scheduled__2013-02-02",
            "task_id": "load",
        }
        task = operator(tables)
        left: list[str] = []

        def submit(*_: Any, **__: Any) -> None:
            task._hook = task._get_hook()
            cannot = None if ends else FileNotFoundError("yarn")
            monkeypatch.setattr(task._hook, "on_kill", Mock(side_effect=cannot))
            given: dict[str, Any] = {**mine, "task_id": "other"}
            another = Owner(**given)
            other = tables.undecided(2, owner=another)
            owner = Owner(**mine, map_index=-1, try_number=1)
            left.extend((tables.undecided(1, idempotency_key=ONCE, owner=owner), other))
            with suppress(FileNotFoundError):
                task.on_kill()
            raise AirflowException("killed")

        monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
        with pytest.raises(AirflowException, match="killed"):
            run(task)
        states = [tables.table().job_state(job) for job in left]
        assert states == ["aborted", "undecided"]
        assert [job.job for job in tables.table().open_jobs()] == left[1:]

    def test_a_retry_after_a_failure_loads(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(FAILS)
        with pytest.raises(AirflowException, match="Error code is: 4"):
            run(operator(tables, retries=2))
        spark.runs(WRITES)
        report = run(operator(tables, retries=2), try_number=2)
        assert (report["repeated"], report["rows"]) == (False, 1)

    def test_a_cleared_task_replaces_what_it_loaded(self, tables: Tables) -> None:
        tables.load(1, rows=5)
        first = run(operator(tables, retries=2))
        again = run(operator(tables, retries=2), try_number=2, max_tries=3)
        assert again["job"] != first["job"]
        assert (again["repeated"], again["rows"]) == (False, 1)
        assert sum(file.rows for file in tables.table().files()) == 6

    def test_a_cleared_task_that_loads_another_partition_now(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By another format, or at another place of what it is mapped over. It failed for what it
        took back itself, as though the application had written there."""
        tables.load(1, 2)
        run(operator(tables, partition="day=1", mode="append"))
        monkeypatch.setenv("TEST_DAYS", "2")
        again = run(operator(tables, partition="day=2", mode="append"), try_number=2, max_tries=1)
        changed = [(it["partition"], it["rows"], it["removed"]) for it in again["partitions"]]
        assert changed == [("day=1", 0, 1), ("day=2", 1, 0)]
        assert sum(file.rows for file in tables.table().files("day=1")) == 2

    def test_a_run_made_anew_loads_again(self, tables: Tables) -> None:
        """As ``airflow dags test`` does: the same run, and its tries begin at 1."""
        first = run(operator(tables))
        again = run(operator(tables))
        assert again["job"] != first["job"]
        third = run(operator(tables), made=datetime(2013, 2, 3, tzinfo=UTC))
        assert third["job"] != again["job"]
        assert sum(file.rows for file in tables.table().files()) == 1

    def test_the_second_try_of_a_run_made_anew_loads_too(self, tables: Tables) -> None:
        """What the run that was deleted has loaded is not this run's work."""
        first = run(operator(tables, retries=2))
        made = datetime(2013, 2, 3, tzinfo=UTC)
        again = run(operator(tables, retries=2), try_number=2, made=made)
        assert again["job"] != first["job"]
        assert again["repeated"] is False
        assert sum(file.rows for file in tables.table().files()) == 1

    def test_a_cleared_task_loads_though_its_retries_were_raised(self, tables: Tables) -> None:
        first = run(operator(tables, retries=2))
        again = run(operator(tables, retries=5), try_number=2, max_tries=3, clear_number=1)
        assert again["job"] != first["job"]
        assert again["repeated"] is False

    @pytest.mark.parametrize(
        ("retries", "context"),
        [
            (2, {"made": datetime(2013, 2, 3, tzinfo=UTC)}),
            (2, {"made": datetime(2013, 2, 3, tzinfo=UTC), "try_number": 2}),
            (5, {"try_number": 2, "max_tries": 3}),
        ],
        ids=["made anew", "made anew, and tried again", "cleared, and its retries were raised"],
    )
    def test_run_loads_again_after_gc_has_condensed_its_decision(
        self, tables: Tables, retries: int, context: dict[str, Any]
    ) -> None:
        first = run(operator(tables, retries=2))
        until("gc", lambda: tables.table().gc(older_than=0, apply=True).condensed)
        again = run(operator(tables, retries=retries), **context)
        assert (again["job"] != first["job"], again["repeated"]) == (True, False)
        assert sum(file.rows for file in tables.table().files()) == 1

    def test_retry_reports_a_commit_whose_decision_gc_has_condensed(self, tables: Tables) -> None:
        first = run(operator(tables, retries=2))
        until("gc", lambda: tables.table().gc(older_than=0, apply=True).condensed)
        again = run(operator(tables, retries=2), try_number=2)
        assert (again["job"], again["repeated"]) == (first["job"], True)

    @pytest.mark.parametrize(("on_repeat", "rows"), [("append", 2), ("replace_own", 1)])
    def test_on_repeat(self, tables: Tables, on_repeat: str, rows: int) -> None:
        run(operator(tables))
        run(operator(tables, on_repeat=on_repeat), try_number=2)
        assert sum(file.rows for file in tables.table().files()) == rows

    def test_operator_that_one_process_executes_for_two_runs_submits_each_with_its_own_words(
        self, tables: Tables
    ) -> None:
        task = operator(tables)
        first, second = run(task), run(task, run_id="other")
        assert first["job"] != second["job"]
        assert sum(file.rows for file in tables.table().files()) == 2

    def test_other_runs_and_mapped_tasks_are_others(self, tables: Tables) -> None:
        run(operator(tables))
        run(operator(tables), run_id="other")
        run(operator(tables), map_index=0)
        run(operator(tables), map_index=1)
        assert sum(file.rows for file in tables.table().files()) == 4


class TestWhyItFailed:
    def test_a_conflict_is_not_retried_and_says_what_to_do(
        self, tables: Tables, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The next try would begin on what is there now, and overwrite it unseen."""
        other = tables.load(1)
        with pytest.raises(AirflowFailException) as caught:
            run(operator(tables, mode="fail-if-exists", retries=2))
        text = str(caught.value)
        assert text.startswith("The partition day=1 already holds 1 file,")
        assert "Append or overwrite instead" in text
        assert "(DestinationExistsError)" in text
        assert text in caplog.text
        assert tables.table().files()[0].job == other.job

    def test_retry_after_a_final_failure_whose_worker_died_is_not_submitted(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        """Airflow tries again where a worker dies before it has ended the task for good."""
        tables.load(1)
        task = {"mode": "fail-if-exists", "retries": 2}
        with pytest.raises(AirflowFailException):
            run(operator(tables, **task))
        submitted = len(spark.calls())
        with pytest.raises(AirflowFailException) as caught:
            run(operator(tables, **task), try_number=2)
        said = "Not submitted. The application of attempt 1 failed: The partition day=1 already"
        assert str(caught.value).startswith(said)
        assert len(spark.calls()) == submitted

    @pytest.mark.usefixtures("s3_server")
    def test_what_a_retry_may_mend_is_retried(self, tables: Tables, spark: FakeSpark) -> None:
        silent = (
            "def f(*_): raise committer.StoreUnreachableError('no answer')\n"
            "committer.commit.open.find_table = f\nwith job:"
        )
        spark.runs(WRITES.replace("with job:", silent))
        with pytest.raises(AirflowException, match="no answer") as caught:
            run(operator(tables))
        assert not isinstance(caught.value, AirflowFailException)

    def test_what_an_earlier_try_said_is_not_this_one_s(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        tables.load(1)
        with pytest.raises(AirflowFailException):
            run(operator(tables, mode="fail-if-exists"))
        spark.runs(FAILS)
        with pytest.raises(AirflowException, match="Error code is: 4"):
            run(operator(tables, retries=1), try_number=2)
        with pytest.raises(AirflowException, match="Error code is: 4"):
            run(operator(tables), made=datetime(2013, 2, 3, tzinfo=UTC))


class TestWhatAnAlertSays:
    """The first sentence of the task's error is what failed, in the application's words."""

    def failed(self, tables: Tables) -> str:
        with pytest.raises(AirflowException) as caught:
            run(operator(tables))
        assert type(caught.value) is AirflowException  # A retry may mend it.
        return str(caught.value)

    def test_the_users_own_exception(self, tables: Tables, spark: FakeSpark) -> None:
        noise = "for n in range(99): print('26/11/23 02:00:01 INFO SparkContext: line', n)\n"
        spark.runs(f"{noise}def fares():\n    raise ValueError('no fare for AA')\n\nfares()\n")
        said = self.failed(tables)
        where = "(application.py, line 3, in fares)"
        assert said.startswith(f"ValueError: no fare for AA {where}. Error code is: 1.")
        assert f"[table {tables.url()}]" in said
        assert len(said) < 300

    @pytest.mark.usefixtures("s3_server")
    def test_a_killed_driver(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs("import os\nprint('half way', flush=True)\nos._exit(137)\n")
        said = self.failed(tables)
        assert said.startswith("The application was killed (SIGKILL) without a word of why.")
        assert "half way" in said
        assert len(said) < 400


class TestNothingCommitted:
    def test_an_application_that_wrote_nothing(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(IDLE)
        with pytest.raises(RefusedError, match="committed no job of task 'load'") as caught:
            run(operator(tables))
        assert "zero_rename" in str(caught.value)

    def test_an_application_that_wrote_elsewhere(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TEST_TABLE", tables.url("elsewhere"))
        with pytest.raises(RefusedError, match="committed no job"):
            run(operator(tables))

    def test_a_cleared_task_that_wrote_nothing(self, tables: Tables, spark: FakeSpark) -> None:
        first = run(operator(tables))
        spark.runs(IDLE)
        with pytest.raises(RefusedError, match=f"{first['job']}, stands"):
            run(operator(tables), try_number=2, max_tries=1)

    @pytest.mark.usefixtures("s3_server")
    def test_what_a_failed_one_leaves_is_named(
        self, tables: Tables, spark: FakeSpark, caplog: pytest.LogCaptureFixture
    ) -> None:
        spark.runs(WRITES.replace("with job:", "job.__enter__(); os._exit(9)\nwith job:"))
        with pytest.raises(AirflowException, match="Error code is: 9"):
            run(operator(tables))
        (left,) = tables.table().open_jobs()
        assert f"{left.job} is left undecided" in caplog.text


class TestSecrets:
    def test_reach_the_driver_by_environment_and_appear_nowhere(
        self, tables: Tables, spark: FakeSpark, caplog: pytest.LogCaptureFixture, capfd: Any
    ) -> None:
        caplog.set_level(logging.DEBUG)
        task = operator(tables)
        run(task)
        (call,) = spark.calls()
        assert call["env"]["AWS_SECRET_ACCESS_KEY"] == SECRET_KEY
        assert SECRET_KEY not in " ".join(call["argv"])
        assert ACCESS_KEY not in " ".join(call["argv"])
        shown = caplog.text + "".join(capfd.readouterr())
        assert "the application says AWS_SECRET_ACCESS_KEY" in shown
        assert SECRET_KEY not in shown
        assert SECRET_KEY not in json.dumps([getattr(task, n) for n in task.template_fields])

    def test_stay_out_of_the_error_too(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs("import os, sys\nprint(os.environ['AWS_SECRET_ACCESS_KEY'])\nsys.exit(4)")
        with pytest.raises(AirflowException) as caught:
            run(operator(tables))
        assert SECRET_KEY not in str(caught.value)

    def test_reach_a_clusters_executors_by_a_private_file(
        self, tables: Tables, spark: FakeSpark, connect: Connect, tmp_path: Path
    ) -> None:
        connect("spark_default", "spark", host="spark://master:7077")
        run(operator(tables))
        (call,) = spark.calls()
        name = call["argv"][call["argv"].index("--properties-file") + 1]
        file = call["files"][name]
        assert file["mode"] == "0o600"
        assert f"spark.executorEnv.AWS_SECRET_ACCESS_KEY={SECRET_KEY}" in file["text"]
        assert SECRET_KEY not in " ".join(call["argv"])
        assert not Path(name).exists()

    def test_reach_a_driver_in_the_cluster_by_a_private_file(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        """The stand-in has the file's variables only if it reads them, so nothing commits."""
        spark.runs(IDLE)
        connect("spark_default", "spark", host="yarn")
        with pytest.raises(RefusedError):
            run(operator(tables, deploy_mode="cluster", durable=False))
        (call,) = spark.calls()
        (text,) = [f["text"] for n, f in call["files"].items() if n.endswith(".properties")]
        assert f"spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY={SECRET_KEY}" in text
        assert f"spark.yarn.appMasterEnv.ZERO_RENAME_IDEMPOTENCY_KEY={ONCE}" in text
        assert f"spark.executorEnv.AWS_SECRET_ACCESS_KEY={SECRET_KEY}" in text
        assert SECRET_KEY not in " ".join(call["argv"])
        assert "ZERO_RENAME_IDEMPOTENCY_KEY" not in call["env"]

    def test_are_not_passed_where_nobody_wants_them(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(IDLE)
        with pytest.raises(RefusedError):
            run(operator(tables, pass_credentials=False, env_vars={"X": "1"}))
        (call,) = spark.calls()
        assert call["env"]["X"] == "1"
        assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(call["env"])

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"conf": {"spark.hadoop.fs.s3a.secret.key": "abc123"}}, "fs.s3a.secret.key"),
            ({"conf": {"spark.hadoop.fs.s3a.access.key": "abc123"}}, "fs.s3a.access.key"),
            ({"application_args": ["--token=abc123"]}, "--token"),
        ],
    )
    def test_are_refused_on_the_command_line(self, arguments: dict[str, Any], named: str) -> None:
        with pytest.raises(InvalidInputError, match=named) as caught:
            operator(**arguments)
        assert "abc123" not in str(caught.value)
        assert "aws_conn_id" in str(caught.value)

    @pytest.mark.parametrize("passed", [True, False])
    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"conf": {"spark.my.colour": SECRET_KEY}}, "spark.my.colour"),
            ({"application_args": ["--colour", SECRET_KEY]}, "--colour"),
            ({"application_args": [f"--colour={SECRET_KEY}"]}, "--colour"),
            ({"application_args": [SECRET_KEY]}, "Word "),
            ({"application_args": [f'{{"colour": "{SECRET_KEY}"}}']}, "Word "),
            ({"name": SECRET_KEY}, "--name"),
            ({"application_args": ["of-the-master"]}, "Word "),
        ],
    )
    def test_are_refused_by_their_value_whatever_their_name(
        self,
        tables: Tables,
        spark: FakeSpark,
        connect: Connect,
        capsys: pytest.CaptureFixture[str],
        arguments: dict[str, Any],
        named: str,
        passed: bool,
    ) -> None:
        connect("spark_default", "spark", host="yarn", extra={"token": "of-the-master"})
        task = operator(tables, durable=False, pass_credentials=passed, **arguments)
        shown = refused(spark, f"^{named}.* a key of a conn", task) + "".join(capsys.readouterr())
        assert not any(secret in shown for secret in (SECRET_KEY, "of-the-master"))

    def test_in_env_vars_are_refused_by_their_value(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        connect("spark_default", "spark", host="yarn")
        refused(
            spark,
            r"^spark\S+COLOUR has, as its value, a key",
            operator(tables, durable=False, env_vars={"COLOUR": SECRET_KEY}),
        )

    def test_of_a_template_are_refused_once_rendered(
        self, tables: Tables, spark: FakeSpark
    ) -> None:
        task = operator(tables, application_args=["--{{ params.name }}=abc123"])
        refused(spark, "--token", task, params={"name": "token"})

    def test_in_env_vars_are_refused_where_those_become_words(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        given = {"AWS_SECRET_ACCESS_KEY": "abc123"}
        connect("spark_default", "spark", host="yarn")
        refused(spark, "env_vars", operator(tables, env_vars=given))

    @pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://master:7077"])
    @pytest.mark.parametrize("own", [None, "spark.redaction.regex (?i)vault\nspark.x y\n"])
    def test_that_the_base_operator_adds_go_into_the_properties_file(
        self,
        tables: Tables,
        spark: FakeSpark,
        connect: Connect,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        master: str,
        own: str | None,
    ) -> None:
        """As it does with the key of OpenLineage's service, where Airflow is told to pass it on."""
        key, plain = "spark.openlineage.transport.auth.apiKey", "spark.openlineage.transport.url"
        added = {key: "abcdefgh12345", plain: "https://lineage.example"}
        monkeypatch.setattr(
            "airflow.providers.apache.spark.operators.spark_submit"
            ".inject_transport_information_into_spark_properties",
            lambda conf, context: {**conf, **added},
        )
        connect("spark_default", "spark", host=master)
        given: dict[str, Any] = {"conf": {"spark.a": "b"}, "durable": False}
        if own is not None:
            (tmp_path / "own.conf").write_text(own)
            given["properties_file"] = str(tmp_path / "own.conf")
        task = operator(tables, openlineage_inject_transport_info=True, **given)
        run(task)
        (call,) = spark.calls()
        assert added[key] not in " ".join(call["argv"]) + "".join(capsys.readouterr())
        assert {"spark.a=b", f"{plain}={added[plain]}"} <= {*call["argv"]}
        (file,) = (it for name, it in call["files"].items() if name.endswith("spark.properties"))
        mode, text = file["mode"], file["text"]
        assert mode == "0o600"
        assert f"{key}={added[key]}" in text
        assert ("spark.x y" in text) is (own is not None)
        redacted = text.rpartition("spark.redaction.regex=")[2].splitlines()[0]
        assert re.search(redacted.replace("(?i)", ""), key, re.IGNORECASE)
        assert ("vault" in redacted) is (own is not None)


class TestShipping:
    def test_a_local_job_needs_none(self, tables: Tables, spark: FakeSpark) -> None:
        run(operator(tables))
        assert "--py-files" not in spark.calls()[0]["argv"]

    def test_executors_get_the_package(
        self, tables: Tables, spark: FakeSpark, connect: Connect, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.py"
        other.write_text("")
        connect("spark_default", "spark", host="spark://master:7077")
        task = operator(tables, py_files=str(other))
        run(task)
        (call,) = spark.calls()
        names = call["argv"][call["argv"].index("--py-files") + 1].split(",")
        assert [Path(name).name for name in names] == ["zero_rename.zip", "other.py"]
        assert task.py_files == str(other)
        run(operator(tables, ship_package=False), run_id="r2")
        assert "--py-files" not in spark.calls()[1]["argv"]


class TestTheCall:
    def test_what_the_base_operator_writes_to_its_hook_stays_there(self, spark: FakeSpark) -> None:
        """It writes ``waitAppCompletion`` for clusters, into what was a template field."""
        conf = {"spark.a": "1"}
        submission = Submission({}, "z.zip", "/p", secrets=())
        hook = MaskingSparkSubmitHook.adopt(SparkSubmitHook(conf=conf), submission, conf)
        hook._conf["spark.yarn.submit.waitAppCompletion"] = "false"
        assert conf == {"spark.a": "1"}

    def test_conf_is_not_changed(self, tables: Tables, spark: FakeSpark) -> None:
        conf = {"spark.sql.shuffle.partitions": "2"}
        task = operator(tables, conf=conf)
        run(task)
        assert conf == task.conf == {"spark.sql.shuffle.partitions": "2"}
        assert "spark.sql.shuffle.partitions=2" in spark.calls()[0]["argv"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"committer": "rename"}, "no committer 'rename'"),
            ({"s3a_options": {"thread": 4}}, "'thread'] does not exist"),
            ({"s3a_options": {"endpoint": "http://x"}}, "'endpoint'] is said otherwise"),
            ({"mode": "ignore"}, "mode='ignore'"),
            ({"on_conflict": "wait"}, "on_conflict is 'wait'"),
            ({"distribute": "hash"}, "distribute is 'hash'"),
            ({"mode": "merge"}, "merge_on names no column"),
            ({"mode": "merge", "merge_on": "id", "committer": "magic"}, "the committer is magic"),
            ({"code_version": " 4"}, "no version of a program's code"),
            ({"code_version": "4", "committer": "magic"}, "leave no record of it"),
            ({"merge_on": ["id"], "mode": "append"}, "mode is not merge"),
            ({"delete_when": "op = 'D'"}, "delete_when is given, and mode is not merge"),
            ({"across_partitions": True}, "across_partitions is given, and mode is not merge"),
            ({"across_partitions": "perhaps"}, "across_partitions='perhaps': neither true"),
            ({"on_repeat": "never"}, "on_repeat='never'"),
            ({"partition": "2013-02-01"}, "not a partition path"),
            ({"table": ""}, "names no table"),
            ({"table": " "}, "names no table"),
            ({"table": "/"}, "names no table"),
            ({"table": "wh/None"}, "names no table"),
            ({"table": "s3://bucket/None"}, "names no table"),
            ({"partition_format": "h=%H", "partition_timezone": "Europe/Berlin"}, "comes twice"),
            ({"partition_format": "day=%d", "partition_timezone": "Mars"}, "time zone 'Mars'"),
        ],
    )
    def test_bad_arguments_break_the_import(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            operator(**arguments)

    def test_bad_templates_fail_for_good(self, tables: Tables, spark: FakeSpark) -> None:
        task = operator(tables, committer="{{ params.committer }}")
        refused(spark, "no committer 'magicv2'", task, params={"committer": "magicv2"})

    @pytest.mark.parametrize("table", ["s3://bucket", "hdfs://nn/x", "flights"])
    def test_a_table_that_is_none(self, spark: FakeSpark, tables: Tables, table: str) -> None:
        refused(spark, "", operator(table=table))

    def test_a_spark_connection_that_does_not_exist(self, tables: Tables, spark: FakeSpark) -> None:
        """The base operator would go to YARN."""
        refused(spark, "no Spark connection 'nowhere'", operator(tables, conn_id="nowhere"))

    def test_a_spark_connection_that_is_not_found_any_more_does_not_lead_to_yarn(
        self, tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A secrets backend that did not answer for a moment: the base operator asks it anew."""
        lays_out = submission.prepare

        def prepare(*arguments: Any, **members: Any) -> Submission:
            missing = Mock(side_effect=AirflowNotFoundException("spark_default"))
            monkeypatch.setattr(SparkSubmitHook, "get_connection", missing)
            return lays_out(*arguments, **members)

        monkeypatch.setattr(spark_submit, "prepare", prepare)
        with pytest.raises(StoreUnreachableError, match="connection 'spark_default' is not known"):
            run(operator(tables))
        assert spark.calls() == []

    @pytest.mark.parametrize("table", [None, "", " ", "/"])
    def test_a_table_that_renders_to_nothing(
        self, tables: Tables, spark: FakeSpark, connect: Connect, table: str | None
    ) -> None:
        """It would be the warehouse's root, or a table called None."""
        connect("zr", extra={"table_root": tables.url("")})
        task = operator(table="{{ params.table }}", zero_rename_conn_id="zr")
        refused(spark, "names no table|its template has no value", task, params={"table": table})

    def test_a_spark_connection_of_another_type(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        """Its host would be Spark's master."""
        connect("lake", "aws", host="aws://")
        refused(spark, "type 'aws', not 'spark'", operator(tables, conn_id="lake"))

    @pytest.mark.parametrize("given", [{}, {"layout": "delta"}, {"committer": "magic"}])
    def test_a_bucket_that_does_not_exist(
        self, tables: Tables, spark: FakeSpark, given: dict[str, Any]
    ) -> None:
        """No retry: another attempt would not find it either."""
        with pytest.raises(AirflowFailException, match=r"no-such-bucket.*Create the bucket"):
            run(operator(table="s3://no-such-bucket/t", **given))
        assert spark.calls() == []

    def test_an_endpoint_that_does_not_answer(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        """Within seconds, and before Spark is started."""
        connect(
            "aws_default",
            "aws",
            login="id",
            password="x",
            extra={"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"},
        )
        started = time.monotonic()
        with pytest.raises(StoreUnreachableError):
            run(operator(tables))
        assert time.monotonic() - started < 60
        assert spark.calls() == []

    def test_cluster_mode_on_a_standalone_cluster(self, tables: Tables, connect: Connect) -> None:
        connect("spark_default", "spark", host="spark://master:7077")
        with pytest.raises(AirflowFailException, match="runs no Python application"):
            run(operator(tables, deploy_mode="cluster"))

    def test_killing_it_before_it_runs_is_harmless(self) -> None:
        operator().on_kill()


@pytest.mark.usefixtures("s3_server")
class TestCatalog:
    """The table is registered where people query, once the job is committed."""

    @pytest.fixture
    def database(self, tables: Tables) -> str:
        name = tables.table().root.bucket
        ZeroRenameHook().get_glue().create_database(DatabaseInput={"Name": name})
        return name

    def partitions(self, database: str, table: str) -> list[list[str]]:
        glue = ZeroRenameHook().get_glue()
        found = glue.get_partitions(DatabaseName=database, TableName=table)
        return [partition["Values"] for partition in found["Partitions"]]

    def test_the_operator_s(self, tables: Tables, database: str) -> None:
        report = run(operator(tables, catalog=f"glue://{database}/days"))
        assert report["catalog"]["table"] == "created"
        assert self.partitions(database, "days") == [["1"]]
        assert report == json.loads(json.dumps(report))

    def test_the_connection_s(self, tables: Tables, database: str, connect: Connect) -> None:
        connect("zr", extra={"catalog": f"glue://{database}"})
        names = {"zero_rename_conn_id": "zr"}
        assert run(operator(tables, **names))["catalog"]["added"] == 1
        assert "catalog" not in run(operator(tables, catalog="", **names), run_id="another")

    def test_a_failure_is_a_warning(self, tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
        report = run(operator(tables, catalog="glue://nowhere/days"))
        assert report["rows"] == 1
        assert "catalog" not in report
        assert "zero-rename catalog sync" in caplog.text

    def test_what_is_no_catalog_is_refused_before_anything_runs(self, tables: Tables) -> None:
        with pytest.raises(InvalidInputError, match="glue://database"):
            operator(tables, catalog="hive://a/b")
