"""What the doctor says of a ledger of Hadoop's runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.memory_store import MemoryDriver, MemoryStore
from support.s3a_jobs import ROOT, a_try
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.ledger_problems import LEAST_DAYS, ledger_problems
from zero_rename.s3a.runs.try_record import COMMITTED, run_uuid

LEDGER = "wh/_zero_rename/s3a-runs/flights/"


@pytest.fixture
def store() -> MemoryStore:
    """A ledger of three attempts, two of them closed."""
    store = MemoryStore()
    for state in ("submitted", COMMITTED, COMMITTED):
        record = replace(a_try(run_uuid()), state=state)
        opened = MemoryDriver(store).run(ledger.open_try(ROOT, record))
        if state == COMMITTED:
            MemoryDriver(store).run(ledger.forget_try(ROOT, opened))
    return store


def found(store: MemoryStore, many: int = 10) -> list[tuple[str, str]]:
    problems = MemoryDriver(store).run(ledger_problems(ROOT, many))
    return [(it.what, it.subject) for it in problems]


def test_root_without_a_ledger_has_no_problem_of_it() -> None:
    store = MemoryStore()
    store.rules = (LifecycleRule("tidy", "", expires=True, expire_days=3),)
    assert found(store) == []


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (LifecycleRule("tidy", "wh/", expires=True, expire_days=90), "expires the ledger"),
        (LifecycleRule("tidy", LEDGER, expires=True), "expires the ledger"),
        (LifecycleRule("cold", "", archives="GLACIER"), "archives the ledger"),
        (LifecycleRule("tidy", "wh/flights/", expires=True, expire_days=3), ""),
        (LifecycleRule("uploads", "wh/", abort_days=3), ""),
        (LifecycleRule("old", LEDGER, expires=True, expire_days=LEAST_DAYS), ""),
    ],
)
def test_rule_that_deletes_records_that_a_cleared_run_asks_for_is_named(
    store: MemoryStore, rule: LifecycleRule, what: str
) -> None:
    store.rules = (rule,)
    assert found(store) == ([(f"lifecycle rule {what} of runs", rule.name)] if what else [])


def test_large_ledger_is_named_with_its_size_and_a_rule(store: MemoryStore) -> None:
    assert found(store, many=4) == []
    (problem,) = MemoryDriver(store).run(ledger_problems(ROOT, 3))
    assert (problem.what, problem.subject) == ("ledger of runs is large", LEDGER)
    assert "records of 3 attempts" in problem.detail
    assert f"the prefix {LEDGER} after {LEAST_DAYS} days" in problem.remedy
    store.rules = (LifecycleRule("old", LEDGER, expires=True, expire_days=LEAST_DAYS),)
    assert found(store, many=3) == []
