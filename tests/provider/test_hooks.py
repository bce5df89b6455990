"""The hook against a real S3 server, reached with what the AWS connection says alone."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.secrets import ExecutionAPISecretsBackend
from botocore.stub import Stubber

from support.airflow import Connect, Tables
from support.day_rows import load_rows
from support.moto_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from zero_rename.committer import InvalidInputError, StoreRefusedError, StoreUnreachableError
from zero_rename.committer.store.client_settings import S3_CLIENT, ClientSettings
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.spark_hook import find_cluster

pytestmark = pytest.mark.memory_s3


def test_the_default_connections_need_not_exist(s3_env: S3Server) -> None:
    """Credentials are then boto3's own affair, and none are handed on; the store is."""
    hook = ZeroRenameHook()
    assert hook.table_url("s3://b/t") == "s3://b/t"
    assert hook.get_conn().list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert hook.credentials_env() == {
        "AWS_ENDPOINT_URL_S3": s3_env.endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        S3_CLIENT: ClientSettings(s3_env.endpoint).encode(),
    }


def test_a_table_by_name_without_the_default_connection_says_that_it_is_missing() -> None:
    missing = "the connection 'zero_rename_default', which does not exist, gives no table root"
    with pytest.raises(InvalidInputError, match=missing):
        ZeroRenameHook().table_url("flights")


def test_named_connections_have_to_exist(connect: Connect) -> None:
    with pytest.raises(
        InvalidInputError, match=r"no Airflow connection 'lake'.* add lake --conn-type zero_rename"
    ):
        ZeroRenameHook("lake").table_url("s3://b/t")
    connect("lake", extra={"aws_conn_id": "missing"})
    with pytest.raises(
        InvalidInputError, match=r"no Airflow connection 'missing'.* add missing --conn-type aws;"
    ):
        ZeroRenameHook("lake").get_conn()


def test_an_aws_connection_of_another_type_is_refused(connect: Connect) -> None:
    """It would lead to the public endpoint, with the worker's own identity."""
    connect("lake", extra={"aws_conn_id": "files"})
    connect("files", "http", host="http://127.0.0.1:9")
    with pytest.raises(InvalidInputError, match="type 'http', not 'aws'"):
        ZeroRenameHook("lake").get_conn()


def test_a_table_below_the_root(tables: Tables, connect: Connect) -> None:
    root = tables.url("")
    connect("lake", extra={"table_root": root})
    tables.load(1, 2)
    table = ZeroRenameHook("lake").get_table("flights")
    assert table.root.url == tables.url("flights")
    assert table.partitions() == ["day=1", "day=2"]


def test_tables_without_encryption_get_the_connections(tables: Tables, connect: Connect) -> None:
    connect("lake", extra={"table_root": tables.url(""), "encryption": "SSE-S3"})
    table = ZeroRenameHook("lake").get_table("flights")
    with table.job(pa.schema({"n": pa.int64()})):
        pass
    assert table.encryption == Encryption(Algorithm.SSE_S3)
    table.set_encryption("SSE-KMS", "alias/lake", apply=True)
    with ZeroRenameHook("lake").get_table("flights").job(pa.schema({"n": pa.int64()})):
        pass
    assert table.encryption == Encryption(Algorithm.SSE_KMS, "alias/lake")


def test_a_name_that_is_no_table(tables: Tables) -> None:
    with pytest.raises(InvalidInputError, match="s3://bucket/prefix"):
        ZeroRenameHook().get_table("s3://bucket-only")


def test_credentials_are_those_of_the_connection(tables: Tables, s3_server: S3Server) -> None:
    assert ZeroRenameHook().credentials_env() == {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        **dict.fromkeys(("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"), ""),
        **dict.fromkeys(("AWS_CREDENTIAL_EXPIRATION", "AWS_ACCOUNT_ID"), ""),
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ENDPOINT_URL_S3": s3_server.endpoint,
        "AWS_ENDPOINT_URL_STS": f"https://sts.{REGION}.amazonaws.com",
        S3_CLIENT: ClientSettings(s3_server.endpoint).encode(),
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


def test_credentials_work_in_a_process_of_their_own(tables: Tables) -> None:
    """An empty session token must not be sent as one."""
    import boto3

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        assert name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ZeroRenameHook().credentials_env().items():
            patch.setenv(name, value)
        found = boto3.session.Session().client("s3").list_buckets()
    assert tables.bucket.name in [b.get("Name") for b in found["Buckets"]]


def test_a_token_and_a_certificate_bundle_are_handed_on(connect: Connect) -> None:
    connect(
        "aws_default",
        "aws",
        login="key-id",
        password="key-secret",
        extra={"aws_session_token": "a-token", "verify": "/etc/ca.pem", "region_name": "eu-x"},
    )
    given = ZeroRenameHook().credentials_env()
    assert given["AWS_SESSION_TOKEN"] == "a-token"
    assert given["AWS_CA_BUNDLE"] == "/etc/ca.pem"
    assert "AWS_ENDPOINT_URL" not in given


class _SilentBackend:
    """A secrets backend that does not answer."""

    def get_connection(self, conn_id: str, team_name: str | None = None) -> None:
        raise ConnectionError("secret-of-the-vault")


@pytest.mark.parametrize("conn_id", ["zero_rename_default", "lake"])
def test_connection_whose_secrets_backend_does_not_answer_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, conn_id: str
) -> None:
    """A load went by other policies, or failed without a retry."""
    backends = [_SilentBackend()]
    loaded = "airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded"
    monkeypatch.setattr(loaded, lambda: backends)
    known = r"there is an Airflow connection '{}' is not known: _SilentBackend \(ConnectionError\)"
    with pytest.raises(StoreUnreachableError, match=known.format(conn_id)) as refused:
        _ = ZeroRenameHook(conn_id).settings
    assert "secret" not in str(refused.value)
    with pytest.raises(StoreUnreachableError, match=known.format("spark_default")):
        find_cluster("spark_default", None, None)
    backends.clear()
    assert ZeroRenameHook().settings.table_root is None


@pytest.mark.parametrize(
    ("error", "is_missing"),
    [(ErrorType.CONNECTION_NOT_FOUND, True), (ErrorType.API_SERVER_ERROR, False)],
)
def test_connection_is_missing_where_airflows_api_server_says_so_alone(
    monkeypatch: pytest.MonkeyPatch, error: ErrorType, is_missing: bool
) -> None:
    said = SimpleNamespace(send=lambda _: ErrorResponse(error=error))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", said, raising=False)
    loaded = "airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded"
    monkeypatch.setattr(loaded, lambda: [ExecutionAPISecretsBackend()])
    hook = ZeroRenameHook()
    if is_missing:
        assert hook.settings.table_root is None
        return
    with pytest.raises(StoreUnreachableError, match="ExecutionAPISecretsBackend"):
        _ = hook.settings


def test_keys_of_a_connection_that_is_not_found_again_are_not_the_workers_own(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("aws_default", "aws", login="key-id", password="key-secret")
    found, asked = BaseHook.get_connection, list[str]()

    def get_connection(conn_id: str) -> Any:
        asked.append(conn_id)
        if asked.count("aws_default") > 1:
            raise AirflowNotFoundException(conn_id)
        return found(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get_connection))
    with pytest.raises(StoreUnreachableError, match="connection 'aws_default' is not known"):
        ZeroRenameHook().get_conn()


ODD = {
    "number_as_region": {"region_name": 5},
    "text_as_config": {"config_kwargs": '{"s3": {"addressing_style": "path"}}'},
    "text_within_config": {"config_kwargs": {"s3": "path"}},
    "unknown_config": {"config_kwargs": {"nosuch": 1}},
    "text_as_role_arguments": {"assume_role_kwargs": "x", "role_arn": "arn:aws:iam::1:role/x"},
    "number_as_endpoint": {"endpoint_url": 5},
    "text_as_services": {"service_config": "x"},
    "text_as_a_service": {"service_config": {"s3": "x"}},
    "text_as_session": {"session_kwargs": "x"},
    "unknown_role_method": {"assume_role_method": "x", "role_arn": "arn:aws:iam::1:role/x"},
    "list_as_extra": ["x"],
}


@pytest.mark.parametrize("extra", ODD.values(), ids=ODD)
def test_extra_of_another_kind_than_boto3_takes_is_refused(connect: Connect, extra: Any) -> None:
    connect("aws_default", "aws", login="key-id", password="key-secret", extra=extra)
    made = ZeroRenameHook()
    for call in (made.get_conn, made.credentials_env, made.endpoint_env, made.s3a_store):
        with pytest.raises(StoreRefusedError, match="connection 'aws_default'"):
            call()


def test_extra_of_another_kind_for_glue_alone_is_a_warning_after_a_commit(
    tables: Tables, connect: Connect, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    table = ZeroRenameHook().get_table(tables.url("flights"))
    load_rows(table, pa.table({"delay": [1.0], "day": ["a"]}))
    extra = {"endpoint_url": s3_server.endpoint, "service_config": {"glue": "x"}}
    connect("aws_default", "aws", login="key-id", password="key-secret", extra=extra)
    assert ZeroRenameHook().register(table, "glue://lake/flights") is None
    assert "the job is committed" in caplog.text


class TestTheConnectionFormsButton:
    def test_without_a_root(self, tables: Tables) -> None:
        fine, said = ZeroRenameHook().test_connection()
        assert fine
        assert "table_root" in said

    @pytest.mark.usefixtures("s3_server")
    @pytest.mark.parametrize(
        ("code", "expected"),
        [("InvalidAccessKeyId", False), ("SignatureDoesNotMatch", False), ("AccessDenied", True)],
    )
    def test_keys_that_the_store_may_not_know(
        self, tables: Tables, code: str, expected: bool
    ) -> None:
        hook = ZeroRenameHook()
        with Stubber(hook.get_conn()) as stubbed:
            stubbed.add_client_error("list_buckets", code, http_status_code=403)
            fine, said = hook.test_connection()
        assert fine is expected, said
        assert expected or code in said

    def test_with_one_or_a_bucket_as_the_root(self, tables: Tables, connect: Connect) -> None:
        for root in (tables.url(), f"s3://{tables.bucket.name}"):
            connect("lake", extra={"table_root": f"{root}/"})
            assert ZeroRenameHook("lake").test_connection() == (True, f"{root} can be listed.")

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"extra": {"table_root": "s3://no-such-bucket/t"}}, "NoSuchBucket"),
            ({"login": "me", "password": "x"}, "holds a credential"),
        ],
    )
    def test_why_not(self, tables: Tables, connect: Connect, fields: Any, why: str) -> None:
        connect("lake", **fields)
        fine, said = ZeroRenameHook("lake").test_connection()
        assert not fine
        assert why in said

    def test_extra_of_another_kind(self, tables: Tables, connect: Connect) -> None:
        connect("aws_default", "aws", extra={"config_kwargs": "x"})
        fine, said = ZeroRenameHook().test_connection()
        assert not fine
        assert "holds a value of another kind" in said

    def test_no_server(self, connect: Connect) -> None:
        connect(
            "aws_default",
            "aws",
            login="key-id",
            password="key-secret",
            extra={"endpoint_url": "http://127.0.0.1:9", "region_name": "eu-x"},
        )
        connect("lake", extra={"table_root": "s3://bucket/t"})
        fine, said = ZeroRenameHook("lake").test_connection()
        assert not fine
        assert "No connection" in said
        assert "key-secret" not in said
