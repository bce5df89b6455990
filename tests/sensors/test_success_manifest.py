from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any, ClassVar, cast
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task_group
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from support.airflow import Tables, run_task, task_context
from zero_rename.committer import InvalidInputError, StoreUnreachableError, UnfinishedUpkeepError
from zero_rename.committer.format.records.success_marker import success_data
from zero_rename.orchestration.job_query import JobQuery
from zero_rename.orchestration.partitions_query import table_query
from zero_rename.provider.assets.outlets import partition_key
from zero_rename.provider.triggers import SuccessManifestTrigger
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3

RANGE: dict[str, Any] = {
    "from_date": "2013-02-01",
    "to_date": "2013-02-03",
    "partition_format": "day=%-d",
}


def sensor(tables: Tables | None = None, **arguments: Any) -> SuccessManifestSensor:
    given: dict[str, Any] = {
        "task_id": "wait",
        "table": tables.url() if tables else "s3://bucket/flights",
        "poke_interval": 0.05,
        # One that defers polls once before: it has time for that.
        "timeout": 60 if arguments.get("deferrable") else 0.2,
    }
    return SuccessManifestSensor(**given | arguments)


def run(task: SuccessManifestSensor, **context: Any) -> Any:
    return run_task(task, task_context(task, **context))


def time_out(task: SuccessManifestSensor) -> None:
    """After a wait in the triggerer that took too long."""
    context: Any = task_context(task)
    task.resume_execution("__fail__", {"error": "Trigger timeout"}, context)


class TestHere:
    def test_a_job_from_a_template(self, tables: Tables) -> None:
        job = tables.load(1).job
        report = run(sensor(tables, job="{{ params.job }}"), params={"job": job})
        assert (report["job"], report["rows"], report["partition"]) == (job, 2, "day=1")

    def test_the_task_of_this_run(self, tables: Tables) -> None:
        job = tables.load(1, idempotency_key="flights/scheduled__2013-02-02/load").job
        assert run(sensor(tables, upstream_task_id="load"))["job"] == job
        with pytest.raises(AirflowSensorTimeout):
            run(sensor(tables, upstream_task_id="load"), run_id="another")

    def test_a_version_from_a_template(self, tables: Tables) -> None:
        job = tables.load(1).job
        wanted = {"partition": "day=1", "newer_than_version": "{{ params.version }}"}
        assert run(sensor(tables, **wanted), params={"version": 0})["job"] == job
        with pytest.raises(AirflowFailException, match="Invalid newer_than_version='soon'"):
            run(sensor(tables, **wanted), params={"version": "soon"})

    def test_compaction_is_no_change_after_a_version(self, tables: Tables) -> None:
        tables.load(1)
        last = tables.load(1)
        version = last.partitions[0].version
        assert tables.table().compact(["day=1"], apply=True)[0].job is not None
        with pytest.raises(AirflowSensorTimeout, match="Nothing committed yet of a change"):
            run(sensor(tables, partition="day=1", newer_than_version=version))
        found = run(sensor(tables, partition="day=1", newer_than_version=version - 1))
        assert (found["job"], found["version"]) == (last.job, version)

    def test_partition_key_that_was_cut_is_not_waited_for(self, tables: Tables) -> None:
        key = partition_key(f"url={'a' * 300}")
        with pytest.raises(AirflowFailException, match="was cut, so it is no partition"):
            run(sensor(tables, partitions=["{{ partition_key }}"]), partition_key=key)

    def test_mere_existence_times_out(self, tables: Tables) -> None:
        tables.load(1)
        with pytest.raises(AirflowSensorTimeout):
            run(sensor(tables, idempotency_key="some/other/run", partition="day=1"))

    @pytest.mark.parametrize("of", [{"job": "{{ params.job }}"}, {"partitions": ["day=1"]}])
    def test_a_stale_one(self, tables: Tables, of: dict[str, Any]) -> None:
        tables.load(1, 2, inputs=())
        days = tables.table().snapshot(["day=2"])
        week = tables.load(1, 2, name="weekly", inputs=[days])
        tables.load(3, name="weekly", inputs=())
        given = {"table": tables.url("weekly"), "on_stale": "fail", **of}
        report = run(sensor(tables, **given), params={"job": week.job})
        assert report["partitions"][0]["partition"] == "day=1"
        versions = {tables.url("weekly"): "{{ params.version }}"}
        by_version = sensor(tables, **given, code_versions=versions)
        with pytest.raises(AirflowFailException, match="made by no code version, now 4"):
            run(by_version, params={"job": week.job, "version": "4"})
        tables.load(2, rows=5, mode="overwrite", inputs=())
        with pytest.raises(AirflowFailException, match=r"day=1 \(stale\): .*flights/day=2"):
            run(sensor(tables, **given), params={"job": week.job})
        assert run(sensor(tables, **given | {"on_stale": "ignore"}), params={"job": week.job})

    @pytest.mark.parametrize("on_stale", ["fail", "recompute"])
    def test_staleness_of_what_hadoops_committers_load_is_refused(
        self, tables: Tables, on_stale: str
    ) -> None:
        """Nothing is ever stale there: the sensor let stale rows pass."""
        rows = BytesIO()
        pq.write_table(pa.table({"flight": ["f1"]}), rows)
        file = "wh/flights/day=1/part-0.parquet"
        tables.bucket.put(file, rows.getvalue())
        head = {"committer": "magic", "jobId": "a", "success": True}
        tables.bucket.put("wh/flights/_SUCCESS", success_data(head, 1.0, [file]))
        given: dict[str, Any] = {"partitions": ["day=1"], "on_stale": on_stale}
        waits = sensor(tables, committer="{{ params.c }}", **given)
        with pytest.raises(
            AirflowFailException, match=r"Hadoop's committers load s3://\S+/flights,"
        ):
            run(waits, params={"c": "magic"})
        with pytest.raises(InvalidInputError, match=f"on_stale='{on_stale}'.*committer='magic'"):
            sensor(tables, committer="magic", **given)

    def test_an_emptied_one_is_not_stale(self, tables: Tables) -> None:
        tables.load(1)
        tables.table().delete([("day", "==", 1)])
        assert run(sensor(tables, partitions=["day=1"], on_stale="fail"))["rows"] == 0

    def test_partition_of_a_job_that_a_later_one_has_emptied_is_not_stale(
        self, tables: Tables
    ) -> None:
        job = tables.load(1, 2).job
        tables.table().delete([("day", "==", 1)])
        assert run(sensor(tables, job=job, on_stale="fail"))["rows"] == 4

    @pytest.mark.parametrize(
        ("wanted", "said"),
        [({"min_rows": 10}, "min_rows"), ({"min_files": 2}, "fewer than the 2 files asked for")],
    )
    def test_in_vain(self, tables: Tables, wanted: dict[str, Any], said: str) -> None:
        job = tables.load(1).job
        with pytest.raises(AirflowFailException, match=said):
            run(sensor(tables, job=job, **wanted, timeout=3600))

    def test_a_foreign_marker(self, tables: Tables) -> None:
        tables.bucket.put("wh/flights/_SUCCESS", b"")
        with pytest.raises(AirflowFailException, match="classic rename committer"):
            run(sensor(tables, idempotency_key="k", on_foreign_marker="fail"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"partition": "day=1"}, "nothing says which"),
            ({"partition": "day=1", "newer_than_version": "soon"}, "Invalid newer_than_version="),
            ({"idempotency_key": "k", "upstream_task_id": "load"}, "both say"),
            ({"idempotency_key": "k", "job": "{{ params.job }}"}, "two arguments say"),
            ({"job": "yesterday"}, "is not a job's id"),
            ({"newer_than_version": 0}, "none is named"),
            ({"idempotency_key": "k", "partition": "2013-02-01"}, "is not a partition path"),
            ({"idempotency_key": "k", "min_rows": -1}, "Invalid min_rows=-1"),
            ({"idempotency_key": "k", "on_foreign_marker": "skip"}, "on_foreign_marker='skip'"),
            ({"idempotency_key": "k", "on_stale": "skip"}, "on_stale='skip'"),
            (
                {"idempotency_key": "k", "code_versions": {"flights": "4"}},
                "on_stale='ignore' asks for none",
            ),
            ({"idempotency_key": "k", "min_files": -1}, "Invalid min_files=-1"),
            ({"partitions": []}, "waits for no partition"),
            ({"partitions": ["day=1", "2"]}, "is not a partition path"),
            ({"partitions": [1.5]}, "Invalid partitions"),
            ({"partitions": ["day=1"], "idempotency_key": "k"}, "are about one job"),
            ({"partitions": ["day=1"], "partition": "day=2"}, "each say which"),
            (
                {"partitions": ["day=1"], "newer_than": "soon"},
                "Invalid newer_than='soon': not a time",
            ),
            ({"partitions": ["day=1"], "on_foreign_marker": "fail"}, "wait for one job"),
            ({"from_date": "2013-02-01", "to_date": "2013-02-02"}, "together"),
            ({**RANGE, "to_date": "2013-01-01"}, "is after"),
            ({**RANGE, "partition_format": "%Y-%m-%d"}, "no partition path"),
            ({**RANGE, "from_date": "{{ ds }}", "partition_format": "day=%Q"}, "no code of"),
        ],
    )
    def test_bad_arguments_break_the_import(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            sensor(**arguments)

    def test_what_is_not_known_yet_does_not(self) -> None:
        sensor(job="{{ ti.xcom_pull('load')['job'] }}", partition="day={{ ds }}")
        sensor(partition="{{ params.p }}", newer_than_version="{{ params.e }}")
        sensor(partitions="{{ params.p }}", committer="{{ params.c }}", newer_than="{{ ds }}")
        sensor(partitions=["day={{ ds }}"], min_rows=1)
        sensor(partition="month={{ ds }}", min_partitions="{{ params.n }}")
        sensor(newer_than="{{ ds }}", require_manifest="{{ params.m }}")
        sensor(None, **RANGE | {"from_date": "{{ ds }}"})
        with DAG("other_outputs", schedule=None):
            before: Any = EmptyOperator(task_id="before")
            sensor(job=before.output["job"], table="{{ params.t }}")

    @pytest.mark.parametrize("name", SuccessManifestSensor.template_fields)
    def test_a_statement_of_a_template_does_not(self, name: str) -> None:
        of_partitions = ("newer_than", "committer", "partitions", "min_partitions")
        given: dict[str, Any] = {"partition": "day=1"}
        given |= RANGE if name.endswith(("_date", "_format")) else {"newer_than_version": 1}
        if name in ("job", "upstream_task_id", "idempotency_key") or name in of_partitions:
            del given["newer_than_version"]
        if name == "partitions" or "to_date" in given:
            del given["partition"]
        given |= {"on_stale": "fail"} if name == "code_versions" else {}
        if name == "upstream_map_index":
            given = {"upstream_task_id": "load"}
        sensor(None, **given | {name: "{% if params.full %}a{% else %}b{% endif %}"})

    @pytest.mark.parametrize(
        "name", ["table", "partition", "job", "idempotency_key", "upstream_task_id"]
    )
    @pytest.mark.parametrize("value", [1.5, True, {"day": 1}])
    def test_what_a_template_makes_that_is_no_text(
        self, tables: Tables, name: str, value: object
    ) -> None:
        task = sensor(tables, partition="day=1", newer_than_version="{{ params.version }}")
        setattr(task, name, value)
        with pytest.raises(AirflowFailException, match=f"Invalid {name}=.*not a text"):
            task.poke(task_context(task))  # pyrefly: ignore[bad-argument-type]

    @pytest.mark.parametrize("name", ["idempotency_key", "upstream_task_id"])
    @pytest.mark.parametrize("value", ["", "None"])
    def test_a_template_without_a_value_is_nobodys_run(
        self, tables: Tables, name: str, value: str
    ) -> None:
        """It waited to the end of its time-out for a job that nobody could make."""
        with pytest.raises(
            AirflowFailException, match=f"{name}='{value}'.* (names no task's run|has no value)"
        ):
            run(sensor(tables, **{name: "{{ params.x }}"}, timeout=3600), params={"x": value})

    @pytest.mark.parametrize(
        ("named", "message"),
        [
            ("load", r"has no task 'load'.*its task group, days\.load"),
            ("lod", r"has no task 'lod'.*of another one give idempotency_key="),
            ("mapped", "'mapped' is mapped.*upstream_map_index"),
            ("days.load", "'days.load' is mapped"),
        ],
    )
    def test_an_upstream_task_that_has_no_such_job(
        self, tables: Tables, named: str, message: str
    ) -> None:
        """It waited to the end of its time-out."""

        @task_group
        def days(day: int) -> None:
            EmptyOperator(task_id="load", doc=str(day))

        with DAG("flights", schedule=None):
            EmptyOperator.partial(task_id="mapped").expand(doc=["a", "b"])
            days.expand(day=[1, 2])
            waiting = sensor(tables, upstream_task_id=named, timeout=3600)
        with pytest.raises(AirflowFailException, match=message):
            run(waiting)
        job = tables.load(1, idempotency_key=f"flights/scheduled__2013-02-02/{named}/2").job
        waiting.upstream_map_index = "2"
        if "is mapped" in message:
            assert run(waiting)["job"] == job
        else:
            with pytest.raises(AirflowFailException, match=message):
                run(waiting)

    def test_index_of_a_task_that_is_not_mapped(self, tables: Tables) -> None:
        """It waited to the end of its time-out."""
        with DAG("flights", schedule=None):
            EmptyOperator(task_id="load")
            waiting = sensor(tables, upstream_task_id="load", upstream_map_index=0, timeout=3600)
        with pytest.raises(AirflowFailException, match=r"'load' is not mapped.*Leave .* out"):
            run(waiting)
        tables.load(1, idempotency_key="flights/scheduled__2013-02-02/load")
        waiting.upstream_map_index = "-1"
        assert run(waiting)["partition"] == "day=1"

    @pytest.mark.parametrize(
        "named", [{"idempotency_key": "flights/run/load"}, {"partitions": ["day=1"]}]
    )
    def test_map_index_without_upstream_task_is_refused(self, named: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError, match=r"upstream_map_index=3.*upstream_task_id"):
            sensor(upstream_map_index=3, **named)

    def test_a_timeout_names_table_and_job(self, tables: Tables) -> None:
        with pytest.raises(AirflowSensorTimeout) as caught:
            run(sensor(tables, upstream_task_id="load"))
        text = str(caught.value)
        assert f"the job of flights/scheduled__2013-02-02/load of {tables.url()}" in text
        assert "Nothing committed yet" in text
        with pytest.raises(AirflowSkipException, match=f"of {tables.url()}"):
            run(sensor(tables, upstream_task_id="load", soft_fail=True))

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            ("success", "marked so by hand"),
            ("failed", "it ended without a commit in s3://"),
            ("upstream_failed", "a task before it has failed"),
        ],
    )
    def test_a_task_that_has_ended_without_a_commit_is_not_waited_for(
        self, tables: Tables, state: str, why: str
    ) -> None:
        """It waited to the end of its time-out."""
        asked: list[dict[str, Any]] = []

        def get_task_states(**given: Any) -> dict[str, Any]:
            asked.append(given)
            return {"scheduled__2013-02-02": {"load": state}}

        task = sensor(tables, upstream_task_id="load", timeout=3600)
        context = task_context(task)
        context["ti"].get_task_states = get_task_states
        with pytest.raises(
            AirflowFailException, match=f"state is '{state}': .*{why}.*Clear it to load"
        ):
            run_task(task, context)
        runs = ["scheduled__2013-02-02"]
        assert asked == [{"dag_id": "flights", "task_ids": ["load"], "run_ids": runs}]
        job = tables.load(1, idempotency_key="flights/scheduled__2013-02-02/load").job
        assert run_task(task, context)["job"] == job

    def test_one_that_waits_for_a_task_that_was_skipped_is_skipped(self, tables: Tables) -> None:
        """As its load gave way to newer runs, under ``on_superseded="skip"``."""
        task = sensor(tables, upstream_task_id="load", timeout=3600)
        context = task_context(task)
        states = {"scheduled__2013-02-02": {"load": "skipped"}}
        context["ti"].get_task_states = lambda **_: states
        said = r"state is 'skipped': it has nothing to load, as newer runs have"
        with pytest.raises(AirflowSkipException, match=said) as caught:
            run_task(task, context)
        assert str(caught.value).count("Nothing committed") == 1
        job = tables.load(1, idempotency_key="flights/scheduled__2013-02-02/load").job
        assert run_task(task, context)["job"] == job

    def test_a_store_out_of_reach_is_asked_again(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, ask = tables.load(1).job, JobQuery.ask
        failures = [StoreUnreachableError("no answer"), UnfinishedUpkeepError("begun")]

        def flaky(self: JobQuery, table: Any) -> Any:
            if failures:
                raise failures.pop()
            return ask(self, table)

        monkeypatch.setattr(JobQuery, "ask", flaky)
        assert run(sensor(tables, job=job, timeout=60))["job"] == job


class TestPartitions:
    """As the table spells them: it has ``day=1`` where a format makes ``day=01``."""

    @pytest.mark.parametrize(
        "arguments",
        [
            {"partition": "day=01", "newer_than_version": 0},
            {"partition": " day=1/\n", "newer_than_version": 0},
            {"partition": "day=01", "idempotency_key": "k"},
            {"partitions": "day=1; day=01"},
            {"partition_format": "day=%d", "newer_than_version": 0},
            {**RANGE, "to_date": "2013-02-01", "partition_format": "day=%d"},
        ],
    )
    def test_in_another_spelling(self, tables: Tables, arguments: dict[str, Any]) -> None:
        """It waited for another partition than the load with the same arguments had written, or
        failed."""
        job = tables.load(1, idempotency_key="k").job
        report = run(sensor(tables, **arguments))
        assert (report["job"], report["partition"]) == (job, "day=1")

    @pytest.mark.parametrize("arguments", [{"partitions": ["dy=1"]}, {"partition": "day=first"}])
    def test_that_the_table_cannot_have(self, tables: Tables, arguments: dict[str, Any]) -> None:
        tables.load(1)
        with pytest.raises(AirflowFailException, match=r"no partition of this table|'first'"):
            run(sensor(tables, **arguments, min_rows=1, timeout=3600))

    def test_a_range_of_dates(self, tables: Tables) -> None:
        tables.load(1, 2)
        task = sensor(tables, **RANGE | {"to_date": "{{ params.last }}"})
        assert run(task, params={"last": "2013-02-02"})["rows"] == 4
        task = sensor(tables, **RANGE)
        with pytest.raises(AirflowSensorTimeout) as caught:
            run(task)
        text = str(caught.value)
        assert f"Waited for day=1, day=2, day=3 of {tables.url()}." in text
        assert "1 of 3 partitions are missing: day=3 (no commit)" in text

    @pytest.mark.parametrize("named", ["['day=1', 'day=2']", '["day=1", "day=2"]', "day=1;day=2"])
    def test_a_list_from_a_template(self, tables: Tables, named: str) -> None:
        tables.load(1, 2)
        task = sensor(tables, partitions="{{ params.named }}", min_rows=2, check_files=True)
        assert [it["partition"] for it in run(task, params={"named": named})["partitions"]] == [
            "day=1",
            "day=2",
        ]

    def test_the_day_of_the_run_since_a_watermark(self, tables: Tables) -> None:
        committed = tables.load(1)
        wanted: dict[str, Any] = {"partition_format": "day=%-d", "newer_than": "{{ params.at }}"}
        at = datetime.fromtimestamp(committed.decided_at, UTC)
        before = (at - timedelta(seconds=1)).isoformat()
        assert run(sensor(tables, **wanted), params={"at": before})["job"] == committed.job
        with pytest.raises(AirflowSensorTimeout, match=r"day=1 \(committed 20"):
            run(sensor(tables, **wanted), params={"at": at.isoformat()})

    def test_watermark_without_a_zone_is_in_the_partitions_zone(self, tables: Tables) -> None:
        committed = tables.load(1)
        zone = ZoneInfo("America/New_York")
        at = datetime.fromtimestamp(committed.decided_at, zone).replace(tzinfo=None)
        wanted: dict[str, Any] = {"partitions": ["day=1"], "partition_timezone": zone.key}
        with pytest.raises(AirflowSensorTimeout, match=r"day=1 \(committed 20"):
            run(sensor(tables, **wanted, newer_than=at.isoformat()))
        before = at - timedelta(seconds=1)
        assert run(sensor(tables, **wanted, newer_than=before))["job"] == committed.job

    def test_a_timeout_in_the_triggerer_names_what_is_missing(self, tables: Tables) -> None:
        task = sensor(tables, partitions=["day=1", "day=2"], deferrable=True)
        with pytest.raises(TaskDeferred) as caught:
            run(task)
        _, kwargs = caught.value.trigger.serialize()
        assert kwargs["query"]["partitions"] == ["day=1", "day=2"]
        tables.load(1)
        resumed = sensor(tables, partitions=["day=1", "day=2"], deferrable=True, timeout=10)
        with pytest.raises(AirflowSensorTimeout, match=r"1 of 2 partitions .*: day=2 \(no commit"):
            time_out(resumed)


class TestDeferred:
    def test_ready_at_once_is_not_deferred(self, tables: Tables) -> None:
        job = tables.load(1).job
        assert run(sensor(tables, job=job, deferrable=True))["job"] == job

    def test_it_is_deferred_once_with_its_whole_timeout(self, tables: Tables) -> None:
        with pytest.raises(TaskDeferred) as caught:
            run(sensor(tables, idempotency_key="k", min_rows=1, deferrable=True, timeout=90))
        deferred: Any = caught.value
        assert timedelta(seconds=60) < deferred.timeout <= timedelta(seconds=90)
        assert deferred.method_name == "execute_complete"
        _, kwargs = deferred.trigger.serialize()
        assert kwargs["poke_interval"] == 0.05
        assert kwargs["query"]["idempotency_key"] == "k"
        assert kwargs["query"]["min_rows"] == 1

    def test_the_answer_is_the_end(self, tables: Tables) -> None:
        """No second deferral, which would begin the timeout anew."""
        task = sensor(tables, idempotency_key="k", deferrable=True)
        event = {"state": "ready", "explanation": "x", "report": {"rows": 0}}
        assert task.execute_complete({}, event) == {"rows": 0}
        event = {"state": "failed", "explanation": "aborted", "report": None}
        with pytest.raises(AirflowFailException, match="aborted"):
            task.execute_complete({}, event)

    @pytest.mark.parametrize(
        ("soft_fail", "expected"), [(False, AirflowSensorTimeout), (True, AirflowSkipException)]
    )
    def test_a_timeout_in_the_triggerer(
        self, tables: Tables, soft_fail: bool, expected: type[Exception]
    ) -> None:
        task = sensor(tables, idempotency_key="k", deferrable=True, soft_fail=soft_fail)
        said = f"Trigger timeout. Waited for the job of k of {tables.url()}. Noth"
        with pytest.raises(expected, match=said):
            time_out(task)

    def test_soft_fail(self, tables: Tables) -> None:
        job = tables.load(1).job
        task = sensor(tables, job=job, min_rows=10, soft_fail=True)
        with pytest.raises(AirflowException):
            run(task)


class TestOutputsOfOthers:
    """Outputs that no operator of this package wrote."""

    AFTER: ClassVar[dict[str, Any]] = {"newer_than": "2013-01-01T00:00:00+00:00"}

    def put(self, tables: Tables, marker: bytes) -> None:
        tables.bucket.put("wh/flights/part-0.parquet", b"rows")
        tables.bucket.put("wh/flights/_SUCCESS", marker)

    def marker(self) -> bytes:
        return success_data(
            {"committer": "magic", "jobId": "2b1f"}, 1_359_700_000.0, ["wh/flights/part-0.parquet"]
        )

    def test_newer_marker_ends_the_wait_with_its_job(self, tables: Tables) -> None:
        waits: Any = {"committer": "{{ params.c }}", **self.AFTER}
        with pytest.raises(AirflowSensorTimeout, match="Waited for the whole output of"):
            run(sensor(tables, **waits), params={"c": "magic"})
        self.put(tables, self.marker())
        report = run(sensor(tables, **waits), params={"c": "magic"})
        assert (report["job"], report["files"]) == ("2b1f", 1)

    def test_plain_marker_counts_where_no_manifest_is_required(self, tables: Tables) -> None:
        self.put(tables, b"")
        with pytest.raises(AirflowSensorTimeout, match="empty, as Spark's plain commit"):
            run(sensor(tables, committer="magic", **self.AFTER))
        waits: Any = {"require_manifest": "{{ params.m }}", **self.AFTER}
        report = run(sensor(tables, **waits), params={"m": "false"})
        assert (report["job"], report["files"]) == (None, 1)

    @pytest.mark.parametrize("deferrable", [False, True], ids=["poked", "deferrable"])
    def test_directory_is_ready_with_as_many_partitions_as_asked(
        self, tables: Tables, deferrable: bool
    ) -> None:
        tables.load(1, 2)
        task = sensor(tables, min_partitions="{{ params.n }}", deferrable=deferrable)
        assert len(run(task, params={"n": "2"})["partitions"]) == 2
        few = sensor(tables, min_partitions=3, deferrable=deferrable)
        if not deferrable:
            with pytest.raises(AirflowSensorTimeout, match="2 of 3 partitions are below /"):
                run(few)
            return
        with pytest.raises(TaskDeferred) as deferred:
            run(few)
        query = table_query(cast("SuccessManifestTrigger", deferred.value.trigger).query)
        assert query.ask(tables.table()).state == "waiting"
        tables.load(3)
        event = asdict(query.ask(tables.table()))
        assert len((few.execute_complete(task_context(few), event) or {})["partitions"]) == 3  # pyrefly: ignore[bad-argument-type]

    def test_directory_is_spelled_as_its_table_does(self, tables: Tables) -> None:
        rows = pa.table({"month": pa.array([2], pa.int32()), "day": ["a"], "n": [1]})
        task = sensor(tables, partition="month=02", min_partitions=1)
        with pytest.raises(AirflowSensorTimeout, match="0 of 1 partition is below"):
            time_out(task)
        with tables.table().job(rows.schema, partition_by=["month", "day"]) as job:
            job.write(rows)
        assert run(task)["partitions"][0]["partition"] == "month=2/day=a"

    @pytest.mark.parametrize(
        ("directory", "said"),
        [("day=1", "below day=1, which is itself a partition"), ("dya=1", "named day=")],
    )
    def test_directory_that_has_no_partitions_below_fails_at_once(
        self, tables: Tables, directory: str, said: str
    ) -> None:
        tables.load(1)
        with pytest.raises(AirflowFailException, match=said):
            run(sensor(tables, partition=directory, min_partitions=1))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"min_partitions": 0}, "min_partitions=0 waits for nothing"),
            (
                {"min_partitions": 2, "partitions": ["day=1", "day=2"]},
                "these are named: day=1, day=2",
            ),
            ({"committer": "magic"}, "or give newer_than"),
            ({"require_manifest": False}, "or give newer_than"),
            ({"require_manifest": False, "job": "zr1-x"}, "require_manifest=False is about"),
            (
                {"require_manifest": False, "committer": "magic", **AFTER},
                "does not say which committer",
            ),
        ],
    )
    def test_argument_that_cannot_be_right_breaks_the_import(
        self, arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=message):
            sensor(**arguments)
