"""Records as they were stored by earlier versions, beside what is written today."""

from __future__ import annotations

from typing import Any


def without_additions(written: Any, stored: Any) -> Any:
    """What is written today without the members that a record of before has not, where those say
    nothing."""
    if isinstance(written, dict) and isinstance(stored, dict):
        return {
            name: without_additions(value, stored.get(name))
            for name, value in written.items()
            if name in stored or value is not None
        }
    return written
