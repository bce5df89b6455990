"""Lifecycle rule that aborts old uploads of a table."""

from __future__ import annotations

import pytest

from support import delta_tables
from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.upkeep.doctor.examination import backstop

DAY = 24 * 3600.0


@pytest.mark.parametrize("folder", ["sales", f"{'a' * 200}/{'b' * 200}"])
def test_tables_of_long_names_have_rules_of_their_own(folder: str) -> None:
    """S3 accepts 255 characters of a name, and a rule replaces the one of its name."""
    store = MemoryStore()
    roots = [TableRoot("bucket", f"{folder}/{name}") for name in ("orders", "returns")]
    for root in (*roots, *roots):
        MemoryDriver(store).run(backstop(root, None, None, apply=True))
    assert sorted(rule.prefix for rule in store.rules) == [f"{root.prefix}/" for root in roots]
    assert max(len(rule.name) for rule in store.rules) <= 255


def test_open_job_of_a_delta_table_lengthens_the_rule_and_the_doctor_knows_it() -> None:
    """Its jobs send no heartbeats: each may take as long as it says."""
    store = MemoryStore()
    table = delta_tables.on(store)
    delta_tables.write(table, delta_tables.rows(1))
    job = table.job(delta_tables.rows(2).schema, max_duration=30 * DAY)
    job.__enter__()
    rule = table.run(backstop(table.root, None, None, False))
    assert (rule.abort_days or 0) > 30
    store.rules = (LifecycleRule("tidy", "", abort_days=14),)
    assert "tidy" in {it.subject for it in table.doctor()}
    assert table.doctor(max_duration=DAY) == []
