"""A process killed at a request of what it does: the short form of ``make torture EACH=all``."""

from __future__ import annotations

from typing import Any

import pytest
from torture.each_request import Attack, at_decision
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
    assert attack.kill(at_decision(when), name)
    assert attack.check(reads_first=True) is changed
