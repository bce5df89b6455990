"""The S3 servers the torture runs on: moto, one that ``tools/s3_servers.py`` starts, or one that is
there already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.moto_server import REGION, S3Server, running
from tools import s3_servers
from tools.s3_servers import Server


@dataclass(frozen=True)
class Store:
    """A running S3 server.

    :param atomic: whether two writers may race on it.
    :param origin: its version and where it is from.
    """

    name: str
    endpoint: str
    variables: Mapping[str, str]
    atomic: bool
    origin: str

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Variables with which boto3 reaches it, by ``endpoint`` if given."""
        return {
            **self.variables,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def ran_on(self) -> str:
        """For the table at the end of a run."""
        return f"{self.name} {self.origin}"

    def client(self) -> Any:
        """A plain client of the server itself, to look at what is in it."""
        import boto3

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.variables.get("AWS_REGION", REGION),
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
        )


#: Every server we start takes these keys, moto any.
_OWN = {
    "AWS_ACCESS_KEY_ID": s3_servers.ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": s3_servers.SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


def of_moto(server: S3Server) -> Store:
    """A moto server that runs already."""
    return Store("moto", server.endpoint, _OWN, atomic=False, origin=server.origin)


def of_server(server: Server) -> Store:
    """A server of ``tools/s3_servers.py``."""
    return Store(server.name, server.endpoint, _OWN, server.atomic, server.origin)


def of_url(url: str) -> Store:
    """A server that runs already, with credentials in the environment; writers may race on it."""
    given = {name: os.environ[name] for name in _OWN if name in os.environ}
    return Store(url, url, given, atomic=True, origin="it was there")


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def where_writers_race() -> str:
    """The server on which writers may race: ``SERVER`` of the environment, MinIO where it is on
    ``PATH``, else Ceph."""
    named = os.environ.get("S3_ENDPOINT") or os.environ.get("SERVER")
    return named or ("minio" if s3_servers.is_ready("minio") else "ceph")


@contextlib.contextmanager
def serving(name: str) -> Iterator[Store]:
    """Start a server and end it afterwards.

    :param name: ``moto``, one of ``tools/s3_servers.py``, or an URL.
    :raises ServerError: it is not there or does not start.
    """
    if is_url(name):
        yield of_url(name)
    elif name == "moto":
        with running() as server:
            yield of_moto(server)
    else:
        with s3_servers.serving(name) as server:
            yield of_server(server)
