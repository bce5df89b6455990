"""Entries in the log of a Delta table as another engine might write them."""

from __future__ import annotations

import json
from typing import Any

from support.plain_bucket import PlainBucket


def commit(bucket: PlainBucket, *actions: dict[str, Any], table: str = "flights") -> None:
    """Commit actions to the table of that prefix."""
    log = [key for key in bucket.keys(f"{table}/_delta_log/") if key.endswith(".json")]
    key = f"{table}/_delta_log/{len(log):020}.json"
    bucket.put(key, "\n".join(map(json.dumps, actions)).encode())


def metadata(bucket: PlainBucket, properties: dict[str, str]) -> dict[str, Any]:
    """The action with the table's first columns and properties, and further properties."""
    lines = bucket.read(f"flights/_delta_log/{0:020}.json").decode().splitlines()
    found = next(it["metaData"] for it in map(json.loads, lines) if "metaData" in it)
    return {"metaData": {**found, "configuration": found["configuration"] | properties}}
