"""Lifecycle rule that aborts old uploads of a table."""

from __future__ import annotations

import pytest

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.upkeep.doctor import backstop


@pytest.mark.parametrize("folder", ["sales", f"{'a' * 200}/{'b' * 200}"])
def test_tables_of_long_names_have_rules_of_their_own(folder: str) -> None:
    """S3 accepts 255 characters of a name, and a rule replaces the one of its name."""
    store = MemoryStore()
    roots = [TableRoot("bucket", f"{folder}/{name}") for name in ("orders", "returns")]
    for root in (*roots, *roots):
        MemoryDriver(store).run(backstop(root, None, None, apply=True))
    assert sorted(rule.prefix for rule in store.rules) == [f"{root.prefix}/" for root in roots]
    assert max(len(rule.name) for rule in store.rules) <= 255
