"""Looks for conflicts at a destination, whoever writes there: what they ask of the store."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.protocol import DAY1, DAY2, DAY3, ROOT, memory_table
from support.s3a_jobs import a_try
from support.virtual_time import TickingWorld
from zero_rename.committer import InvalidInputError, Mode, Owner, RunRank, Table
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from zero_rename.maintenance.conflicts import (
    choose_reruns,
    conflicts_as_markdown,
    find_below,
    find_here,
    resolve_by_restore,
    resolve_found,
)
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import delta_at

DAY = 24 * 3600.0
DAYS = [f"day={number}" for number in range(365)]


def opened(store: MemoryStore, clock: ManualClock, url: str = ROOT.url) -> Table:
    table = Table(url)
    table.driver = MemoryDriver(store, None, clock)  # pyrefly: ignore[bad-assignment]
    return table


def count(table: Table, clock: ManualClock, days: int) -> dict[str, int]:
    """The requests of a look so many days after the last one."""
    clock.advance(days * DAY)
    driver: Any = table.driver
    driver.requests.clear()
    for found in find_below(table, lambda url: pytest.fail(f"It looks at {url}, too.")):
        assert found.conflicts == ()
    return driver.counts()


def test_look_at_365_partitions_of_a_table_where_nothing_happened_takes_ten_requests() -> None:
    """Of them one sees whether Hadoop's committers have runs on record there."""
    clock = ManualClock()
    world = TickingWorld(MemoryStore(clock))
    world.date_jobs()
    world.load(*DAYS, mode=Mode.REPLACE)
    clock.advance(DAY)
    table = opened(world.store, clock)
    find_here(table)
    assert count(table, clock, 1) == {"Get": 2, "ListObjects": 7, "Put": 1}
    assert count(table, clock, 7) == {"Get": 2, "ListObjects": 4, "Put": 1}


def test_look_at_365_partitions_of_magic_where_nothing_happened_takes_eight_requests() -> None:
    clock = ManualClock()
    table = opened(MemoryStore(clock), clock)
    for number, name in enumerate(DAYS):
        run = f"daily/{number}/load"
        record = a_try(run_uuid(), idempotency_key=run, mode="replace", partitions=(name,))
        table.run(ledger.open_try(ROOT, record))
        report = {"decided_at": clock.now, "partitions": [{"partition": name, "files": 1}]}
        table.run(ledger.close_try(ROOT, record, state=COMMITTED, report=report))
        clock.advance(60.0)
    find_here(table)
    assert count(table, clock, 1) == {"Get": 2, "Head": 1, "ListObjects": 4, "Put": 1}


WHO = Owner("maintenance", "r", "settle")
FIRST, SECOND = RunRank(1.0), RunRank(2.0)


class Taken:
    """A destination whose owner went from one of Hadoop's committers to this package's, or back."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = TickingWorld(MemoryStore(self.clock))
        self.world.date_jobs()
        self.table = opened(self.world.store, self.clock)

    def by_both(self) -> Taken:
        self.world.load("day=9", mode=Mode.REPLACE)
        self.magic(100, RunRank(0.0), "day=9")
        find_here(self.table)
        return self

    def native(self, number: int, rank: RunRank, *days: str) -> None:
        self.clock.advance(60.0)
        owner, key = Owner("daily", f"day {number}", "load"), f"daily/day {number}/load"
        words = {"owner": owner, "idempotency_key": key, "run_rank": rank}
        self.world.load(*days, mode=Mode.REPLACE, **words)

    def begun(self, number: int, rank: RunRank, *days: str) -> TryRecord:
        self.clock.advance(60.0)
        key, owner = f"hourly/hour {number}/load", Owner("hourly", f"hour {number}", "load")
        words = {"idempotency_key": key, "mode": "replace", "partitions": days, "rank": rank}
        return self.table.run(ledger.open_try(ROOT, a_try(run_uuid(), owner, **words)))

    def magic(self, number: int, rank: RunRank, *days: str, empties: bool = False) -> None:
        record = self.begun(number, rank, *days)
        self.clock.advance(10.0)
        for day in days:
            for there in self.world.listed(day):
                del self.world.store.objects[there]
            there = f"{ROOT.partition_prefix(day)}part-{number}.parquet"
            if not empties:
                self.world.driver.run(Put(there, b"rows", if_none_match=False))
        said = [{"partition": day, "files": 1} for day in days]
        report = {"decided_at": self.clock.now, "partitions": said}
        self.table.run(ledger.close_try(ROOT, record, state=COMMITTED, report=report))

    def look(self) -> None:
        self.clock.advance(60.0)
        find_here(self.table)

    def chosen(self, policy: object, *days: str) -> set[tuple[str, str, str]]:
        found = choose_reruns(self.table, policy, days or None, WHO)
        assert [it.settlement.error for it in found if it.settlement.error] == []
        return {(it.conflict.partition, it.committer, it.settlement.stands) for it in found}

    def errors(self, policy: object, *days: str) -> list[str]:
        return [it.settlement.error for it in choose_reruns(self.table, policy, days, WHO)]


@pytest.fixture
def taken() -> Taken:
    """Late backfills over the first day by this package's committer, over the second by magic."""
    found = Taken().by_both()
    for number, rank in ((2, SECOND), (1, FIRST)):
        found.native(number, rank, DAY1)
        found.magic(number, rank, DAY2)
    found.look()
    return found


class TestBothCommitters:
    NATIVE = (DAY1, "", "daily/day 2/load")
    MAGIC = (DAY2, "s3a", "hourly/hour 2/load")

    def test_reruns_are_chosen_of_either(self, taken: Taken) -> None:
        assert taken.chosen("newest_run") == {self.NATIVE, self.MAGIC}

    def test_reruns_are_chosen_in_the_partitions_that_are_named(self, taken: Taken) -> None:
        assert taken.chosen("newest_run", DAY1) == {self.NATIVE}
        assert taken.chosen("newest_run", DAY2) == {self.MAGIC}
        assert taken.chosen("newest_run", DAY2, DAY1) == {self.NATIVE, self.MAGIC}

    def test_partition_that_is_on_record_with_neither_is_refused(self, taken: Taken) -> None:
        with pytest.raises(InvalidInputError, match="No runs that conflict over day=3"):
            choose_reruns(taken.table, "newest_run", [DAY1, DAY3], WHO)
        with pytest.raises(InvalidInputError, match="No runs that conflict over day=3"):
            resolve_by_restore(taken.table, "newest_run", [DAY2, DAY3])

    @pytest.fixture
    def contested(self, taken: Taken) -> Taken:
        """The third day is in conflict by the records of both."""
        for number, rank in ((4, SECOND), (3, FIRST)):
            taken.magic(number, rank, DAY3)
        for number, rank in ((4, SECOND), (3, FIRST)):
            taken.native(number, rank, DAY3)
        taken.look()
        return taken

    def test_partition_on_record_with_both_is_left_to_the_committer_whose_rows_are_there(
        self, contested: Taken
    ) -> None:
        mine, theirs = choose_reruns(contested.table, "newest_run", [DAY3], WHO)
        assert (mine.settlement.stands, mine.settlement.error) == ("daily/day 4/load", "")
        assert "a job of this package has written" in theirs.settlement.error

    def test_partition_of_which_both_have_lost_their_rows_is_left_to_the_run_that_is_named(
        self, contested: Taken
    ) -> None:
        for there in contested.world.listed(DAY3):
            del contested.world.store.objects[there]
        for error in contested.errors("newest_run", DAY3):
            assert "the one would take the place of the other" in error
        assert contested.errors({"keep": ["hourly/hour 4/load"]}, DAY3)[1] == ""

    def test_rows_of_magic_that_came_since_refuse_a_native_rerun(self, taken: Taken) -> None:
        taken.magic(5, SECOND, DAY1)
        assert ["part-5" in error for error in taken.errors("newest_run", DAY1)] == [True]

    def test_rows_of_a_native_run_that_came_since_refuse_magic(self, taken: Taken) -> None:
        taken.native(5, SECOND, DAY2)
        (error,) = taken.errors("newest_run", DAY2)
        assert "a job of this package has written" in error
        (done,) = resolve_by_restore(taken.table, {"keep": ["hourly/hour 1/load"]}, [DAY2])
        assert done.settlement is not None
        assert "a job of this package has written" in done.settlement.error

    def test_native_job_at_work_refuses_magic(self, taken: Taken) -> None:
        opened, _ = taken.world.written(DAY2, mode=Mode.REPLACE, only_partitions=(DAY2,))
        keep = {"keep": ["hourly/hour 1/load"]}
        (done,) = resolve_by_restore(taken.table, keep, [DAY2], apply=True)
        assert done.settlement is not None
        for error in (done.settlement.error, *taken.errors("newest_run", DAY2)):
            assert f"{opened.job} is at work, and may write day=2" in error
        taken.world.abort(opened)
        (done,) = resolve_by_restore(taken.table, keep, [DAY2], apply=True)
        assert done.is_settled

    def test_each_is_settled_for_the_run_whose_rows_are_there(self, taken: Taken) -> None:
        policy = {"prefer": ["hourly", "daily"]}
        for it in resolve_by_restore(taken.table, policy, [DAY1, DAY2]):
            assert it.settlement is not None
            assert "cannot be brought back" in it.settlement.error
        keep = {"keep": ["hourly/hour 1/load", "daily/day 1/load"]}
        done = resolve_by_restore(taken.table, keep, [DAY1, DAY2], apply=True)
        assert [it.is_settled for it in done] == [True, True]
        taken.look()
        assert find_here(taken.table)[0].unresolved == find_here(taken.table)[1].unresolved == ()


def test_partition_of_hadoop_s_committers_is_named_in_any_spelling() -> None:
    """With and without the escapes that Spark writes."""
    found = Taken()
    for number, rank in ((2, SECOND), (1, FIRST)):
        found.magic(number, rank, "hour=2013-02-02T05%3A00")
    found.look()
    for name in ("hour=2013-02-02T05:00", "hour=2013-02-02T05%3A00"):
        assert [it[2] for it in found.chosen("newest_run", name)] == ["hourly/hour 2/load"]


class TestRestoreBesideMagic:
    """Two native runs conflict over the first day, and the late one, whose rows are there, may
    stand."""

    KEEP: ClassVar[object] = {"keep": ["daily/day 1/load"]}

    @pytest.fixture
    def taken(self) -> Taken:
        taken = Taken().by_both()
        for number, rank in ((2, SECOND), (1, FIRST)):
            taken.native(number, rank, DAY1)
        taken.look()
        return taken

    def refused(self, taken: Taken, said: str) -> None:
        """Settle it, by either way; see that it is refused and on record, and nothing changed."""
        files = taken.table.snapshot([DAY1]).files
        objects = {key for key in taken.world.store.objects if "conflicts" not in key}
        (found,) = [it for it in find_here(taken.table) if it.committer == "zero_rename"]
        policy = SettlementPolicy.parse(self.KEEP)
        resolved = resolve_found(taken.table, found, policy, True, WHO)
        by_hand = resolve_by_restore(taken.table, self.KEEP, [DAY1], apply=True)
        for done in (*resolved.unresolved, *by_hand):
            assert done.settlement is not None
            assert said in done.settlement.error
            assert "Nothing was changed" in done.settlement.error
        assert (len(resolved.unresolved), len(by_hand)) == (1, 1)
        assert taken.table.snapshot([DAY1]).files == files
        assert {key for key in taken.world.store.objects if "conflicts" not in key} == objects

    def test_rows_of_magic_that_came_since_refuse_it(self, taken: Taken) -> None:
        taken.magic(5, SECOND, DAY1)
        self.refused(taken, "day=1/part-5.parquet")

    def test_load_of_magic_that_left_no_rows_refuses_it(self, taken: Taken) -> None:
        taken.magic(5, SECOND, DAY1, empties=True)
        self.refused(taken, "hourly.load of run hour 5")

    def test_run_of_magic_at_work_refuses_it(self, taken: Taken) -> None:
        record = taken.begun(5, SECOND, DAY1)
        self.refused(taken, f"({record.uuid}) is at work, and may write day=1")

    @pytest.mark.parametrize("where", [ledger.open_key, ledger.closed_key])
    def test_record_that_cannot_be_read_refuses_it(self, taken: Taken, where: Any) -> None:
        taken.clock.advance(60.0)
        key = where(ROOT, "hourly/hour 5/load", run_uuid())
        taken.table.run(Put(key, b"{"))
        (done,) = resolve_by_restore(taken.table, self.KEEP, [DAY1], apply=True)
        assert done.settlement is not None
        assert key in done.settlement.error

    def test_open_record_that_cannot_be_read_refuses_it_however_old(self) -> None:
        taken = Taken().by_both()
        key = ledger.open_key(ROOT, "hourly/hour 5/load", run_uuid())
        taken.table.run(Put(key, b"{"))
        for number, rank in ((2, SECOND), (1, FIRST)):
            taken.native(number, rank, DAY1)
        taken.look()
        (done,) = resolve_by_restore(taken.table, self.KEEP, [DAY1], apply=True)
        assert done.settlement is not None
        assert key in done.settlement.error

    def test_load_of_magic_elsewhere_and_one_before_do_not(self) -> None:
        taken = Taken().by_both()
        taken.magic(4, SECOND, DAY1, empties=True)
        for number, rank in ((2, SECOND), (1, FIRST)):
            taken.native(number, rank, DAY1)
        taken.magic(5, SECOND, DAY2)
        taken.look()
        (done,) = resolve_by_restore(taken.table, self.KEEP, [DAY1], apply=True)
        assert done.is_settled


class TestNoRowsOfMagic:
    """A late run with one of Hadoop's committers has left the second day without rows."""

    @pytest.fixture
    def taken(self) -> Taken:
        taken = Taken().by_both()
        taken.magic(2, SECOND, DAY2)
        taken.magic(1, FIRST, DAY2, empties=True)
        taken.look()
        return taken

    def test_run_that_emptied_it_may_stand(self, taken: Taken) -> None:
        keep = {"keep": ["hourly/hour 1/load"]}
        (done,) = resolve_by_restore(taken.table, keep, [DAY2], apply=True)
        assert done.is_settled
        taken.look()
        assert [it.unresolved for it in find_here(taken.table)] == [(), ()]

    def test_other_run_is_refused_and_may_load_again(self, taken: Taken) -> None:
        (done,) = resolve_by_restore(taken.table, "newest_run", [DAY2], apply=True)
        assert done.settlement is not None
        assert "Let the run that is to stand load the partition again" in done.settlement.error
        assert taken.chosen("newest_run", DAY2) == {(DAY2, "s3a", "hourly/hour 2/load")}


class TestDeltaTables:
    def test_a_look_finds_conflicts_where_a_delta_table_is_named_or_lies_below(self) -> None:
        store = MemoryStore(ManualClock())
        delta = DeltaTable("s3://bucket/wh/flights")
        delta.driver = MemoryDriver(store)  # type: ignore[assignment]
        rows = pa.table({"day": ["1"], "n": [1]})
        for rank in (2, 1):
            run = {"owner": Owner("daily", str(rank)), "idempotency_key": f"daily/{rank}"}
            given = {"mode": "overwrite", "partition_by": ["day"], "run_rank": rank, **run}
            with delta.job(rows.schema, **given) as job:
                job.write(rows)
        here = memory_table(store, delta.root.url)
        above = memory_table(store, "s3://bucket/wh")
        for found in (find_here(here), find_below(above, lambda url: memory_table(store, url))):
            (report,) = found
            assert (report.table, report.committer) == (delta.root.url, "zero_rename")
            assert [it.partition for it in report.unresolved] == [DAY1]
        assert "daily of run 1" in conflicts_as_markdown(found)
        (chosen,) = choose_reruns(here, "newest_run", None, WHO)
        assert (chosen.settlement.stands, chosen.settlement.error) == ("daily/2", "")
        (done,) = resolve_by_restore(here, "newest_run", [DAY1], apply=True)
        assert done.is_settled

    @pytest.fixture
    def adopted(self) -> Taken:
        """Hadoop's runs conflict over the second day of a directory that is a Delta table since."""
        found = Taken()
        for number, rank in ((2, SECOND), (1, FIRST)):
            found.magic(number, rank, DAY2)
        found.look()
        for there in found.world.listed(DAY2):
            del found.world.store.objects[there]
        self.load(found, "1")
        return found

    def load(self, taken: Taken, day: str) -> None:
        rows = pa.table({"day": [day], "n": [1]})
        delta = delta_at(taken.table)
        with delta.job(rows.schema, mode="overwrite", partition_by=["day"]) as job:
            job.write(rows)

    KEEP: ClassVar[object] = {"keep": ["hourly/hour 1/load"]}

    def test_conflict_of_hadoops_runs_is_settled_where_the_delta_table_left_the_partition(
        self, adopted: Taken
    ) -> None:
        assert adopted.chosen("newest_run", DAY2) == {(DAY2, "s3a", "hourly/hour 2/load")}
        (done,) = resolve_by_restore(adopted.table, self.KEEP, [DAY2], apply=True)
        assert done.is_settled

    def test_conflict_of_hadoops_runs_is_left_where_the_delta_table_has_written_the_partition(
        self, adopted: Taken
    ) -> None:
        """The run that is to stand would remove rows of a run that is not in the conflict."""
        self.load(adopted, "2")
        (done,) = resolve_by_restore(adopted.table, self.KEEP, [DAY2], apply=True)
        assert done.settlement is not None
        for error in (done.settlement.error, *adopted.errors("newest_run", DAY2)):
            assert "version 1 of its log has written day=2" in error

    def test_conflict_of_hadoops_runs_is_left_while_a_job_of_the_delta_table_is_at_work(
        self, adopted: Taken
    ) -> None:
        rows = pa.table({"day": ["2"], "n": [1]})
        with delta_at(adopted.table).job(mode="overwrite") as job:
            (error,) = adopted.errors("newest_run", DAY2)
            job.write(rows)
        assert f"{job.job} is at work, and may write day=2" in error
