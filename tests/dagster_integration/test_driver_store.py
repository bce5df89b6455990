"""The store of an application that Dagster submits is the resource's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dagster_zero_rename import ZeroRenameResource
from zero_rename.committer import Table
from zero_rename.committer.store.client_settings import S3_CLIENT

pytestmark = pytest.mark.memory_s3
OURS, ELSEWHERE = "http://ours.example:9000", "http://elsewhere.example:1"


def place(client: object) -> str:
    url = client.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "t/x"})  # pyrefly: ignore[missing-attribute]
    return url.partition("?")[0]


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"endpoint_url": OURS}, {"AWS_ENDPOINT_URL_S3": ELSEWHERE}),
        ({"path_style": True}, {}),
        ({}, {"AWS_ENDPOINT_URL": OURS}),
    ],
    ids=["endpoint_beside_the_environments", "path_style", "the_environments_endpoint"],
)
@pytest.mark.parametrize("inherits", [True, False])
def test_application_resolves_the_store_of_the_resource(
    given: dict[str, Any], own: dict[str, str], inherits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    resource = ZeroRenameResource(
        table_root="s3://lake/wh",
        region_name="eu-x",
        access_key_id="key-id",
        secret_access_key="key-secret",
        **given,
    )
    expected, handed = place(resource.table("t").driver.clients.client), resource.aws_env()
    assert "key-secret" not in handed[S3_CLIENT]
    for name in () if inherits else own:
        monkeypatch.delenv(name)
    for name, value in handed.items():
        monkeypatch.setenv(name, value)
    assert place(Table("s3://lake/t").driver.clients.client) == expected


def test_application_has_the_keys_of_the_resource_whatever_keys_the_environment_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ACCOUNT_ID": "1"}
    own |= {"AWS_SESSION_TOKEN": "token", "AWS_SECURITY_TOKEN": "token"}
    own["AWS_CREDENTIAL_EXPIRATION"] = "2013-01-01T00:00:00Z"
    resource = ZeroRenameResource(
        region_name="eu-x", access_key_id="key-id", secret_access_key="key-secret"
    )
    for name, value in {**own, **resource.aws_env()}.items():
        monkeypatch.setenv(name, value)
    client = Table("s3://lake/t").driver.clients.client
    found = client._get_credentials().get_frozen_credentials()
    assert (found.access_key, found.secret_key, found.token) == ("key-id", "key-secret", None)
