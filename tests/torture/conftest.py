"""A store that is slowed down and watched, and the shared Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torture.proxy import Proxy
from torture.servers import Store, of_moto

from support.moto_server import S3Server
from support.spark import spark

__all__ = ["spark"]


@pytest.fixture
def store(s3_env: S3Server) -> Store:
    return of_moto(s3_env)


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    """Before the store; its latency widens the moments between two requests."""
    with Proxy(store.endpoint, latency=0.01) as proxy:
        yield proxy


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/flights"
