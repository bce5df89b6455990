"""The base of a job by what it has read, from before it opened: conflicts, and what is none."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from support.protocol import DAY1, DAY2, DAY3, ROOT, World
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    Mode,
    OnConflict,
    Owner,
    ReadBase,
    TableRoot,
)
from zero_rename.committer.format.job_spec import Coordination
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.adopt import adopt
from zero_rename.committer.upkeep.compaction import compaction_spec, find_compactible


@pytest.fixture
def world() -> World:
    return World()


def overwrite(world: World, base: ReadBase, *partitions: str, **policy: Any) -> Any:
    return world.load(*partitions, mode=Mode.REPLACE, base=base, **policy)


class TestConflicts:
    def test_what_changed_between_reading_and_opening_is_not_written_over(
        self, world: World
    ) -> None:
        first = world.load(DAY1)
        base = world.snapshot().base
        second = world.load(DAY1)
        with pytest.raises(CommitConflictError, match="since this job read") as caught:
            overwrite(world, base, DAY1)
        assert second.job in caught.value.message
        assert world.jobs_of(DAY1) == [first.job, second.job]
        world.assert_clean()

    def test_it_says_of_what_was_read_alone_that_it_was(self, world: World) -> None:
        world.load(DAY1, DAY2)
        base = ReadBase(ROOT.url, {DAY2: 1}, whole=False)
        for changed, when in (((DAY1,), "opened"), ((DAY1, DAY2), "read the table")):
            opened, result = world.written(DAY1, DAY2, mode=Mode.REPLACE, base=base)
            world.load(*changed)
            with pytest.raises(CommitConflictError, match=f"since this job {when}: ") as caught:
                world.commit(opened, result)
            assert caught.value.key == ROOT.head_key(changed[-1])

    @pytest.mark.parametrize(
        ("read", "came", "written", "policy"),
        [
            (None, DAY2, (DAY1, DAY2), {}),
            ([DAY2], DAY2, (DAY2,), {}),
            (None, DAY3, (DAY1,), {"replace_table": True}),
            (None, DAY1, (DAY1,), {"mode": Mode.APPEND}),
        ],
        ids=["one that was not there", "named", "of the whole table", "an append"],
    )
    def test_a_partition_that_was_replaced_since(
        self, world: World, read: Any, came: str, written: Sequence[str], policy: dict[str, Any]
    ) -> None:
        world.load(DAY1)
        base = world.snapshot(read).base
        other = world.load(came, mode=Mode.REPLACE)
        with pytest.raises(CommitConflictError, match=came):
            world.load(*written, base=base, **{"mode": Mode.REPLACE, **policy})
        assert world.jobs_of(came) == [other.job]

    def test_a_table_that_was_made_anew(self, world: World) -> None:
        base = ReadBase(ROOT.url, {DAY1: 7})
        world.load(DAY1)
        for mode in (Mode.REPLACE, Mode.APPEND):
            with pytest.raises(CommitConflictError, match=DAY1):
                world.load(DAY1, mode=mode, base=base)


class TestListedPartitions:
    """A partition that no job has written holds what a listing shows, and others go on adding to
    it: no head tells of that."""

    OLD, LATE = (f"{ROOT.partition_prefix(DAY2)}{name}.parquet" for name in ("old", "late"))

    @pytest.fixture
    def world(self, world: World) -> World:
        world.store.apply(Put(self.OLD, b"rows"))
        world.load(DAY1)
        return world

    def test_files_that_came_since_are_not_taken_away(self, world: World) -> None:
        base = world.snapshot([DAY2]).base
        world.store.apply(Put(self.LATE, b"rows"))
        with pytest.raises(CommitConflictError, match="other files than when this job read it"):
            overwrite(world, base, DAY2)
        assert world.listed(DAY2) == [self.LATE, self.OLD]
        world.assert_clean()

    @pytest.mark.parametrize("partitions", [None, [DAY2]])
    def test_nothing_came(self, world: World, partitions: list[str] | None) -> None:
        again = overwrite(world, world.snapshot(partitions).base, DAY2)
        assert world.jobs_of(DAY2) == [again.job]

    def test_a_partition_that_came_since_is_not_taken_away(self, world: World) -> None:
        base = world.snapshot().base
        world.store.apply(Put(f"{ROOT.partition_prefix(DAY3)}late.parquet", b"rows"))
        with pytest.raises(CommitConflictError, match=DAY3):
            overwrite(world, base, DAY1, replace_table=True)
        assert world.listed(DAY3)
        world.assert_clean()

    def test_table_whose_heads_tell_all_is_read_without_a_listing(self, world: World) -> None:
        """What lies in a directory without a head is none of the table's: nothing was read."""
        world.driver.run(adopt(world.context, Owner(), apply=True))
        base = world.snapshot().base
        world.store.apply(Put(f"{ROOT.partition_prefix(DAY3)}late.parquet", b"rows"))
        assert base.listed is None
        assert overwrite(world, base, DAY3)

    def test_what_is_no_data_does_not_count(self, world: World) -> None:
        base = world.snapshot().base
        for name in ("_SUCCESS", ".part.crc", "data.csv", "old.parquet._COPYING_"):
            world.store.apply(Put(f"{ROOT.partition_prefix(DAY2)}{name}", b"x"))
        assert overwrite(world, base, DAY2)

    def test_the_last_wins(self, world: World) -> None:
        base = world.snapshot([DAY2]).base
        world.store.apply(Put(self.LATE, b"rows"))
        again = overwrite(world, base, DAY2, on_conflict=OnConflict.LAST_WINS)
        assert world.jobs_of(DAY2) == [again.job]

    def test_an_append_adopts_them(self, world: World) -> None:
        base = world.snapshot([DAY2]).base
        world.store.apply(Put(self.LATE, b"rows"))
        world.load(DAY2, base=base)
        assert {self.LATE, self.OLD} < {file.key for file in world.snapshot([DAY2]).files}

    def test_a_compaction(self, world: World) -> None:
        world.store.apply(Put(f"{self.OLD}.parquet", b"rows"))
        (plan,), _ = world.driver.run(find_compactible(world.context, [DAY2], 1 << 20))
        world.store.apply(Put(self.LATE, b"rows"))
        spec, _ = world.driver.run(compaction_spec(world.context, plan, Owner()))
        opened = world.open(**vars(spec))
        with pytest.raises(CommitConflictError, match=DAY2):
            world.commit(opened, world.write(opened, DAY2))
        assert self.LATE in world.listed(DAY2)


def append_at(strike: int) -> tuple[bool, bool]:
    """A job that reads a partition and replaces it by what it has read, while another appends to
    it as the first one's request of a number is sent.

    :return: whether there was such a request, and whether the rows of both are accounted for.
    """
    world = World()
    world.load(DAY1)
    other = world.with_context()
    appended: list[str] = []
    requests = itertools.count()

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if next(requests) == strike:
            with contextlib.suppress(CommitConflictError):  # The other one may be too late, too.
                appended.append(other.load(DAY1).job)
        return apply(request)

    world.driver.fault = fault
    state = world.snapshot()
    with contextlib.suppress(CommitConflictError, JobFencedError):
        overwrite(world, state.base, DAY1)
    seen = [file.job for file in state.files] + other.jobs_of(DAY1)
    return next(requests) > strike, all(job in seen for job in appended)


def test_an_append_is_never_lost_whenever_it_comes() -> None:
    outcomes = itertools.takewhile(lambda found: found[0], map(append_at, itertools.count()))
    kept = [kept for _, kept in outcomes]
    assert len(kept) > 20
    assert all(kept), f"lost at the requests {[n for n, ok in enumerate(kept) if not ok]}"


class TestNoConflicts:
    @pytest.mark.parametrize(
        ("read", "changed", "written"),
        [(None, (), (DAY1,)), (None, (DAY2,), (DAY1,)), ([DAY1], (DAY2,), (DAY1, DAY2))],
        ids=["nothing changed", "another partition did", "one that was not read did"],
    )
    def test_what_was_read_and_is_written_is_as_it_was(
        self, world: World, read: Any, changed: Sequence[str], written: Sequence[str]
    ) -> None:
        world.load(DAY1, DAY2)
        base = world.snapshot(read).base
        if changed:
            world.load(*changed)
        again = overwrite(world, base, *written)
        assert [world.jobs_of(name) for name in written] == [[again.job]] * len(written)

    def test_an_append_beside_an_append(self, world: World) -> None:
        first = world.load(DAY1)
        base = world.snapshot().base
        second = world.load(DAY1)
        third = world.load(DAY1, base=base)
        assert world.jobs_of(DAY1) == [first.job, second.job, third.job]

    def test_the_last_wins(self, world: World) -> None:
        world.load(DAY1)
        base = world.snapshot().base
        world.load(DAY1)
        again = overwrite(world, base, DAY1, on_conflict=OnConflict.LAST_WINS)
        assert world.jobs_of(DAY1) == [again.job]

    def test_a_claim_that_came_and_went(self, world: World) -> None:
        world.load(DAY1)
        base = world.snapshot().base
        opened = world.open()
        world.abort(opened, world.write(opened, DAY1))
        again = overwrite(world, base, DAY1)
        assert world.jobs_of(DAY1) == [again.job]


class TestRefusals:
    def test_the_base_of_another_table(self, world: World) -> None:
        base = ReadBase(TableRoot("bucket", "other").url, {})
        with pytest.raises(InvalidInputError, match="s3://bucket/other"):
            overwrite(world, base, DAY1)
        assert world.store.keys("") == []

    def test_a_table_without_heads(self, world: World) -> None:
        base = ReadBase(ROOT.url, {})
        with pytest.raises(InvalidInputError, match="coordination=none"):
            overwrite(world, base, DAY1, coordination=Coordination.NONE)
        assert world.store.keys("") == []


class TestTexts:
    @pytest.mark.parametrize("whole", [True, False])
    def test_there_and_back(self, whole: bool) -> None:
        base = ReadBase(ROOT.url, {"day=ü,;": 3, DAY2: 0}, whole, {DAY2: "12ab"})
        assert ReadBase.decode(base.encode()) == base

    def test_one_of_before(self) -> None:
        """Without what listings showed."""
        text = '{"versions":{},"table":"s3://b/t","whole":true}'
        assert ReadBase.decode(text) == ReadBase("s3://b/t", {})

    @pytest.mark.parametrize(
        "text",
        [
            *("", "7", "null", "[]", "{}", "now", '{"table":"s3://b/t","versions":{}}'),
            '{"table":"s3://b/t","versions":[],"whole":true}',
            '{"table":"s3://b/t","versions":{"day=1":-1},"whole":true}',
            '{"table":"s3://b/t","versions":{"day=1":true},"whole":true}',
            '{"table":"s3://b/t","versions":{"day=1":"1"},"whole":true}',
            '{"table":"s3://b/t","versions":{},"whole":"no"}',
            '{"table":7,"versions":{},"whole":true}',
            '{"table":"s3://b/t","versions":{},"whole":true,"listed":[1]}',
            '{"table":"s3://b/t","versions":{},"whole":true,"listed":7}',
            '["table","versions","whole"]',
        ],
    )
    def test_what_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="is no text of"):
            ReadBase.decode(text)
