"""Services of AWS that run Spark, as moto has them: each runs a stand-in for the application with
what the request that was really sent tells it, and its jobs end when a test says so."""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

import boto3
import pyarrow as pa
import pytest
from botocore.loaders import Loader

from support import s3a_stand_in
from support.airflow import Tables, connection_variable
from support.recorded_calls import Call
from zero_rename.committer.format.handoff import HANDOFF, HANDOFF_SETTING, Handoff
from zero_rename.committer.upkeep.access_policy import Role, access_policy
from zero_rename.committer.upkeep.access_policy import Service as PolicyService
from zero_rename.operators.emr_containers import ZeroRenameEmrContainerOperator
from zero_rename.operators.emr_serverless import ZeroRenameEmrServerlessOperator
from zero_rename.operators.emr_steps import ZeroRenameEmrStepOperator
from zero_rename.operators.glue import ZeroRenameGlueOperator
from zero_rename.spark.options import read_writer_options

ROLE = "arn:aws:iam::123456789012:role/job"
APPLICATION = "s3://code/job.py"


class Killed(BaseException):
    """The worker's process has ended."""


@dataclass
class Application:
    """The stand-in. It writes a row for each partition that it is told, once it is to go on.

    :param fails: what it raises afterwards.
    :param starts: what each start of it was told, in variables.
    :param stage: where it dies with one of Hadoop's committers, of :data:`s3a_stand_in.STAGES`.
    :param more: variables for :mod:`s3a_stand_in`.
    """

    tables: Tables
    fails: BaseException | None = None
    starts: list[dict[str, str]] = field(default_factory=list)
    stage: str = "written"
    more: dict[str, str] = field(default_factory=dict)

    def write(self, variables: dict[str, str]) -> None:
        handoff = Handoff.decode(variables)
        assert handoff.table is not None
        if handoff.s3a_run is not None:
            self._write_by_s3a(handoff)
            return
        assert handoff.partitions is not None
        found = [dict(part.split("=") for part in p.split("/")) for p in handoff.partitions]
        rows = pa.table({name: [int(row[name]) for row in found] for name in found[0]})
        given = {"path": handoff.table.url, "partitionBy": ",".join(rows.column_names)}
        options = read_writer_options(given, variables)
        rows = rows.append_column("flight", [[f"f{number}" for number in range(len(found))]])
        job = self.tables.table().job(
            rows.schema,
            mode=options.mode(bool(options.replace_partitions)),
            partition_by=options.partition_by,
            replace_partitions=options.replace_partitions,
            idempotency_key=options.idempotency_key,
            on_repeat=options.on_repeat,
            on_conflict=options.on_conflict,
            on_superseded=options.on_superseded,
            run_rank=options.run_rank,
            owner=options.owner("stand-in"),
        )
        with job:
            job.write(rows)
        if self.fails is not None:
            raise self.fails

    def _write_by_s3a(self, handoff: Handoff) -> None:
        """As save() and one of Hadoop's committers do, up to :attr:`stage`."""
        told = {**handoff.encode(), "TEST_STAGE": self.stage, **self.more}
        with pytest.MonkeyPatch.context() as environment:
            for name, value in told.items():
                environment.setenv(name, value)
            try:
                s3a_stand_in.main(lambda _: self.tables.table())
            except SystemExit as error:
                raise RuntimeError("the application has died") from error
        if self.fails is not None:
            raise self.fails


@dataclass
class Service(ABC):
    """A service with an application of ours.

    :param id: of the application or cluster that runs its jobs.
    :param goes_on: its jobs run until :meth:`end` instead of to their end at once.
    :param requests: what it was asked to run.
    :param jobs: moto's, in the order of their starts.
    :param calls: what botocore was asked since it was prepared.
    """

    application: Application
    monkeypatch: pytest.MonkeyPatch
    id: str = ""
    goes_on: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    kind: ClassVar[PolicyService]
    running = "RUNNING"
    succeeded = "SUCCESS"
    failed = "FAILED"
    said = "the driver ran out of memory"

    @contextmanager
    def prepared(self) -> Iterator[Any]:
        from moto.moto_api import state_manager

        self.prepare()
        yield
        state_manager.unset_transition("glue::job_run")

    def policy(self) -> dict[str, Any]:
        """What is granted to Airflow for the table."""
        root = self.application.tables.table().root
        return access_policy(Role.AIRFLOW, root, service=self.kind, of=self.granted, job_role=ROLE)

    @property
    def granted(self) -> str:
        """What a policy names the service's application by."""
        return self.id

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def operator(self, **arguments: Any) -> Any: ...

    @abstractmethod
    def words(self, request: dict[str, Any]) -> list[str]:
        """The words of spark-submit, as the service takes them."""

    def variables(self, request: dict[str, Any]) -> dict[str, str]:
        """What the driver's process, or its save(), has of the settings."""
        found = {}
        words = self.words(request)
        for option, word in pairwise(words):
            name, _, value = word.partition("=")
            if option == "--conf" and name.endswith((f"Env.{HANDOFF}", HANDOFF_SETTING)):
                found[HANDOFF] = value
        return found

    def packages(self, request: dict[str, Any]) -> list[str]:
        words = self.words(request)
        return words[words.index("--py-files") + 1].split(",")

    def settings(self, request: dict[str, Any]) -> dict[str, str]:
        """The settings as Spark takes them of the words: the last of a name counts."""
        pairs = pairwise(self.words(request))
        given = (word.partition("=") for option, word in pairs if option == "--conf")
        return {name: value for name, _, value in given}

    def started(self, job: Any, request: dict[str, Any]) -> None:
        self.jobs.append(job)
        self.requests.append(json.loads(json.dumps(request)))
        self.application.starts.append(self.variables(request))
        self.set_state(job, self.running)
        if not self.goes_on:
            self.end()

    def event(self, good: bool = True) -> dict[str, Any]:
        """What the trigger says of the last job."""
        return {"status": "success"} if good else {"status": "failure", "message": self.said}

    def end(self, number: int = -1, as_state: str | None = None) -> None:
        """Let a job write and end; by itself it fails where the application does."""
        state = as_state or self.succeeded
        try:
            self.application.write(self.application.starts[number])
        except Exception:
            state = self.failed
        self.set_state(self.jobs[number], state)

    def set_state(self, job: Any, state: str) -> None:
        job.state = state

    def recording(self, owner: type, method: str, request: Callable[..., dict[str, Any]]) -> None:
        original = getattr(owner, method)

        def start(it: Any, *arguments: Any, **members: Any) -> Any:
            made = original(it, *arguments, **members)
            self.started(self.made(it, made), request(*arguments, **members))
            return made

        self.monkeypatch.setattr(owner, method, start)

    def made(self, backend: Any, answer: Any) -> Any:
        return answer


class EmrServerless(Service):
    kind = PolicyService.EMR_SERVERLESS

    def prepare(self) -> None:
        from moto.emrserverless.models import EMRServerlessBackend

        client = boto3.client("emr-serverless", region_name="us-east-1")
        self.id = client.create_application(
            type="SPARK", releaseLabel="emr-7.10.0", clientToken="x", name="a"
        )["applicationId"]
        self.recording(EMRServerlessBackend, "start_job_run", lambda **members: members)

    def set_state(self, job: Any, state: str) -> None:
        job.state = state
        job.state_details = self.said if state == self.failed else ""

    def operator(self, **arguments: Any) -> Any:
        given = {
            "application_id": self.id,
            "execution_role_arn": ROLE,
            "job_driver": {
                "sparkSubmit": {
                    "entryPoint": APPLICATION,
                    "sparkSubmitParameters": "--conf spark.executor.cores=2 "
                    "--py-files 's3://code/a.zip,s3://code/b c.zip'",
                }
            },
        }
        fields: dict[str, Any] = given | arguments
        return ZeroRenameEmrServerlessOperator(**fields)

    def words(self, request: dict[str, Any]) -> list[str]:
        return shlex.split(request["job_driver"]["sparkSubmit"]["sparkSubmitParameters"])


class EmrContainers(Service):
    kind = PolicyService.EMR_CONTAINERS
    succeeded = "COMPLETED"

    def prepare(self) -> None:
        eks = boto3.client("eks", region_name="us-east-1")
        eks.create_cluster(name="c", roleArn=ROLE, resourcesVpcConfig={})
        client = boto3.client("emr-containers", region_name="us-east-1")
        provider = {"type": "EKS", "id": "c", "info": {"eksInfo": {"namespace": "n"}}}
        self.id = client.create_virtual_cluster(name="v", containerProvider=provider)["id"]
        from moto.emrcontainers.models import EMRContainersBackend

        self.recording(EMRContainersBackend, "start_job_run", lambda **members: members)

    def operator(self, **arguments: Any) -> Any:
        given = {
            "name": "flights",
            "virtual_cluster_id": self.id,
            "execution_role_arn": ROLE,
            "release_label": "emr-7.10.0-latest",
            "job_driver": {"sparkSubmitJobDriver": {"entryPoint": APPLICATION}},
        }
        return ZeroRenameEmrContainerOperator(**given | arguments)

    def words(self, request: dict[str, Any]) -> list[str]:
        return shlex.split(request["job_driver"]["sparkSubmitJobDriver"]["sparkSubmitParameters"])


class EmrSteps(Service):
    kind = PolicyService.EMR_STEPS
    succeeded = "COMPLETED"

    def prepare(self) -> None:
        client = boto3.client("emr", region_name="us-east-1")
        self.id = client.run_job_flow(
            Name="cluster",
            Instances={"MasterInstanceType": "m5.large", "KeepJobFlowAliveWhenNoSteps": True},
            ReleaseLabel="emr-7.10.0",
            ServiceRole="s",
            JobFlowRole="j",
            VisibleToAllUsers=True,
        )["JobFlowId"]

        def sent(steps: list[Any]) -> dict[str, Any]:
            return {"name": steps[0]["name"], "args": steps[0]["hadoop_jar_step"].get("Args")}

        from moto.emr.models import Cluster

        self.recording(Cluster, "add_steps", sent)

    def operator(self, **arguments: Any) -> Any:
        step = {
            "Name": "flights",
            "ActionOnFailure": "CONTINUE",
            "HadoopJarStep": {
                "Jar": "command-runner.jar",
                "Args": ["spark-submit", "--deploy-mode", "cluster", APPLICATION, "--day", "1"],
            },
        }
        given: dict[str, Any] = {"job_flow_id": self.id, "steps": [step]} | arguments
        return ZeroRenameEmrStepOperator(**given)

    def made(self, backend: Any, answer: Any) -> Any:
        return answer[0]

    def words(self, request: dict[str, Any]) -> list[str]:
        return request["args"]


class Glue(Service):
    kind = PolicyService.GLUE
    succeeded = "SUCCEEDED"

    @property
    def granted(self) -> str:
        return "flights"

    def prepare(self) -> None:
        from moto.glue.models import FakeJob
        from moto.moto_api import state_manager

        state_manager.set_transition("glue::job_run", {"progression": "manual", "times": 10**6})
        boto3.client("glue", region_name="us-east-1").create_job(
            Name="flights",
            Role=ROLE,
            ExecutionProperty={"MaxConcurrentRuns": 9},
            Command={"Name": "glueetl", "ScriptLocation": APPLICATION},
            DefaultArguments={
                "--conf": "spark.a=b",
                "--extra-py-files": "s3://code/a.zip",
                "--additional-python-modules": "pyarrow==19.0.0",
            },
        )
        self.recording(FakeJob, "start_job_run", lambda **members: members)

    def operator(self, **arguments: Any) -> Any:
        given = {"job_name": "flights", "iam_role_arn": ROLE, "script_args": {"--day": "1"}}
        return ZeroRenameGlueOperator(**given | arguments)

    def made(self, backend: Any, answer: Any) -> Any:
        return backend.job_runs[-1]

    def words(self, request: dict[str, Any]) -> list[str]:
        return ["--conf", *request["arguments"]["--conf"].split()]

    def packages(self, request: dict[str, Any]) -> list[str]:
        return request["arguments"]["--extra-py-files"].split(",")

    def set_state(self, job: Any, state: str) -> None:
        job.status = state
        if state == self.failed:
            known = job.as_dict()
            job.as_dict = lambda: {**known, "JobRunState": state, "ErrorMessage": self.said}


SERVICES = {kind.__name__: kind for kind in (EmrServerless, EmrSteps, EmrContainers, Glue)}


@cache
def _loader(search_path: str | None = None) -> Any:
    """One for all sessions: each has the services' descriptions parsed, which are megabytes."""
    return Loader(extra_search_paths=search_path.split(os.pathsep) if search_path else None)


@pytest.fixture
def aws(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """moto in this process, and an AWS connection that leads to it; that of the tables leads to the
    S3 server as ever."""
    monkeypatch.setattr("botocore.loaders.create_loader", _loader)
    fields = {"conn_type": "aws", "login": "an-id", "password": "a-secret"}
    extra = {"region_name": "us-east-1"}
    monkeypatch.setenv(*connection_variable("services", **fields, extra=extra))
    from moto import mock_aws

    with mock_aws():
        yield "services"


def while_it_waits(monkeypatch: pytest.MonkeyPatch, *happens: Callable[[], Any]) -> list[float]:
    """Let something happen at each pause of whoever waits for a job, instead of the pause.

    :return: seconds of the pauses so far.
    """
    pauses: list[float] = []
    ahead, waits, sleep_indeed = iter(happens), threading.current_thread(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is not waits:
            sleep_indeed(seconds)  # somebody else's thread
        elif seconds:
            pauses.append(seconds)
            next(ahead, _waited_too_long)()

    monkeypatch.setattr(time, "sleep", sleep)
    return pauses


def _waited_too_long() -> None:
    raise AssertionError("it waits on, though nothing more will happen")


def worker_dies(
    service: Any,
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[[], object],
    first: Callable[[], object] = lambda: None,
) -> None:
    """The worker of a load is killed while it waits for its job, which goes on.

    :param first: what it does before, as Airflow gives it time to.
    """
    service.goes_on = True

    def dies() -> None:
        first()
        raise Killed

    while_it_waits(monkeypatch, dies)
    with pytest.raises(Killed):
        load()
