"""Settings that were really sent to services, in a real Spark with Hadoop's jars on a real store:
they select the committer that was asked for.

The request is botocore's, as moto got it, the object of Kubernetes, or the file of spark-submit.
One JVM serves all: what selects a committer reaches each write by the session's settings.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from support import s3a_loads, service_loads
from support.airflow import Connect, Tables, aws_connection, connect, run_task, tables  # noqa: F401 - fixtures
from support.aws_services import Service, aws  # noqa: F401 - a fixture
from support.fake_spark import IDLE, FakeSpark, installed
from support.hadoop_committers import RENAMING, Application, Place, numbers
from support.http_services import service  # noqa: F401 - a fixture
from support.optional_providers import optional_providers  # noqa: F401 - a fixture
from zero_rename.committer import VerificationError
from zero_rename.committer.errors import SettingsRefusedError
from zero_rename.spark import save

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.memory_s3]
CLASSES = {
    "magic": "MagicS3GuardCommitter",
    "directory": "DirectoryStagingCommitter",
    "partitioned": "PartitionedStagingCommitter",
}
UUID = "spark.hadoop.fs.s3a.committer.uuid"
#: What the tests' own driver has of its store and its folders, in place of the service's.
_OWN = re.compile(r"spark\.hadoop\.fs\.(s3a\.(endpoint|path\.style|aws\.)|defaultFS)")
VOLUME = {"staging_dir": "file:///mnt/shared/staging"}


def selecting(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a request's settings that reach Hadoop and Spark's SQL, without the place."""
    kept = {
        name: value
        for name, value in settings.items()
        if name.startswith(("spark.hadoop.", "spark.sql.")) and not _OWN.match(name)
    }
    return {name: value for name, value in kept.items() if "staging.tmp.path" not in name}


def committer_of(application: Application, place: Place) -> str:
    """The class of the committer that the JVM makes for a path, by the session's settings."""
    spark = application.spark
    jvm, conf = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    mapreduce, path = jvm.org.apache.hadoop.mapreduce, jvm.org.apache.hadoop.fs.Path(place.url)
    task = mapreduce.task.TaskAttemptContextImpl(conf, mapreduce.TaskAttemptID())
    factory = mapreduce.lib.output.PathOutputCommitterFactory.getCommitterFactory(path, conf)
    return factory.createOutputCommitter(path, task).getClass().getSimpleName()


def selects(
    application: Application, place: Place, sent: Mapping[str, str], committer: str
) -> None:
    """See that a write of Spark's own, with what was sent, is by a committer, in a session that
    would rename without it."""
    with application.set({**RENAMING, **selecting(sent)}):
        assert committer_of(application, place) == CLASSES[committer]
        application.write(place, application.frame(0))
    marker = place.marker()
    assert (marker["committer"], marker["jobId"]) == (committer, sent[UUID])
    assert application.rows(place) == numbers(range(40))
    assert place.uploads() == []


def with_volume(service: Service, task: Any) -> dict[str, Any]:  # noqa: F811
    """Arguments whose pods all mount one volume."""
    if type(service).__name__ == "Kubernetes":
        body = copy.deepcopy(task.template_spec)
        claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "staging"}}
        mounts = [{"name": "shared", "mountPath": "/mnt/shared"}]
        body["spec"]["volumes"] = [claim]
        body["spec"]["driver"]["volumeMounts"] = body["spec"]["executor"]["volumeMounts"] = mounts
        return {"template_spec": body, "s3a_options": VOLUME}
    volume = "spark.kubernetes.{}.volumes.persistentVolumeClaim.shared.{}"
    words = [
        f"--conf {volume.format(pod, name)}={value}"
        for pod in ("driver", "executor")
        for name, value in (("mount.path", "/mnt/shared"), ("options.claimName", "staging"))
    ]
    driver = copy.deepcopy(task.job_driver)
    driver["sparkSubmitJobDriver"]["sparkSubmitParameters"] = " ".join(words)
    return {"job_driver": driver, "s3a_options": VOLUME}


#: Each service, and each committer: neither asks for the other on the way.
SENT = [
    ("EmrServerless", "magic"),
    ("EmrSteps", "partitioned"),
    ("EmrContainers", "directory"),
    ("Glue", "magic"),
    ("Kubernetes", "partitioned"),
]


@pytest.mark.parametrize(("service", "committer"), SENT, indirect=["service"])
def test_what_was_sent_to_a_service_selects_the_committer(
    service: Service,  # noqa: F811
    committer: str,
    application: Application,
    place: Place,
) -> None:
    given: dict[str, Any] = {"mode": "append", "committer": committer}
    if committer != "magic" and type(service).__name__ != "EmrSteps":
        given |= with_volume(service, service_loads.operator(service, **given, s3a_options=VOLUME))
    service_loads.run(service, **given)
    (request,) = service.requests
    selects(application, place, service.settings(request), committer)


@pytest.fixture
def spark(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    return installed(tmp_path, monkeypatch)


@pytest.mark.parametrize("committer", ["magic", "directory"])
def test_what_spark_submit_gets_for_kubernetes_selects_the_committer(
    committer: str,
    application: Application,
    place: Place,
    tables: Tables,  # noqa: F811
    spark: FakeSpark,
    connect: Connect,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.providers.apache.spark.hooks import spark_submit
    from airflow.providers.apache.spark.operators import spark_submit as operators

    pod = SimpleNamespace(status=SimpleNamespace(phase="Succeeded", container_statuses=None))
    api = SimpleNamespace(
        get_kube_client=lambda: SimpleNamespace(read_namespaced_pod=lambda *_: pod),
        ApiException=type("ApiException", (Exception,), {}),
    )
    monkeypatch.setattr(spark_submit, "kube_client", api, raising=False)
    monkeypatch.setattr(operators, "kube_client", api, raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "spark"}
    connect("spark_default", "spark", host="k8s://https://api:443", extra=extra)
    spark.runs(IDLE + 'print("exit code: 0")\nprint("submission ID spark:flights-driver")\n')
    volume = "spark.kubernetes.{}.volumes.persistentVolumeClaim.shared.{}"
    mounts = {
        volume.format(pod, name): value
        for pod in ("driver", "executor")
        for name, value in (("mount.path", "/mnt/shared"), ("options.claimName", "staging"))
    }
    options = {} if committer == "magic" else VOLUME
    arguments = {"committer": committer, "mode": "append", "conf": mounts, "s3a_options": options}
    # The stand-in writes nothing, and that is found out.
    with pytest.raises(VerificationError, match="_SUCCESS"):
        run_task(s3a_loads.operator(tables, **arguments), service_loads.context(None))
    (call,) = spark.calls()
    words = call["argv"]
    text = call["files"][words[words.index("--properties-file") + 1]]["text"]
    sent = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    sent = {name: re.sub(r"\\(.)", r"\1", value) for name, value in sent.items()}
    selects(application, place, sent, committer)


class TestAnApplicationWithSettingsOfItsOwn:
    """What cannot be seen before a submission is seen by save(), in the JVM."""

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"fs.s3a.committer.name": "magicv2"}, r"committer-name.*magicv2"),
            ({"fs.s3a.committer.name": "directory"}, r"committer-name.*directory"),
            ({"mapreduce.outputcommitter.factory.class": "x.Other"}, r"factory-overridden"),
        ],
    )
    def test_another_committer_than_was_asked_for_is_refused_before_the_first_write(
        self, application: Application, place: Place, settings: dict[str, str], message: str
    ) -> None:
        with (
            application.with_committer("magic", settings),
            pytest.raises(SettingsRefusedError, match=message),
        ):
            saved(application, place)
        assert place.objects() == []

    def test_another_committer_of_the_bucket_loses_to_the_word(
        self, application: Application, own_place: Place
    ) -> None:
        """Hadoop reads the name of the job's settings first, and of the bucket's only then."""
        of_bucket = f"fs.s3a.bucket.{own_place.bucket}.committer.name"
        with application.with_committer("magic", {of_bucket: "partitioned"}):
            saved(application, own_place)
        assert own_place.marker()["committer"] == "magic"


def saved(application: Application, place: Place) -> None:
    """Append rows by save(), by the word magic."""
    given: dict[str, Any] = {"partition_by": ["day"], "mode": "append", "committer": "magic"}
    save(application.frame(0), place.root.url, **given)
