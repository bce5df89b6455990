"""Jobs under ``on_conflict=newest_run``: a late run never takes the place of a newer run's rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.faults import Crash, beside, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, DAY2, DAY3, ROOT, World, die_of, memory_table, rows_by_partition
from zero_rename.committer import (
    CommitConflictError,
    Committed,
    InvalidInputError,
    JobFencedError,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    RunRank,
    RunRanks,
    SchemaMode,
    SupersededRunError,
    Table,
)
from zero_rename.committer.commit.state.context import Waiting
from zero_rename.committer.format.layout import job_ids_begin
from zero_rename.committer.format.records.failure import is_final
from zero_rename.committer.format.run_rank import RankKind
from zero_rename.committer.store.requests import Put

OLD, MIDDLE, NEW = (RunRank(float(day)) for day in (1, 2, 3))
NEWEST: dict[str, Any] = {"mode": Mode.REPLACE, "on_conflict": OnConflict.NEWEST_RUN}
APPEND: dict[str, Any] = {**NEWEST, "mode": Mode.APPEND}
SKIP: dict[str, Any] = {**NEWEST, "on_superseded": OnSuperseded.SKIP}


@pytest.fixture
def world() -> World:
    world = World()
    world.load(DAY3, run_rank=OLD)
    return world


class TestReplaces:
    def test_a_late_run_is_refused_and_changes_nothing(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        with pytest.raises(SupersededRunError, match=f"{DAY1} \\(by {newer.job}\\)") as caught:
            world.load(DAY1, DAY2, run_rank=OLD, **NEWEST)
        assert caught.value.partitions == {DAY1: newer.job}
        assert world.jobs_of(DAY1) == [newer.job]
        assert world.jobs_of(DAY2) == []
        world.assert_clean()

    def test_a_newer_run_takes_the_place_of_what_came_while_it_worked(self, world: World) -> None:
        opened, result = world.written(DAY1, run_rank=NEW, **NEWEST)
        world.load(DAY1, run_rank=OLD, **NEWEST)
        done = world.commit(opened, result)
        assert world.jobs_of(DAY1) == [done.job]

    def test_an_older_run_gives_way_to_what_came_while_it_worked(self, world: World) -> None:
        opened, result = world.written(DAY1, run_rank=OLD, **NEWEST)
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        with pytest.raises(SupersededRunError):
            world.commit(opened, result)
        assert world.jobs_of(DAY1) == [newer.job]
        world.assert_clean()

    @pytest.mark.parametrize("policy", [NEWEST, SKIP])
    def test_a_late_run_that_names_its_partition_is_refused_as_it_opens(
        self, world: World, policy: dict[str, Any]
    ) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        with pytest.raises(SupersededRunError, match=newer.job):
            world.open(run_rank=OLD, replace_partitions=(DAY1,), **policy)
        world.assert_clean()
        if policy is SKIP:
            assert world.open(run_rank=OLD, replace_partitions=(DAY1, DAY2), **policy)

    def test_of_one_rank_what_was_there_is_replaced(self, world: World) -> None:
        world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        again = world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        assert world.jobs_of(DAY1) == [again.job]

    def test_of_one_rank_what_came_meanwhile_is_a_conflict(self, world: World) -> None:
        opened, result = world.written(DAY1, run_rank=MIDDLE, **NEWEST)
        other = world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        with pytest.raises(CommitConflictError, match=DAY1):
            world.commit(opened, result)
        assert world.jobs_of(DAY1) == [other.job]

    def test_of_one_value_the_run_that_was_made_later_is_newer(self, world: World) -> None:
        world.load(DAY1, run_rank=RunRank(5.0, then=2.0), **NEWEST)
        with pytest.raises(SupersededRunError):
            world.load(DAY1, run_rank=RunRank(5.0, then=1.0), **NEWEST)
        assert world.load(DAY1, run_rank=RunRank(5.0, then=3.0), **NEWEST)

    def test_without_a_rank_the_job_that_opened_later_is_newer(self, world: World) -> None:
        first, second = (
            world.with_context(job_id=lambda at=at: f"{job_ids_begin(at, 10)}{'0' * 16}")
            for at in (1e9, 1e9 + 1)
        )
        opened, result = first.written(DAY1, **NEWEST)
        later = second.load(DAY1, **NEWEST)
        with pytest.raises(SupersededRunError, match=later.job):
            first.commit(opened, result)

    def test_what_was_read_stays_the_base(self, world: World) -> None:
        world.load(DAY1, run_rank=OLD)
        base = world.snapshot().base
        world.load(DAY1, run_rank=MIDDLE)
        with pytest.raises(CommitConflictError, match="since this job read"):
            world.load(DAY1, run_rank=NEW, base=base, **NEWEST)

    def test_last_wins_loads_older_rows_and_its_rank_counts(self, world: World) -> None:
        world.load(DAY1, run_rank=NEW)
        world.load(DAY1, mode=Mode.REPLACE, on_conflict=OnConflict.LAST_WINS, run_rank=OLD)
        middle = world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        assert world.jobs_of(DAY1) == [middle.job]

    def test_the_whole_table_is_judged_partition_by_partition(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        done = world.load(DAY2, run_rank=MIDDLE, replace_table=True, **SKIP)
        assert world.jobs_of(DAY1) == [newer.job]
        assert world.jobs_of(DAY2) == [done.job]
        assert world.jobs_of(DAY3) == []
        assert done.superseded == {DAY1: newer.job}

    def test_each_partition_has_its_own_rank(self, world: World) -> None:
        world.load(DAY1, DAY2, run_rank=MIDDLE, **NEWEST)
        done = world.load(DAY1, DAY2, run_rank=RunRanks({DAY1: OLD, DAY2: NEW}), **SKIP)
        assert [it.partition for it in done.partitions] == [DAY2]


class TestSkip:
    def test_superseded_partitions_are_left_out_and_the_others_written(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        done = world.load(DAY1, DAY2, run_rank=OLD, **SKIP)
        assert rows_by_partition(done) == {DAY2: 1}
        assert done.superseded == {DAY1: newer.job}
        assert done.left_out == 1
        assert world.jobs_of(DAY1) == [newer.job]
        assert world.jobs_of(DAY2) == [done.job]
        world.assert_clean()

    def test_who_asks_later_is_told_the_same(self, world: World) -> None:
        world.load(DAY1, run_rank=NEW, **NEWEST)
        done = world.load(DAY1, DAY2, run_rank=OLD, idempotency_key="late", **SKIP)
        again = world.load(DAY1, DAY2, run_rank=OLD, idempotency_key="late", **SKIP)
        assert again.repeated
        assert (again.superseded, again.left_out) == (done.superseded, done.left_out)

    def test_a_run_of_which_nothing_is_left_is_refused(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        for key in (None, "late"):
            with pytest.raises(SupersededRunError, match=newer.job):
                world.load(DAY1, run_rank=OLD, idempotency_key=key, **SKIP)
        world.assert_clean()

    def test_rows_of_a_first_attempt_are_known_after_one_that_left_their_partition_out(
        self, world: World
    ) -> None:
        own = {"idempotency_key": "late", "on_repeat": OnRepeat.REPLACE_OWN, "run_rank": OLD}
        first = world.load(DAY1, DAY2, **own, **SKIP)
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        second = world.load(DAY1, DAY2, **own, **SKIP)
        assert second.narrows == first.job
        third = world.load(DAY2, **own, **{**SKIP, "mode": Mode.APPEND})
        assert (world.jobs_of(DAY1), world.jobs_of(DAY2)) == ([newer.job], [third.job])


class TestAppends:
    def test_never_give_way_to_appends(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **APPEND)
        older = world.load(DAY1, run_rank=OLD, **APPEND)
        assert world.jobs_of(DAY1) == [newer.job, older.job]

    def test_give_way_to_a_newer_replace(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        with pytest.raises(SupersededRunError):
            world.load(DAY1, run_rank=OLD, **APPEND)
        assert world.jobs_of(DAY1) == [newer.job]

    def test_follow_an_older_replace_that_came_meanwhile(self, world: World) -> None:
        opened, result = world.written(DAY1, run_rank=NEW, **APPEND)
        older = world.load(DAY1, run_rank=OLD, **NEWEST)
        done = world.commit(opened, result)
        assert world.jobs_of(DAY1) == [older.job, done.job]

    def test_keep_an_older_replace_from_their_rows(self, world: World) -> None:
        newer = world.load(DAY1, run_rank=NEW, **APPEND)
        with pytest.raises(SupersededRunError):
            world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        world.load(DAY1, run_rank=OLD, **APPEND)
        with pytest.raises(SupersededRunError):  # The oldest row does not make the newest older.
            world.load(DAY1, run_rank=MIDDLE, **NEWEST)
        assert world.jobs_of(DAY1)[0] == newer.job


class TestClearedRun:
    """Its rows of before lie where a newer run had loaded, since it said ``last_wins`` then."""

    @pytest.mark.parametrize("policy", [APPEND, SKIP])
    def test_takes_out_rows_that_it_has_no_more(self, world: World, policy: dict[str, Any]) -> None:
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        of_run: dict[str, Any] = {"idempotency_key": "run", "run_rank": OLD}
        world.load(DAY1, on_conflict=OnConflict.LAST_WINS, **of_run)
        again = world.load(DAY2, on_repeat=OnRepeat.REPLACE_OWN, **of_run, **policy)
        assert (world.jobs_of(DAY1), world.jobs_of(DAY2)) == ([newer.job], [again.job])

    def test_leaves_what_was_replaced_while_it_worked(self, world: World) -> None:
        of_run: dict[str, Any] = {"idempotency_key": "run", "run_rank": OLD}
        world.load(DAY1, **of_run)
        opened, result = world.written(DAY2, on_repeat=OnRepeat.REPLACE_OWN, **of_run, **APPEND)
        newer = world.load(DAY1, run_rank=NEW, **NEWEST)
        again = world.commit(opened, result)
        assert (world.jobs_of(DAY1), world.jobs_of(DAY2)) == ([newer.job], [again.job])


class TestFencedWhileItClaims:
    """A run that another one fenced is tried again where its next try notices the other one."""

    @staticmethod
    def fenced(world: World, commits: bool, **other: Any) -> JobFencedError:
        """A run of the middle rank that another one fences, which commits then, or has claimed."""
        opened, result = world.written(DAY1, run_rank=MIDDLE, **NEWEST)
        rival = World(world.store).with_context(waiting=Waiting(silence=0.0, cap=0.0, poll=0.1))

        def overtakes() -> None:
            world.driver.fault = None
            theirs, rows = rival.written(DAY1, **{**NEWEST, **other})
            if commits:
                rival.commit(theirs, rows)
            else:
                die_of(on(Put, Crash, ROOT.decision_key(theirs.job)), rival, theirs, rows)

        world.driver.fault = beside(Put, overtakes, ROOT.decision_key(opened.job))
        with pytest.raises(JobFencedError) as caught:
            world.commit(opened, result)
        return caught.value

    @pytest.mark.parametrize("commits", [True, False])
    @pytest.mark.parametrize(
        ("other", "is_final_error"),
        [
            ({"run_rank": NEW}, False),
            ({"run_rank": MIDDLE}, True),
            ({"run_rank": RunRanks({"day=01": MIDDLE})}, True),
            ({"run_rank": OLD}, False),
            ({"run_rank": 7, "on_conflict": OnConflict.LAST_WINS}, False),
        ],
        ids=["newer", "equally new", "equally new, spelled otherwise", "older", "of another kind"],
    )
    def test_is_final_only_where_its_next_try_would_not_notice(
        self, world: World, commits: bool, other: dict[str, Any], is_final_error: bool
    ) -> None:
        error = self.fenced(world, commits, **other)
        assert (error.overtaken, is_final(error, ROOT)) == (is_final_error, is_final_error)

    def test_claim_of_a_job_whose_record_cannot_be_read_is_final(self, world: World) -> None:
        opened, result = world.written(DAY1, run_rank=MIDDLE, **NEWEST)
        rival = World(world.store).with_context(waiting=Waiting(silence=0.0, cap=0.0, poll=0.1))

        def overtakes() -> None:
            world.driver.fault = None
            theirs, rows = rival.written(DAY1, run_rank=NEW, **NEWEST)
            die_of(on(Put, Crash, ROOT.decision_key(theirs.job)), rival, theirs, rows)
            rival.store.apply(Put(ROOT.open_key(theirs.job), b"{"))

        world.driver.fault = beside(Put, overtakes, ROOT.decision_key(opened.job))
        with pytest.raises(JobFencedError) as caught:
            world.commit(opened, result)
        assert caught.value.overtaken


class TestRefused:
    def test_ranks_of_two_kinds(self, world: World) -> None:
        world.load(DAY1, run_rank=7, **NEWEST)
        with pytest.raises(
            InvalidInputError,
            match=r"is 2013-01-01T00:00:00\+00:00, and the rank of the rows in day=1 is 7",
        ):
            world.load(DAY1, run_rank=date(2013, 1, 1), **NEWEST)
        world.assert_clean()
        last = {"mode": Mode.REPLACE, "on_conflict": OnConflict.LAST_WINS}
        world.load(DAY1, run_rank=date(2013, 1, 1), **last)
        assert world.load(DAY1, run_rank=date(2013, 1, 2), **NEWEST)

    def test_append_of_another_kind_than_the_appends_that_are_there(self, world: World) -> None:
        """No replace could be compared with both."""
        first = world.load(DAY1, run_rank=7, **APPEND)
        with pytest.raises(InvalidInputError, match="rank of the rows in day=1 is 7"):
            world.load(DAY1, run_rank=date(2013, 1, 1), **APPEND)
        assert world.jobs_of(DAY1) == [first.job]
        world.assert_clean()

    @pytest.mark.parametrize(
        ("policy", "said"),
        [
            (
                {
                    "mode": Mode.REPLACE,
                    "replace_table": True,
                    "schema_mode": SchemaMode.OVERWRITE,
                    "on_superseded": OnSuperseded.SKIP,
                },
                "schema_mode=overwrite takes the columns",
            ),
            ({"mode": Mode.FAIL_IF_EXISTS}, "fail-if-exists"),
            ({"mode": Mode.REPLACE, "merges": {DAY1: ("zr1-x",)}}, "latest_by"),
            ({"mode": Mode.REPLACE, "run_rank": "yesterday"}, "run_rank is 'yesterday'"),
            ({"mode": Mode.REPLACE, "run_rank": True}, "run_rank is True"),
            ({"mode": Mode.REPLACE, "run_rank": float("nan")}, "run_rank is nan"),
            ({"mode": Mode.REPLACE, "run_rank": 2**53}, "Give a number below"),
            ({"mode": Mode.REPLACE, "run_rank": pd.NaT}, "run_rank is NaT"),
        ],
    )
    def test_what_cannot_be_kept(self, world: World, policy: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said):
            JobSpec(world.open().schema, on_conflict=OnConflict.NEWEST_RUN, **policy)

    def test_skip_where_no_run_gives_way(self, world: World) -> None:
        with pytest.raises(InvalidInputError, match="on_conflict=fail lets none"):
            JobSpec(world.open().schema, on_superseded=OnSuperseded.SKIP)


class TestRank:
    @pytest.mark.parametrize(
        ("given", "rank"),
        [
            (7, "7"),
            ("-7.5", "-7.5"),
            (0.1 + 0.2, "0.3"),
            (2**53 - 1, "9007199254740991"),
            ("2013-01-02", "2013-01-02T00:00:00+00:00"),
            (date(2013, 1, 2), "2013-01-02T00:00:00+00:00"),
            (datetime(2013, 1, 2, 6, tzinfo=UTC), "2013-01-02T06:00:00+00:00"),
            ("2013-01-02T06:00:00+02:00", "2013-01-02T04:00:00+00:00"),
        ],
    )
    def test_what_a_user_gives(self, given: object, rank: str) -> None:
        assert str(RunRank.of(given)) == rank

    @pytest.mark.parametrize(
        "given", [float("nan"), float("inf"), pytest.param(10**400, id="10**400"), "1", True, None]
    )
    @pytest.mark.parametrize("field", ["value", "then"])
    def test_rank_that_no_head_can_hold_is_refused(self, given: Any, field: str) -> None:
        """A head that had it could neither be read nor be replaced."""
        fields: dict[str, Any] = {"value": 1.0, field: given}
        with pytest.raises(InvalidInputError, match=f"{field}=.* is not a finite number"):
            RunRank(**fields)

    def test_rank_of_a_kind_in_its_own_words_is_of_that_kind(self) -> None:
        assert RunRank(1, kind="number") == RunRank.of(1)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match=r"is 'day'.*Choose one of time, number"):
            RunRank(1, kind="day")  # type: ignore[arg-type]

    def test_ranks_that_are_bare_numbers_are_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="rank of 'day=1' in RunRanks is 5"):
            RunRanks({DAY1: 5})  # type: ignore[dict-item]

    def test_rank_by_a_number_of_numpy_is_recorded(self, world: World) -> None:
        rank = RunRank(np.int64(7), kind=RankKind.NUMBER)  # type: ignore[arg-type]
        done = world.load(DAY1, run_rank=RunRanks({DAY1: rank}), **NEWEST)
        assert world.jobs_of(DAY1) == [done.job]

    def test_time_beyond_all_calendars_is_shown_by_its_seconds(self) -> None:
        with pytest.raises(InvalidInputError, match=r"1e\+20 s.* do not say which run is newer"):
            RunRank(1e20).check_kind(RunRank(3, kind=RankKind.NUMBER))

    def test_a_text_of_ranks_comes_back(self) -> None:
        ranks = RunRanks({"": RunRank(0.1, 2.5), "day=ü": RunRank.of(3)})
        assert RunRanks.parse(str(ranks)) == ranks
        assert RunRanks.parse("2013-01-02") == RunRanks.of(date(2013, 1, 2))

    @pytest.mark.parametrize(
        "text",
        ["", "{", "{}x", '{"a":1}', '{"":[1,2,"way"]}', "nan", "1e999", f'{{"":[1{"0" * 400}]}}'],
    )
    def test_another_text_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is a number below 2\^53, or a date"):
            RunRanks.parse(text)


def test_newest_run_costs_no_request_more(world: World) -> None:
    def requests(**policy: Any) -> int:
        world.driver.requests.clear()
        world.load(DAY1, DAY2, mode=Mode.REPLACE, run_rank=MIDDLE, **policy)
        return len(world.driver.requests)

    requests()
    assert requests() == requests(on_conflict=OnConflict.NEWEST_RUN)


def test_unpartitioned_table_is_named_as_such() -> None:
    table = memory_table(MemoryStore())
    rows = pa.table({"id": [1]})
    for rank in (2, 3):
        with table.job(rows.schema, replace_table=True, run_rank=rank, **NEWEST) as job:
            job.write(rows)
    with (
        pytest.raises(SupersededRunError, match=r"loaded the table \(by zr1-"),
        table.job(rows.schema, replace_table=True, run_rank=1, **NEWEST) as job,
    ):
        job.write(rows)


class TestRewritten:
    """What is only written again is as new as it was."""

    @pytest.fixture
    def table(self) -> Table:
        table = memory_table(MemoryStore())
        self.load(table, 3)
        self.load(table, 1, mode=Mode.APPEND, on_conflict=OnConflict.FAIL)
        return table

    def load(self, table: Table, rank: int, day: int = 1, **policy: Any) -> Committed:
        rows = pa.table({"id": [rank], "day": [day]})
        given: dict[str, Any] = {**NEWEST, "partition_by": ["day"], "run_rank": rank, **policy}
        with table.job(rows.schema, **given) as job:
            job.write(rows)
        assert job.committed is not None
        return job.committed

    def ids(self, table: Table) -> list[int]:
        return sorted(table.to_arrow()["id"].to_pylist())

    def test_by_a_compaction(self, table: Table) -> None:
        assert table.compact(apply=True)
        with pytest.raises(SupersededRunError):
            self.load(table, 2)
        assert self.ids(table) == [1, 3]

    def test_by_an_adoption(self, table: Table) -> None:
        """Which gives a partition without a head one without a rank, the oldest."""
        body = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [7]}), body)
        for day in (1, 2):
            key = f"{table.root.prefix}/day={day}/other.parquet"
            table.run(Put(key, body.getvalue().to_pybytes()))
        assert [it.partition for it in table.adopt(apply=True).entries] == ["day=2"]
        with pytest.raises(SupersededRunError):
            self.load(table, 2)
        self.load(table, 4)
        self.load(table, -1, day=2)
        assert self.ids(table) == [-1, 4]

    def test_by_a_merge_of_an_older_run(self, table: Table) -> None:
        table.merge(pa.table({"id": [1, 5], "day": [1, 1]}), ["id"])
        with pytest.raises(SupersededRunError):
            self.load(table, 2)
        assert self.ids(table) == [1, 3, 5]
