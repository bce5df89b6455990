"""Loads by the operator for Spark of Kubernetes and by Databricks: what is theirs alone."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from support.airflow import Tables, run_task, task_context
from support.aws_services import while_it_waits, worker_dies
from support.http_services import TOKEN, Databricks, Job, Kubernetes
from support.moto_server import ACCESS_KEY, SECRET_KEY
from zero_rename.committer import InvalidInputError
from zero_rename.committer.format.handoff import HANDOFF
from zero_rename.committer.store.client_settings import S3_CLIENT, ClientSettings

pytestmark = pytest.mark.memory_s3

on_kubernetes = pytest.mark.parametrize("service", ["Kubernetes"], indirect=True)
on_databricks = pytest.mark.parametrize("service", ["Databricks"], indirect=True)


def operator(service: Any, **arguments: Any) -> Any:
    table = service.application.tables.url()
    given = {"task_id": "load", "table": table, "partition": "day=1", "mode": "overwrite"}
    return service.operator(**given | {"retries": 2} | arguments)


def run(service: Any, try_number: int = 1, **arguments: Any) -> dict[str, Any]:
    task = operator(service, **arguments)
    return run_task(task, context(task, try_number))


def context(task: Any, try_number: int = 1) -> dict[str, Any]:
    made = task_context(task, try_number=try_number, dag=None)
    made["ti"].xcom_push = lambda **_: None
    return made


@on_kubernetes
class TestTheApplicationObject:
    def test_has_what_was_given_and_what_it_is_told(
        self, service: Kubernetes, tables: Tables
    ) -> None:
        given = copy.deepcopy(operator(service).template_spec)
        run(service)
        (sent,) = service.requests
        assert sent["metadata"]["labels"].items() >= {"team": "lake"}.items()
        assert sent["metadata"]["namespace"] == "spark"
        assert len(sent["metadata"]["name"]) <= 56
        spec, theirs = sent["spec"], given["spec"]
        conf = spec["sparkConf"]
        assert {"spark.a", f"spark.kubernetes.driverEnv.{HANDOFF}"} <= {*conf}
        assert spec["mainApplicationFile"] == theirs["mainApplicationFile"]
        assert spec["deps"] == theirs["deps"]
        assert spec["driver"]["envFrom"] == theirs["driver"]["envFrom"]
        assert theirs["executor"]["env"][0] in spec["executor"]["env"]
        endpoint = tables.bucket.client.meta.endpoint_url
        assert conf["spark.kubernetes.driverEnv.AWS_ENDPOINT_URL"] == endpoint
        assert conf["spark.executorEnv.AWS_ENDPOINT_URL"] == endpoint
        assert conf[f"spark.executorEnv.{S3_CLIENT}"] == ClientSettings(endpoint).encode()
        assert "spark.kubernetes.driverEnv.AWS_REGION" in conf
        assert "spark.executorEnv.AWS_REGION" not in conf
        assert not any(key in json.dumps(sent) for key in (ACCESS_KEY, SECRET_KEY))
        assert service.jobs[0].state == "CANCELLED"  # deleted when it has ended

    @pytest.mark.parametrize(
        ("deps", "files"), [(["s3a://a.zip"], ["s3://a.zip"]), (None, ["s3://x.zip", "s3://y.zip"])]
    )
    def test_files_of_a_setting_are_kept_where_dependencies_take_its_place(
        self, service: Kubernetes, deps: list[str] | None, files: list[str]
    ) -> None:
        body = operator(service).template_spec
        body["spec"]["deps"] = {"pyFiles": deps}
        body["spec"]["sparkConf"] = {"spark.submit.pyFiles": "s3a://x.zip,s3a://y.zip"}
        run(service, template_spec=body, ship_package=True)
        *theirs, package = service.packages(service.requests[0])
        assert theirs == files
        assert package.endswith("zero_rename.zip")

    @pytest.mark.parametrize(
        ("given", "begins"), [("_Flights ", "flights-zr-"), ("__", "load-zr-")]
    )
    def test_name_of_an_object_begins_as_kubernetes_takes_it(
        self, service: Kubernetes, given: str, begins: str
    ) -> None:
        run(service, name=given)
        assert service.requests[0]["metadata"]["name"].startswith(begins)

    def test_endpoint_that_the_object_names_itself_is_kept(self, service: Kubernetes) -> None:
        body = operator(service).template_spec
        body["spec"]["executor"]["env"] = [{"name": "AWS_ENDPOINT_URL_S3", "value": "http://own:1"}]
        body["spec"]["sparkConf"]["spark.kubernetes.driverEnv.AWS_ENDPOINT_URL"] = "http://own:2"
        run(service, template_spec=body)
        conf = service.requests[0]["spec"]["sparkConf"]
        assert conf["spark.kubernetes.driverEnv.AWS_ENDPOINT_URL"] == "http://own:2"
        assert not any(S3_CLIENT in name for name in conf)
        assert not any("ENDPOINT_URL" in name for name in conf if "executorEnv" in name)

    def test_may_be_a_file(self, service: Kubernetes) -> None:
        task = operator(
            service,
            template_spec=None,
            application_file=yaml.safe_dump(operator(service).template_spec),
            delete_on_termination=False,
            pass_endpoint=False,
        )
        assert run_task(task, context(task))["rows"] == 1
        assert "AWS_ENDPOINT_URL" not in json.dumps(service.requests)
        assert service.jobs[0].state == "COMPLETED"
        # The report is the XCom, and no sidecar of the pod is asked for one.
        assert task.do_xcom_push is True
        assert not any("exec" in sent for sent in service.sent)

    @pytest.mark.parametrize(
        "secret",
        [
            {"driver": {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "of-mine"}]}},
            {"driver": {"envVars": {"AWS_SECRET_ACCESS_KEY": "of-mine"}}},
            {"hadoopConf": {"fs.s3a.secret.key": "of-mine"}},
        ],
    )
    def test_holds_no_key(self, service: Kubernetes, secret: dict[str, Any]) -> None:
        body = operator(service).template_spec
        body["spec"] |= secret
        with pytest.raises(InvalidInputError, match="credential") as caught:
            operator(service, template_spec=body)
        assert "of-mine" not in str(caught.value)
        with pytest.raises(AirflowFailException, match="credential"):
            run(service, template_spec=None, application_file=yaml.safe_dump(body))
        assert service.jobs == []

    def test_may_name_a_secret_of_kubernetes(self, service: Kubernetes) -> None:
        body = operator(service).template_spec
        key = "AWS_SECRET_ACCESS_KEY"
        refers = {"name": key, "valueFrom": {"secretKeyRef": {"name": "aws", "key": key}}}
        body["spec"]["executor"] = {"env": [refers], "envSecretKeyRefs": {key: {"name": "aws"}}}
        body["spec"]["sparkConf"] = {f"spark.kubernetes.driver.secretKeyRef.{key}": f"aws:{key}"}
        operator(service, template_spec=body)._check_arguments()

    @pytest.mark.parametrize(
        "wrong", [{"kind": "ScheduledSparkApplication"}, {"spec": None}, {"apiVersion": None}]
    )
    def test_is_one_that_loads(self, service: Kubernetes, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError, match="no SparkApplication"):
            operator(service, template_spec=operator(service).template_spec | wrong)


@on_kubernetes
class TestAnotherTryS_Application:
    def test_may_have_no_driver_yet(
        self, service: Kubernetes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.left(service, monkeypatch)
        service.jobs[0].state = ""
        happens = [lambda: service.set_state(service.jobs[0], service.running), service.end]
        pauses = while_it_waits(monkeypatch, *happens)
        assert run(service, 2)["repeated"] is True
        assert (pauses[0], len(service.jobs)) == (10, 1)

    @pytest.mark.parametrize("came", ["FAILED", "CANCELLED"])
    def test_may_fail_or_go_before_it_has_one(
        self, service: Kubernetes, monkeypatch: pytest.MonkeyPatch, came: str
    ) -> None:
        self.left(service, monkeypatch)
        service.jobs[0].state = ""
        while_it_waits(monkeypatch, lambda: service.set_state(service.jobs[0], came))
        expected = "ran out of memory" if came == "FAILED" else "deleted"
        with pytest.raises(AirflowException, match=expected):
            run(service, 2)
        assert len(service.jobs) == 1

    def left(self, service: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))


@pytest.mark.parametrize("service", ["Kubernetes", "Databricks"], indirect=True)
def test_a_killed_task_cancels_its_job(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = operator(service)
    worker_dies(service, monkeypatch, lambda: run_task(task, context(task)), task.on_kill)
    assert [it.state for it in service.jobs] == ["CANCELLED"]


@on_kubernetes
@pytest.mark.parametrize("is_there", [True, False])
def test_user_who_ends_a_deferred_task_deletes_its_application(
    service: Kubernetes, is_there: bool
) -> None:
    """The operator for Spark would start another pod where restartPolicy says so."""
    service.goes_on = True
    task = operator(service, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        run_task(task, context(task))
    if not is_there:
        service.jobs[0].state = "CANCELLED"
    path, arguments = deferred.value.trigger.serialize()
    asyncio.run(resolve_name(path)(**arguments).on_kill())
    assert [it.state for it in service.jobs] == ["CANCELLED"]
    (deleted,) = (it for it in service.sent if it.startswith("DELETE"))
    assert deleted.endswith(f"/sparkapplications/{service.jobs[0].name}")


@on_databricks
class TestTheRun:
    def test_has_what_was_given_and_what_it_is_told(self, service: Databricks) -> None:
        given = operator(service)
        run(service)
        (sent,) = service.requests
        cluster = sent["new_cluster"]
        assert cluster["spark_env_vars"].items() >= given.new_cluster["spark_env_vars"].items()
        assert cluster["aws_attributes"] == given.new_cluster["aws_attributes"]
        assert sent["spark_python_task"] == given.spark_python_task
        assert sent["run_name"].startswith("flights zr-")
        assert sent["run_name"].endswith(sent["idempotency_token"])
        assert len(sent["idempotency_token"]) <= 64
        assert not any(it in json.dumps(sent) for it in (TOKEN, ACCESS_KEY, SECRET_KEY))

    def test_may_be_one_task_of_a_list_and_installs_the_package(
        self, service: Databricks, tmp_path: Path
    ) -> None:
        given = operator(service)
        task: dict[str, Any] = {"task_key": "load"}
        for name in ("spark_python_task", "new_cluster", "libraries"):
            task[name] = getattr(given, name)
        none: dict[str, Any] = dict.fromkeys({*task} - {"task_key"})
        assert run(service, tasks=[task], **none)["rows"] == 1
        _, url = service.packages(service.requests[0])
        made = tmp_path / url.rpartition("/")[2]
        client = service.application.tables.bucket.client
        bucket, _, key = url.removeprefix("s3://").partition("/")
        made.write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
        self.installs(made, tmp_path / "site")

    def installs(self, wheel: Path, site: Path) -> None:
        """The package by the wheel."""
        uv = [sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--quiet", "--target"]
        subprocess.run([*uv, str(site), str(wheel)], check=True, capture_output=True)
        look = [sys.executable, "-c", "import zero_rename; print(zero_rename.__file__)"]
        path = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(look, env=path, cwd=site, capture_output=True, text=True)
        assert done.stdout.startswith(str(site))
        [info] = site.glob("*.dist-info")
        text = (info / "METADATA").read_text()
        assert "Requires-Dist: boto3" in text
        assert "extra" not in text

    def test_is_told_by_a_cluster_of_its_own(self, service: Databricks) -> None:
        wrong: dict[str, Any] = {"new_cluster": None, "existing_cluster_id": "0923-164208-meows279"}
        with pytest.raises(InvalidInputError, match="no new_cluster"):
            operator(service, **wrong)
        given = operator(service)
        tasks = [{"new_cluster": given.new_cluster}] * 2
        with pytest.raises(InvalidInputError, match="not one task"):
            operator(service, tasks=tasks)
        with pytest.raises(AirflowFailException, match="no new_cluster"):
            run(service, json="{{ '{}' }}", **wrong)
        assert service.jobs == []

    def test_is_no_spark_submit_task(self, service: Databricks) -> None:
        given = operator(service)
        submit = {"parameters": ["s3://code/job.py", "--day", "1"]}
        task = {"task_key": "load", "new_cluster": given.new_cluster, "spark_submit_task": submit}
        none: dict[str, Any] = {"spark_python_task": None, "new_cluster": None}
        for wrong in ({**none, "tasks": [task]}, {**none, "json": task}):
            with pytest.raises(InvalidInputError, match=r"spark_python_task"):
                operator(service, **wrong)
        with pytest.raises(InvalidInputError, match=r"spark_submit_task, .* Nothing was submitted"):
            operator(service, spark_python_task=None, spark_submit_task=submit)
        assert service.jobs == []

    def test_holds_no_key_but_may_name_a_secret(self, service: Databricks) -> None:
        cluster = operator(service).new_cluster
        variables = {"AWS_SECRET_ACCESS_KEY": "of-mine"}
        with pytest.raises(InvalidInputError, match="credential"):
            operator(service, new_cluster=cluster | {"spark_env_vars": variables})
        # As it has to be written in a templated field.
        variables = {"AWS_SECRET_ACCESS_KEY": "{{ '{{secrets/aws/key}}' }}"}
        run(service, new_cluster=cluster | {"spark_env_vars": variables})
        sent = service.requests[0]["new_cluster"]["spark_env_vars"]
        assert sent["AWS_SECRET_ACCESS_KEY"] == "{{secrets/aws/key}}"

    def test_of_another_try_is_found_on_whatever_page(
        self, service: Databricks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker_dies(service, monkeypatch, lambda: run(service))
        others = [Job(str(number), {"run_name": "of others"}, "RUNNING") for number in (2, 3)]
        service.jobs += others
        while_it_waits(monkeypatch, lambda: service.end(0))
        assert run(service, 2)["repeated"] is True
        assert len(service.requests) == 1
