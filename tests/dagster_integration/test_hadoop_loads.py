"""Assets that applications load by Hadoop's committers: what clients of Pipes are told to submit,
and what becomes of it.

A stand-in leaves what ``save()`` and these committers leave. What services are asked is read from
the requests that botocore sends.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pytest
from botocore.awsrequest import AWSResponse
from dagster._core.errors import DagsterMaxRetriesExceededError

from dagster_zero_rename import SparkPipesClient, ZeroRenameResource
from dagster_zero_rename.asset_step import AssetStep
from support import s3a_stand_in
from support.dagster_loads import DAYS as DAILY
from support.dagster_loads import days
from support.dagster_loads import told as metadata
from support.fake_spark import FakeSpark
from zero_rename.committer import OutcomeUnknownError, RefusedError, VerificationError
from zero_rename.committer.format.handoff import HANDOFF, HANDOFF_SETTING, Handoff
from zero_rename.s3a.hadoop.settings import COMMIT_PROTOCOL_KEY, PATH_PROTOCOL
from zero_rename.s3a.runs import ledger, try_record
from zero_rename.s3a.runs.try_record import TryRecord, run_uuid
from zero_rename.s3a.services import EMR_MAGIC_KEY, EMR_PARQUET_KEY, S3_FACTORY_KEY

pytestmark = pytest.mark.memory_s3

DAYS = dg.StaticPartitionsDefinition(["1", "2", "3"])
NAME = "spark.hadoop.fs.s3a.committer.name"
UUID = "spark.hadoop.fs.s3a.committer.uuid"


@pytest.fixture
def zero(bucket: str) -> ZeroRenameResource:
    return ZeroRenameResource(table_root=f"s3://{bucket}/tables", committer="magic")


@pytest.fixture
def application(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.touch()
    return str(path)


def tries(zero: ZeroRenameResource) -> list[TryRecord]:
    """Records of all tries at the table."""
    table = zero.table("flights")
    return [it.record for it in table.run(ledger.tries_since(table.root, 0.0))]


def rows(zero: ZeroRenameResource) -> list[str]:
    """The numbers of the tries whose rows are in the table."""
    return sorted(zero.table("flights").to_arrow(["flight"]).column("flight").to_pylist())


@pytest.mark.usefixtures("s3_server")
class TestBySparkSubmit:
    @pytest.fixture(autouse=True)
    def stand_in(self, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        spark.runs(s3a_stand_in.APPLICATION)

    def load(
        self,
        zero: ZeroRenameResource,
        application: str,
        client: Mapping[str, Any] | None = None,
        retries: int = 0,
        afterwards: list[BaseException] | None = None,
        last: str = "1",
        mode: str = "overwrite",
        **env: str,
    ) -> Any:
        """Materialise day 1 (to ``last``), and tell its events."""
        submits = SparkPipesClient(zero_rename=zero, master="local[1]", **(client or {}))

        @dg.asset(
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day", "mode": mode},
            retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None,
        )
        def flights(context: dg.AssetExecutionContext):
            result = submits.run(context, application=application, env=env)
            if afterwards:
                raise afterwards.pop()
            return result

        return dg.materialize([flights], tags=days("1", last))

    @pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
    def test_word_selects_the_committer_and_the_job_is_reported(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark, committer: str
    ) -> None:
        zero = ZeroRenameResource(table_root=zero.table_root, committer=committer)
        told = metadata(self.load(zero, application))["1"]
        (call,), (tried,) = spark.calls(), tries(zero)
        file = call["argv"][call["argv"].index("--properties-file") + 1]
        sent = call["files"][file]["text"]
        assert f"{NAME}={committer}" in sent.replace(" ", "=", sent.count(NAME))
        assert PATH_PROTOCOL in sent
        assert call["env"]["ZERO_RENAME_S3A_RUN"] == tried.uuid
        assert tried.uuid in sent
        assert (tried.state, tried.committer) == (try_record.COMMITTED, committer)
        assert (told["zero_rename/committer"], told["zero_rename/rows"]) == (committer, 1)
        assert told["zero_rename/job"] == (tried.report or {})["job"]
        assert told["zero_rename/settings"]["fs.s3a.committer.name"] == committer
        assert told["dagster/partition_row_count"] == 1

    def test_partition_without_rows_is_told_as_empty(
        self, zero: ZeroRenameResource, application: str
    ) -> None:
        zero = ZeroRenameResource(table_root=zero.table_root, committer="partitioned")
        told = metadata(self.load(zero, application, last="2"))
        assert {key: it["zero_rename/rows"] for key, it in told.items()} == {"1": 1, "2": 0}

    def test_step_retried_after_its_commit_submits_nothing(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        retried: list[BaseException] = [dg.RetryRequested(max_retries=1)]
        told = metadata(self.load(zero, application, afterwards=retried))["1"]
        assert told["zero_rename/repeated"] is True
        assert "dagster/partition_row_count" not in told
        assert len(spark.calls()) == 1
        assert rows(zero) == ["1"]

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    @pytest.mark.parametrize("retried", [False, True])
    def test_second_application_of_a_step_is_refused(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark, mode: str, retried: bool
    ) -> None:
        """A report of the first one's commit would leave out its rows."""
        submits = SparkPipesClient(zero_rename=zero, master="local[1]")
        deaths = [dg.RetryRequested(max_retries=1)] if retried else []

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": mode})
        def flights(context: dg.AssetExecutionContext):
            submits.run(context, application=application)
            if deaths:
                raise deaths.pop()
            return submits.run(context, application=application)

        with pytest.raises(dg.Failure, match="rows of this second call were not written"):
            dg.materialize([flights], partition_key="1")
        assert len(spark.calls()) == 1

    def test_application_that_dies_after_its_commit_is_reported_by_the_next_try(
        self,
        zero: ZeroRenameResource,
        application: str,
        spark: FakeSpark,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 0.0)
        told = metadata(self.load(zero, application, retries=1, TEST_STAGE="marked"))["1"]
        assert told["zero_rename/repeated"] is True
        assert len(spark.calls()) == 1

    def test_append_whose_application_dies_with_files_is_refused_by_the_next_try(
        self,
        zero: ZeroRenameResource,
        application: str,
        spark: FakeSpark,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 0.0)
        with pytest.raises(DagsterMaxRetriesExceededError, match="without saying what it added"):
            self.load(zero, application, mode="append", retries=1, TEST_STAGE="files")
        assert len(spark.calls()) == 1

    def test_another_committer_than_was_asked_for_fails_by_name(
        self, zero: ZeroRenameResource, application: str
    ) -> None:
        with pytest.raises(VerificationError, match=r"'magicv2' ran.*EMR"):
            self.load(zero, application, TEST_COMMITTER="magicv2")

    def test_contradicting_setting_is_refused_before_a_submission(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        with pytest.raises(dg.Failure, match=r"committer-name.*magicv2"):
            self.load(zero, application, {"conf": {NAME: "magicv2"}})
        assert (spark.calls(), tries(zero)) == ([], [])

    def test_options_reach_the_committer_and_unknown_ones_are_refused(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        self.load(zero, application, {"s3a_options": {"threads": 17}})
        (call,) = spark.calls()
        file = call["argv"][call["argv"].index("--properties-file") + 1]
        assert "fs.s3a.committer.threads" in call["files"][file]["text"]
        with pytest.raises(Exception, match="thread"):
            SparkPipesClient(zero_rename=zero, s3a_options={"thread": 17})

    @pytest.mark.parametrize("by_options", [True, False])
    def test_records_of_a_load_have_the_encryption_of_its_files(
        self, zero: ZeroRenameResource, application: str, s3_bucket: Any, by_options: bool
    ) -> None:
        options, client = {"encryption": "SSE-S3"}, s3_bucket.client
        if not by_options:
            zero = ZeroRenameResource(
                table_root=zero.table_root, committer="magic", encryption="SSE-S3"
            )
        self.load(zero, application, {"s3a_options": options} if by_options else {})
        listed = client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]
        records = [it["Key"] for it in listed if "/_zero_rename/" in it["Key"]]
        heads = [client.head_object(Bucket=s3_bucket.name, Key=it) for it in records]
        assert {it.get("ServerSideEncryption") for it in heads} == {"AES256"}

    def test_another_run_at_work_on_the_partition_is_given_way_to(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        table = zero.table("flights")
        owner = TryRecord(run_uuid(), "another", Handoff().owner, "magic", "replace", ("day=1",))
        table.run(ledger.open_try(table.root, owner))
        with pytest.raises((dg.Failure, OutcomeUnknownError), match="Another run is at work"):
            self.load(zero, application)
        assert spark.calls() == []

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"data_root": "s3://fast/lake"}, "data_root=s3://fast/lake is of Delta tables"),
            ({"catalog": "glue://lake"}, "catalog=.glue://lake. is given with the committer"),
            ({"on_conflict": "fail", "on_superseded": "skip"}, "on_superseded"),
        ],
    )
    def test_policy_that_these_committers_cannot_keep_to_is_refused(
        self,
        zero: ZeroRenameResource,
        application: str,
        spark: FakeSpark,
        given: dict[str, Any],
        message: str,
    ) -> None:
        made = ZeroRenameResource(table_root=zero.table_root, committer="magic", **given)
        with pytest.raises(dg.Failure, match=message):
            self.load(made, application)
        assert spark.calls() == []

    def test_newest_run_of_several_windows_is_refused_and_of_one_is_ranked(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        newest = ZeroRenameResource(
            table_root=zero.table_root, committer="magic", on_conflict="newest_run"
        )
        client = SparkPipesClient(zero_rename=newest, master="local[1]")

        @dg.asset(
            partitions_def=DAILY,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day=%-d"},
        )
        def flights(context: dg.AssetExecutionContext):
            return client.run(context, application=application)

        with pytest.raises(dg.Failure, match="this run is of 2 time windows"):
            dg.materialize([flights], tags=days("2013-01-01", "2013-01-02"))
        assert spark.calls() == []
        dg.materialize([flights], partition_key="2013-01-01")
        (tried,) = tries(zero)
        assert tried.rank is not None

    def test_append_that_is_executed_again_as_a_whole_is_refused(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        table, owner = zero.table("flights"), Handoff(series="another-chain").owner

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": "append"})
        def flights(context: dg.AssetExecutionContext):
            step = AssetStep.of(context)
            done = TryRecord(run_uuid(), step.idempotency_key, owner, "magic", "append", ("day=1",))
            done = table.run(ledger.open_try(table.root, done))
            report = {"job": done.uuid, "committer": "magic", "partitions": []}
            table.run(ledger.close_try(table.root, done, state=try_record.COMMITTED, report=report))
            client = SparkPipesClient(zero_rename=zero, master="local[1]")
            return client.run(context, application=application)

        with pytest.raises(RefusedError, match="rows of one such job cannot be replaced"):
            dg.materialize([flights], partition_key="1")
        assert spark.calls() == []

    def test_variables_alone_are_refused(self, zero: ZeroRenameResource) -> None:
        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext) -> None:
            zero.spark_env(context)

        with pytest.raises(dg.Failure, match=r"spark_env\(\) gives no settings"):
            dg.materialize([flights], partition_key="1")

    def test_native_retry_of_what_magic_has_committed_is_refused(
        self, zero: ZeroRenameResource, application: str, spark: FakeSpark
    ) -> None:
        retried: list[BaseException] = [dg.RetryRequested(max_retries=1)]
        native = ZeroRenameResource(table_root=zero.table_root)
        chosen = [native, zero]

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext):
            client = SparkPipesClient(zero_rename=chosen.pop(), master="local[1]")
            client.run(context, application=application)
            raise retried.pop()

        with pytest.raises(RefusedError, match="The magic committer has committed this load"):
            dg.materialize([flights], partition_key="1")
        assert len(spark.calls()) == 1


@dataclass
class AnsweredClient:
    """A client of boto3 whose requests are answered here, as they would leave this process.

    :param answers: by operation.
    :param denied: operations for which there is no right.
    """

    service: str
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    sent: list[dict[str, Any]] = field(default_factory=list)

    def client(self) -> Any:
        keys = {"aws_access_key_id": "an-id", "aws_secret_access_key": "a-secret"}
        made = boto3.client(self.service, region_name="us-east-1", **keys)  # pyrefly: ignore[no-matching-overload]
        made.meta.events.register("before-send", self._answer)
        return made

    def _answer(self, request: Any, event_name: str, **_: Any) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        body, status = self.answers.get(operation, {}), 200
        if operation in self.denied:
            body, status = {"__type": "AccessDeniedException", "message": "no"}, 400
        elif request.body and not operation.startswith("Get"):
            self.sent.append(json.loads(request.body))
        raw = io.BytesIO(json.dumps(body).encode())
        raw.stream = lambda *_, **__: iter([raw.read()])  # pyrefly: ignore[missing-attribute]
        headers: Any = {"Content-Type": "application/json"}
        return AWSResponse(request.url, status, headers, raw)


@dataclass(frozen=True)
class ServiceCase:
    """How one service is asked.

    :param request: as a user gives it.
    :param start: sends it, as Dagster's client does.
    :param words: of spark-submit, out of what was sent.
    """

    service: str
    client: Callable[[], AnsweredClient]
    request: dict[str, Any]
    start: Callable[[Any, dict[str, Any]], object]
    words: Callable[[dict[str, Any]], list[str]]

    def settings(self, sent: dict[str, Any]) -> dict[str, str]:
        pairs = pairwise(self.words(sent))
        found = (word.partition("=") for option, word in pairs if option == "--conf")
        return {name: value for name, _, value in found}


def _serverless() -> AnsweredClient:
    found = {"applicationId": "a", "releaseLabel": "emr-7.10.0", "arn": "x", "type": "SPARK"}
    return AnsweredClient("emr-serverless", {"GetApplication": {"application": found}})


def _glue() -> AnsweredClient:
    job = {"Name": "flights", "GlueVersion": "5.0", "MaxRetries": 0}
    return AnsweredClient("glue", {"GetJob": {"Job": job}})


ROLE = "arn:aws:iam::123456789012:role/job"
STEP = {"Jar": "command-runner.jar", "Args": ["spark-submit", "--deploy-mode", "cluster", "s3://j"]}
CASES = {
    case.service: case
    for case in (
        ServiceCase(
            "emr-serverless",
            _serverless,
            {
                "applicationId": "a",
                "executionRoleArn": ROLE,
                "clientToken": "t",
                "jobDriver": {
                    "sparkSubmit": {
                        "entryPoint": "s3://code/job.py",
                        "sparkSubmitParameters": "--conf spark.executor.cores=2",
                    }
                },
            },
            lambda client, request: client.start_job_run(**request),
            lambda sent: sent["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"].split(),
        ),
        ServiceCase(
            "emr-containers",
            lambda: AnsweredClient("emr-containers"),
            {
                "virtualClusterId": "v",
                "executionRoleArn": ROLE,
                "releaseLabel": "emr-7.10.0-latest",
                "clientToken": "t",
                "jobDriver": {"sparkSubmitJobDriver": {"entryPoint": "s3://code/job.py"}},
            },
            lambda client, request: client.start_job_run(**request),
            lambda sent: sent["jobDriver"]["sparkSubmitJobDriver"]["sparkSubmitParameters"].split(),
        ),
        ServiceCase(
            "emr-steps",
            lambda: AnsweredClient("emr"),
            {
                "Name": "flights",
                "ReleaseLabel": "emr-7.10.0",
                "Instances": {"MasterInstanceType": "m5.large"},
                "Steps": [{"Name": "load", "HadoopJarStep": STEP}],
            },
            lambda client, request: client.run_job_flow(**request),
            lambda sent: sent["Steps"][0]["HadoopJarStep"]["Args"],
        ),
        ServiceCase(
            "glue",
            _glue,
            {"JobName": "flights", "Arguments": {"--day": "1", "--conf": "spark.a=b"}},
            lambda client, request: client.start_job_run(**request),
            lambda sent: ["--conf", *sent["Arguments"]["--conf"].split()],
        ),
    )
}
each_service = pytest.mark.parametrize("service", CASES)


@dataclass
class ServiceLoad:
    """An asset that a service's job loads."""

    zero: ZeroRenameResource
    case: ServiceCase
    monkeypatch: pytest.MonkeyPatch
    request: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answering = self.case.client()
        self.request = {**self.case.request, **self.request}

    def run(self) -> Any:
        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext):
            load = self.zero.spark_load(context)
            client = self.answering.client()
            asked = load.complete_request(
                self.case.service, self.request, client=client, **self.arguments
            )
            with load.submitted():
                self.case.start(client, asked)
                self._write(self.case.settings(self.answering.sent[-1]))
            return load.result()

        return dg.materialize([flights], partition_key="1")

    def _write(self, settings: Mapping[str, str]) -> None:
        """Do what the application does with what the request tells it."""
        (handed,) = {
            value for name, value in settings.items() if name.endswith((HANDOFF, HANDOFF_SETTING))
        }
        told = Handoff.decode({HANDOFF: handed})
        with self.monkeypatch.context() as environment:
            for name, value in {**told.encode(), **self.more}.items():
                environment.setenv(name, value)
            s3a_stand_in.main()


class TestByServices:
    @pytest.fixture
    def load(
        self, zero: ZeroRenameResource, service: str, monkeypatch: pytest.MonkeyPatch
    ) -> ServiceLoad:
        return ServiceLoad(zero, CASES[service], monkeypatch)

    @each_service
    def test_request_that_was_sent_selects_the_committer(
        self, load: ServiceLoad, zero: ZeroRenameResource
    ) -> None:
        given = json.dumps(load.request)
        told = metadata(load.run())["1"]
        (sent,), (tried,) = load.answering.sent, tries(zero)
        settings = load.case.settings(sent)
        assert (settings[NAME], settings[UUID]) == ("magic", tried.uuid)
        assert settings[COMMIT_PROTOCOL_KEY] == PATH_PROTOCOL
        assert settings[EMR_MAGIC_KEY] == settings[EMR_PARQUET_KEY] == "false"
        assert S3_FACTORY_KEY in settings
        assert (told["zero_rename/committer"], told["zero_rename/rows"]) == ("magic", 1)
        assert tried.state == try_record.COMMITTED
        if load.case.service == "glue":
            assert sent["Arguments"]["--enable-s3-parquet-optimized-committer"] == "false"
            assert settings["spark.a"] == "b"
        assert json.dumps(load.request) == given  # The user's own is not changed.

    @each_service
    def test_native_request_is_told_the_load_and_gets_no_settings(
        self, zero: ZeroRenameResource, service: str
    ) -> None:
        case, native = CASES[service], ZeroRenameResource(table_root=zero.table_root)
        found: list[dict[str, Any]] = []

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext) -> None:
            load = native.spark_load(context)
            answering = case.client()
            case.start(answering.client(), load.complete_request(service, case.request))
            found.extend(answering.sent)

        dg.materialize([flights], partition_key="1")
        assert NAME not in json.dumps(found)
        handed = {
            value
            for name, value in case.settings(found[0]).items()
            if name.endswith((HANDOFF, HANDOFF_SETTING))
        }
        (told,) = [Handoff.decode({HANDOFF: it}) for it in handed]
        assert (told.partitions, told.committer) == (("day=1",), "zero_rename")

    @each_service
    @pytest.mark.parametrize("committer", ["magic", "zero_rename"])
    def test_request_that_holds_a_key_of_the_resource_is_refused_under_any_name(
        self, load: ServiceLoad, committer: str
    ) -> None:
        load.zero = ZeroRenameResource(
            table_root=load.zero.table_root,
            committer=committer,
            access_key_id="any",
            secret_access_key="hush-hush",
        )
        load.request["Tags"] = {"why": "colour=hush-hush"}
        with pytest.raises(dg.Failure, match=r"request\['Tags'\]\['why'\] is or holds") as caught:
            load.run()
        assert "hush" not in str(caught.value)
        assert load.answering.sent == []

    @each_service
    @pytest.mark.parametrize("committer", ["magic", "zero_rename"])
    def test_request_that_holds_a_credential_is_refused(
        self, load: ServiceLoad, committer: str
    ) -> None:
        load.zero = ZeroRenameResource(table_root=load.zero.table_root, committer=committer)
        load.request["Tags"] = {"why": "spark.hadoop.fs.s3a.secret.key=hush"}
        with pytest.raises(dg.Failure, match=r"request\['Tags'\]\['why'\] is or holds") as caught:
            load.run()
        assert "hush" not in str(caught.value)
        assert load.answering.sent == []

    @pytest.mark.parametrize("settings", [{}, {"--conf": "spark.a=b"}])
    def test_native_request_that_would_hide_a_glue_job_s_own_settings_is_refused(
        self, zero: ZeroRenameResource, settings: dict[str, str]
    ) -> None:
        native, answering = ZeroRenameResource(table_root=zero.table_root), _glue()
        answering.answers["GetJob"]["Job"]["DefaultArguments"] = {"--conf": "spark.c=d"}
        asked: list[dict[str, Any]] = []

        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext) -> None:
            request = {"JobName": "flights", "Arguments": {"--day": "1", **settings}}
            load = native.spark_load(context)
            asked.append(load.complete_request("glue", request, client=answering.client()))

        if settings:
            dg.materialize([flights], partition_key="1")
            assert asked[0]["Arguments"]["--conf"].startswith("spark.a=b --conf ")
            return
        with pytest.raises(dg.Failure, match="default argument --conf"):
            dg.materialize([flights], partition_key="1")
        assert asked == []

    @pytest.mark.parametrize("service", ["emr-serverless", "glue"])
    @pytest.mark.parametrize("committer", ["directory", "partitioned"])
    def test_staging_committer_where_machines_share_nothing_is_refused(
        self, load: ServiceLoad, committer: str
    ) -> None:
        load.zero = ZeroRenameResource(table_root=load.zero.table_root, committer=committer)
        with pytest.raises(dg.Failure, match=r"machines of .* share none"):
            load.run()
        assert load.answering.sent == []

    @pytest.mark.parametrize(
        ("service", "changed", "message"),
        [
            ("emr-serverless", {"retryPolicy": {"maxAttempts": 3}}, "driver-restarts"),
            ("emr-containers", {"retryPolicyConfiguration": {"maxAttempts": 2}}, "driver-restarts"),
            ("emr-containers", {"releaseLabel": "emr-7.3.0-latest"}, "magic-before-3.4"),
            ("emr-containers", {"releaseLabel": "latest"}, "not a release of EMR"),
            ("emr-steps", {"Steps": []}, "not one step that runs spark-submit"),
            (
                "emr-steps",
                {
                    "Configurations": [
                        {
                            "Classification": "core-site",
                            "Properties": {"mapreduce.outputcommitter.factory.class": "x.Other"},
                        }
                    ]
                },
                "factory-overridden",
            ),
            (
                "glue",
                {"Arguments": {"--enable-s3-parquet-optimized-committer": "true"}},
                "service-committer",
            ),
            ("glue", {"Arguments": {"--conf": f"{NAME}=magicv2"}}, "committer-name"),
        ],
    )
    def test_request_that_would_lose_or_double_rows_is_refused(
        self, load: ServiceLoad, changed: dict[str, Any], message: str
    ) -> None:
        load.request |= changed
        with pytest.raises(dg.Failure, match=message):
            load.run()
        assert (load.answering.sent, tries(load.zero)) == ([], [])

    @pytest.mark.parametrize("service", ["glue"])
    @pytest.mark.parametrize(
        ("job", "message"),
        [
            ({"MaxRetries": 1}, "driver-restarts"),
            ({"GlueVersion": "4.0"}, "before 3.5"),
            ({"DefaultArguments": {"--conf": "spark.c=d"}}, "default argument --conf"),
        ],
    )
    def test_glue_job_that_contradicts_is_refused(
        self, load: ServiceLoad, job: dict[str, Any], message: str
    ) -> None:
        load.answering.answers["GetJob"]["Job"] |= job
        load.request["Arguments"] = {"--day": "1"}
        with pytest.raises(dg.Failure, match=message):
            load.run()

    @pytest.mark.parametrize("service", ["emr-serverless", "glue"])
    def test_missing_right_to_describe_is_said_and_by_strict_refused(
        self, load: ServiceLoad, caplog: pytest.LogCaptureFixture
    ) -> None:
        load.answering.denied = ("GetApplication", "GetJob")
        load.arguments = {"strict": True}
        with pytest.raises(dg.Failure, match="strict: The process of Dagster has no right to get_"):
            load.run()
        load.arguments = {}
        assert load.run().success
        assert "has no right to get_" in caplog.text

    @pytest.mark.parametrize("service", ["emr-steps"])
    def test_staging_committer_of_a_cluster_keeps_what_is_pending_in_hdfs(
        self, load: ServiceLoad
    ) -> None:
        load.zero = ZeroRenameResource(table_root=load.zero.table_root, committer="partitioned")
        assert metadata(load.run())["1"]["zero_rename/committer"] == "partitioned"

    @pytest.mark.parametrize("service", ["emr-serverless"])
    @pytest.mark.parametrize("named", ["databricks", "kubernetes", "mars"])
    def test_service_whose_requests_are_not_completed_is_refused(
        self, load: ServiceLoad, named: str
    ) -> None:
        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext) -> None:
            load.zero.spark_load(context).complete_request(named, {})

        message = "DBIO's commit service" if named == "databricks" else f"the service '{named}'"
        with pytest.raises(dg.Failure, match=message):
            dg.materialize([flights], partition_key="1")

    def test_submission_without_the_settings_is_refused(self, zero: ZeroRenameResource) -> None:
        @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
        def flights(context: dg.AssetExecutionContext) -> None:
            with zero.spark_load(context).submitted():
                pytest.fail("it is submitted")

        with pytest.raises(dg.Failure, match="nobody has asked for those of this load"):
            dg.materialize([flights], partition_key="1")
        assert tries(zero) == []
