"""The identity of a driver is the operator's, wherever the AWS connection decides it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from airflow.providers.amazon.aws.hooks import base_aws

from support.airflow import Connect
from support.faulty_server import FaultyServer, Reply
from support.moto_server import S3Server
from zero_rename.committer import StoreRefusedError, StoreUnreachableError, Table
from zero_rename.provider.hooks import ZeroRenameHook

ROLE = "arn:aws:iam::123456789012:role/lake"
#: Of the host that the driver runs on.
HOST = {
    "AWS_ACCESS_KEY_ID": "host-id",
    "AWS_SECRET_ACCESS_KEY": "host-secret",
    "AWS_SESSION_TOKEN": "host-token",
    # Where boto3 looks for a token first, and until when the host's keys were valid.
    "AWS_SECURITY_TOKEN": "host-token",
    "AWS_CREDENTIAL_EXPIRATION": "2013-01-01T00:00:00Z",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_DEFAULT_REGION": "us-east-1",
}
PROFILE = """
[profile own]
aws_access_key_id = profile-id
aws_secret_access_key = profile-secret
[profile base]
aws_access_key_id = base-id
aws_secret_access_key = base-secret
[profile of_a_role]
role_arn = {role}
role_session_name = of-the-profile
source_profile = base
services = here
[services here]
sts =
    endpoint_url = {endpoint}
"""
#: Login and password of the AWS connection, its extra, and the identity of its operator.
FORMS: dict[str, tuple[tuple[str, str] | None, dict[str, Any], str]] = {
    "login": (("login-id", "secret"), {}, "login-id"),
    "keys_in_extra": (
        None,
        {"aws_access_key_id": "extra-id", "aws_secret_access_key": "secret"},
        "extra-id",
    ),
    "keys_of_a_session": (
        ("login-id", "secret"),
        {"aws_session_token": "a-token"},
        "login-id a-token",
    ),
    "keys_in_session_kwargs": (
        None,
        {"session_kwargs": {"aws_access_key_id": "kwargs-id", "aws_secret_access_key": "secret"}},
        "kwargs-id",
    ),
    "profile": (None, {"profile_name": "own"}, "profile-id"),
    "profile_of_a_role": (None, {"profile_name": "of_a_role"}, "assumed-role/lake/of-the-profile"),
    "role": (("login-id", "secret"), {"role_arn": ROLE}, "assumed-role/lake/airflow_aws_default"),
    "role_of_a_profile": (
        None,
        {"profile_name": "own", "role_arn": ROLE},
        "assumed-role/lake/airflow_aws_default",
    ),
    "role_by_the_workers_own_keys": (
        None,
        {"role_arn": ROLE, "assume_role_kwargs": {"RoleSessionName": "named"}},
        "assumed-role/lake/named",
    ),
    "role_by_a_web_identity": (
        None,
        {
            "role_arn": ROLE,
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "file",
            "assume_role_with_web_identity_token_file": "TOKEN",
        },
        "assumed-role/lake/",
    ),
}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Of AWS and this package, these variables and no others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [it for it in os.environ if it.startswith(("AWS_", "ZERO_RENAME_"))]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def worker(tmp_path: Path, s3_server: S3Server) -> dict[str, str]:
    """Variables of the operator's host."""
    text = PROFILE.format(role=ROLE, endpoint=s3_server.endpoint)
    (tmp_path / "config").write_text(text, "utf-8")
    (tmp_path / "token").write_text("a-token", "utf-8")
    return {
        "AWS_ACCESS_KEY_ID": "worker-id",
        "AWS_SECRET_ACCESS_KEY": "worker-secret",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_DEFAULT_REGION": "us-east-1",
        # Where web identities are taken to, which the connection cannot say.
        "AWS_ENDPOINT_URL_STS": s3_server.endpoint,
    }


def connected(connect: Connect, form: str, folder: Path, server: S3Server) -> str:
    """Make the AWS connection of a form; its operator's identity."""
    login, extra, expected = FORMS[form]
    keys = {} if login is None else {"login": login[0], "password": login[1]}
    its = {"sts": {"endpoint_url": server.endpoint}, "s3": {"endpoint_url": server.endpoint}}
    text = json.dumps({"region_name": "us-east-1", "service_config": its, **extra})
    extra = json.loads(text.replace('"TOKEN"', json.dumps(str(folder / "token"))))
    connect("aws_default", "aws", extra=extra, **keys)
    return expected


def identity(client: Any, server: S3Server) -> str:
    """The user or role that a client's requests come from, as STS tells of roles."""
    keys = client._request_signer._credentials.get_frozen_credentials()
    if not keys.access_key.startswith("ASIA"):
        return " ".join(filter(None, (keys.access_key, keys.token)))
    sts = boto3.client(
        "sts",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
    )
    return sts.get_caller_identity()["Arn"]


@pytest.mark.parametrize("form", FORMS)
def test_driver_has_the_identity_of_the_operator(
    form: str, connect: Connect, worker: dict[str, str], tmp_path: Path, s3_server: S3Server
) -> None:
    expected = connected(connect, form, tmp_path, s3_server)
    with environment(worker):
        hook = ZeroRenameHook()
        operators = identity(hook.get_table("s3://lake/t").driver.clients.client, s3_server)
        handed = hook.credentials_env()
    with environment({**HOST, **handed}):
        drivers = identity(Table("s3://lake/t").driver.clients.client, s3_server)
    assert expected in operators
    assert drivers.rpartition("/")[0] == operators.rpartition("/")[0]
    assert drivers == operators or form == "role_by_a_web_identity"  # Each session has a name.


class Federation(base_aws.BaseSessionFactory):
    """Keys of a federation that only this installation of Airflow knows."""

    def create_session(self, deferrable: bool = False) -> Any:
        return boto3.session.Session("federated-id", "secret", "token", "us-east-1")


def test_keys_of_the_installations_own_session_factory_are_handed_over(
    connect: Connect, worker: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_aws, "SessionFactory", Federation)
    connect("aws_default", "aws", extra={"region_name": "us-east-1"})
    with environment(worker):
        handed = ZeroRenameHook().credentials_env()
    assert handed["AWS_ACCESS_KEY_ID"] == "federated-id"
    assert handed["AWS_SESSION_TOKEN"] == "token"


def test_end_of_a_roles_keys_is_told_when_they_are_handed_over(
    connect: Connect,
    worker: dict[str, str],
    tmp_path: Path,
    s3_server: S3Server,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connected(connect, "login", tmp_path, s3_server)
    with environment(worker), caplog.at_level(logging.INFO):
        ZeroRenameHook().credentials_env()
    assert "expire" not in caplog.text
    connected(connect, "role", tmp_path, s3_server)
    with environment(worker), caplog.at_level(logging.INFO):
        ZeroRenameHook().credentials_env()
    assert "DurationSeconds" in caplog.text
    assert "pass_credentials=False" in caplog.text


def test_service_of_roles_that_does_not_answer_is_unreachable(
    connect: Connect, worker: dict[str, str], tmp_path: Path
) -> None:
    connected(connect, "role", tmp_path, S3Server("http://127.0.0.1:9"))
    with environment(worker | {"AWS_MAX_ATTEMPTS": "1"}):
        for asks in ("credentials_env", "get_conn", "s3a_store", "endpoint_env"):
            with pytest.raises(StoreUnreachableError, match="connection 'aws_default'"):
                getattr(ZeroRenameHook(), asks)()


@pytest.mark.parametrize("method", ["assume_role", "assume_role_with_web_identity"])
def test_role_that_may_not_be_assumed_is_refused_by_a_sentence(
    method: str, connect: Connect, worker: dict[str, str], tmp_path: Path
) -> None:
    denied = Reply(
        403,
        b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        b"</ErrorResponse>",
        {"Content-Type": "text/xml"},
    )
    token = {
        "assume_role_method": method,
        "assume_role_with_web_identity_federation": "file",
        "assume_role_with_web_identity_token_file": str(tmp_path / "token"),
    }
    with FaultyServer(lambda *_: denied) as roles:
        its = {"sts": {"endpoint_url": roles.endpoint}}
        extra = {"role_arn": ROLE, "service_config": its, "region_name": "us-east-1", **token}
        connect("aws_default", "aws", extra=extra)
        with environment(worker | {"AWS_ENDPOINT_URL_STS": roles.endpoint}):
            with pytest.raises(StoreRefusedError, match="403 AccessDenied") as refused:
                ZeroRenameHook().credentials_env()
            assert "assume the role" in str(refused.value)
            # A role by a web identity is asked for by the first request.
            with pytest.raises(StoreRefusedError, match="403 AccessDenied") as refused:
                ZeroRenameHook().get_table("s3://lake/t").exists()
    assert "assume the role" in str(refused.value)
    assert "s3:GetObject" not in str(refused.value)


def test_token_file_that_is_not_there_is_refused_by_a_sentence(
    connect: Connect, worker: dict[str, str], tmp_path: Path, s3_server: S3Server
) -> None:
    connected(connect, "role_by_a_web_identity", tmp_path, s3_server)
    (tmp_path / "token").unlink()
    with environment(worker), pytest.raises(StoreRefusedError, match=r"/token'"):
        ZeroRenameHook().credentials_env()


def test_profile_that_is_not_there_is_refused_by_a_sentence(
    connect: Connect, worker: dict[str, str]
) -> None:
    connect("aws_default", "aws", extra={"profile_name": "missing"})
    with environment(worker), pytest.raises(StoreRefusedError, match="missing"):
        ZeroRenameHook().get_table("s3://lake/t")


def test_profile_without_keys_is_refused_by_a_sentence(
    connect: Connect, worker: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile empty]\nregion = us-east-1\n", "utf-8")
    connect("aws_default", "aws", extra={"profile_name": "empty"})
    worker |= {"AWS_EC2_METADATA_DISABLED": "true"}
    with environment(worker), pytest.raises(StoreRefusedError, match="no keys"):
        ZeroRenameHook().credentials_env()
