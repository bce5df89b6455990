"""An object that a stranger puts at the key of a committed file, before all is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.protocol import DAY1, DAY2, World
from zero_rename.committer import DataLostError, FindingKind, RepairAction
from zero_rename.committer.store.requests import CompleteUpload, Put, Refused, Unknown
from zero_rename.committer.upkeep.repair import repair
from zero_rename.committer.upkeep.verify import verify

_GONE = Refused("NoSuchUpload")


def _overwritten(world: World, completed: bool, gone: Any = _GONE) -> str:
    """Commit a job while a stranger puts an object at the key of its file in DAY1, and the answer
    to Complete is lost; returns the key.

    :param completed: whether Complete was carried out before that.
    :param gone: how the store answers the completion of an upload that is gone.
    """
    world.load(DAY1, DAY2)
    opened, result = world.written(DAY1, DAY2)
    key = result.files[0].key
    answered = False

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal answered
        if isinstance(request, CompleteUpload) and request.key == key and not answered:
            answered = True
            if completed:
                apply(request)
            world.store.apply(Put(key, b"a stranger's"))
            return Unknown("lost")
        answer = apply(request)
        return gone if answer == _GONE else answer

    world.driver.fault = fault
    world.commit(opened, result)
    return key


def test_one_that_is_not_complete_is_completed(world: World) -> None:
    key = _overwritten(world, completed=False)
    assert world.store.objects[key].body != b"a stranger's"
    assert len(world.jobs_of(DAY1)) == 2
    world.assert_clean()


@pytest.mark.parametrize("gone", [_GONE, Unknown("500")], ids=str)
def test_one_that_was_complete_is_named_and_can_be_accepted_as_lost(gone: Any) -> None:
    """However the store answers the completion of an upload that is gone."""
    world = World()
    with pytest.raises(DataLostError, match="is not that file") as caught:
        _overwritten(world, completed=True, gone=gone)
    key = caught.value.key
    assert key is not None
    assert "--accept-loss" in str(caught.value)
    (told,) = world.driver.run(repair(world.context))
    assert [file.key for file in told.lost] == [key]
    (done,) = world.driver.run(repair(world.context, accept_loss=True, patience=0.0))
    assert done.action is RepairAction.ACCEPTED
    assert len(world.jobs_of(DAY1)) == 1
    assert len(world.jobs_of(DAY2)) == 2
    world.load(DAY1)
    world.assert_clean()
    (finding,) = world.driver.run(verify(world.context))
    assert (finding.key, finding.kind) == (key, FindingKind.UNNAMED)
