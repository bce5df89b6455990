"""A store that is slowed down and watched, and one on which writers may race."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torture.proxy import Proxy
from torture.servers import Store, is_url, of_moto, of_server, of_url, where_writers_race

from support.moto_server import S3Server
from support.shared_servers import shared_server


@pytest.fixture(autouse=True)
def known_store() -> None:
    """First jobs probe moto here, as any store: they may fail at each request."""


@pytest.fixture
def store(s3_env: S3Server) -> Store:
    return of_moto(s3_env)


@pytest.fixture(scope="session")
def atomic_store(pytestconfig: pytest.Config) -> Store:
    """A real store on which writers may race, the same for all workers."""
    name = where_writers_race()
    return of_url(name) if is_url(name) else of_server(shared_server(pytestconfig, name))


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    """Before the store; its latency widens the moments between two requests."""
    with Proxy(store.endpoint, latency=0.01) as proxy:
        yield proxy


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/flights"
