"""A catalog to tell of tables."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Bucket


@pytest.fixture
def glue(glue_client: Any, s3_bucket: Bucket) -> Any:
    """A Glue client; the database has the bucket's name."""
    glue_client.create_database(DatabaseInput={"Name": s3_bucket.name})
    return glue_client
