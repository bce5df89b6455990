"""A process killed at a request of what it does: the short form of ``make torture EACH=all``."""

from __future__ import annotations

from typing import Any

import pytest
from torture.delta_requests import DeltaAttack
from torture.each_request import Attack
from torture.proxy import Proxy, When
from torture.servers import Store


@pytest.mark.parametrize(
    ("name", "when", "changed"),
    [
        ("append", When.BEFORE, False),
        ("append, tried again", When.AFTER, True),
        ("replace", When.AFTER, True),
    ],
)
def test_at_its_decision(
    store: Store, proxy: Proxy, s3_bucket: Any, name: str, when: When, changed: bool
) -> None:
    attack = Attack(store, store.client(), proxy, f"s3://{s3_bucket.name}/t", name)
    attack.prepare()
    assert attack.kill(attack.at_decision(when), name)
    assert attack.check(reads_first=True) is changed


@pytest.mark.parametrize(
    ("name", "when", "changed"),
    [
        ("append", When.BEFORE, False),
        ("load in the place of the run's rows", When.AFTER, True),
        ("undo", When.AFTER, True),
        ("publish", When.AFTER, True),
    ],
)
def test_at_the_commit_of_a_delta_table(
    store: Store, proxy: Proxy, s3_bucket: Any, name: str, when: When, changed: bool
) -> None:
    attack = DeltaAttack(store, store.client(), proxy, f"s3://{s3_bucket.name}/t", name)
    attack.prepare()
    assert attack.kill(attack.at_decision(when), name)
    assert attack.check(reads_first=True) is changed
