"""Services that run Spark and are reached by HTTP, each a server of this process: the Kubernetes
API with the custom resource of the operator for Spark, and that of Databricks' jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from support.airflow import Tables, connection_variable
from support.aws_services import SERVICES as OF_AWS
from support.aws_services import Application, Service
from support.recorded_calls import recorded_calls, refused
from zero_rename.committer.format.handoff import HANDOFF
from zero_rename.committer.upkeep.access_policy import Service as PolicyService

TOKEN = "dapi-of-the-tests"
_APPLICATIONS = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/spark/sparkapplications"
_PODS = "/api/v1/namespaces/spark/pods"
_CONFIG_MAPS = "/api/v1/namespaces/spark/configmaps/"
_RUNS = "/api/2.2/jobs/runs/"


class NotFoundError(Exception):
    status = 404


class TakenError(Exception):
    status = 409


class ForbiddenError(Exception):
    status = 403


@dataclass
class Job:
    """An application of Kubernetes, or a run of Databricks."""

    name: str
    body: dict[str, Any]
    state: str = ""


@dataclass
class HttpService(Service):
    """:param sent: each request, as method and path."""

    sent: list[str] = field(default_factory=list)

    #: Whether what is made is answered by 201.
    created = False

    def prepare(self) -> None: ...

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """What a request gets, as JSON or as text."""
        raise NotImplementedError

    def job(self, name: str) -> Job:
        for it in self.jobs:
            if it.name == name and it.state != "CANCELLED":
                return it
        raise NotFoundError(name)

    @contextmanager
    def prepared(self) -> Iterator[int]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or "null")
                path = urlsplit(self.path)
                service.sent.append(f"{self.command} {path.path}")
                status = 201 if self.command == "POST" and service.created else 200
                try:
                    made = service.answer(
                        self.command, path.path, dict(parse_qsl(path.query)), body
                    )
                except (NotFoundError, TakenError, ForbiddenError) as error:
                    status = error.status
                    made = {"kind": "Status", "code": status, "message": str(error)}
                content = made if isinstance(made, bytes) else json.dumps(made).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PATCH = handle_one

            def log_message(self, format: str, *args: Any) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield server.server_port
            server.shutdown()
            thread.join()


@dataclass
class Kubernetes(HttpService):
    """:param config_maps: files by their names, by the map's.
    :param forbidden: maps that may not be read.
    """

    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    kind = PolicyService.KUBERNETES
    succeeded = "COMPLETED"
    created = True

    @contextmanager
    def prepared(self) -> Iterator[int]:
        with super().prepared() as port:
            cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
            context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
            config: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
            config |= {"clusters": [cluster], "contexts": [context]}
            config["users"] = [{"name": "u", "user": {}}]
            extra = {"kube_config": json.dumps(config)}
            fields: dict[str, Any] = {"conn_type": "kubernetes", "extra": extra}
            self.monkeypatch.setenv(*connection_variable("kubernetes_default", **fields))
            yield port

    def operator(self, **arguments: Any) -> Any:
        body = {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": "flights", "labels": {"team": "lake"}},
            "spec": {
                "type": "Python",
                "mainApplicationFile": "local:///opt/job.py",
                "sparkConf": {"spark.a": "b"},
                "deps": {"pyFiles": ["s3a://code/a.zip"]},
                "driver": {"envFrom": [{"secretRef": {"name": "aws-keys"}}]},
                "executor": {"env": [{"name": "AWS_REGION", "value": "eu-west-1"}]},
            },
        }
        from zero_rename.operators.spark_kubernetes import ZeroRenameSparkKubernetesOperator

        given: dict[str, Any] = {"namespace": "spark", "template_spec": body} | arguments
        return ZeroRenameSparkKubernetesOperator(**given)

    def words(self, request: dict[str, Any]) -> list[str]:
        settings = request["spec"]["sparkConf"].items()
        return [word for name, value in settings for word in ("--conf", f"{name}={value}")]

    def packages(self, request: dict[str, Any]) -> list[str]:
        urls = request["spec"]["deps"]["pyFiles"]
        assert all(url.startswith("s3a://") for url in urls)
        return [url.replace("s3a://", "s3://") for url in urls]

    def event(self, good: bool = True) -> dict[str, Any]:
        pod = {"name": f"{self.jobs[-1].name}-driver", "namespace": "spark"}
        return {**pod, "status": "success" if good else "failed", "message": self.said}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        name = path.removeprefix(_APPLICATIONS).removesuffix("/status").lstrip("/")
        if path.startswith(_PODS):
            return self._pod(method, path)
        if path.startswith(_CONFIG_MAPS):
            its = path.removeprefix(_CONFIG_MAPS)
            if its in self.forbidden:
                raise ForbiddenError(path)
            if its not in self.config_maps:
                raise NotFoundError(path)
            return {"data": self.config_maps[its]}
        if path.endswith("/events"):
            return {"items": [], "metadata": {"resourceVersion": "1"}}
        if method == "POST":
            made = Job(body["metadata"]["name"], body)
            if any(it.name == made.name and it.state != "CANCELLED" for it in self.jobs):
                raise TakenError(f"sparkapplications {made.name} already exists")
            self.started(made, body)
            return body
        if method == "DELETE":
            self.job(name).state = "CANCELLED"
            return {}
        if name:
            return self._shown(self.job(name))
        label, _, value = query["labelSelector"].partition("=")
        living = [it for it in self.jobs if it.state != "CANCELLED"]
        found = [it for it in living if it.body["metadata"]["labels"].get(label) == value]
        return {"items": [self._shown(it) for it in found]}

    def _shown(self, job: Job) -> dict[str, Any]:
        driver = {} if job.state == "" else {"podName": f"{job.name}-driver"}
        state = {"state": job.state, "errorMessage": self.said if job.state == self.failed else ""}
        return {**job.body, "status": {"applicationState": state, "driverInfo": driver}}

    def _pod(self, method: str, path: str) -> Any:
        name, _, rest = path.removeprefix(_PODS).lstrip("/").partition("/")
        if rest == "log":
            return b"2013-02-02T00:00:00.000000Z a line of the driver\n"
        if not name:
            return {"items": []}
        state = self.job(name.removesuffix("-driver")).state
        phase = {self.succeeded: "Succeeded", self.failed: "Failed"}.get(state, "Running")
        code, said = (1, self.said) if state == self.failed else (0, None)
        ended = {"terminated": {"exitCode": code, "reason": phase, "message": said}}
        container = {
            "name": "spark-kubernetes-driver",
            "state": {"running": {}} if phase == "Running" else ended,
            **{"ready": True, "restartCount": 0, "image": "i", "imageID": "i"},
        }
        metadata = {"name": name, "namespace": "spark", "labels": {}}
        spec = {"containers": [{"name": container["name"], "image": "i"}]}
        status = {"phase": phase, "containerStatuses": [container]}
        return {"metadata": metadata, "spec": spec, "status": status}


class Databricks(HttpService):
    kind = PolicyService.DATABRICKS

    @contextmanager
    def prepared(self) -> Iterator[int]:
        with super().prepared() as port:
            fields: dict[str, Any] = {"conn_type": "databricks", "host": "127.0.0.1", "port": port}
            fields |= {"schema": "http", "password": TOKEN, "extra": {"token": TOKEN}}
            self.monkeypatch.setenv(*connection_variable("databricks_default", **fields))
            # Airflow has listed its providers before these were on the path.
            hook = "airflow.providers.databricks.hooks.databricks_base.BaseDatabricksHook"
            self.monkeypatch.setattr(f"{hook}.user_agent_value", "tests")
            yield port

    def operator(self, **arguments: Any) -> Any:
        from zero_rename.operators.databricks import ZeroRenameDatabricksSubmitRunOperator

        given = {
            "run_name": "flights",
            "spark_python_task": {"python_file": "s3://code/job.py", "parameters": ["--day", "1"]},
            "new_cluster": {
                "spark_version": "17.3.x-scala2.13",
                "num_workers": 2,
                "spark_env_vars": {"A": "b"},
                "aws_attributes": {"instance_profile_arn": "arn:aws:iam::1:instance-profile/p"},
            },
            "libraries": [{"whl": "s3://code/a.whl"}],
        }
        return ZeroRenameDatabricksSubmitRunOperator(**given | arguments)

    def words(self, request: dict[str, Any]) -> list[str]:
        cluster = self.task(request)["new_cluster"]
        return ["--conf", f"Env.{HANDOFF}={cluster['spark_env_vars'][HANDOFF]}"]

    def packages(self, request: dict[str, Any]) -> list[str]:
        return [it["whl"] for it in self.task(request)["libraries"]]

    def task(self, request: dict[str, Any]) -> dict[str, Any]:
        (found,) = request.get("tasks", [request])
        return found

    def event(self, good: bool = True) -> dict[str, Any]:
        state = {
            "life_cycle_state": "TERMINATED",
            "result_state": self.succeeded if good else self.failed,
            "state_message": "" if good else self.said,
        }
        run = {"run_id": int(self.jobs[-1].name), "run_page_url": "https://dbc.example"}
        return {**run, "run_state": json.dumps(state), "repair_run": False, "errors": []}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        asked = path.removeprefix(_RUNS)
        if asked == "submit":
            made = Job(str(len(self.jobs) + 1), body)
            for number, it in enumerate(self.jobs, 1):
                if it.body["idempotency_token"] == body["idempotency_token"]:
                    return {"run_id": number}
            self.started(made, body)
            return {"run_id": int(made.name)}
        if asked == "list":
            assert (query["active_only"], query["run_type"]) == ("true", "SUBMIT_RUN")
            return self._page(int(query.get("page_token", 0)))
        if asked == "cancel":
            self.job(str(body["run_id"])).state = "CANCELLED"
            return {}
        if asked == "get":
            return self._shown(self.job(query["run_id"]))
        raise NotFoundError(path)

    def _page(self, number: int) -> dict[str, Any]:
        """Pages of one run, the newest first."""
        active = [it for it in reversed(self.jobs) if it.state == self.running]
        found: dict[str, Any] = {"runs": [self._shown(it) for it in active[number : number + 1]]}
        return found | ({"next_page_token": str(number + 1)} if number + 1 < len(active) else {})

    def _shown(self, job: Job) -> dict[str, Any]:
        ended = job.state != self.running
        state = {"life_cycle_state": "TERMINATED" if ended else "RUNNING", "state_message": ""}
        if ended:
            state["result_state"] = job.state
        page = f"https://dbc.example/#job/7/run/{job.name}"
        run = {"run_id": int(job.name), "run_name": job.body["run_name"], "run_page_url": page}
        return {**run, "job_id": 7, "state": state, "tasks": []}


SERVICES = OF_AWS | {kind.__name__: kind for kind in (Kubernetes, Databricks)}


@pytest.fixture
def service(
    request: pytest.FixtureRequest, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A service by its name, prepared."""
    made = SERVICES[request.param](Application(tables), monkeypatch)
    is_http = isinstance(made, HttpService)
    request.getfixturevalue("optional_providers" if is_http else "aws")
    with made.prepared(), recorded_calls(monkeypatch, made.calls):
        yield made
    asked = [call for call in made.calls if not call.action.startswith("s3:")]
    assert refused(made.policy(), asked) == []
