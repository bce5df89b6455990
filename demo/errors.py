"""What stops the demonstration, told in one paragraph."""

from __future__ import annotations


class DemoError(Exception):
    """What happened and what to do about it; shown without a traceback."""
