"""Loads that services of AWS run: what they are asked to run, and what becomes of it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pkgutil import resolve_name
from typing import Any

import boto3
import botocore.session
import pyarrow as pa
import pytest
from airflow.providers.amazon.aws.operators.glue import JOB_RUN_TERMINAL_STATES
from airflow.providers.common.compat.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from botocore.stub import Stubber

from support.airflow import Connect, Tables, run_task
from support.aws_services import SERVICES as OF_AWS
from support.aws_services import EmrServerless, EmrSteps, Service, while_it_waits, worker_dies
from support.http_services import SERVICES
from support.moto_server import ACCESS_KEY, SECRET_KEY
from support.recorded_calls import Call, refused
from support.service_loads import context, operator, run
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.committer.commit.failures import failures_told
from zero_rename.committer.errors import (
    CommitConflictError,
    RefusedError,
    StoreUnfitError,
    ZeroRenameError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.upkeep.access_policy import Role, access_policy
from zero_rename.example_dags.jobs.flights_job import parse
from zero_rename.operators import emr_steps
from zero_rename.operators.emr_containers import ZeroRenameEmrContainerOperator as OfContainers
from zero_rename.operators.emr_serverless import ZeroRenameEmrServerlessOperator as OfServerless
from zero_rename.orchestration.submit import service_words
from zero_rename.provider.hooks import ZeroRenameHook

pytestmark = pytest.mark.memory_s3

ONCE = "flights/scheduled__2013-02-02/load"
every_service = pytest.mark.parametrize("service", SERVICES, indirect=True)
#: One for each form of a deferral.
each_deferral = pytest.mark.parametrize(
    "service", ["EmrServerless", "Kubernetes", "Databricks"], indirect=True
)
#: What is the same code for all of them.
one_service = pytest.mark.parametrize("service", ["EmrServerless"], indirect=True)


@every_service
def test_what_the_service_is_asked_to_run(service: Service, tables: Tables) -> None:
    report = run(service, 2, ship_package=True)
    assert report["job"] == tables.table().job_of_key(ONCE)
    assert (report["rows"], report["partition"], report["repeated"]) == (1, "day=1", False)
    (sent,) = service.requests
    told = Handoff.decode(service.variables(sent))
    assert (told.table, told.idempotency_key, told.try_number) == (tables.table().root, ONCE, 2)
    assert (told.mode, told.partitions, told.on_repeat) == ("replace", ("day=1",), "skip")
    *theirs, package = service.packages(sent)
    assert all(url.startswith("s3://code/") for url in theirs)
    bucket, _, key = package.removeprefix("s3://").partition("/")
    assert (bucket, key.partition("/")[0]) == (tables.bucket.name, "_zero_rename_packages")
    content = tables.bucket.client.get_object(Bucket=bucket, Key=key)["Body"].read()
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert {"zero_rename/spark/save_frame.py", "zero_rename/committer/format/handoff.py"} <= {
        *names
    }
    text = json.dumps(sent)
    assert re.search(r'[" =-]zr-[0-9a-f]{16}-[0-9a-f]{8}-2"', text)
    assert not any(secret in text for secret in (ACCESS_KEY, SECRET_KEY, "an-id", "a-secret"))


@one_service
@pytest.mark.usefixtures("s3_server")
def test_package_and_application_get_the_connections_encryption(
    service: Service, tables: Tables, connect: Connect
) -> None:
    connect("zero_rename_default", extra={"encryption": "SSE-KMS alias/lake"})
    run(service, ship_package=True)
    (sent,) = service.requests
    told = Handoff.decode(service.variables(sent))
    assert told.encryption == Encryption(Algorithm.SSE_KMS, "alias/lake")
    (package,) = tables.bucket.keys("_zero_rename_packages")
    head = tables.bucket.client.head_object(Bucket=tables.bucket.name, Key=package)
    assert head["SSEKMSKeyId"] == "alias/lake"


@pytest.mark.parametrize(
    ("words", "in_cluster"),
    [
        (["--deploy-mode", "cluster", "j.py"], True),
        (["--deploy-mode=cluster", "j.py"], True),
        (["--supervise", "--conf=spark.submit.deployMode=cluster", "j.py"], True),
        (["-c", "spark.submit.deployMode=cluster", "j.py"], True),
        (["--conf", "spark.submit.deployMode=cluster", "--deploy-mode", "client", "j.py"], False),
        (["j.py", "--deploy-mode", "cluster"], False),
        (["--name", "x", "j.py", "--deploy-mode=cluster"], False),
    ],
)
def test_where_a_step_s_driver_runs(words: list[str], in_cluster: bool) -> None:
    assert service_words._in_cluster_mode(["spark-submit", *words]) == in_cluster


@pytest.mark.parametrize("service", ["EmrSteps"], indirect=True)
@pytest.mark.parametrize("mode", ["cluster", "client"])
def test_a_driver_on_the_cluster_has_a_variable(service: Service, mode: str) -> None:
    (step,) = service.operator(task_id="t", table="s3://b/t").steps
    jar = {**step["HadoopJarStep"], "Args": ["spark-submit", "--deploy-mode", mode, "j.py"]}
    run(service, steps=[{**step, "HadoopJarStep": jar}])
    (request,) = service.requests
    named = {word.partition("=")[0] for word in service.words(request)}
    assert ("spark.yarn.appMasterEnv.ZERO_RENAME_HANDOFF" in named) == (mode == "cluster")
    assert "spark.zero_rename.handoff" in named


@pytest.mark.parametrize("service", ["Glue"], indirect=True)
def test_a_script_gets_its_own_arguments_and_no_other(service: Service) -> None:
    theirs = {"--csv": "s3://b/x.csv", "--day": "2013-01-01", "--conf": "spark.c=d"}
    run(service, ship_package=True, script_args=theirs)
    sent = service.requests[0]["arguments"]
    taken = {"--conf", "--extra-py-files", "--additional-python-modules"}
    left = [word for name in sent if name not in taken for word in (name, sent[name])]
    assert parse(left).csv == "s3://b/x.csv"
    assert sent["--conf"].startswith("spark.c=d --conf spark.zero_rename.")


@pytest.mark.parametrize("service", ["Glue"], indirect=True)
@pytest.mark.parametrize(
    ("modules", "lacks"),
    [
        ("", ["boto3", "pyarrow"]),
        ("boto3-stubs,pyarrow_hotfix==0.6", ["boto3", "pyarrow"]),
        ("boto3>=1.40, PyArrow[pandas]==19.0.0", []),
        ("s3://b/w/pyarrow-19.0.0-cp311-cp311-linux_x86_64.whl,s3://b/boto3-1.40.1.tar.gz", []),
        ("s3://b/pyarrow/mine-1.0-py3-none-any.whl,boto3", ["pyarrow"]),
    ],
)
def test_modules_that_a_glue_job_lacks_are_added(
    service: Service, modules: str, lacks: list[str]
) -> None:
    run(service, ship_package=True, script_args={"--additional-python-modules": modules})
    sent = service.requests[0]["arguments"]["--additional-python-modules"]
    assert sent.startswith(modules)
    added = sent.removeprefix(modules).strip(",").split(",")
    assert [it.partition("==")[0] for it in added if it] == lacks


@one_service
def test_a_package_that_the_image_has_is_not_sent(service: Service, tables: Tables) -> None:
    run(service)
    assert service.packages(service.requests[0]) == ["s3://code/a.zip", "s3://code/b c.zip"]
    assert not tables.bucket.keys("_zero_rename_packages")


@every_service
def test_a_key_of_its_connections_is_refused_whatever_its_name(
    service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the service, and that of the tables."""
    task = operator(service)
    variable = f"AIRFLOW_CONN_{getattr(task, task.connection_fields[0]).upper()}"
    known = json.loads(os.environ[variable])
    monkeypatch.setenv(variable, json.dumps({**known, "password": "of-the-service"}))
    names = ("job_driver", "steps", "script_args", "template_spec", "spark_python_task")
    (name,) = (it for it in names if getattr(task, it, None))
    text = json.dumps(getattr(task, name))
    for secret in (SECRET_KEY, "of-the-service"):
        given = json.loads(re.sub(r'(?<=")1(?=")|(?<=job\.py)', f" colour={secret}", text))
        with pytest.raises(AirflowFailException, match="is or holds a credential") as caught:
            run(service, **{name: given})
        assert secret not in str(caught.value)
    assert service.jobs == []


#: Where the amazon provider puts what it passes on of OpenLineage, by its module.
_INJECTORS = {
    "EmrServerless": ("emr", "emr_serverless_properties"),
    "EmrContainers": ("emr", "emr_serverless_properties"),
    "Glue": ("glue", "glue_arguments"),
}


@pytest.mark.parametrize("service", _INJECTORS, indirect=True)
@pytest.mark.parametrize("has_key", [True, False])
def test_key_of_lineage_s_service_is_in_no_request(
    service: Service,
    has_key: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from airflow.providers.common.compat.openlineage.utils import spark

    transport = {"spark.openlineage.transport.url": "https://lineage.example"}
    transport |= {"spark.openlineage.transport.auth.apiKey": "abcdefgh12345"} if has_key else {}
    asked = list[object]()
    name = "inject_transport_information_into"
    monkeypatch.setattr(spark, f"{name}_spark_properties", lambda given, context: transport)
    module, form = _INJECTORS[type(service).__name__]
    monkeypatch.setattr(
        f"airflow.providers.amazon.aws.operators.{module}.{name}_{form}",
        lambda given, context: asked.append(given) or given,
    )
    assert run(service, openlineage_inject_transport_info=True)["rows"] == 1
    assert len(asked) == (not has_key)
    assert ("transport.auth.apiKey, which is a credential" in capsys.readouterr().out) is has_key


class TestTries:
    @pytest.mark.parametrize("service", ["EmrServerless", "Glue"], indirect=True)
    def test_a_retry_reports_what_an_earlier_try_committed(self, service: Service) -> None:
        """The service says that it failed, after it had committed."""
        service.application.fails = RuntimeError("afterwards")
        with pytest.raises(AirflowException, match=service.said) as caught:
            run(service)
        report = run(service, 2)
        assert f"it had committed job {report['job']}: these rows are" in str(caught.value)
        assert (report["repeated"], report["rows"]) == (True, 1)
        assert len(service.jobs) == 1

    @every_service
    def test_a_worker_that_is_killed_leaves_its_job_to_the_next_try(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        pauses = while_it_waits(monkeypatch, lambda: None, service.end)
        report = run(service, 2)
        assert (report["repeated"], report["rows"]) == (True, 1)
        assert len(service.jobs) == 1
        assert len(pauses) == 2

    @one_service
    def test_job_is_waited_for_by_the_next_try_though_another_task_of_the_run_was_cleared(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        while_it_waits(monkeypatch, service.end)
        task = operator(service)
        report = run_task(task, context(task, 2, clear_number=1))
        assert (report["repeated"], report["rows"], len(service.jobs)) == (True, 1, 1)

    @pytest.mark.parametrize("service", ["EmrServerless", "Glue"], indirect=True)
    def test_a_job_that_fails_then_fails_the_try_that_waits_for_it(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        while_it_waits(monkeypatch, lambda: service.set_state(service.jobs[0], service.failed))
        with pytest.raises(AirflowException, match=service.said):
            run(service, 2)
        service.goes_on = False
        assert run(service, 3)["repeated"] is False
        assert len(service.jobs) == 2

    @one_service
    @pytest.mark.parametrize("clear_number", [0, 1], ids=["no clear", "another task is cleared"])
    def test_conflict_that_an_application_met_without_its_worker_ends_the_next_try_too(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch, clear_number: int
    ) -> None:
        """A job of the next try would begin on the other job's rows, and overwrite them."""
        _meet_another_job_without_a_worker(service, tables, monkeypatch)
        task = operator(service)
        with pytest.raises(AirflowFailException, match="of attempt 1 failed: Another job"):
            run_task(task, context(task, 2, clear_number=clear_number))
        assert len(service.jobs) == 1
        cleared = context(task, 3, clear_number=clear_number + 1, max_tries=4)
        assert run_task(task, cleared)["rows"] == 1

    @one_service
    def test_try_that_waits_for_others_loads_on_top_of_what_overtook_the_try_before(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _meet_another_job_without_a_worker(service, tables, monkeypatch)
        assert run(service, 2, wait_for_other_runs="PT1H")["rows"] == 1

    @pytest.mark.parametrize("service", ["EmrServerless", "Glue"], indirect=True)
    def test_a_job_of_another_task_is_nobody_s_to_wait_for(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        while_it_waits(monkeypatch, service.end)
        assert run(service, task_id="another")["repeated"] is False
        assert len(service.jobs) == 2

    @pytest.mark.parametrize("well", [True, False])
    @pytest.mark.parametrize("service", ["EmrServerless", "Kubernetes"], indirect=True)
    def test_a_cleared_task_waits_for_the_job_of_before_and_loads_again(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch, well: bool
    ) -> None:
        """However that one ends: what became of it is not this task's any more."""
        worker_dies(service, monkeypatch, lambda: run(service))

        def ends() -> None:
            if well:
                service.end()
            else:
                service.set_state(service.jobs[0], service.failed)
            service.goes_on = False

        while_it_waits(monkeypatch, ends)
        task = operator(service)
        report = run_task(task, context(task, 2, clear_number=1, max_tries=3))
        assert (report["repeated"], report["rows"]) == (False, 1)
        assert report["version"] == (2 if well else 1)
        assert len(service.jobs) == 2
        assert sum(file.rows for file in tables.table().files()) == 1

    @one_service
    @pytest.mark.parametrize("kind", [CommitConflictError, StoreUnfitError])
    def test_what_the_application_said_is_the_task_s_error(
        self,
        service: Service,
        tables: Tables,
        monkeypatch: pytest.MonkeyPatch,
        kind: type[ZeroRenameError],
    ) -> None:
        """And not tried again, where the next try would write over what another job did."""

        def conflicts(variables: dict[str, str]) -> None:
            told = Handoff.decode(variables)
            driver = tables.table().driver
            monkeypatch.setattr("zero_rename.committer.commit.failures.connect", lambda _: driver)
            with failures_told(told.table, told.idempotency_key, told.owner):
                raise kind("Another job changed day=1.", remedy="Load it again.")

        monkeypatch.setattr(service.application, "write", conflicts)
        with pytest.raises(AirflowFailException, match=r"Another job changed day=1"):
            run(service)

    @one_service
    @pytest.mark.parametrize(
        ("arguments", "kind"),
        [({}, AirflowFailException), ({"wait_for_other_runs": "PT1H"}, AirflowException)],
        ids=["does not wait", "waits"],
    )
    @pytest.mark.parametrize("layout", ["directory", "delta"])
    def test_run_that_was_overtaken_is_tried_again_where_it_waits_for_others(
        self,
        service: Service,
        tables: Tables,
        monkeypatch: pytest.MonkeyPatch,
        arguments: dict[str, Any],
        kind: type[Exception],
        layout: str,
    ) -> None:
        monkeypatch.setattr(service.application, "write", partial(_conflicts, tables, monkeypatch))
        with pytest.raises(AirflowException, match=r"Another job changed day=1") as caught:
            run(service, layout=layout, **arguments)
        assert type(caught.value) is kind


@one_service
class TestAKill:
    def test_cancels_the_job_and_aborts_what_it_writes(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = operator(service)
        left: list[str] = []

        def on_kill() -> None:
            names: Any = {"dag_id": "flights", "run_id": "scheduled__2013-02-02", "task_id": "load"}
            owner = Owner(**names, map_index=-1, try_number=1)
            left.append(tables.undecided(1, idempotency_key=ONCE, owner=owner))
            task.on_kill()

        worker_dies(service, monkeypatch, lambda: run_task(task, context(task)), on_kill)
        assert service.jobs[0].state == "CANCELLED"
        assert tables.table().job_state(left[0]) == "aborted"

    def test_leaves_a_job_from_before_the_task_was_cleared(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For which it waited only."""
        worker_dies(service, monkeypatch, lambda: run(service))
        task = operator(service)
        cleared = context(task, 2, clear_number=1, max_tries=3)
        worker_dies(service, monkeypatch, lambda: run_task(task, cleared), task.on_kill)
        assert service.jobs[0].state == service.running


def cancel(service: Service) -> None:
    """moto stops neither steps nor Glue's runs."""
    run = {"applicationId": service.id, "jobRunId": "j-1"}
    step: dict[str, Any] = {"ClusterId": service.id, "StepIds": ["j-1"]}
    step["StepCancellationOption"] = "TERMINATE_PROCESS"
    requests: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "EmrServerless": ("cancel_job_run", run, run),
        "EmrContainers": ("cancel_job_run", {}, {"virtualClusterId": service.id, "id": "j-1"}),
        "EmrSteps": ("cancel_steps", {}, step),
        "Glue": ("batch_stop_job_run", {}, {"JobName": "flights", "JobRunIds": ["j-1"]}),
    }
    task = operator(service)
    with Stubber(task.hook.conn) as stub:
        stub.add_response(*requests[type(service).__name__])
        task._cancel("j-1")
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("service", OF_AWS, indirect=True)
def test_a_job_is_cancelled(service: Service) -> None:
    cancel(service)


class TestRights:
    """What ``zero-rename policy airflow`` grants, against what botocore was asked; the calls of a
    service's own are held against it in every test that has one."""

    @pytest.mark.parametrize(
        ("service", "elsewhere"),
        [*((name, False) for name in SERVICES), ("EmrServerless", True)],
        indirect=["service"],
    )
    def test_are_enough(self, service: Service, tables: Tables, elsewhere: bool) -> None:
        location = place = None
        if elsewhere:
            bucket = f"{tables.bucket.name}-code"
            tables.bucket.client.create_bucket(Bucket=bucket)
            location, place = f"s3://{bucket}/zero/rename", f"{bucket}/zero/rename/"
        service.calls.clear()
        run(service, ship_package=True, package_location=location)
        root = tables.table().root
        # Whether a table of another engine lies above is asked, and needs no answer.
        logs = (f"{root.prefix.rpartition('/')[0]}/{it}" for it in ("_delta_log/", "metadata/"))
        above = {*logs}
        asked = [
            call
            for call in service.calls
            if call.action.startswith("s3:") and call.given.get("Prefix") not in above
        ]
        policy = access_policy(Role.AIRFLOW, root, packages=place, service=service.kind)
        assert asked
        assert refused(policy, asked) == []
        # The job's own role loads the package, and does not put it there.
        writer = access_policy(Role.WRITER, root, packages=place)
        assert {right for right, *_ in refused(writer, asked)} == {"s3:PutObject"}
        bucket, _, key = service.packages(service.requests[0])[-1][5:].partition("/")
        loads = Call("s3:GetObject", {"Bucket": bucket, "Key": key})
        assert refused(writer, [loads]) == []
        assert refused(access_policy(Role.READER, root), [loads]) != []

    @pytest.mark.parametrize("service", OF_AWS, indirect=True)
    def test_are_all_needed(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        given: dict[str, Any] = {}
        if isinstance(service, EmrSteps):
            given = {"job_flow_id": None, "job_flow_name": "cluster"}
            given["cluster_states"] = ["WAITING", "RUNNING", "STARTING"]
        if isinstance(service, EmrServerless):
            # Which a start of a job starts, too.
            boto3.client("emr-serverless", region_name="us-east-1").stop_application(
                applicationId=service.id
            )
            service.calls.clear()
        worker_dies(service, monkeypatch, lambda: run(service, **given))
        while_it_waits(monkeypatch, service.end)
        run(service, 2, **given)
        cancel(service)
        called = {call.action for call in service.calls if not call.action.startswith("s3:")}
        granted = {action for one in service.policy()["Statement"] for action in one["Action"]}
        assert called == {it for it in granted if not it.startswith(("s3:", "iam:"))}


@pytest.mark.parametrize(
    ("name", "unfinished", "ended"),
    [
        ("emr-serverless", OfServerless.unfinished, "SUCCESS FAILED CANCELLED"),
        ("emr", emr_steps._UNFINISHED, "COMPLETED FAILED CANCELLED INTERRUPTED"),
        ("emr-containers", OfContainers.unfinished, "COMPLETED FAILED CANCELLED"),
        ("glue", ["STARTING", "RUNNING", "STOPPING", "WAITING"], " ".join(JOB_RUN_TERMINAL_STATES)),
    ],
)
def test_a_job_has_ended_or_not(name: str, unfinished: Sequence[str], ended: str) -> None:
    """No state of a service is overlooked, by boto's descriptions of them."""
    shape = "StepState" if name == "emr" else "JobRunState"
    known = botocore.session.get_session().get_service_model(name).shape_for(shape)
    assert {*unfinished, *ended.split()} == set(known.enum)  # pyrefly: ignore[missing-attribute]


class TestDeferred:
    @one_service
    def test_to_the_provider_s_trigger_and_resumed(self, service: Service) -> None:
        service.goes_on = True
        deferred = self.deferred(service, 1)
        service.end()
        report = self.resumed(service, 1, deferred)
        assert (report["repeated"], report["rows"]) == (False, 1)

    @every_service
    def test_job_of_a_killed_driver_in_a_delta_table_is_closed_as_its_task_fails(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An EMR step may end before a driver in the cluster does."""
        table = ZeroRenameHook().get_delta_table(tables.url())
        rows = pa.table({"day": [1], "flight": ["f1"]})
        with table.job(rows.schema, partition_by=["day"]) as job:
            job.write(rows)

        def killed(variables: dict[str, str]) -> None:
            told = Handoff.decode(variables)
            table.job(owner=told.owner, idempotency_key=told.idempotency_key).__enter__()
            raise RuntimeError("killed")

        monkeypatch.setattr(service.application, "write", killed)
        with pytest.raises(AirflowException):
            run(service, layout="delta")
        left = [it.idempotency_key for it in table.open_jobs()]
        assert left == ([ONCE] if type(service).__name__ == "EmrSteps" else [])

    @one_service
    def test_cleared_load_whose_job_writes_nothing_is_refused_beside_rows_that_wait(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What an earlier attempt left to be published may be rows that an audit has rejected."""
        held: dict[str, Any] = {"layout": "delta", "publish": False}
        names: Any = {"dag_id": "flights", "run_id": "scheduled__2013-02-02", "task_id": "load"}
        rows = pa.table({"day": [1], "flight": ["f1"]})
        job = (
            ZeroRenameHook()
            .get_delta_table(tables.url())
            .job(
                rows.schema,
                mode="append",
                partition_by=["day"],
                idempotency_key=ONCE,
                owner=Owner(**names, map_index=-1, try_number=1),
                publish=False,
            )
        )
        with job:
            job.write(rows)
        assert job.unpublished is not None
        monkeypatch.setattr(service.application, "write", lambda _: None)
        service.goes_on = True
        cleared: dict[str, Any] = {"clear_number": 1, "max_tries": 3}
        deferred = self.deferred(service, 2, held, **cleared)
        service.end()
        task = operator(service, deferrable=True, **held)
        given: Any = context(task, 2, **cleared)
        task.render_template_fields(given)
        kwargs = json.loads(json.dumps(deferred.kwargs)) | {"event": service.event()}
        with pytest.raises(RefusedError, match=f"{job.unpublished.job}, still waits"):
            task.resume_execution(deferred.method_name, kwargs, given)

    @each_deferral
    def test_the_next_try_waits_for_the_same_job(self, service: Service) -> None:
        """The triggerer's event was lost, or the wait timed out."""
        service.goes_on = True
        first = self.deferred(service, 1)
        again = self.deferred(service, 2)
        assert _waits_for(first) == _waits_for(again)
        assert len(service.jobs) == 1
        service.end()
        assert self.resumed(service, 2, again)["repeated"] is True

    @each_deferral
    def test_a_job_that_did_not_end_well(self, service: Service) -> None:
        service.goes_on = True
        deferred = self.deferred(service, 1)
        service.set_state(service.jobs[0], service.failed)
        with pytest.raises(AirflowException, match="ran out of memory"):
            self.resumed(service, 1, deferred, service.event(good=False))

    @every_service
    def test_execution_timeout_limits_the_wait_of_a_deferred_task(self, service: Service) -> None:
        """Airflow 3 looks at it while the task is at work alone."""
        service.goes_on = True
        limit = timedelta(hours=3)
        waits = self.deferred(service, 1, {"execution_timeout": limit}).timeout
        assert waits is not None
        assert limit <= waits < limit + timedelta(minutes=5)
        # One that is not limited is waited for as often as its trigger looks.
        assert self.deferred(service, 2).timeout is None

    @each_deferral
    def test_job_of_a_task_that_was_deferred_for_too_long_is_cancelled_and_what_it_writes_aborted(
        self, service: Service, tables: Tables
    ) -> None:
        service.goes_on = True
        self.deferred(service, 1)
        names: Any = {"dag_id": "flights", "run_id": "scheduled__2013-02-02", "task_id": "load"}
        owner = Owner(**names, map_index=-1, try_number=1)
        left = tables.undecided(1, idempotency_key=ONCE, owner=owner)
        task = operator(service, deferrable=True, execution_timeout=timedelta(hours=3))
        ctx: Any = context(task)
        task.render_template_fields(ctx)
        with pytest.raises(AirflowException, match=r"3:00:00\. Its job .* was cancelled"):
            task.resume_execution("__fail__", {"error": "Trigger timeout"}, ctx)
        assert service.jobs[0].state == "CANCELLED"
        assert tables.table().job_state(left) == "aborted"

    @one_service
    def test_application_that_does_not_start_fails_the_task(self, service: Service) -> None:
        """It was started once more, without an end."""
        client = boto3.client("emr-serverless", region_name="us-east-1")
        client.stop_application(applicationId=service.id)
        service.calls.clear()
        waits = self.deferred(service, 1)
        event = {"status": "error", "message": "Application failed to start: STOPPED"}
        with pytest.raises(AirflowException, match=r"did not start, .*: Application failed"):
            self.resumed(service, 1, waits, event)
        assert service.jobs == []

    @pytest.mark.parametrize("longest", [None, timedelta(hours=3)])
    @one_service
    def test_start_of_an_application_is_limited_by_its_trigger_and_the_execution_timeout_alone(
        self, service: Service, longest: timedelta | None
    ) -> None:
        """With the provider's own timeout the error named an execution_timeout of None."""
        client = boto3.client("emr-serverless", region_name="us-east-1")
        client.stop_application(applicationId=service.id)
        service.calls.clear()
        looks = {"waiter_delay": 5, "waiter_max_attempts": 12, "execution_timeout": longest}
        waits = self.deferred(service, 1, looks)
        assert waits.timeout == longest
        assert (waits.trigger.waiter_delay, waits.trigger.attempts) == (5, 12)

    @pytest.mark.parametrize("following", [False, True])
    @pytest.mark.parametrize("deferrable", [False, True])
    @one_service
    def test_job_that_has_not_ended_after_all_looks_is_cancelled(
        self, service: Service, monkeypatch: pytest.MonkeyPatch, deferrable: bool, following: bool
    ) -> None:
        service.goes_on = True
        number = 1 + following
        if following:
            worker_dies(service, monkeypatch, lambda: run(service))
        if deferrable:
            waits = self.deferred(service, number)
            event = {"status": "failure", "message": "Waiter error: max attempts reached"}
            load = partial(self.resumed, service, number, waits, event)
        else:
            while_it_waits(monkeypatch, lambda: None)
            load = partial(run, service, number, waiter_max_attempts=2)
        with pytest.raises(AirflowException, match=r"max attempts reached"):
            load()
        assert [job.state for job in service.jobs] == ["CANCELLED"]

    @pytest.mark.parametrize("number", [1, 2])
    @one_service
    def test_task_whose_trigger_has_failed_says_that_its_job_goes_on(
        self, service: Service, number: int
    ) -> None:
        """Also where the second attempt waits for the job of the first."""
        service.goes_on = True
        for attempt in range(1, number + 1):
            self.deferred(service, attempt)
        assert len(service.jobs) == 1
        task = operator(service, deferrable=True)
        ctx: Any = context(task, number)
        task.render_template_fields(ctx)
        failed: dict[str, Any] = {"error": "Trigger failure", "traceback": ["No module"]}
        said = r"has not ended, and goes on: the next attempt waits for it. Trigger failure"
        with pytest.raises(AirflowException, match=said):
            task.resume_execution("__fail__", failed, ctx)
        assert [job.state for job in service.jobs] == [service.running]

    @one_service
    def test_job_of_a_killed_driver_in_a_delta_table_is_closed_though_the_trigger_failed(
        self, service: Service
    ) -> None:
        table = ZeroRenameHook().get_delta_table(service.application.tables.url())
        rows = pa.table({"day": [1], "flight": ["f1"]})
        with table.job(rows.schema, partition_by=["day"]) as job:
            job.write(rows)
        service.goes_on = True
        self.deferred(service, 1, {"layout": "delta"})
        names: Any = {"dag_id": "flights", "run_id": "scheduled__2013-02-02", "task_id": "load"}
        owner = Owner(**names, map_index=-1, try_number=1)
        table.job(owner=owner, idempotency_key=ONCE).__enter__()
        service.set_state(service.jobs[0], service.failed)
        task = operator(service, deferrable=True, layout="delta")
        ctx: Any = context(task)
        task.render_template_fields(ctx)
        with pytest.raises(AirflowException, match="Trigger failure"):
            task.resume_execution("__fail__", {"error": "Trigger failure"}, ctx)
        assert table.open_jobs() == []

    @one_service
    def test_task_that_was_deferred_for_too_long_without_a_job_says_so(
        self, service: Service
    ) -> None:
        task = operator(service, deferrable=True, execution_timeout=timedelta(hours=3))
        ctx: Any = context(task)
        task.render_template_fields(ctx)
        with pytest.raises(AirflowException, match=r"its execution_timeout, 3:00:00\.$"):
            task.resume_execution("__fail__", {"error": "Trigger timeout"}, ctx)

    @pytest.mark.parametrize("service", ["Glue", "EmrSteps"], indirect=True)
    def test_job_that_goes_on_after_a_wait_that_failed_is_not_said_to_have_ended(
        self, service: Service
    ) -> None:
        service.goes_on = True
        waits = self.deferred(service, 1)
        with pytest.raises(AirflowException, match=r"has not ended, and goes on: the next attempt"):
            self.resumed(service, 1, waits, {**service.event(), "status": "error", "message": "x"})
        again = self.deferred(service, 2)
        service.end()
        assert self.resumed(service, 2, again)["repeated"] is True
        assert len(service.jobs) == 1

    @one_service
    def test_job_from_before_a_clear_that_goes_on_after_a_wait_that_failed_is_waited_for_again(
        self, service: Service
    ) -> None:
        service.goes_on = True
        self.deferred(service, 1)
        cleared: dict[str, Any] = {"clear_number": 1, "max_tries": 3}
        waits = self.deferred(service, 2, **cleared)
        with pytest.raises(AirflowException, match=r"has not ended, and goes on: the next attempt"):
            self.resumed(service, 2, waits, service.event(good=False), **cleared)
        assert len(service.jobs) == 1

    @one_service
    def test_a_cleared_task_waits_for_the_job_of_before_and_loads_again(
        self, service: Service
    ) -> None:
        service.goes_on = True
        self.deferred(service, 1)
        cleared: dict[str, Any] = {"clear_number": 1, "max_tries": 3}
        waits = self.deferred(service, 2, **cleared)
        assert len(service.jobs) == 1
        service.end()
        with pytest.raises(TaskDeferred) as loads:
            self.resumed(service, 2, waits, **cleared)
        assert len(service.jobs) == 2
        service.end()
        report = self.resumed(service, 2, loads.value, **cleared)
        assert (report["repeated"], report["rows"], report["version"]) == (False, 1, 2)

    @one_service
    def test_conflict_is_final_though_another_task_of_the_run_was_cleared_meanwhile(
        self, service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Any clear in a run raises the run's number of clears: also that of another task."""
        service.goes_on = True
        deferred = self.deferred(service, 1)
        monkeypatch.setattr(service.application, "write", partial(_conflicts, tables, monkeypatch))
        service.end()
        with pytest.raises(AirflowFailException, match=r"Another job changed day=1"):
            self.resumed(service, 1, deferred, service.event(good=False), clear_number=1)

    @one_service
    def test_commit_is_this_try_s_though_another_task_of_the_run_was_cleared_meanwhile(
        self, service: Service
    ) -> None:
        service.goes_on = True
        deferred = self.deferred(service, 1)
        service.end()
        report = self.resumed(service, 1, deferred, clear_number=1)
        assert (report["repeated"], report["rows"]) == (False, 1)

    @pytest.mark.parametrize(
        "service", ["EmrServerless", "EmrSteps", "EmrContainers", "Glue"], indirect=True
    )
    def test_a_user_who_ends_the_task_ends_the_job(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As Airflow 3.3 does with the trigger that the triggerer has made of what was stored. Its
        loop is no place to ask for a connection, by Python 3.11: Airflow finds none there."""
        service.goes_on = True
        path, arguments = self.deferred(service, 1).trigger.serialize()
        trigger = resolve_name(path)
        sent: list[tuple[str, dict[str, Any]]] = []
        call = "botocore.client.BaseClient._make_api_call"
        monkeypatch.setattr(call, lambda _, name, given: sent.append((name, given)))
        found = BaseHook.get_connection

        def get_connection(conn_id: str) -> Any:
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return found(conn_id)

        monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get_connection))
        asyncio.run(trigger(**json.loads(json.dumps(arguments))).on_kill())
        ((name, given),) = sent
        assert name in ("CancelJobRun", "CancelSteps", "BatchStopJobRun")
        (job,) = given.get("StepIds") or given.get("JobRunIds") or [_job_run(given)]
        assert job == _id_of(service.jobs[0])

    def deferred(
        self,
        service: Service,
        try_number: int,
        arguments: dict[str, Any] | None = None,
        **members: Any,
    ) -> TaskDeferred:
        task = operator(service, deferrable=True, **(arguments or {}))
        with pytest.raises(TaskDeferred) as caught:
            run_task(task, context(task, try_number, **members))
        return caught.value

    def resumed(
        self,
        service: Service,
        try_number: int,
        deferred: TaskDeferred,
        event: dict[str, Any] | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        task = operator(service, deferrable=True)
        given = json.loads(json.dumps(deferred.kwargs or {}))
        kwargs = given | {"event": event or service.event()}
        ctx: Any = context(task, try_number, **members)
        task.render_template_fields(ctx)
        return task.resume_execution(deferred.method_name, kwargs, ctx)


def _meet_another_job_without_a_worker(
    service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a task's worker die, and its application end by a conflict with another job."""
    worker_dies(service, monkeypatch, lambda: run(service))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(service.application, "write", partial(_conflicts, tables, meanwhile))
        service.end()
    service.goes_on = False


def _conflicts(tables: Tables, patch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Meet another job's change of day 1, as an application does, and tell of it."""
    told, driver = Handoff.decode(variables), tables.table().driver
    patch.setattr("zero_rename.committer.commit.failures.connect", lambda _: driver)
    error = CommitConflictError("Another job changed day=1.", remedy="Load it again.")
    if told.layout == "delta":
        error.gave_way = {"day=1": "another job"}
    else:
        error.key = tables.table().root.head_key("day=1")
    with failures_told(told.table, told.idempotency_key, told.owner):
        raise error


def _id_of(job: Any) -> str:
    return getattr(job, "job_run_id", None) or job.id


def _job_run(given: dict[str, Any]) -> str:
    return given.get("jobRunId") or given["id"]


def _waits_for(deferred: TaskDeferred) -> Any:
    _, arguments = deferred.trigger.serialize()
    named = ("job_id", "step_ids", "run_id", "pod_name")
    return {name: arguments[name] for name in named if name in arguments}


@one_service
class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [({"wait_for_completion": False}, "wait_for_completion"), ({"table": ""}, "table")],
    )
    def test_while_a_dag_file_is_parsed(
        self, service: Service, arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=message):
            operator(service, **arguments)

    def test_connection_of_the_service_that_does_not_exist_or_is_another(
        self, service: Service, connect: Connect
    ) -> None:
        """The provider would ask the service with the worker's own identity."""
        connect("elsewhere", "http", host="aws.example")
        for conn_id, said in (("nowhere", "no Airflow connection"), ("elsewhere", "type 'http'")):
            with pytest.raises(AirflowFailException, match=said):
                run(service, aws_conn_id=conn_id)
        assert service.jobs == []

    @pytest.mark.parametrize("name", ["waiter_delay", "waiter_max_attempts"])
    def test_polls_of_emr_on_eks_by_arguments_of_the_other_services(
        self, service: Service, name: str
    ) -> None:
        given: dict[str, Any] = {"name": "flights", "virtual_cluster_id": "v", name: 20}
        with pytest.raises(InvalidInputError, match=rf"{name}=20 .* poll_interval and max_poll"):
            OfContainers(task_id="load", table="s3://b/t", partition="day=1", **given)

    def test_a_place_that_is_none(self, service: Service) -> None:
        with pytest.raises(AirflowFailException, match="package_location='/tmp'"):
            run(service, package_location="/tmp", ship_package=True)
        assert service.jobs == []
