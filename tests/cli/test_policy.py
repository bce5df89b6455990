"""Policies on Ceph: each is enough for its role, and each of its actions is needed."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from torture.servers import Store, of_server

from support.command_line import as_json, invoke
from support.shared_servers import shared_server
from tools.s3_servers import LIMITED
from zero_rename import Table
from zero_rename.committer import StoreRefusedError, StreamError, UnfinishedUpkeepError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.committer.store.requests import Found, Head, Step
from zero_rename.committer.upkeep.access_policy import Role, Service, access_policy
from zero_rename.committer.upkeep.checkpoint import CheckpointAction
from zero_rename.committer.upkeep.log_guard import log_guard
from zero_rename.committer.upkeep.purging.upload_selection import Selection, UploadsPath
from zero_rename.committer.upkeep.purging.upload_sweep import UploadSweep
from zero_rename.layouts.delta.delta_layout import DeltaLayout
from zero_rename.orchestration.submit.package_file import put_once
from zero_rename.s3a.runs import ledger
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


@pytest.fixture(scope="session")
def ceph(pytestconfig: pytest.Config) -> Store:
    return of_server(shared_server(pytestconfig, "ceph"))


@dataclass
class Limited:
    """A user without rights but those of a policy, and a table of somebody else.

    :param iam: of who may give rights.
    """

    iam: Any
    owner: Table
    endpoint: str
    region: str

    @property
    def root(self) -> TableRoot:
        return self.owner.root

    def grant(self, document: dict[str, Any]) -> None:
        """In the place of what this test granted before; other tests have buckets of their own."""
        self.iam.put_user_policy(
            UserName=LIMITED.user, PolicyName=self.root.bucket, PolicyDocument=json.dumps(document)
        )

    def table(self, url: str | None = None) -> Table:
        """As this user sees it; each with a client of its own, which has asked for no right yet."""
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=LIMITED.access_key,
            aws_secret_access_key=LIMITED.secret_key,
        )
        return Table(url or self.root.url, client=client)


@pytest.fixture
def limited(ceph: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Limited]:
    for name, value in ceph.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"rights-{uuid.uuid4().hex[:12]}"
    ceph.client().create_bucket(Bucket=bucket)
    owner = Table(f"s3://{bucket}/wh/flights")
    load(owner)
    region = ceph.variables["AWS_REGION"]
    iam = boto3.Session().client("iam", endpoint_url=ceph.endpoint, region_name=region)
    made = Limited(iam, owner, ceph.endpoint, region)
    yield made
    iam.delete_user_policy(UserName=LIMITED.user, PolicyName=bucket)


def load(table: Table, mode: str = "append") -> None:
    with table.job(DATA.schema, mode=mode, partition_by=["day"]) as job:
        job.write(DATA)


def read(table: Table, owner: Table) -> None:
    assert table.to_arrow().num_rows >= 3
    assert table.snapshot(["day=1"]).files
    assert [it for it in table.verify() if str(it.kind) != "unnamed"] == []


def write(table: Table, owner: Table) -> None:
    """An append and a replace, and an upload of a job that was killed. And a look whether a run has
    written by one of Hadoop's committers."""
    assert table.run(ledger.tries_of(table.root, "a run")) == ()
    load(table)
    load(table, "overwrite")
    table.recover()
    (job, *_) = {file.job for file in table.files()}
    key = f"{table.root.prefix}/day=1/part-00009-{job}-0009.parquet"
    table.driver.clients.client.create_multipart_upload(Bucket=table.root.bucket, Key=key)
    assert table.purge(apply=True).failed == 0
    read(table, owner)


def maintain(table: Table, owner: Table) -> None:
    run_job(table, owner)
    found = table.doctor()
    assert found == [], found
    path = UploadsPath.parse(table.root.url)
    # Whoever began an upload may ask what it holds without any right.
    key = f"{table.root.prefix}/x"
    owner.driver.clients.client.create_multipart_upload(Bucket=table.root.bucket, Key=key)
    pages: list[Any] = []
    table.run(UploadSweep(path, Selection(), pages.extend, apply=True, sizes=True).run())
    assert [(it.key, it.bytes) for it in pages] == [(key, 0)]


def tidy(table: Table) -> None:
    """Nothing is left of what was refused half-way."""
    with contextlib.suppress(StoreRefusedError):  # A reader may not, and leaves nothing.
        table.recover(patience=0.0)
        path = UploadsPath.parse(table.root.url)
        table.run(UploadSweep(path, Selection(), lambda page: None, apply=True).run())


def run_job(table: Table, owner: Table) -> None:
    """With the package that whoever submitted the job has put there."""
    owner.driver.clients.client.put_object(Bucket=table.root.bucket, Key=PACKAGE, Body=b"zip")
    assert isinstance(table.run(one(Head(PACKAGE))), Found)
    write(table, owner)


def submit(table: Table, owner: Table) -> None:
    """Where there is no package, and where somebody else has put it."""
    place = {"Bucket": table.root.bucket, "Key": PACKAGE}
    owner.driver.clients.client.delete_object(**place)
    assert table.run(put_once(PACKAGE, b"zip"))
    owner.driver.clients.client.delete_object(**place)
    owner.driver.clients.client.put_object(**place, Body=b"zip")
    assert table.run(put_once(PACKAGE, b"zip"))
    write(table, owner)


def one(request: Any) -> Step[Any]:
    return (yield from request)


PACKAGE = "_zero_rename_packages/0123/zero_rename.zip"
WORK: dict[Role, Callable[[Table, Table], None]] = {
    Role.READER: read,
    Role.WRITER: run_job,
    Role.MAINTAINER: maintain,
    Role.AIRFLOW: submit,
}


def policy_of(role: Role, root: TableRoot) -> dict[str, Any]:
    """That of Airflow with a service whose rights IAM does not know."""
    service = Service.KUBERNETES if role is Role.AIRFLOW else None
    return access_policy(role, root, service=service)


def without(document: dict[str, Any], name: str, action: str) -> dict[str, Any]:
    statements = [
        {**one, "Action": [it for it in one["Action"] if (one["Sid"], it) != (name, action)]}
        for one in document["Statement"]
    ]
    return {**document, "Statement": [one for one in statements if one["Action"]]}


@pytest.mark.parametrize("role", Role)
def test_a_policy_is_enough_and_each_action_of_it_is_needed(limited: Limited, role: Role) -> None:
    document = policy_of(role, limited.root)
    limited.grant(document)
    WORK[role](limited.table(), limited.owner)
    actions = [(one["Sid"], action) for one in document["Statement"] for action in one["Action"]]
    assert len(actions) == len(set(actions))
    for name, action in actions:
        limited.grant(document)
        tidy(limited.table())
        limited.grant(without(document, name, action))
        with pytest.raises((StoreRefusedError, UnfinishedUpkeepError, AssertionError)) as caught:
            WORK[role](limited.table(), limited.owner)
        if isinstance(caught.value, AssertionError):
            assert "Lifecycle" in action, "but for advice, a lack is an error that names it"
    limited.grant(document)
    read(limited.table(), limited.owner)


@pytest.mark.parametrize("role", [Role.WRITER, Role.MAINTAINER])
def test_commands_of_maintenance_go_through_by_the_policy(
    limited: Limited, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited.grant(policy_of(role, limited.root))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", LIMITED.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", LIMITED.secret_key)
    url = limited.root.url
    for words in (("purge", url, "--apply"), ("maintain", url, "--apply"), ("conflicts", url)):
        done = invoke(*words)
        assert done.exit_code == 0, done.output


def fast_table(table: Table) -> DeltaTable:
    return DeltaTable(table.root.url, driver=table.driver)


def read_fast(table: Table, owner: Table) -> None:
    opened = fast_table(table)
    assert opened.scan().to_arrow().num_rows >= 3
    assert opened.state(["day=1"]).files
    assert [it for it in opened.verify() if str(it.kind) != "unnamed"] == []


def write_fast(table: Table, owner: Table) -> None:
    """Over what another has written, an append, a replace, a job that fails, a checkpoint, and
    a purge of what no version needs."""
    read_fast(table, owner)
    opened = fast_table(table)
    for mode in ("append", "overwrite"):
        with opened.job(DATA.schema, mode=mode, partition_by=["day"]) as job:
            job.write(DATA)
    with contextlib.suppress(ValueError), opened.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
        raise ValueError
    assert {it.action for it in opened.checkpoint(apply=True)} == {CheckpointAction.COPIED}
    assert opened.purge(apply=True)
    with opened.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    read_fast(table, owner)


def look_after_fast(table: Table, owner: Table) -> None:
    write_fast(table, owner)
    assert fast_table(table).doctor() == []


@pytest.mark.parametrize(
    ("role", "work"),
    [(Role.READER, read_fast), (Role.WRITER, write_fast), (Role.MAINTAINER, look_after_fast)],
)
def test_what_a_fast_root_needs(
    limited: Limited,
    role: Role,
    work: Callable[[Table, Table], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a bucket of its own, with the same keys."""
    monkeypatch.setattr(DeltaLayout, "retention", lambda self, state: -60.0)
    bucket = f"fast-{limited.root.bucket}"
    limited.owner.driver.clients.client.create_bucket(Bucket=bucket)
    root = FastRoot.parse(f"s3://{bucket}/scratch")
    fast = Table(f"{limited.root.url}-fast")
    of_owner = fast_table(fast)
    with of_owner.job(DATA.schema, partition_by=["day"], data_root=root.url) as job:
        job.write(DATA)
    document = access_policy(role, fast.root, fast=root)
    limited.grant(document)
    work(limited.table(fast.root.url), fast)
    named = [it for it in document["Statement"] if bucket in str(it["Resource"])]
    for statement, action in [(it["Sid"], name) for it in named for name in it["Action"]]:
        if statement == "Lifecycle" or (action == "s3:GetObject" and role is not Role.READER):
            continue  # For advice only; and Ceph lets who wrote an object read it.
        if "MultipartUpload" in action and statement.startswith("Fast"):
            continue  # Of files of several parts, which these are not.
        limited.grant(without(document, statement, action))
        with pytest.raises((StoreRefusedError, UnfinishedUpkeepError, StreamError, AssertionError)):
            work(limited.table(fast.root.url), fast)
        limited.grant(document)
        with contextlib.suppress(
            StoreRefusedError, UnfinishedUpkeepError
        ):  # A reader may not, and leaves nothing.
            fast_table(limited.table(fast.root.url)).recover(0.0)
    printed_too = as_json("policy", str(role), fast.root.url, "--data-root", root.url)
    assert printed_too == document


def test_another_table_is_out_of_reach(limited: Limited) -> None:
    limited.grant(access_policy(Role.MAINTAINER, limited.root))
    url = f"{limited.root.url}2"
    load(Table(url))
    with pytest.raises(StoreRefusedError):
        limited.table(url).to_arrow()
    with pytest.raises(StoreRefusedError):
        load(limited.table(url))


def test_the_command_prints_what_was_shown() -> None:
    root = TableRoot.parse("s3://bucket/wh/flights")
    for role in {*Role} - {Role.AIRFLOW}:
        plainly = json.loads(invoke("policy", str(role), root.url).stdout)
        assert as_json("policy", str(role), root.url) == plainly == access_policy(role, root)
        assert invoke("policy", str(role), root.url, "--operator", "glue").exit_code == 2
    for service in Service:
        found = as_json("policy", "airflow", root.url, "--operator", str(service))
        assert found == access_policy(Role.AIRFLOW, root, service=service)
        names = [one["Sid"] for one in found["Statement"]]
        assert len(names) == len(set(names))
    assert invoke("policy", "owner", root.url).exit_code == 2
    assert "emr-serverless, emr-steps" in invoke("policy", "airflow", root.url).stderr


def test_a_policy_is_of_one_application_one_role_and_one_place() -> None:
    given = ("--of", "00f1", "--job-role", "arn:aws:iam::1:role/flights")
    place = ("--package-location", "s3://code/zero/")
    found = as_json(
        "policy", "airflow", "s3://lake/t", "--operator", "emr-serverless", *given, *place
    )
    on = {action: one["Resource"] for one in found["Statement"] for action in one["Action"]}
    assert on["emr-serverless:StartJobRun"] == ["arn:aws:emr-serverless:*:*:/applications/00f1"]
    assert on["emr-serverless:GetJobRun"][0].endswith(":/applications/00f1/jobruns/*")
    assert on["iam:PassRole"] == ["arn:aws:iam::1:role/flights"]
    (package,) = [one for one in found["Statement"] if one["Sid"] == "Package"]
    assert package["Resource"] == ["arn:aws:s3:::code/zero/*"]
    assert invoke("policy", "writer", "s3://lake/t", "--package-location", "/tmp").exit_code == 2


@pytest.mark.parametrize(
    ("key", "resource", "aliases"),
    [
        ("arn:aws:kms:us-east-1:1:key/1-2", "arn:aws:kms:us-east-1:1:key/1-2", None),
        ("1-2", "arn:aws:kms:*:*:key/1-2", None),
        ("alias/lake", "arn:aws:kms:*:*:key/*", "alias/lake"),
        ("arn:aws:kms:us-east-1:1:alias/lake", "arn:aws:kms:*:*:key/*", "alias/lake"),
    ],
)
def test_rights_to_a_key_are_those_of_the_role(
    key: str, resource: str, aliases: str | None
) -> None:
    for role, actions in (
        (Role.READER, ["kms:Decrypt"]),
        (Role.WRITER, ["kms:Decrypt", "kms:GenerateDataKey"]),
        (Role.MAINTAINER, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ):
        found = as_json("policy", str(role), "s3://lake/t", "--encryption-key", key)
        (its,) = [one for one in found["Statement"] if one["Sid"] == "Key"]
        assert (its["Action"], its["Resource"]) == (actions, [resource])
        named = its.get("Condition", {}).get("ForAnyValue:StringEquals", {})
        assert named.get("kms:ResourceAliases") == aliases
    refused = invoke("policy", "reader", "s3://lake/t", "--encryption-key", "not a key")
    assert refused.exit_code != 0
    assert "encryption_key" in refused.stderr


class TestLifecycle:
    def rules(self, bucket: Any) -> list[dict[str, Any]]:
        try:
            found = bucket.client.get_bucket_lifecycle_configuration(Bucket=bucket.name)
        except bucket.client.exceptions.ClientError:
            return []
        return found["Rules"]

    def test_a_rule_is_printed_and_put_beside_others(self, s3_bucket: Any) -> None:
        url = f"s3://{s3_bucket.name}/flights"
        load(Table(url))
        other = {
            "ID": "logs",
            "Status": "Enabled",
            "Filter": {"Prefix": "logs/"},
            "Expiration": {"Days": 3},
        }
        s3_bucket.client.put_bucket_lifecycle_configuration(
            Bucket=s3_bucket.name, LifecycleConfiguration={"Rules": [other]}
        )
        result = invoke("lifecycle", url)
        (rule,) = json.loads(result.stdout)["Rules"]
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
        assert rule["Filter"] == {"Prefix": "flights/"}
        assert "--apply" in result.stderr
        assert [it["ID"] for it in self.rules(s3_bucket)] == ["logs"]
        for days in ("9", "10"):
            assert invoke("lifecycle", url, "--days", days, "--apply").exit_code == 0
        first, second = self.rules(s3_bucket)
        assert (first["ID"], first["Expiration"]) == ("logs", {"Days": 3})
        assert second["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 10}
        assert [it.what for it in Table(url).doctor() if "lifecycle" in it.what] == []

    def test_one_that_would_take_a_jobs_files_is_refused(self, s3_bucket: Any) -> None:
        url = f"s3://{s3_bucket.name}/flights"
        load(Table(url))
        result = invoke("lifecycle", url, "--days", "2", "--apply")
        assert result.exit_code == 2
        assert "--days 3 or more" in result.stderr
        assert invoke("lifecycle", url, "--days", "9", "--max-duration", "864000").exit_code == 2
        assert self.rules(s3_bucket) == []


class TestLogGuard:
    """The bucket policy that refuses log entries of Delta tables without a condition."""

    def test_guard_is_of_entries_at_the_url_and_below(self) -> None:
        (statement,) = as_json("policy", "delta-log", "s3://bucket/lake")["Statement"]
        entry = "_delta_log/????????????????????.json"
        place = "arn:aws:s3:::bucket/lake"
        assert statement["Resource"] == [f"{place}/{entry}", f"{place}/*/{entry}"]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "s3:PutObject")
        assert statement["Condition"]["Null"] == {"s3:if-none-match": "true"}

    def test_guard_does_nothing_on_ceph_which_does_not_know_its_keys(self, ceph: Store) -> None:
        """Without the key that spares parts of uploads it would refuse our own commits there."""
        client, bucket = ceph.client(), f"guard-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=bucket)
        root = TableRoot.parse(f"s3://{bucket}/lake")
        document = log_guard(root)
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
        entry = f"{root.prefix}/flights/_delta_log/{0:020d}.json"
        client.put_object(Bucket=bucket, Key=entry, Body=b"{}", IfNoneMatch="*")
        client.put_object(Bucket=bucket, Key=entry, Body=b"{}")
        del document["Statement"][0]["Condition"]["Bool"]
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
        with pytest.raises(ClientError, match="AccessDenied"):
            client.put_object(Bucket=bucket, Key=entry, Body=b"{}", IfNoneMatch="*")
