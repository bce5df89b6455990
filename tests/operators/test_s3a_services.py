"""Loads by Hadoop's committers in jobs of services: what is sent, and what becomes of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from support import service_loads
from support.airflow import Tables, run_task
from support.aws_services import SERVICES as OF_AWS
from support.aws_services import Service, while_it_waits, worker_dies
from support.http_services import SERVICES, Kubernetes
from support.service_loads import context, request_with
from zero_rename.committer import (
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    VerificationError,
)
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode
from zero_rename.orchestration.s3a import load as s3a_load
from zero_rename.s3a.hadoop.settings import (
    BINDING_PARQUET,
    COMMIT_PROTOCOL_KEY,
    PARQUET_COMMITTER_KEY,
    PATH_PROTOCOL,
    S3A_FACTORY,
)
from zero_rename.s3a.runs import ledger, rivals, try_record
from zero_rename.s3a.services import S3_FACTORY_KEY

pytestmark = pytest.mark.memory_s3

ONCE = "flights/scheduled__2013-02-02/load"
WITH_HADOOP = [name for name in SERVICES if name != "Databricks"]
every_service = pytest.mark.parametrize("service", WITH_HADOOP, indirect=True)
#: The services that share nothing between machines.
ALONE = ("EmrServerless", "Glue")
one_service = pytest.mark.parametrize("service", ["EmrServerless"], indirect=True)
on_kubernetes = pytest.mark.parametrize("service", ["Kubernetes"], indirect=True)
HADOOP = "spark.hadoop.fs.s3a."


def operator(service: Service, **arguments: Any) -> Any:
    return service_loads.operator(service, **{"mode": "append", "committer": "magic"} | arguments)


def run(service: Service, try_number: int = 1, **arguments: Any) -> dict[str, Any]:
    task = operator(service, **arguments)
    return run_task(task, context(task, try_number))


def states(tables: Tables) -> list[str]:
    table = tables.table()
    return [it.record.state for it in table.driver.run(ledger.tries_of(table.root, ONCE))]


def rows(tables: Tables) -> list[str]:
    """The tries whose rows are in the table."""
    return sorted(tables.table().to_arrow(["flight"]).column("flight").to_pylist())


class TestTheRequest:
    @every_service
    def test_selects_the_committer_and_switches_the_service_s_own_off(
        self, service: Service, tables: Tables
    ) -> None:
        report = run(service)
        assert (report["committer"], report["rows"], report["repeated"]) == ("magic", 1, False)
        (sent,) = service.requests
        given = service.settings(sent)
        told = Handoff.decode(service.variables(sent))
        assert given[f"{HADOOP}committer.name"] == "magic"
        assert given[f"{HADOOP}committer.magic.enabled"] == "true"
        assert given[f"{HADOOP}committer.magic.track.commits.in.memory.enabled"] == "false"
        assert given[f"{HADOOP}committer.uuid"] == told.s3a_run
        assert given[COMMIT_PROTOCOL_KEY] == PATH_PROTOCOL
        assert given[PARQUET_COMMITTER_KEY] == BINDING_PARQUET
        assert given["spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a"] == S3A_FACTORY
        if type(service).__name__ in OF_AWS:
            assert given[S3_FACTORY_KEY] == S3A_FACTORY
            own = "spark.sql.execution.datasources.SQLEmrOptimizedCommitProtocol"
            assert given[f"{own}.leverageMagicCommitProtocol"] == "false"
            assert given["spark.sql.parquet.fs.optimized.committer.optimization-enabled"] == "false"
        if type(service).__name__ == "Glue":
            assert sent["arguments"]["--enable-s3-parquet-optimized-committer"] == "false"
        if isinstance(service, Kubernetes):
            assert sent["spec"]["restartPolicy"] == {"type": "Never"}
            endpoint = tables.bucket.client.meta.endpoint_url
            assert given[f"{HADOOP}endpoint"] == endpoint
        assert (told.committer, told.table) == ("magic", tables.table().root)
        assert states(tables) == [try_record.COMMITTED]

    @every_service
    def test_has_the_user_s_settings_and_options(self, service: Service) -> None:
        """Settings of the request that contradict nothing are kept, and win."""
        theirs = {f"{HADOOP}committer.threads": "4"}
        options = {"threads": 16, "encryption": "SSE-KMS", "encryption_key": "alias/lake"}
        run(service, **request_with(service, theirs), s3a_options=options)
        given = service.settings(service.requests[0])
        assert given[f"{HADOOP}committer.threads"] == "4"
        assert given[f"{HADOOP}encryption.key"] == "alias/lake"

    @every_service
    def test_of_a_native_load_selects_nothing(self, service: Service) -> None:
        run(service, committer="zero_rename")
        assert "committer.name" not in json.dumps(service.requests)
        assert "Parquet" not in json.dumps(service.requests)


def refused(service: Service, message: str, **arguments: Any) -> str:
    """A load that fails for good before anything is submitted: what it says."""
    with pytest.raises(AirflowFailException, match=message) as caught:
        run(service, **arguments)
    assert service.jobs == []
    assert states(service.application.tables) == []
    return str(caught.value)


class TestRefused:
    @pytest.mark.parametrize("service", ALONE, indirect=True)
    @pytest.mark.parametrize("committer", ["directory", "partitioned"])
    def test_a_staging_committer_where_machines_share_nothing(
        self, service: Service, committer: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=r"machines of .* share none.*magic"):
            operator(service, committer=committer)

    @pytest.mark.parametrize("service", ["EmrSteps"], indirect=True)
    def test_a_staging_committer_of_a_cluster_keeps_it_in_hdfs(
        self, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert run(service, committer="partitioned", mode="overwrite")["committer"] == "partitioned"
        assert "staging-unknown" not in caplog.text

    @pytest.mark.parametrize("service", ["Kubernetes", "EmrContainers"], indirect=True)
    def test_a_staging_committer_of_pods_without_a_shared_volume(self, service: Service) -> None:
        said = refused(service, "staging-not-shared", committer="directory")
        assert "s3a_options={'staging_dir'" in said
        own = {"staging_dir": "file:///mnt/staging"}
        assert "mounted by driver and executors: none" in refused(
            service, "staging-not-shared", committer="directory", s3a_options=own
        )

    @on_kubernetes
    def test_a_volume_that_a_template_of_pods_mounts_is_vouched_for(self, service: Service) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        body["spec"]["sparkConf"]["spark.zero_rename.s3a.accept"] = "staging-not-shared"
        options = {"staging_dir": "file:///mnt/staging"}
        given = {"committer": "directory", "s3a_options": options, "template_spec": body}
        assert run(service, **given)["committer"] == "directory"

    @pytest.mark.parametrize("service", ["Databricks"], indirect=True)
    def test_all_of_hadoop_s_committers_on_databricks(self, service: Service) -> None:
        with pytest.raises(InvalidInputError, match="DBIO's commit service"):
            operator(service)

    @every_service
    def test_a_setting_that_names_another_committer(self, service: Service) -> None:
        given = request_with(service, {f"{HADOOP}committer.name": "magicv2"})
        assert "DAG conf" in refused(service, "committer-name", **given)

    @pytest.mark.parametrize("service", OF_AWS, indirect=True)
    def test_a_setting_that_switches_the_service_s_own_committer_on(self, service: Service) -> None:
        own = "spark.sql.parquet.fs.optimized.committer.optimization-enabled"
        refused(service, f"service-committer.*{own}", **request_with(service, {own: "true"}))

    @on_kubernetes
    def test_a_conflict_mode_that_contradicts_the_mode(self, service: Service) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        name = "fs.s3a.committer.staging.conflict-mode"
        body["spec"]["sparkConf"] = {
            **body["spec"].get("sparkConf", {}),
            f"spark.hadoop.{name}": "replace",
        }
        given = {"committer": "directory", "mode": "append", "template_spec": body}
        refused(service, f"{name}.* is 'replace', and mode is append", **given)

    @pytest.mark.parametrize("service", ["EmrServerless", "EmrContainers", "Glue"], indirect=True)
    def test_a_value_that_the_service_would_tear_apart(self, service: Service) -> None:
        message = "buffer.dir has a blank.*Nothing was submitted"
        refused(service, message, s3a_options={"buffer_dir": "/mnt/a b"})

    @pytest.mark.parametrize(
        ("service", "arguments"),
        [
            ("EmrServerless", {"config": {"retryPolicy": {"maxAttempts": 3}}}),
            ("EmrServerless", {"config": {"mode": "STREAMING"}}),
            ("EmrContainers", {"job_retry_max_attempts": 2}),
        ],
        indirect=["service"],
    )
    def test_a_driver_that_the_service_starts_again(
        self, service: Service, arguments: dict[str, Any]
    ) -> None:
        refused(service, "driver-restarts.*twice", **arguments)

    @on_kubernetes
    @pytest.mark.parametrize("kind", ["OnFailure", "Always"])
    def test_an_application_that_is_restarted(self, service: Service, kind: str) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        body["spec"]["restartPolicy"] = {"type": kind}
        refused(service, f"driver-restarts.*{kind}", template_spec=body)

    @pytest.mark.parametrize("service", ["EmrContainers"], indirect=True)
    @pytest.mark.parametrize(
        ("label", "message"),
        [
            ("emr-7.3.0-latest", "magic-before-3.4.*3.3.6"),
            ("emr-6.15.0-latest", "Spark before 3.5"),
            ("latest", "not a release of EMR"),
        ],
    )
    def test_a_release_that_cannot_run_it(self, service: Service, label: str, message: str) -> None:
        refused(service, message, **{"release_label": label})

    @pytest.mark.parametrize("service", ["EmrContainers"], indirect=True)
    def test_a_release_of_which_nothing_is_known_is_said_and_by_strict_refused(
        self, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        new: dict[str, Any] = {"release_label": "emr-9.1.0-latest"}
        refused(service, "strict: emr-9.1.0-latest is newer than this package", strict=True, **new)
        run(service, **new)
        assert "Not checked before the submission: emr-9.1.0-latest" in caplog.text


class TestWhatIsSeenBefore:
    @pytest.mark.parametrize("service", ["EmrServerless", "EmrContainers"], indirect=True)
    def test_overrides_of_a_job(self, service: Service) -> None:
        core_site = {"classification": "core-site"}
        core_site["properties"] = {"mapreduce.outputcommitter.factory.class": "x.Other"}  # pyrefly: ignore[bad-assignment]
        overrides = {"applicationConfiguration": [core_site]}
        said = refused(service, "factory-overridden", configuration_overrides=overrides)
        assert "configuration_overrides, core-site" in said

    @pytest.mark.parametrize("service", ["EmrSteps"], indirect=True)
    def test_configurations_of_a_cluster(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        properties = {"spark.hadoop.mapreduce.outputcommitter.factory.class": "x.Other"}
        found = [{"Classification": "spark-defaults", "Properties": properties}]
        described(monkeypatch, "DescribeCluster", {"Cluster": {"Configurations": found}})
        said = refused(service, "factory-overridden")
        assert "the cluster's configurations, spark-defaults" in said

    @one_service
    def test_configuration_of_an_application(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        properties = {"fs.s3a.multipart.purge": "true"}
        found = [{"classification": "core-site", "properties": properties}]
        answer = {"application": {"releaseLabel": "emr-7.10.0", "runtimeConfiguration": found}}
        described(monkeypatch, "GetApplication", answer)
        # The word's own setting is stronger.
        assert run(service)["committer"] == "magic"
        bucket = service.application.tables.bucket.name
        found[0]["properties"] = {f"fs.s3a.bucket.{bucket}.multipart.purge": "true"}
        service.jobs.clear()
        with pytest.raises(AirflowFailException, match=r"multipart-purge.*runtimeConfiguration"):
            run(service, task_id="another")
        assert service.jobs == []

    @pytest.mark.parametrize("service", ["EmrServerless", "EmrSteps"], indirect=True)
    def test_missing_rights_are_said_and_by_strict_refused(
        self, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        is_step = type(service).__name__ == "EmrSteps"
        name = "describe_cluster" if is_step else "get_application"
        denied(monkeypatch, service, "DescribeCluster" if is_step else "GetApplication")
        refused(service, f"strict: The connection has no right to {name}", strict=True)
        assert run(service)["committer"] == "magic"
        assert f"has no right to {name}" in caplog.text

    @pytest.mark.parametrize("service", ["Glue"], indirect=True)
    def test_a_job_of_glue(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        def job(**members: Any) -> None:
            made = {"MaxRetries": 0, "DefaultArguments": {}, **members}
            described(monkeypatch, "GetJob", {"Job": made})

        job(GlueVersion="4.0")
        refused(service, "Glue 4.0 has a Spark before 3.5")
        job(GlueVersion="5.1", MaxRetries=1)
        refused(service, "driver-restarts.*MaxRetries")
        own = "--enable-s3-parquet-optimized-committer"
        job(GlueVersion="5.1", DefaultArguments={own: "true"})
        refused(service, f"service-committer.*{own}='true'")
        job(GlueVersion="5.1", DefaultArguments={"--conf": f"{HADOOP}committer.name=file"})
        refused(service, "committer-name")
        job(GlueVersion="6.0")
        refused(service, "strict: Glue 6.0 is newer", strict=True)
        job(GlueVersion="5.1")
        assert run(service, strict=True)["committer"] == "magic"

    @on_kubernetes
    def test_settings_of_hadoop_in_an_object(self, service: Service) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        body["spec"]["hadoopConf"] = {"fs.s3a.committer.name": "file"}
        refused(service, "committer-name.*DAG conf", template_spec=body)
        body["spec"]["hadoopConf"] = {"fs.s3a.endpoint": "http://own:1"}
        run(service, template_spec=body)
        assert f"{HADOOP}endpoint" not in service.requests[0]["spec"]["sparkConf"]

    @on_kubernetes
    def test_config_maps_of_an_object(
        self, service: Kubernetes, caplog: pytest.LogCaptureFixture
    ) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        body["spec"]["hadoopConfigMap"] = "hadoop"
        refused(service, "strict: The config map hadoop", template_spec=body, strict=True)
        entry = "<property><name>{}</name><value>x.Other</value></property>"
        entry = entry.format("mapreduce.outputcommitter.factory.class")
        service.config_maps["hadoop"] = {"core-site.xml": f"<configuration>{entry}</configuration>"}
        said = refused(service, "factory-overridden", template_spec=body)
        assert "the config map hadoop, core-site.xml" in said
        del service.config_maps["hadoop"]
        run(service, template_spec=body)
        assert "The config map hadoop" in caplog.text

    @on_kubernetes
    def test_config_map_that_may_not_be_read_is_said_and_by_strict_refused(
        self, service: Kubernetes, caplog: pytest.LogCaptureFixture
    ) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        body["spec"]["sparkConfigMap"] = "spark"
        service.forbidden.add("spark")
        refused(service, "strict: The config map spark", template_spec=body, strict=True)
        run(service, template_spec=body)
        assert "The config map spark" in caplog.text

    @on_kubernetes
    def test_a_volume_that_all_pods_mount(self, service: Service) -> None:
        body = copy.deepcopy(operator(service).template_spec)
        claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "staging"}}
        mount = {"name": "shared", "mountPath": "/mnt/shared"}
        body["spec"]["volumes"] = [claim]
        body["spec"]["driver"]["volumeMounts"] = body["spec"]["executor"]["volumeMounts"] = [mount]
        options = {"staging_dir": "file:///mnt/shared/staging"}
        given = {"committer": "directory", "s3a_options": options, "template_spec": body}
        assert run(service, **given)["committer"] == "directory"


def described(monkeypatch: pytest.MonkeyPatch, operation: str, answer: dict[str, Any]) -> None:
    """Let a service describe what a job runs on as a test says."""
    original = BaseClient._make_api_call  # pyrefly: ignore[missing-attribute]

    def call(client: Any, name: str, given: Any) -> Any:
        made = original(client, name, given)
        if name != operation:
            return made
        return {**made, **{member: {**made[member], **it} for member, it in answer.items()}}

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


def denied(monkeypatch: pytest.MonkeyPatch, service: Service, operation: str) -> None:
    """Let a service refuse to describe it; what the operator that submits asks for itself it
    gets."""
    original, task = BaseClient._make_api_call, type(operator(service))  # pyrefly: ignore[missing-attribute]
    describe, asks = task._described, list[bool]()

    def call(client: Any, name: str, given: Any) -> Any:
        if asks and name == operation:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, name)
        return original(client, name, given)

    def described(*arguments: Any, **where: Any) -> Any:
        asks.append(True)
        try:
            return describe(*arguments, **where)
        finally:
            asks.clear()

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    monkeypatch.setattr(task, "_described", described)


class TestTries:
    @every_service
    def test_another_run_of_the_partition_is_refused_while_a_job_runs(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For good, or, where both opened in one second, until the next try."""
        monkeypatch.setattr(s3a_load, "_TIE_PAUSE", 0.0)
        overwrites: dict[str, Any] = {"mode": "overwrite"}
        worker_dies(service, monkeypatch, lambda: run(service, **overwrites))
        other = operator(service, **overwrites)
        refusals = (AirflowFailException, OutcomeUnknownError)
        with pytest.raises(refusals, match="Another run is at work on the same"):
            run_task(other, context(other, run_id="another"))
        assert len(service.jobs) == 1

    @one_service
    def test_a_task_that_is_deferred_before_its_job_is_started_begins_anew(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Until the application of EMR Serverless has started. Nobody waits for that try's
        silence."""
        client = boto3.client("emr-serverless", region_name="us-east-1")
        client.stop_application(applicationId=service.id)
        service.calls.clear()
        task = operator(service, deferrable=True)
        with pytest.raises(TaskDeferred) as caught:
            run_task(task, context(task))
        assert caught.value.method_name == "execute"
        assert states(tables) == [try_record.UNDONE]
        client.start_application(applicationId=service.id)
        service.goes_on = True
        again = operator(service, deferrable=True)
        its = context(again)
        again.render_template_fields(its)
        with pytest.raises(TaskDeferred) as caught:
            again.execute(its, event={"status": "success"})
        assert caught.value.method_name == "load_completed"
        assert len(service.jobs) == 1
        assert sorted(states(tables)) == [try_record.SUBMITTED, try_record.UNDONE]

    @every_service
    def test_a_worker_that_is_killed_leaves_its_job_to_the_next_try(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        assert states(tables) == [try_record.SUBMITTED]
        pauses = while_it_waits(monkeypatch, lambda: None, service.end)
        report = run(service, 2)
        assert (report["repeated"], report["rows"], report["committer"]) == (True, 1, "magic")
        assert len(service.jobs) == 1
        # Nobody waits for the silence of an application whose end the service has told.
        assert len(pauses) == 2
        assert states(tables) == [try_record.COMMITTED]

    @one_service
    def test_a_job_that_fails_then_fails_the_try_that_waits_for_it(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        while_it_waits(monkeypatch, lambda: service.set_state(service.jobs[0], service.failed))
        with pytest.raises(AirflowException, match=service.said):
            run(service, 2)
        assert states(tables) == [try_record.FAILED]
        service.goes_on = False
        assert run(service, 3)["repeated"] is False
        assert len(service.jobs) == 2
        assert rows(tables) == ["3"]

    @pytest.mark.parametrize("service", ["EmrServerless", "Kubernetes", "Glue"], indirect=True)
    def test_a_job_that_commits_and_fails_afterwards_is_reported(
        self, service: Service, tables: Tables
    ) -> None:
        service.application.fails = RuntimeError("afterwards")
        with pytest.raises(AirflowException, match=service.said):
            run(service)
        report = run(service, 2)
        assert (report["repeated"], report["rows"]) == (True, 1)
        assert len(service.jobs) == 1

    @one_service
    def test_a_job_that_dies_before_its_commit_is_loaded_again(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 0.0)
        service.application.stage = "begun"
        with pytest.raises(AirflowException, match=service.said):
            run(service)
        service.application.stage = "written"
        assert run(service, 2)["repeated"] is False
        assert rows(tables) == ["2"]

    @one_service
    def test_another_committer_than_was_asked_for_fails_by_name(
        self, service: Service, tables: Tables
    ) -> None:
        """And the next try adds nothing."""
        service.application.more = {"TEST_COMMITTER": "magicv2"}
        with pytest.raises(VerificationError, match=r"'magicv2' ran.*EMR.*'magic' was asked for"):
            run(service)
        with pytest.raises(VerificationError, match="magicv2"):
            run(service, 2)
        assert len(service.jobs) == 1

    @one_service
    def test_an_empty_marker_fails_by_the_committer_that_leaves_such(
        self, service: Service, tables: Tables
    ) -> None:
        service.application.more = {"TEST_EMPTY_MARKER": "1"}
        for number in (1, 2):
            with pytest.raises(VerificationError, match="classic rename committer ran, not magic"):
                run(service, number)
        assert len(service.jobs) == 1

    @one_service
    def test_a_cleared_task_waits_for_the_job_of_before_and_loads_again(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service, mode="overwrite"))

        def ends() -> None:
            service.end()
            service.goes_on = False

        while_it_waits(monkeypatch, ends)
        task = operator(service, mode="overwrite")
        report = run_task(task, context(task, 2, clear_number=1, max_tries=3))
        assert (report["repeated"], report["rows"]) == (False, 1)
        assert rows(tables) == ["2"]

    @one_service
    def test_a_native_load_reports_what_magic_has_committed(
        self, service: Service, tables: Tables
    ) -> None:
        first = run(service)
        again = run(service, 2, committer="zero_rename")
        assert (again["job"], again["repeated"]) == (first["job"], True)
        native = operator(service, committer="zero_rename")
        with pytest.raises(RefusedError, match="by the magic committer"):
            run_task(native, context(native, 3, clear_number=1, max_tries=4))
        assert len(service.jobs) == 1

    @one_service
    def test_a_native_load_needs_no_right_to_the_ledger_and_magic_does(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Policies that were printed before services had Hadoop's committers grant none."""

        def denied(*_: object) -> None:
            raise StoreRefusedError("no right to list", remedy="Grant it.")

        monkeypatch.setattr(ledger, "tries_of", denied)
        assert run(service, committer="zero_rename")["rows"] == 1
        with pytest.raises(StoreRefusedError, match="no right to list"):
            run(service, task_id="another")
        assert len(service.jobs) == 1

    @pytest.mark.parametrize("service", ["EmrServerless", "Kubernetes"], indirect=True)
    def test_a_kill_cancels_the_job(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = operator(service)
        worker_dies(service, monkeypatch, lambda: run_task(task, context(task)), task.on_kill)
        assert service.jobs[0].state == "CANCELLED"
        assert states(tables) == [try_record.SUBMITTED]


@pytest.mark.parametrize("service", ["EmrServerless", "Kubernetes", "Glue"], indirect=True)
class TestDeferred:
    def deferred(self, service: Service, try_number: int) -> TaskDeferred:
        task = operator(service, deferrable=True)
        with pytest.raises(TaskDeferred) as caught:
            run_task(task, context(task, try_number))
        return caught.value

    def resumed(
        self, service: Service, try_number: int, deferred: TaskDeferred, good: bool = True
    ) -> dict[str, Any]:
        task = operator(service, deferrable=True)
        given = json.loads(json.dumps(deferred.kwargs))
        its = context(task, try_number)
        task.render_template_fields(its)
        method: Callable[..., Any] = getattr(task, deferred.method_name)
        return method(its, service.event(good), **given)

    def test_leaves_the_try_open_and_is_resumed(self, service: Service, tables: Tables) -> None:
        service.goes_on = True
        deferred = self.deferred(service, 1)
        assert states(tables) == [try_record.SUBMITTED]
        # Nobody sends heartbeats meanwhile, until it writes.
        table = tables.table()
        (known,) = table.driver.run(ledger.open_tries(table.root)).known
        assert rivals.is_at_work(replace(known, silent_for=4 * 3600.0))
        assert not rivals.is_at_work(replace(known, silent_for=25 * 3600.0))
        service.end()
        report = self.resumed(service, 1, deferred)
        assert (report["repeated"], report["rows"], report["committer"]) == (False, 1, "magic")
        assert states(tables) == [try_record.COMMITTED]

    def test_the_next_try_waits_for_the_same_job(self, service: Service, tables: Tables) -> None:
        service.goes_on = True
        self.deferred(service, 1)
        again = self.deferred(service, 2)
        assert len(service.jobs) == 1
        service.end()
        assert self.resumed(service, 2, again)["repeated"] is True
        assert rows(tables) == ["1"]

    def test_what_a_followed_job_has_committed_stays_while_the_next_load_waits(
        self, service: Service, tables: Tables
    ) -> None:
        """The task was cleared, for another committer."""
        service.goes_on = True
        first = operator(service, deferrable=True, mode="overwrite")
        with pytest.raises(TaskDeferred):
            run_task(first, context(first))
        words: Any = {"mode": "overwrite", "committer": "zero_rename", "wait_for_other_runs": 3600}
        cleared: Any = {"clear_number": 1, "max_tries": 3}
        task = operator(service, deferrable=True, **words)
        with pytest.raises(TaskDeferred) as follows:
            run_task(task, context(task, 2, **cleared))
        service.end()
        tables.undecided(1, mode=Mode.REPLACE, idempotency_key="another")
        again = operator(service, deferrable=True, **words)
        its = context(again, 2, **cleared)
        again.render_template_fields(its)
        given = json.loads(json.dumps(follows.value.kwargs))
        with pytest.raises(TaskDeferred) as waits:
            again.load_completed(its, service.event(), **given)
        assert waits.value.method_name == "wait_over"
        assert states(tables) == [try_record.COMMITTED]

    def test_a_job_that_did_not_end_well(self, service: Service, tables: Tables) -> None:
        service.goes_on = True
        deferred = self.deferred(service, 1)
        service.set_state(service.jobs[0], service.failed)
        with pytest.raises(AirflowException):
            self.resumed(service, 1, deferred, good=False)
        assert states(tables) == [try_record.FAILED]

    def test_job_that_goes_on_after_a_wait_that_failed_leaves_its_try_open(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Recovery would take what it has uploaded for a dead one's."""
        service.goes_on = True
        deferred = self.deferred(service, 1)
        task = type(operator(service))

        def fails(*_: object) -> None:
            raise AirflowException("the trigger had no right to look")

        monkeypatch.setattr(task, "_check_event", fails)
        with pytest.raises(AirflowException, match=r"has not ended, and goes on: the next attempt"):
            self.resumed(service, 1, deferred)
        assert states(tables) == [try_record.SUBMITTED]
        table = tables.table()
        (known,) = table.driver.run(ledger.open_tries(table.root)).known
        assert rivals.is_at_work(replace(known, silent_for=4 * 3600.0))

    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.parametrize("ended", [True, False])
    def test_try_is_closed_once_the_trigger_has_failed_unless_its_job_goes_on(
        self, service: Service, tables: Tables, ended: bool, number: int
    ) -> None:
        """For a day it counted as at work, and each retry was refused."""
        service.goes_on = True
        for attempt in range(1, number + 1):
            self.deferred(service, attempt)
        if ended:
            service.set_state(service.jobs[0], service.failed)
        task = operator(service, deferrable=True)
        its = context(task, number)
        task.render_template_fields(its)
        with pytest.raises(AirflowException, match="Trigger failure"):
            task.resume_execution("__fail__", {"error": "Trigger failure"}, its)
        assert states(tables) == [try_record.FAILED if ended else try_record.SUBMITTED]
        service.goes_on = False
        assert run(service, number + 1)["rows"] == 1 if ended else True

    @pytest.mark.parametrize("end", ["timeout", "killed worker"])
    def test_try_counts_as_dead_soon_once_its_task_is_deferred_no_more(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch, end: str
    ) -> None:
        """It counted as at work for a day, and each retry was refused."""
        service.goes_on = True
        deferred = self.deferred(service, 1)
        if end == "timeout":
            monkeypatch.setattr(type(operator(service)), "_cancel", lambda *_: None)
            task = operator(service, deferrable=True, execution_timeout=timedelta(hours=3))
            its = context(task)
            task.render_template_fields(its)
            with pytest.raises(AirflowException, match="was cancelled"):
                task.resume_execution("__fail__", {"error": "Trigger timeout"}, its)
        else:
            service.end()

            def killed(*_: object) -> None:
                raise KeyboardInterrupt

            monkeypatch.setattr(type(operator(service)), "_check_event", killed)
            with pytest.raises(KeyboardInterrupt):
                self.resumed(service, 1, deferred)
        table = tables.table()
        (known,) = table.driver.run(ledger.open_tries(table.root)).known
        assert rivals.is_at_work(replace(known, silent_for=60.0))
        assert not rivals.is_at_work(replace(known, silent_for=3600.0))

    def test_a_try_whose_record_is_gone_is_not_known(
        self, service: Service, tables: Tables
    ) -> None:
        """It is neither reported as committed nor loaded again."""
        service.goes_on = True
        deferred = self.deferred(service, 1)
        service.end()
        table = tables.table()
        (known,) = table.driver.run(ledger.tries_of(table.root, ONCE))
        table.driver.run(ledger.remove_try(table.root, known.record))
        with pytest.raises(OutcomeUnknownError, match="removed while its task was deferred"):
            self.resumed(service, 1, deferred)
        assert len(service.jobs) == 1
