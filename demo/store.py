"""The S3 that the demonstration loads into: moto's server, or the one the user names."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.counting import RequestCounter
from tests.support.plain_bucket import PlainBucket

from .processes import started, tail
from .workspace import CHECKOUT, DemoError, shown

_SERVER = CHECKOUT / "tests" / "support" / "moto_server.py"
#: For the embedded server, which takes any.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
_REGION = "us-east-1"


@dataclass(frozen=True)
class Store(PlainBucket):
    """A bucket on an S3 endpoint.

    :param endpoint: its URL.
    :param environment: the variables with which child processes reach it.
    :param embedded: whether it is ours, and counts requests.
    """

    endpoint: str
    environment: Mapping[str, str]
    embedded: bool

    def requests(self) -> int | None:
        """Requests to the bucket so far, as counted by the server; ``None``: it cannot say."""
        return self._counter().total() if self.embedded else None

    def has_uploaded(self, prefix: str) -> bool:
        """Whether a part of an upload below a prefix has arrived."""
        if not self.embedded:
            return bool(self.uploads(prefix))
        # The server's own log, since a listing would count as a request.
        log = self._counter().log()
        return any(name == "UploadPart" and key.startswith(prefix) for name, key in log)

    def has_put(self, prefix: str, suffix: str) -> bool:
        """Whether an object has been put below a prefix whose key ends so."""
        if not self.embedded:
            return any(key.endswith(suffix) for key in self.keys(prefix))
        log = self._counter().log()
        found = (key for name, key in log if name == "PutObject")
        return any(key.startswith(prefix) and key.endswith(suffix) for key in found)

    def copies(self, prefix: str) -> int | None:
        """How many objects were copied to keys below a prefix; ``None``: the server cannot say."""
        if not self.embedded:
            return None
        log = self._counter().log()
        return sum("Copy" in name and key.startswith(prefix) for name, key in log)

    def _counter(self) -> RequestCounter:
        return RequestCounter(self.endpoint, self.name)


@contextlib.contextmanager
def store(logs: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Store]:
    """The user's server where ``S3_ENDPOINT`` names one, else an embedded one.

    :raises DemoError: it does not answer, refuses the credentials or the bucket.
    """
    endpoint = environ.get("S3_ENDPOINT")
    if endpoint:
        variables = {name: v for name, v in environ.items() if name.startswith("AWS_")}
        variables.setdefault("AWS_DEFAULT_REGION", variables.get("AWS_REGION", _REGION))
        variables["AWS_ENDPOINT_URL"] = endpoint
        with _bucket(endpoint, variables, environ.get("S3_BUCKET")) as made:
            yield made
        return
    with _server(logs) as address:
        variables = {
            **_CREDENTIALS,
            "AWS_ENDPOINT_URL": address,
            "AWS_DEFAULT_REGION": _REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            # The user's own profiles and settings have no part in this.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        made = Store("demo", _client(address, variables), address, variables, embedded=True)
        made.client.create_bucket(Bucket=made.name)
        yield made


@contextlib.contextmanager
def _server(logs: Path) -> Iterator[str]:
    """moto's server on a free port, which it prints when it takes connections."""
    log = logs / "s3-server.log"
    clean = {name: v for name, v in os.environ.items() if not name.startswith("AWS_")}
    # S3's own smallest part; the tests use a smaller one.
    clean["S3_UPLOAD_PART_MIN_SIZE"] = str(5 * 1024 * 1024)
    with started([sys.executable, str(_SERVER)], clean, log, stdout=-1) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address.startswith("http://"):
            raise DemoError(
                f"The embedded S3 server did not start; {shown(log)} ends with:\n{tail(log)}"
            )
        yield address


def _client(endpoint: str, variables: Mapping[str, str]) -> Any:
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=variables.get("AWS_REGION", variables.get("AWS_DEFAULT_REGION")),
        aws_access_key_id=variables.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=variables.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=variables.get("AWS_SESSION_TOKEN"),
        config=Config(
            connect_timeout=3,
            read_timeout=20,
            retries={"total_max_attempts": 2, "mode": "standard"},
            s3={"addressing_style": "path"},
        ),
    )


@contextlib.contextmanager
def _bucket(endpoint: str, variables: Mapping[str, str], named: str | None) -> Iterator[Store]:
    """A bucket of our own on the user's server, removed afterwards; or the named one."""
    name = named or f"zero-rename-demo-{uuid.uuid4().hex[:8]}"
    try:
        client = _client(endpoint, variables)
        made = Store(name, client, endpoint, variables, embedded=False)
        client.head_bucket(Bucket=name) if named else _create(client, name)
    except (BotoCoreError, ClientError, ValueError) as error:
        raise DemoError(
            f"The S3 server at {endpoint} cannot be used: {error}. Nothing was written there. "
            "Check S3_ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; "
            "S3_BUCKET names an existing bucket where these keys may not create one. Without "
            "S3_ENDPOINT an embedded server is used."
        ) from error
    try:
        yield made
    finally:
        if not named:
            made.abort_uploads()
            for key in made.sizes():
                client.delete_object(Bucket=name, Key=key)
            client.delete_bucket(Bucket=name)


def _create(client: Any, name: str) -> None:
    """Create a bucket in the client's region; the first region of all must not be named."""
    region = client.meta.region_name
    where = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    client.create_bucket(Bucket=name, **(where if region != _REGION else {}))
