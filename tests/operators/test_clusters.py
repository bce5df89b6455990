"""Loads by spark-submit whose driver is in a cluster: who waits for it, what a cleared task does.

The stand-in for spark-submit runs the application as the cluster would, with the variables of the
properties file, and YARN's ResourceManager and the API of Kubernetes say that it has ended well.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.operators import spark_submit as operators

from support.airflow import Connect, Tables
from support.fake_spark import WRITES, FakeSpark
from support.spark_loads import operator, refused, run

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.memory_s3]

#: What the cluster gives to the driver: the variables of the properties file.
_IN_THE_CLUSTER = """
import os, re, sys
with open(sys.argv[sys.argv.index("--properties-file") + 1]) as file:
    for line in file:
        name, _, value = line.rstrip("\\n").partition("=")
        found = re.match(r"spark\\.(yarn\\.appMasterEnv|kubernetes\\.driverEnv)\\.(.*)", name)
        if found:
            text = value.encode().decode("unicode_escape")
            os.environ[found[2]] = re.sub(r"\\\\(.)", r"\\1", text)
"""
_SAID = """
print("Submitted application application_1700000000000_0001")
print("submission ID spark:flights-0001-driver")
print("exit code: 0")
"""


class TaskStateStore(dict[str, Any]):
    """What Airflow 3.3 keeps of a task from one try to the next, a clear in between included."""

    set = dict.__setitem__


@pytest.fixture
def in_the_cluster(spark: FakeSpark) -> FakeSpark:
    spark.runs(_IN_THE_CLUSTER + WRITES + _SAID)
    return spark


@contextmanager
def resource_manager() -> Iterator[str]:
    """The address of YARN's, whose applications have all ended well."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            app = {"state": "FINISHED", "finalStatus": "SUCCEEDED", "diagnostics": ""}
            content = json.dumps({"app": app}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def yarn(connect: Connect) -> Iterator[None]:
    with resource_manager() as address:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": address}
        connect("spark_default", "spark", host="yarn", extra=extra)
        yield


@pytest.fixture
def kubernetes(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = SimpleNamespace(status=SimpleNamespace(phase="Succeeded", container_statuses=None))
    api = SimpleNamespace(
        get_kube_client=lambda: SimpleNamespace(read_namespaced_pod=lambda *_: pod),
        ApiException=type("ApiException", (Exception,), {}),
    )
    monkeypatch.setattr(spark_submit, "kube_client", api, raising=False)
    monkeypatch.setattr(operators, "kube_client", api, raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "spark"}
    connect("spark_default", "spark", host="k8s://https://api:443", extra=extra)


CLUSTERS = [
    ("yarn", {}),
    ("yarn", {"yarn_track_via_rm_api": True}),
    ("kubernetes", {}),
    ("kubernetes", {"track_driver_via_k8s_api": True}),
]


@pytest.mark.parametrize(("cluster", "tracked"), CLUSTERS)
@pytest.mark.parametrize("durable", [{}, {"durable": True}])
def test_a_cleared_task_submits_anew_to_each_cluster(
    request: pytest.FixtureRequest,
    tables: Tables,
    in_the_cluster: FakeSpark,
    cluster: str,
    tracked: dict[str, Any],
    durable: dict[str, Any],
) -> None:
    """The provider found the application of before, and submitted nothing, at every clear."""
    request.getfixturevalue(cluster)
    store = TaskStateStore()
    first = run(operator(tables, **tracked, **durable), task_state_store=store)
    cleared = {"try_number": 2, "max_tries": 1, "clear_number": 1}
    again = run(operator(tables, **tracked, **durable), task_state_store=store, **cleared)
    assert (first["repeated"], again["repeated"]) == (False, False)
    assert again["job"] != first["job"]
    assert len(in_the_cluster.calls()) == 2
    assert sum(file.rows for file in tables.table().files()) == 1


@pytest.mark.parametrize(
    ("cluster", "arguments", "message"),
    [
        (
            "yarn",
            {"conf": {"spark.yarn.submit.waitAppCompletion": "false"}},
            r"waitAppCompletion=false.*nobody would wait.*yarn_track_via_rm_api=True",
        ),
        (
            "yarn",
            {
                "conf": {"spark.yarn.submit.waitAppCompletion": "true"},
                "yarn_track_via_rm_api": True,
            },
            "waitAppCompletion=true.*known too late",
        ),
        (
            "yarn",
            {"deploy_mode": "client", "yarn_track_via_rm_api": True},
            "yarn_track_via_rm_api=True cannot be honoured.*deploy_mode='cluster'",
        ),
        ("yarn", {"track_driver_via_k8s_api": True}, "k8s_api=True cannot be honoured.*Kubernetes"),
        (
            "kubernetes",
            {"conf": {"spark.kubernetes.submission.waitAppCompletion": False}},
            r"waitAppCompletion=false.*nobody would wait.*track_driver_via_k8s_api=True",
        ),
        (
            "kubernetes",
            {
                "conf": {"spark.kubernetes.submission.waitAppCompletion": "true"},
                "track_driver_via_k8s_api": True,
            },
            "track_driver_via_k8s_api=True cannot be honoured",
        ),
        ("kubernetes", {"yarn_track_via_rm_api": True}, "cannot be honoured.*to be YARN"),
    ],
)
@pytest.mark.parametrize("committer", [None, "magic"])
def test_an_application_that_nobody_would_wait_for_is_not_submitted(
    request: pytest.FixtureRequest,
    tables: Tables,
    in_the_cluster: FakeSpark,
    cluster: str,
    arguments: dict[str, Any],
    message: str,
    committer: str | None,
) -> None:
    """They were errors of Python's, tried again; or the task failed while the rows came later."""
    request.getfixturevalue(cluster)
    partition = {"partition": "day=1"} if committer else {}
    task = operator(tables, **arguments, committer=committer, mode="append", **partition)
    refused(in_the_cluster, message, task)


def test_a_resource_manager_that_is_not_named_is_asked_for(
    tables: Tables, spark: FakeSpark, connect: Connect
) -> None:
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    task = operator(tables, yarn_track_via_rm_api=True)
    refused(spark, "yarn_track_via_rm_api=True cannot be honoured.*webapp_address", task)


def test_kubernetes_without_its_provider_is_refused(
    tables: Tables, spark: FakeSpark, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a NameError of the apache-spark provider."""
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    connect("spark_default", "spark", host="k8s://https://api:443", extra={"namespace": "spark"})
    refused(spark, "cannot be used.*cncf-kubernetes", operator(tables))
