"""Applying what was applied before, by an owner that slept or by anybody twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, beside, on
from support.memory_store import Behaviour, MemoryStore
from support.protocol import DAY1, ROOT, World, die_of
from zero_rename.committer import Mode, OnConflict, UnfinishedCommitError
from zero_rename.committer.commit.apply import finish
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    Delete,
    DeleteMany,
    ListedUpload,
    ListUploads,
    Put,
    Unknown,
)


def test_an_owner_that_slept_completes_nothing_where_that_resurrects() -> None:
    """Its heads are as it claimed them; what it would complete was removed since."""
    behaviour = Behaviour(complete_again="resurrect", conditional_delete=False)
    world = World(MemoryStore(behaviour=behaviour))
    world.load(DAY1)
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    later: list[str] = []

    def sleeps() -> None:
        other = World(world.store)
        other.recover(patience=0)
        later.append(other.load(DAY1, mode=Mode.REPLACE).job)
        world.driver.requests.clear()

    world.driver.fault = beside(Put, sleeps, ROOT.decision_key(opened.job), applied=True)
    assert world.commit(opened, result).job == opened.job
    assert not [r for r in world.driver.requests if isinstance(r, CompleteUpload)]
    assert world.jobs_of(DAY1) == later
    assert len(world.listed(DAY1)) == 1
    world.assert_clean()


@pytest.mark.parametrize("lost", [1, 100])
def test_a_file_that_came_back_is_removed_again_whatever_the_first_answer_was(lost: int) -> None:
    """Another applier finishes the job, and a later one removes its file, before our Complete."""
    world = World(MemoryStore(behaviour=Behaviour(complete_again="resurrect")))
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    key = result.files[0].key
    later: list[str] = []
    left = lost

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal left
        if isinstance(request, CompleteUpload) and request.key == key and not later:
            other = World(world.store)
            other.recover(patience=0)
            later.append(other.load(DAY1, mode=Mode.REPLACE).job)
        if isinstance(request, Delete) and request.key == key and left:
            left -= 1
            return Unknown("500")
        return apply(request)

    world.driver.fault = fault
    if lost == 1:
        assert world.commit(opened, result).job == opened.job
        assert key not in world.store.objects
    else:
        with pytest.raises(UnfinishedCommitError, match="came back") as caught:
            world.commit(opened, result)
        assert caught.value.key == key
    assert world.jobs_of(DAY1) == later


def test_a_claim_that_came_after_the_job_moved_the_head_is_taken_off() -> None:
    """A commit that was called again may claim too late; its head must not move twice."""
    world = World()
    job = world.load(DAY1).job
    slot = Slot.partition(ROOT, DAY1)
    moved = world.driver.run(read_head(world.context, slot))
    claimed = moved.head.claimed(job, "process", "late", moved.etag)
    world.store.apply(Put(slot.key, claimed.encode(), if_match=moved.etag))
    decided = world.driver.run(read_decision(world.context, job))
    assert decided is not None
    world.driver.run(finish(world.context, decided))
    now = world.driver.run(read_head(world.context, slot))
    assert (now.head.version, now.head.claim) == (moved.head.version, None)
    assert world.jobs_of(DAY1) == [job]


def test_a_completed_upload_that_is_still_listed_is_not_aborted() -> None:
    """The decision names it, so it is not swept: at a store whose listings lag behind."""
    world = World()
    opened, result = world.written(DAY1)

    def lag(request: Any, apply: Callable[[Any], Any]) -> Any:
        answer = apply(request)
        if not isinstance(request, ListUploads):
            return answer
        completed = world.store.completed.items()
        listed = tuple(ListedUpload(u.key, name, u.initiated) for name, u in completed)
        return replace(answer, uploads=(*answer.uploads, *listed))

    world.driver.fault = lag
    assert world.commit(opened, result).job == opened.job
    aborted = [r.key for r in world.driver.requests if isinstance(r, AbortUpload)]
    assert [key for key in aborted if not key.startswith(ROOT.probe_key(""))] == []
    world.assert_clean()


@pytest.mark.parametrize("conditional", [True, False])
def test_a_foreign_file_that_was_written_anew_since_it_was_listed_stays(conditional: bool) -> None:
    """Also where the store deletes whatever the condition says."""
    world = World(MemoryStore(behaviour=Behaviour(conditional_delete=conditional)))
    first, second = (f"{ROOT.partition_prefix(DAY1)}{name}.parquet" for name in "ab")
    for key in (first, second):
        world.store.apply(Put(key, b"of another committer"))
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    anew = Put(second, b"written anew")
    world.driver.fault = beside(
        Put, lambda: world.store.apply(anew), ROOT.decision_key(opened.job), applied=True
    )
    with suppress(UnfinishedCommitError):  # A store that heeds the condition says so.
        world.commit(opened, result)
    assert first not in world.store.objects
    assert world.store.objects[second].body == b"written anew"


@pytest.mark.parametrize("moved", ["before it opens", "while it writes"])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
def test_the_job_before_is_finished_before_a_marker_is_written(mode: Mode, moved: str) -> None:
    """It moved the head and died before it removed what it replaced."""
    world = World()
    stale = world.load(DAY1).job
    opened = world.open(mode, on_conflict=OnConflict.LAST_WINS)
    dead, written = world.written(DAY1, mode=Mode.REPLACE)
    die_of(on(DeleteMany, Crash), world, dead, written)
    if moved == "before it opens":
        world.abort(opened)
        opened = world.open(mode)
    result = world.write(opened, DAY1)
    seen: list[list[str]] = []
    marker = ROOT.marker_key(DAY1)
    world.driver.fault = beside(Put, lambda: seen.append(world.listed(DAY1)), marker)
    world.commit(opened, result)
    assert seen
    for listed in seen:
        assert not [key for key in listed if stale in key], "stale files beside a fresh marker"
