"""Lifecycle rules, as the checks get them."""

from __future__ import annotations

from math import inf
from typing import Any

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer import TableRoot
from zero_rename.committer.s3.lifecycle import LifecycleRule
from zero_rename.committer.s3.requests import Unknown
from zero_rename.s3a.checks.run import lifecycle_days

ROOT = TableRoot("bucket", "tables/flights")


def days(store: MemoryStore, fault: Any = None) -> float | None:
    return MemoryDriver(store, fault).run(lifecycle_days(ROOT))


def test_the_first_rule_that_aborts_uploads_of_the_table_counts() -> None:
    store = MemoryStore()
    assert days(store) == inf
    elsewhere = LifecycleRule("elsewhere", "tables/flights_old/", abort_days=1)
    store.rules = (elsewhere, LifecycleRule("expires", "", expires=True))
    assert days(store) == inf
    store.rules = (elsewhere, LifecycleRule("a", "", 7), LifecycleRule("b", "tables/flights/", 3))
    assert days(store) == 3


def test_rules_that_the_store_does_not_tell() -> None:
    assert days(MemoryStore(), lambda *_: Unknown("403 AccessDenied")) is None
