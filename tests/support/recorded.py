"""Files that real committers wrote, kept in ``tests/s3a/data`` for tests without a JVM.

``S3A_RECORD=1 make test-s3a`` writes them anew; else the tests with the real jars check that
today's committers still write the same members.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "s3a" / "data"


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def check_recorded(name: str, body: bytes) -> None:
    """Compare a file's shape with the one recorded, or record it.

    :raises AssertionError: members came or went.
    """
    path = DATA / name
    if os.environ.get("S3A_RECORD"):
        document = json.loads(body)
        if "hostname" in document:
            document["hostname"] = "driver-1"
        text = re.sub(r"file:/[^\"]*?/(?=s3a|staging)", "file:/tmp/", json.dumps(document))
        path.write_text(text + "\n", "utf-8")
    assert shape(json.loads(body)) == shape(json.loads(recorded(name)))


def shape(value: Any) -> Any:
    """Members and types, without values; of a list its first element's; no statistics."""
    if isinstance(value, dict):
        return {
            name: type(inner).__name__ if name in _OPEN else shape(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


#: What is in these depends on the day.
_OPEN = {"iostatistics", "metrics", "diagnostics"}
