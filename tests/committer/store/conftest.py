"""Drivers on servers that tests make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from support.faulty_server import FaultyServer, Received, Reply
from support.moto_server import S3Server
from zero_rename.committer.store.driver import BotoDriver, connect


@pytest.fixture
def at(s3_env: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a driver on another endpoint."""

    def make(endpoint: str) -> BotoDriver:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        return connect("bucket")

    return make


#: What a server says to a request: by itself, or what passing it on gives.
Answer = Callable[[Received, Callable[[], Reply]], Reply]


@pytest.fixture
def driver_behind(
    s3_env: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Answer], AbstractContextManager[BotoDriver]]:
    """A driver on the bucket, whose requests a server of the test's own answers or passes on."""

    @contextmanager
    def behind(answer: Answer) -> Iterator[BotoDriver]:
        with FaultyServer(answer, upstream=s3_env.endpoint) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            yield connect(bucket)

    return behind
