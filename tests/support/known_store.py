"""The facts about moto, which a probe finds by 37 requests: two thirds of what a first job asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from zero_rename.committer.commit import first_job
from zero_rename.committer.commit.state.probe import probe
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store.requests import ServerName, Step
from zero_rename.tables import store_check

MOTO = StoreFacts(atomic=False, conditional_delete=False)


def spare_probes(patch: Callable[[ModuleType, str, Any], None]) -> None:
    """Let first jobs on moto know its facts; other stores are asked as ever."""
    for module in (first_job, store_check):
        patch(module, "probe", _known)


def _known(root: TableRoot, ids: Callable[[], str]) -> Step[StoreFacts]:
    server = yield from ServerName()
    if "werkzeug" in server.lower():
        return replace(MOTO, server=server)
    return (yield from probe(root, ids))
