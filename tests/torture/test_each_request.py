"""A process killed at a request of what it does: the short form of ``make torture EACH=all``."""

from __future__ import annotations

from typing import Any

import pytest
from torture.delta_requests import DeltaAttack
from torture.each_request import Attack
from torture.proxy import Proxy, When
from torture.servers import Store


@pytest.mark.parametrize(
    ("attacks", "name", "when", "changed"),
    [
        (Attack, "append", When.BEFORE, False),
        (Attack, "append, tried again", When.AFTER, True),
        (Attack, "replace", When.AFTER, True),
        (DeltaAttack, "append", When.BEFORE, False),
        (DeltaAttack, "load in the place of the run's rows", When.AFTER, True),
        (DeltaAttack, "undo", When.AFTER, True),
        (DeltaAttack, "publish", When.AFTER, True),
    ],
)
def test_at_its_decision(
    store: Store,
    proxy: Proxy,
    s3_bucket: Any,
    attacks: type[Attack],
    name: str,
    when: When,
    changed: bool,
) -> None:
    attack = attacks(store, store.client(), proxy, f"s3://{s3_bucket.name}/t", name)
    attack.prepare()
    assert attack.kill(attack.at_decision(when), name)
    assert attack.check(reads_first=True) is changed
