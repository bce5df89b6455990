"""Drivers on servers that tests make."""

from __future__ import annotations

from typing import Any

import pytest

from support.moto_server import S3Server
from zero_rename.committer.store.driver import BotoDriver, connect


@pytest.fixture
def at(s3_env: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a driver on another endpoint."""

    def make(endpoint: str) -> BotoDriver:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        return connect("bucket")

    return make
