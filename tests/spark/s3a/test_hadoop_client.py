"""The client that keeps a write's records, by what Hadoop says of the store."""

from __future__ import annotations

from typing import Any

import pytest

from support.session_stand_in import session
from zero_rename.committer.store.clients import S3Clients
from zero_rename.spark.s3a.session import SessionView, client_of

SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
ENVIRONMENT = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
KEYS = {"fs.s3a.access.key": "HADOOPS", "fs.s3a.secret.key": "s3cr3t"}


def settings(**given: str) -> SessionView:
    """Hadoop's, of a bucket or of all."""
    return SessionView(session({}, given))


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def made(**given: str) -> Any:
    """What the package's own requests go through."""
    return S3Clients.derived_from(client_of(settings(**given), "bucket")).client


def signs_with(client: Any) -> tuple[str, str, str | None] | None:
    found = client._get_credentials()
    return None if found is None else (found.access_key, found.secret_key, found.token)


def test_where_hadoop_says_nothing_the_environment_counts() -> None:
    assert client_of(settings(), "bucket") is None


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ({"fs.s3a.endpoint": "http://store:9000"}, "http://store:9000"),
        ({"fs.s3a.endpoint": "store:9000"}, "https://store:9000"),
        (
            {"fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false"},
            "http://store:9000",
        ),
        (
            {
                "fs.s3a.endpoint": "http://store:9000",
                "fs.s3a.bucket.bucket.endpoint": "http://own:1",
            },
            "http://own:1",
        ),
        (
            {
                "fs.s3a.bucket.bucket.endpoint": "own:1",
                "fs.s3a.bucket.bucket.connection.ssl.enabled": "false",
            },
            "http://own:1",
        ),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "https://s3.eu-west-1.amazonaws.com"),
    ],
)
def test_endpoints(said: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bucket before those of all, and both before the environment's."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:2")
    assert made(**KEYS, **said).meta.endpoint_url == url


def test_the_environments_endpoint_counts_where_hadoop_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:2")
    assert made(**KEYS).meta.endpoint_url == "http://elsewhere:2"


@pytest.mark.parametrize(
    ("said", "region"),
    [
        ({"fs.s3a.endpoint.region": "eu-x"}, "eu-x"),
        ({"fs.s3a.endpoint": "https://s3.eu-west-1.amazonaws.com"}, "eu-west-1"),
        ({"fs.s3a.bucket.bucket.endpoint.region": "eu-y", "fs.s3a.endpoint.region": "x"}, "eu-y"),
        ({"fs.s3a.endpoint.region": "sdk", "fs.s3a.path.style.access": "true"}, "eu-env"),
    ],
)
def test_regions(said: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-env")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-env")
    assert made(**said).meta.region_name == region


def test_addressing() -> None:
    client = made(**{"fs.s3a.path.style.access": "true", "fs.s3a.endpoint": "http://store:9000"})
    assert client.meta.config.s3["addressing_style"] == "path"


@pytest.mark.parametrize(
    ("said", "signs"),
    [
        (KEYS, ("HADOOPS", "s3cr3t", None)),
        (KEYS | {"fs.s3a.session.token": "t0k3n"}, ("HADOOPS", "s3cr3t", "t0k3n")),
        (
            KEYS | {"fs.s3a.session.token": "t0k3n", "fs.s3a.aws.credentials.provider": SIMPLE},
            ("HADOOPS", "s3cr3t", None),
        ),
        (
            KEYS
            | {"fs.s3a.bucket.bucket.access.key": "OWN", "fs.s3a.bucket.bucket.secret.key": "0wn"},
            ("OWN", "0wn", None),
        ),
        # The order is the list's.
        (
            KEYS | {"fs.s3a.aws.credentials.provider": f"{ENVIRONMENT},\n  {SIMPLE}"},
            ("ENVIRONS", "3nv", None),
        ),
        (KEYS | {"fs.s3a.aws.credentials.provider": TEMPORARY}, ("ENVIRONS", "3nv", None)),
        (
            {"fs.s3a.aws.credentials.provider": SIMPLE, "fs.s3a.endpoint.region": "x"},
            ("ENVIRONS", "3nv", None),
        ),
    ],
)
def test_keys(
    said: dict[str, str], signs: tuple[str, str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "3nv")
    client = client_of(settings(**{"fs.s3a.endpoint": "http://store:9000"} | said), "bucket")
    assert signs_with(S3Clients.derived_from(client).client) == signs


def test_keys_of_hadoop_alone() -> None:
    order = {"fs.s3a.aws.credentials.provider": f"{ENVIRONMENT},{SIMPLE}"}
    assert signs_with(made(**KEYS, **order)) == ("HADOOPS", "s3cr3t", None)
