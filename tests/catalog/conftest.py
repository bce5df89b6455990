"""A catalog to tell of tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from conftest import Bucket


@pytest.fixture
def glue(s3_bucket: Bucket) -> Iterator[Any]:
    """A Glue client; the database has the bucket's name."""
    client = boto3.client("glue")
    client.create_database(DatabaseInput={"Name": s3_bucket.name})
    yield client
    client.close()
