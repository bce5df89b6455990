"""Names of a run's records, made from its idempotency key of any length."""

from __future__ import annotations

import hashlib
from urllib.parse import quote


def file_of_run(idempotency_key: str) -> str:
    """Return the name of a run's record: readable, and unique by a digest of the key."""
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()[:16]
    return f"{quote(idempotency_key, safe='')[:80]}-{digest}.json"
