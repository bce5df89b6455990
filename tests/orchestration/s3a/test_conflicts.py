"""Runs by Hadoop's committers that meet: what a try sees of others that died, or whose records
changed late or cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from support.memory_store import MemoryDriver
from support.s3a_jobs import JOB, ROOT, World, a_try
from support.s3a_stand_in import marker
from zero_rename.committer import (
    CommitConflictError,
    OutcomeUnknownError,
    Owner,
    RunRank,
    SupersededRunError,
    Table,
)
from zero_rename.committer.format.job_spec import Mode, OnConflict
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.committer.rival_wait import RivalWait
from zero_rename.committer.store.requests import Put
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.orchestration.s3a.configuration import LoadRequest
from zero_rename.orchestration.s3a.conflicts import ConflictPolicy, find_rivals
from zero_rename.orchestration.s3a.load import S3ALoad, loaded_by_s3a
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger, rivals
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    DEFERRED_PATIENCE,
    FAILED,
    FENCED,
    PATIENCE,
    UNDONE,
    WRITING,
    WRITTEN,
    TryRecord,
    WriteRecord,
    run_uuid,
)

RUN = TaskRun("flights", "r", "load", -1, 1, 1)
OLD, NEW = RunRank(1.0), RunRank(9.0)
NEWEST, LAST = ConflictPolicy(OnConflict.NEWEST_RUN), ConflictPolicy(OnConflict.LAST_WINS)
DAY = f"{ROOT.url}/day=1"
REQUEST = LoadRequest(Committer.MAGIC, ROOT, Mode.REPLACE, ("day=1",))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def table(world: World) -> Table:
    table = Table(ROOT.url)
    table.driver = MemoryDriver(world.store, None, world.clock)  # pyrefly: ignore[bad-assignment]
    return table


def write(state: str, **given: Any) -> WriteRecord:
    return WriteRecord("w1", 1, "magic", DAY, "replace", "day=1", state=state, **given)


def put(table: Table, **given: Any) -> TryRecord:
    """Another run's try of the day, on record."""
    owner = Owner("hourly", "manual", "load")
    fields: dict[str, Any] = {"mode": "replace", "partitions": ("day=1",), **given}
    record = a_try(owner=owner, **fields)
    return table.run(ledger.open_try(ROOT, record))


def load(table: Table, policy: ConflictPolicy = NEWEST, rank: RunRank | None = OLD) -> S3ALoad:
    return S3ALoad(table, RUN, REQUEST, policy, rank)


def refuse(load: S3ALoad, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said), load.submitted():
        pytest.fail("It is submitted.")


def submit(load: S3ALoad) -> None:
    with load.submitted():
        pass


class TestNewerRunThatDied:
    @pytest.mark.parametrize("policy", [{"writes": (write(WRITTEN),)}, {"recovered": ("w1",)}])
    def test_older_run_gives_way_to_what_it_had_committed(
        self, world: World, table: Table, policy: dict[str, Any]
    ) -> None:
        put(table, rank=NEW, state=FENCED, **policy)
        world.clock.advance(PATIENCE + 1)
        refuse(load(table), SupersededRunError, "have loaded day=1")
        submit(load(table, rank=RunRank(10.0)))

    def test_older_run_is_tried_again_until_somebody_knows(
        self, world: World, table: Table
    ) -> None:
        newer = put(table, rank=NEW, writes=(write(WRITING),))
        world.clock.advance(PATIENCE + 1)
        refuse(load(table), OutcomeUnknownError, "nobody knows yet whether it has committed")
        submit(load(table, rank=RunRank(10.0)))
        table.run(ledger.forget_try(ROOT, newer))  # As recovery does that has rolled it back.
        submit(load(table))

    @pytest.mark.parametrize("report", [None, {"files": 200, "partitions": []}])
    def test_older_run_gives_way_where_nobody_knows_which_partitions_it_loaded(
        self, table: Table, report: dict[str, Any] | None
    ) -> None:
        newer = put(table, rank=NEW, partitions=())
        table.run(ledger.close_try(ROOT, newer, state=COMMITTED, report=report))
        refuse(load(table), SupersededRunError, "have loaded day=1")

    def test_run_of_any_partitions_that_loaded_others_is_passed_by(self, table: Table) -> None:
        newer = put(table, rank=NEW, partitions=())
        report = {"files": 1, "partitions": [{"partition": "day=2", "files": 1}]}
        table.run(ledger.close_try(ROOT, newer, state=COMMITTED, report=report))
        submit(load(table))


class TestRunOfAnyPartition:
    """It names none, so it may load one in which a conflict was settled against it."""

    ANY = LoadRequest(Committer.PARTITIONED, ROOT, Mode.REPLACE, ())
    CLEARED = TaskRun("flights", "r", "load", -1, 2, 2)

    def cleared(self, table: Table, policy: ConflictPolicy = ConflictPolicy()) -> S3ALoad:  # noqa: B008
        return S3ALoad(table, self.CLEARED, self.ANY, policy, OLD)

    def has_loaded(self, world: World, table: Table, run: str, day: int, **given: Any) -> None:
        entry = {"partition": f"day={day}", "files": 1, "rows": 1, "bytes": 1}
        other = put(table, uuid=run_uuid(), idempotency_key=run, partitions=(), rank=NEW, **given)
        world.clock.advance(10)
        report = {"decided_at": world.clock(), "files": 1, "partitions": [entry]}
        table.run(ledger.close_try(ROOT, other, state=COMMITTED, report=report))
        world.clock.advance(10)

    @pytest.mark.parametrize("how", ["settles", "kept"])
    def test_cleared_loser_gives_way_until_another_run_replaces_the_rows(
        self, world: World, table: Table, how: str
    ) -> None:
        settling = Settling(SettledRuns("winner", (RUN.idempotency_key,)), NEW)
        self.has_loaded(world, table, "winner", 1, **{how: {"day=1": settling}})
        self.has_loaded(world, table, "another", 2)
        refuse(self.cleared(table), SupersededRunError, "settled against this run over day=1")
        submit(self.cleared(table, LAST))
        self.has_loaded(world, table, "later", 1)
        submit(self.cleared(table))

    def test_run_that_has_lost_nothing_loads(self, world: World, table: Table) -> None:
        settling = Settling(SettledRuns("winner", ("loser",)), NEW)
        self.has_loaded(world, table, "winner", 1, settles={"day=1": settling})
        submit(self.cleared(table))


class TestAppends:
    ADDS = replace(REQUEST, mode=Mode.APPEND)

    def adds(self, table: Table, rank: RunRank | None) -> S3ALoad:
        return S3ALoad(table, RUN, self.ADDS, NEWEST, rank)

    def has_loaded(self, world: World, table: Table, mode: str, rank: RunRank) -> None:
        other = put(table, rank=rank, mode=mode, idempotency_key=f"{mode}/{rank}", uuid=run_uuid())
        table.run(ledger.close_try(ROOT, other, state=COMMITTED))
        world.clock.advance(10)

    def test_one_that_is_older_than_a_replace_gives_way(self, world: World, table: Table) -> None:
        self.has_loaded(world, table, "replace", NEW)
        refuse(self.adds(table, OLD), SupersededRunError, "have loaded day=1")
        submit(self.adds(table, RunRank(10.0)))

    def test_one_that_is_older_than_a_replace_gives_way_also_where_others_have_added_since(
        self, world: World, table: Table
    ) -> None:
        self.has_loaded(world, table, "replace", NEW)
        self.has_loaded(world, table, "append", RunRank(10.0))
        refuse(self.adds(table, OLD), SupersededRunError, "have loaded day=1")
        submit(self.adds(table, RunRank(9.5)))

    def test_one_that_is_older_than_an_append_goes_on(self, world: World, table: Table) -> None:
        self.has_loaded(world, table, "replace", RunRank(0.5))
        self.has_loaded(world, table, "append", NEW)
        submit(self.adds(table, OLD))


class TestOwnRows:
    """The run has loaded the day after a newer one, and is cleared."""

    def loaded(self, world: World, table: Table, **own: Any) -> None:
        newer = put(table, rank=NEW)
        table.run(ledger.close_try(ROOT, newer, state=COMMITTED))
        world.clock.advance(10)
        mine = put(table, rank=OLD, idempotency_key="flights/r/load")
        entries = [{"partition": "day=1", "files": 1}]
        given = {"state": COMMITTED, "report": {"partitions": entries}, **own}
        table.run(ledger.close_try(ROOT, mine, **given))
        world.clock.advance(10)

    def test_run_that_has_replaced_those_of_a_newer_one_loads_again(
        self, world: World, table: Table
    ) -> None:
        self.loaded(world, table)
        submit(load(table))

    @pytest.mark.parametrize(
        "own",
        [
            {"report": {"partitions": [{"partition": "day=1"}], "overlapped": "Another ran."}},
            {"report": {"partitions": [{"partition": "day=2"}]}},
            {"report": None},
            {"state": FAILED, "writes": (write(WRITTEN),)},
        ],
        ids=["beside another run", "another day", "no report", "not to its end"],
    )
    def test_run_gives_way_where_nobody_can_tell_whose_rows_are_there(
        self, world: World, table: Table, own: dict[str, Any]
    ) -> None:
        self.loaded(world, table, **own)
        refuse(load(table), SupersededRunError, "have loaded day=1")


def test_newer_run_that_ends_between_the_two_looks_is_seen(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = put(table, rank=NEW)
    look = ledger.open_tries

    def looks(root: Any, since: float) -> Any:
        found = yield from look(root, since)
        yield from ledger.close_try(root, newer, state=COMMITTED)
        return found

    monkeypatch.setattr(rivals, "open_tries", looks)
    refuse(load(table), SupersededRunError, "have loaded day=1")


class TestDamagedRecord:
    KEY = ledger.open_key(ROOT, "load/other", JOB)
    CLOSED = ledger.closed_key(ROOT, "load/other", JOB)

    @pytest.mark.parametrize("key", [KEY, CLOSED], ids=["open", "closed"])
    @pytest.mark.parametrize("policy", [NEWEST, ConflictPolicy()], ids=["newest_run", "fail"])
    def test_run_does_not_begin_beside_it(
        self, world: World, table: Table, policy: ConflictPolicy, key: str
    ) -> None:
        table.run(Put(key, b"{"))
        world.clock.advance(3600)
        refuse(load(table, policy), OutcomeUnknownError, f"Nothing was submitted. .*{key}.*Restore")
        # It left nothing behind that keeps others from their work.
        assert [it.record.state for it in table.run(ledger.open_tries(ROOT)).known] == []

    def test_one_of_a_try_that_ended_before_any_other_began_stops_newest_run_alone(
        self, world: World, table: Table
    ) -> None:
        table.run(Put(self.CLOSED, b"{"))
        world.clock.advance(2 * DEFERRED_PATIENCE)
        submit(load(table, ConflictPolicy()))
        refuse(load(table), OutcomeUnknownError, "cannot be read")

    def test_retry_that_may_be_of_a_run_that_lost_does_not_begin_beside_it(
        self, world: World, table: Table
    ) -> None:
        table.run(Put(self.CLOSED, b"{"))
        world.clock.advance(2 * DEFERRED_PATIENCE)
        retry = replace(RUN, try_number=2)
        mine = S3ALoad(table, retry, REQUEST, ConflictPolicy(), OLD)
        refuse(mine, OutcomeUnknownError, "cannot be read")

    @pytest.mark.parametrize("key", [KEY, CLOSED], ids=["open", "closed"])
    def test_last_wins_says_so_and_goes_on(
        self, table: Table, caplog: pytest.LogCaptureFixture, key: str
    ) -> None:
        table.run(Put(key, b"{"))
        submit(load(table, LAST))
        assert "nobody can tell whether it is at work" in caplog.text
        assert key in caplog.text

    def test_run_that_settles_a_conflict_does_not_begin_beside_it_under_any_policy(
        self, world: World, table: Table
    ) -> None:
        table.run(Put(self.CLOSED, b"{"))
        world.clock.advance(2 * DEFERRED_PATIENCE)
        mine = put(table)
        with pytest.raises(OutcomeUnknownError, match="cannot be read") as caught:
            find_rivals(table, mine, LAST, {"day=1": 1})
        assert "last_wins" not in str(caught.value)

    def test_run_that_has_committed_beside_it_says_so(self, world: World, table: Table) -> None:
        mine = load(table, ConflictPolicy())
        with mine.submitted():
            enter(world, table, mine)
            table.run(Put(self.KEY, b"{"))
        with pytest.raises(CommitConflictError, match="cannot be read, so nobody can tell"):
            mine.report()


def enter(world: World, table: Table, mine: S3ALoad) -> None:
    """The application commits."""
    job = f"{mine.uuid[:-4]}0001"
    world.store.apply(Put(f"{ROOT.prefix}/day=1/_SUCCESS", marker(job, "magic", {})))
    known = table.run(ledger.find(ROOT, RUN.idempotency_key, mine.uuid))
    assert known is not None
    done = replace(write(WRITTEN, opened_at=world.clock(), ended_at=world.clock()), uuid=job)
    assert table.run(ledger.swap(known, known.record.with_write(done)))


@contextmanager
def killed(mine: S3ALoad) -> Iterator[None]:
    """The worker dies when its application has done what is in the block."""

    def die() -> Iterator[None]:
        with mine.submitted():
            yield
            raise OSError("killed")

    dying = die()
    next(dying)
    yield
    with pytest.raises(OSError, match="killed"):
        next(dying)


class TestMeeting:
    def test_retry_of_a_dead_worker_finds_what_its_run_met(
        self, world: World, table: Table
    ) -> None:
        mine = load(table, ConflictPolicy())
        with killed(mine):
            world.clock.advance(PATIENCE + 1)
            other = put(table)
            world.clock.advance(60)
            report = {"decided_at": world.clock(), "partitions": []}
            table.run(ledger.close_try(ROOT, other, state=COMMITTED, report=report))
            enter(world, table, mine)
        for _ in range(2):
            with pytest.raises(CommitConflictError, match=r"while this one was at work: hourly"):
                loaded_by_s3a(table, RUN, Mode.REPLACE, "skip")

    def test_run_that_began_after_a_dead_one_had_committed_met_nobody(
        self, world: World, table: Table
    ) -> None:
        mine = load(table, ConflictPolicy())
        with killed(mine):
            enter(world, table, mine)
        world.clock.advance(PATIENCE + 1)
        other = put(table)
        table.run(ledger.close_try(ROOT, other, state=COMMITTED))
        report = loaded_by_s3a(table, RUN, Mode.REPLACE, "skip")
        assert report is not None
        assert "conflict" not in report

    @pytest.mark.parametrize("state", [COMMITTED, UNDONE])
    def test_run_that_is_settled_late_was_not_met(
        self, world: World, table: Table, state: str
    ) -> None:
        """The try of a worker that died before this run began."""
        written = WRITTEN if state == COMMITTED else WRITING
        ended = world.clock()
        other = put(table, state=FAILED, writes=(write(written, ended_at=ended),))
        world.clock.advance(3600)
        mine = load(table, ConflictPolicy())
        with mine.submitted():
            enter(world, table, mine)
            report = {"decided_at": ended, "partitions": []}
            table.run(ledger.close_try(ROOT, other, state=state, report=report))
        assert "conflict" not in mine.report()


class TestThatBeginInOneSecond:
    """The store's times have whole seconds, so of two tries neither is the earlier one."""

    def waits(self, table: Table, uuid: str, rank: RunRank | None, waiting: RivalWait) -> S3ALoad:
        made = S3ALoad(table, RUN, REQUEST, ConflictPolicy(), rank, waiting=waiting)
        made._try = replace(made._try, uuid=uuid)
        return made

    @pytest.mark.parametrize(
        ("uuid", "rank", "other"),
        [("b", None, {}), ("0", NEW, {"rank": OLD})],
        ids=["higher UUID", "higher rank"],
    )
    def test_the_higher_one_stays_on_record_until_the_other_has_given_way(
        self,
        table: Table,
        monkeypatch: pytest.MonkeyPatch,
        uuid: str,
        rank: RunRank | None,
        other: dict[str, Any],
    ) -> None:
        lower = put(table, uuid="a", idempotency_key="other", **other)
        looks: list[float] = []

        def gives_way(seconds: float) -> None:
            on_record = {it.record.uuid for it in table.run(ledger.open_tries(ROOT)).known}
            assert on_record == {"a", uuid}
            looks.append(seconds)
            table.run(ledger.remove_try(ROOT, lower))

        monkeypatch.setattr(time, "sleep", gives_way)
        waiting = RivalWait(3600.0, pause=lambda _: pytest.fail("It waits off the record."))
        submit(self.waits(table, uuid, rank, waiting))
        assert len(looks) == 1

    def does_not_wait(
        self, table: Table, uuid: str, rank: RunRank | None, policy: ConflictPolicy
    ) -> S3ALoad:
        made = load(table, policy, rank)
        made._try = replace(made._try, uuid=uuid)
        return made

    RANKS = pytest.mark.parametrize(
        ("uuid", "rank", "other"),
        [("b", NEW, NEW), ("0", NEW, OLD)],
        ids=["by the UUID", "by the rank"],
    )

    @RANKS
    @pytest.mark.parametrize("policy", [NEWEST, ConflictPolicy()], ids=["newest_run", "fail"])
    def test_the_higher_one_goes_on_when_the_lower_one_has_given_way(
        self,
        table: Table,
        monkeypatch: pytest.MonkeyPatch,
        policy: ConflictPolicy,
        uuid: str,
        rank: RunRank,
        other: RunRank,
    ) -> None:
        lower = put(table, uuid="a", idempotency_key="other", rank=other)
        looks: list[float] = []

        def gives_way(seconds: float) -> None:
            looks.append(seconds)
            table.run(ledger.close_try(ROOT, lower, state=UNDONE))

        monkeypatch.setattr(time, "sleep", gives_way)
        submit(self.does_not_wait(table, uuid, rank, policy))
        assert len(looks) == 1

    @RANKS
    def test_the_lower_one_fails_for_good(
        self, table: Table, uuid: str, rank: RunRank, other: RunRank
    ) -> None:
        put(table, uuid=uuid, idempotency_key="other", rank=rank)
        lower = self.does_not_wait(table, "a", other, ConflictPolicy())
        refuse(lower, CommitConflictError, "Another run is at work on the same partitions")
        assert [it.record.uuid for it in table.run(ledger.open_tries(ROOT)).known] == [uuid]

    def test_the_higher_one_is_tried_again_where_the_lower_one_goes_on(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(table, uuid="a", idempotency_key="other")
        looks: list[float] = []
        monkeypatch.setattr(time, "sleep", looks.append)
        higher = self.does_not_wait(table, "b", None, ConflictPolicy())
        refuse(higher, OutcomeUnknownError, "Let the task be retried when that run has ended")
        assert 1 < len(looks) < 10

    def test_last_wins_asks_nobody_to_give_way(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(table, uuid="a", idempotency_key="other")
        monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("It waits."))
        submit(self.does_not_wait(table, "b", None, LAST))

    def test_the_lower_one_is_off_the_record_while_it_waits(self, table: Table) -> None:
        higher = put(table, uuid="b", idempotency_key="other")

        def ends(_: float) -> None:
            on_record = {it.record.uuid for it in table.run(ledger.open_tries(ROOT)).known}
            assert on_record == {"b"}
            table.run(ledger.close_try(ROOT, higher, state=UNDONE))

        submit(self.waits(table, "a", None, RivalWait(3600.0, pause=ends)))

    def test_one_that_did_not_see_the_higher_one_is_waited_for(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lower = put(table, uuid="a", idempotency_key="other")
        monkeypatch.setattr(time, "sleep", lambda _: None)

        def ends(_: float) -> None:
            table.run(ledger.close_try(ROOT, lower, state=UNDONE))

        submit(self.waits(table, "b", None, RivalWait(3600.0, pause=ends)))
