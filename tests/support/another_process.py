"""Process that has not seen a table before: this one, once it has forgotten what it saw."""

from __future__ import annotations

from zero_rename.tables import seen_logs


def begin_process() -> None:
    """Forget what this process has seen of the logs of Delta tables."""
    seen_logs.SEEN.clear()
