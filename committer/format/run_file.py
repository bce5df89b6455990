"""Names of files that are records of a run: its key may be of any length."""

from __future__ import annotations

import hashlib
from urllib.parse import quote


def file_of_run(idempotency_key: str) -> str:
    """A file's name for a run's key: readable, and unique by a digest."""
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()[:16]
    return f"{quote(idempotency_key, safe='')[:80]}-{digest}.json"
