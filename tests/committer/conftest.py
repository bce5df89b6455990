"""Fixtures of tests of the committer."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def known_store() -> None:
    """First jobs probe moto here, as any store."""
