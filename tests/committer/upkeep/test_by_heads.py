"""What upkeep makes of a table that is read by heads: what is nobody's, lost, strange or hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from support.memory_store import MemoryDriver, MemoryStore, flatten
from support.protocol import DAY1, DAY2, ROOT, SCHEMA, World, memory_table, write_task
from zero_rename.committer import InvalidInputError, Mode
from zero_rename.committer.commit.commit import commit_job
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.state.context import Context
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep.problem import Problem
from zero_rename.committer.upkeep.purge import PurgeAction, purge_data
from zero_rename.committer.upkeep.rebuilt_heads import RebuildAction
from zero_rename.committer.upkeep.verify import FindingKind


@pytest.fixture
def world() -> World:
    """A partition that was replaced, and one that was not."""
    world = World()
    world.load(DAY1, DAY2, readers="heads")
    world.load(DAY1, mode=Mode.REPLACE)
    return world


def data(world: World) -> set[str]:
    return set(world.store.keys(ROOT.data_prefix))


def named(world: World) -> set[str]:
    return {file.key for file in world.snapshot().files}


def lost(world: World, partition: str) -> None:
    del world.store.objects[ROOT.head_key(partition)]
    world.store.objects.pop(ROOT.index_key, None)


class TestPurge:
    def test_removes_what_no_head_keeps_and_says_so_before(self, world: World) -> None:
        doomed = data(world) - named(world)
        assert len(doomed) == 1
        assert not world.purge().entries  # It is kept.
        planned = {it.key for it in world.purge(apply=False, keep=0).entries}
        assert planned == doomed | {ROOT.head_key(DAY1)}
        assert doomed < data(world)
        entries = world.purge(keep=0).entries
        assert {(it.key, it.action) for it in entries} == {
            (key, PurgeAction.REMOVED) for key in planned
        }
        assert data(world) == named(world)

    def test_leaves_what_an_open_job_wrote(self, world: World) -> None:
        opened, result = world.written(DAY1)
        world.purge()
        world.commit(opened, result)
        assert named(world) <= data(world)

    def test_a_file_that_comes_after_a_sweep_goes_with_the_next(self, world: World) -> None:
        opened = world.open()
        world.abort(opened, world.write(opened, DAY1))
        late = ROOT.attempt_key(DAY1, "00000-1", opened.job, 0)
        world.store.apply(s.PutFile(late, b"late"))
        assert late not in named(world)
        world.purge(keep=0)
        assert data(world) == named(world)

    def test_a_first_job_that_was_aborted_leaves_nothing(self) -> None:
        world = World()
        opened = world.open(readers="heads")
        world.write(opened, DAY1)
        world.recover(patience=0)
        late = ROOT.attempt_key(DAY1, "00000-1", opened.job, 0)
        world.store.apply(s.PutFile(late, b"late"))
        world.purge()
        assert not data(world)

    def test_what_a_lost_head_named_stays(self, world: World) -> None:
        lost(world, DAY2)
        world.purge()
        assert any(f"/{DAY2}/" in key for key in data(world))

    def test_nor_where_another_head_was_made_in_its_place(self, world: World) -> None:
        for _ in range(3):
            world.load(DAY2)
        before = {key for key in data(world) if f"/{DAY2}/" in key}
        lost(world, DAY2)
        del world.store.objects[ROOT.marker_key(DAY2)]  # Else the job would be refused.
        world.load(DAY2)
        world.purge()
        assert before - data(world) == set()

    def test_what_is_no_jobs_stays(self, world: World) -> None:
        world.store.apply(s.Put(f"{ROOT.data_prefix}notes.txt", b"mine"))
        world.purge()
        assert f"{ROOT.data_prefix}notes.txt" in data(world)

    def test_of_a_table_whose_readers_list_nothing_is_asked(self) -> None:
        world = World()
        world.load(DAY1)
        world.driver.requests.clear()
        world.purge()
        prefixes = {getattr(it, "prefix", "") for it in world.driver.requests}
        assert ROOT.data_prefix not in prefixes


class TestRaces:
    """A purge beside a replace, each amid the other: the order of its looks is what counts."""

    @pytest.mark.parametrize("named_job", [Mode.APPEND, Mode.REPLACE])
    def test_no_interleaving_takes_what_a_head_names(self, named_job: Mode) -> None:
        gone = 0
        made = World()
        made.load(DAY1, readers="heads")
        made.load(DAY1, mode=Mode.REPLACE)
        before = len(data(made))
        for first in range(8):
            for second in range(0, 18):
                for third in range(0, 8):
                    world = deepcopy(made)
                    _interleaved(
                        world.store,
                        (_purge(world.context), _job(world.context, named_job)),
                        ((0, first), (1, second), (0, third), (1, 99), (0, 99)),
                    )
                    assert named(world) <= data(world)
                    gone += before + 1 - len(data(world))
        assert gone > 0


def _job(context: Context, mode: Mode) -> Iterator[Any]:
    spec = JobSpec(SCHEMA, mode, partition_by=("day",))
    opened = yield from flatten(open_job(context, spec))
    result = yield from flatten(write_task(opened, (DAY1,)))
    yield from flatten(commit_job(context, opened, [result], 1))


def _purge(context: Context) -> Iterator[Any]:
    known = Context(context.root, StoreFacts(), readers="heads")  # type: ignore[arg-type]
    yield from flatten(purge_data(known, 0.0, keep=0, apply=True))


def _interleaved(
    store: MemoryStore, steps: Iterable[Iterator[Any]], plan: Iterable[tuple[int, int]]
) -> None:
    """Carry out steps in turns: so many requests of one, then of another."""
    driver, running = MemoryDriver(store), list(steps)
    answers: list[Any] = [None] * len(running)
    for who, number in plan:
        for _ in range(number):
            try:
                request = running[who].send(answers[who])  # type: ignore[attr-defined]
            except StopIteration:
                break
            answers[who] = driver.perform(request)


class TestVerify:
    def test_nothing_of_a_sound_table_and_nothing_of_what_was_replaced(self, world: World) -> None:
        assert memory_table(world.store).verify() == []

    def test_names_what_is_missing_and_what_is_strange(self, world: World) -> None:
        (key,) = [file.key for file in world.snapshot([DAY2]).files]
        del world.store.objects[key]
        world.store.apply(s.Put("flights/day=3/part-0.parquet", b"PAR1"))
        found = memory_table(world.store).verify()
        assert [(it.partition, it.kind, it.key) for it in found] == [
            (DAY2, FindingKind.MISSING, key),
            ("day=3", FindingKind.UNNAMED, "flights/day=3/part-0.parquet"),
        ]

    def test_names_a_partition_that_has_lost_its_head(self, world: World) -> None:
        for key in [key for key in world.store.keys("") if key.endswith("_SUCCESS")]:
            del world.store.objects[key]
        lost(world, DAY2)
        opened = world.open()
        world.write(opened, "day=3")  # Undecided: no damage.
        (found,) = memory_table(world.store).verify()
        assert (found.partition, found.kind) == (DAY2, FindingKind.DAMAGED)


class TestOthers:
    def test_the_doctor_says_what_who_lists_sees(self, world: World) -> None:
        assert _about_files(world) == []
        world.store.apply(s.Put("flights/day=3/part-0.parquet", b"PAR1"))
        (problem,) = _about_files(world)
        assert "readers=heads" in problem.detail

    def test_the_doctor_names_a_rule_that_reaches_the_records(self, world: World) -> None:
        from zero_rename.committer.store.lifecycle import LifecycleRule

        world.store.rules = (LifecycleRule("old", "flights/_zero_rename/data/", expires=True),)
        found = memory_table(world.store).doctor()
        assert "lifecycle rule expires the table" in {it.what for it in found}

    def test_a_head_that_is_gone_is_built_again(self, world: World) -> None:
        opened = world.open()  # Its files, and what a loser left, are no objection.
        world.write(opened, DAY1)
        before = named(world)
        lost(world, DAY1)
        (built,) = memory_table(world.store).rebuild_heads(apply=True)
        assert built.action is RebuildAction.LEFT
        world.abort(opened)
        (built,) = memory_table(world.store).rebuild_heads(apply=True)
        assert (built.action, named(world)) == (RebuildAction.REBUILT, before)

    def test_adoption_is_refused(self, world: World) -> None:
        with pytest.raises(InvalidInputError, match="readers=heads"):
            memory_table(world.store).adopt()

    def test_gc_and_an_index_change_no_answer(self, world: World) -> None:
        for _ in range(9):
            world.load(DAY1)
        before = named(world)
        world.write_index()
        memory_table(world.store).gc(older_than=0, apply=True)
        world.purge(keep=0)
        assert named(world) == before == data(world)

    def test_symlink_manifests_name_the_files_below_the_records(self, world: World) -> None:
        table = memory_table(world.store)
        table.keep_symlinks()
        world.load(DAY1)
        text = world.store.objects[ROOT.symlink_key(DAY1)].body.decode()
        urls = {f"s3://bucket/{file.key}" for file in world.snapshot([DAY1]).files}
        assert set(text.split()) == urls
        assert table.verify() == []


def _about_files(world: World) -> list[Problem]:
    found = memory_table(world.store).doctor()
    return [it for it in found if it.what == "files no reader sees"]
