"""The store of a driver is the operator's, whatever the AWS connection and both hosts say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from support.airflow import Connect
from zero_rename.committer import InvalidInputError, StoreRefusedError, Table
from zero_rename.committer.store.client_settings import S3_CLIENT, ClientSettings
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

OURS, ELSEWHERE = "http://ours.example:9000", "http://elsewhere.example:1"
PROFILE = """
[profile lake]
region = eu-p
endpoint_url = http://profile.example:7
ca_bundle = {ca}
s3 =
    addressing_style = virtual
[profile fips]
region = us-east-1
use_fips_endpoint = true
"""
KEYS = """
[lake]
aws_access_key_id = profile-id
aws_secret_access_key = profile-secret
[fips]
aws_access_key_id = fips-id
aws_secret_access_key = fips-secret
"""
VPC = "https://bucket.vpce-1a2b.s3.eu-west-1.vpce.amazonaws.com"

#: Extra of the AWS connection (``None``: there is none), and the worker's own variables.
FORMS: dict[str, tuple[dict[str, Any] | None, dict[str, str]]] = {
    "endpoint_of_all_services": ({"endpoint_url": OURS}, {}),
    "endpoint_of_s3": ({"service_config": {"s3": {"endpoint_url": OURS}}}, {}),
    "endpoint_of_s3_besides_another": (
        {"endpoint_url": ELSEWHERE, "service_config": {"s3": {"endpoint_url": OURS}}},
        {},
    ),
    "endpoint_of_s3_beside_the_workers": (
        {"service_config": {"s3": {"endpoint_url": OURS}}},
        {"AWS_ENDPOINT_URL_S3": ELSEWHERE},
    ),
    "endpoint_beside_both_of_the_workers": (
        {"endpoint_url": OURS},
        {"AWS_ENDPOINT_URL_S3": ELSEWHERE, "AWS_ENDPOINT_URL": ELSEWHERE},
    ),
    "endpoint_where_configured_ones_are_ignored": (
        {"endpoint_url": OURS},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
    ),
    "no_endpoint": ({}, {}),
    "no_endpoint_and_the_workers": ({}, {"AWS_ENDPOINT_URL": OURS}),
    "no_endpoint_and_the_workers_of_s3": ({}, {"AWS_ENDPOINT_URL_S3": OURS}),
    "no_endpoint_and_configured_ones_ignored": (
        {"config_kwargs": {"ignore_configured_endpoint_urls": True}},
        {"AWS_ENDPOINT_URL": ELSEWHERE},
    ),
    "regional_endpoint": ({"endpoint_url": "https://s3.eu-x.amazonaws.com"}, {}),
    "vpc_endpoint": ({"endpoint_url": VPC}, {}),
    "virtual_addressing": (
        {"endpoint_url": OURS, "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {},
    ),
    "path_addressing": ({"config_kwargs": {"s3": {"addressing_style": "path"}}}, {}),
    "certificates_not_checked": ({"endpoint_url": OURS, "verify": False}, {}),
    "ca_file": ({"endpoint_url": OURS, "verify": "CA"}, {}),
    "ca_file_of_the_worker_overruled": ({"verify": True}, {"AWS_CA_BUNDLE": "CA"}),
    "profile": ({"profile_name": "lake"}, {}),
    "profile_of_fips": ({"profile_name": "fips", "region_name": "us-east-1"}, {}),
    "unsigned": ({"config_kwargs": {"signature_version": "unsigned"}}, {}),
    "dual_stack": ({"config_kwargs": {"use_dualstack_endpoint": True}}, {}),
    "no_connection": (None, {"AWS_ENDPOINT_URL": OURS, "AWS_DEFAULT_REGION": "eu-w"}),
}
#: What the driver's host says by itself: it inherits the worker's, or is of a cluster.
HOSTS: dict[str, dict[str, str] | None] = {
    "on_the_worker": None,
    "in_a_cluster": {},
    "in_a_cluster_with_an_endpoint": {"AWS_ENDPOINT_URL": "http://cluster.example:3"},
}
#: Every host has keys of its own.
HOST = {
    "AWS_ACCESS_KEY_ID": "host-id",
    "AWS_SECRET_ACCESS_KEY": "host-secret",
    "AWS_CONFIG_FILE": os.devnull,
}


@pytest.fixture
def ca(tmp_path: Path) -> str:
    made = tmp_path / "ca.pem"
    made.touch()
    return str(made)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Of AWS and the client's settings, these variables and no others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [it for it in os.environ if it.startswith("AWS_") or it == S3_CLIENT]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def worker(tmp_path: Path, ca: str) -> dict[str, str]:
    """Variables of a worker with profiles."""
    (tmp_path / "config").write_text(PROFILE.format(ca=ca), "utf-8")
    (tmp_path / "credentials").write_text(KEYS, "utf-8")
    return {
        **HOST,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }


def resolved(client: Any) -> dict[str, Any]:
    """Where a client's requests go and how they are signed."""
    url = urlsplit(client.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "t/x"}))
    return {
        "place": f"{url.scheme}://{url.netloc}{url.path}",
        "signed": bool(url.query),
        "region": client.meta.region_name,
        "verify": client._endpoint.http_session._verify,
    }


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("form", FORMS)
def test_driver_resolves_the_store_of_the_operator(
    form: str, host: str, connect: Connect, worker: dict[str, str], ca: str
) -> None:
    extra, own = FORMS[form]
    own = {name: ca if value == "CA" else value for name, value in own.items()}
    if extra is not None:
        extra = {name: ca if value == "CA" else value for name, value in extra.items()}
        keys = {} if "profile_name" in extra else {"login": "key-id", "password": "key-secret"}
        connect("aws_default", "aws", extra={"region_name": "eu-x", **extra}, **keys)
    with environment({**worker, **own}):
        hook = ZeroRenameHook()
        expected = resolved(hook.get_table("s3://lake/t").driver.clients.client)
        handed = hook.credentials_env()
        roles = hook.s3.get_session().client("sts").meta.endpoint_url
    inherited = HOSTS[host]
    there = {**worker, **own} if inherited is None else inherited
    with environment({**HOST, **there, **handed}):
        found = resolved(Table("s3://lake/t").driver.clients.client)
        session = boto3.session.Session()
        assumes = session.client("sts").meta.endpoint_url
        if hook.store.endpoint and "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS" not in own:
            # Whatever else runs there finds the store by AWS's own variables.
            assert session.client("s3").meta.endpoint_url == hook.store.endpoint
    assert found == expected
    if inherited is None and "profile_name" not in (extra or {}):
        assert assumes == roles, "a role is asked for elsewhere than the operator would"
    assert OURS not in assumes or own.get("AWS_ENDPOINT_URL") == OURS


def test_hadoop_is_told_the_store_of_a_profile_or_of_the_worker(
    connect: Connect, worker: dict[str, str]
) -> None:
    connect("aws_default", "aws", extra={"profile_name": "lake"})
    with environment({**worker, "AWS_ENDPOINT_URL_S3": ELSEWHERE}):
        told = ZeroRenameHook().s3a_store()
    assert told == {"endpoint": ELSEWHERE, "region": "eu-p", "path_style": False}
    S3ASettings(Committer.MAGIC, **told)


def test_proxy_with_a_password_is_handed_to_nobody(
    connect: Connect, worker: dict[str, str]
) -> None:
    proxies = {"http": "http://me:hidden@proxy:1"}
    connect("aws_default", "aws", extra={"config_kwargs": {"proxies": proxies}})
    with environment(worker):
        assert "hidden" not in str(ZeroRenameHook().endpoint_env())


def test_ca_file_that_the_drivers_host_lacks_leaves_the_check_to_the_host(
    monkeypatch: pytest.MonkeyPatch, ca: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(S3_CLIENT, ClientSettings(verify="/etc/our-ca.pem").encode())
    monkeypatch.setenv("AWS_CA_BUNDLE", ca)
    client = Table("s3://lake/t").driver.clients.client
    assert client._endpoint.http_session._verify == ca
    assert "/etc/our-ca.pem" in caplog.text


def test_ca_file_that_every_variable_names_and_the_host_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(S3_CLIENT, ClientSettings(verify="/etc/our-ca.pem").encode())
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/our-ca.pem")
    with pytest.raises(StoreRefusedError, match=r"/etc/our-ca\.pem .* not on this host"):
        Table("s3://lake/t")


@pytest.mark.parametrize("text", ["{", "[]", '{"endpoint": 1}', '{"a": "b"}'])
def test_settings_that_are_none_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(S3_CLIENT, text)
    with pytest.raises(InvalidInputError, match=S3_CLIENT):
        Table("s3://lake/t")


def test_member_that_botocore_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(S3_CLIENT, ClientSettings(config={"of_tomorrow": 1}).encode())
    with pytest.raises(InvalidInputError, match="of_tomorrow"):
        Table("s3://lake/t")
