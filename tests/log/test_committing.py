"""Jobs on one log: what they commit, meet, and are refused for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable, day, file_of, first, ids
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    JobFencedError,
    OutcomeUnknownError,
    RecordDamagedError,
    SupersededRunError,
    TableMismatchError,
    TableNotFoundError,
)
from zero_rename.committer.format.run_rank import RankKind, RunRank
from zero_rename.committer.store import requests as s
from zero_rename.log import checksum
from zero_rename.log.actions import (
    AddFile,
    AppTransaction,
    CommitInfo,
    LogMetadata,
    LogProtocol,
    RemoveFile,
    write_actions,
)
from zero_rename.log.change import FENCE, LogBase, LogChange, Overtaking
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.entries import ListedLog, sort_listing
from zero_rename.log.job_files import hand_over, take_over
from zero_rename.log.job_steps import commit_job, open_log_job, recover_job, withdraw_job
from zero_rename.log.opening import FRESH, LogDepth
from zero_rename.log.publishing import hand_over_job, publish_job
from zero_rename.log.ranks import LogRanks
from zero_rename.log.scope import ALL
from zero_rename.log.searching import RunDone

#: Of two runs that are as new as each other.
BY_RANK = {"overtaking": Overtaking.NEWEST_RUN, "ranks": LogRanks(other=RunRank(7.0))}


@pytest.fixture
def table() -> LogTable:
    table = LogTable()
    table.make()
    return table


def test_appends_beside_each_other_all_commit(table: LogTable) -> None:
    one, two = table.job("1"), table.job("1")
    table.commit(two)
    table.commit(one)
    assert table.live() == {one.adds[0].path, two.adds[0].path}


def test_replace_removes_what_is_live_as_it_commits(table: LogTable) -> None:
    table.append("1", "2")
    replaced = table.replace("1")
    assert {it.values["day"] for it in table.open().state.live.values()} == {"1", "2"}
    assert len(replaced.entry.of(RemoveFile)) == 1


@pytest.mark.parametrize("given", [{"replaced": day("1")}, {"replaced": ALL}, {"reads": ALL}])
def test_entry_of_its_own_application_overtakes_no_job_and_that_of_another_does(
    table: LogTable, given: dict[str, Any]
) -> None:
    def own(job: LogChange) -> LogChange:
        return replace(job, own=frozenset({"mine", "changed"}))

    for name, changes in (("mine", {}), ("changed", {"metadata": COLUMNS})):
        job = own(table.job("1", **given))
        table.commit(table.job("1", job=name, replaced=day("1"), **changes))
        table.commit(take_over(hand_over(job), "key"))
    job = own(table.job("1", **given))
    table.append("1")
    with pytest.raises(CommitConflictError):
        table.commit(job)


def test_columns_that_its_own_application_has_changed_are_a_conflict_of_a_job_that_changes_them(
    table: LogTable,
) -> None:
    job = table.job("1", metadata=COLUMNS, own=frozenset({"mine"}))
    table.append("1", job="mine", metadata=COLUMNS)
    with pytest.raises(CommitConflictError, match="changed the columns"):
        table.commit(job)


def test_replace_after_an_append_to_its_partition_is_a_conflict(table: LogTable) -> None:
    job = table.job("1", replaced=day("1"))
    table.append("1")
    with pytest.raises(CommitConflictError, match=r"changed partition day=1[.]") as caught:
        table.commit(job)
    assert caught.value.overtaken
    assert len(table.live()) == 1


def test_append_after_a_replace_of_its_partition_is_a_conflict(table: LogTable) -> None:
    job = table.job("1")
    table.replace("1")
    with pytest.raises(CommitConflictError, match="replaced a partition"):
        table.commit(job)


def test_append_beside_a_replace_of_another_partition_commits(table: LogTable) -> None:
    job = table.job("2")
    table.replace("1")
    table.commit(job)
    assert len(table.live()) == 2


def test_append_beside_a_compaction_commits(table: LogTable) -> None:
    path = table.append("1").entry.of(AddFile)[0].path
    job = table.job("1")
    compacted = table.job("1", removes=frozenset({path}), changes_data=False)
    table.commit(compacted)
    table.commit(job)
    assert len(table.live()) == 2


def test_append_after_an_overwrite_of_another_engine_is_a_conflict(table: LogTable) -> None:
    job = table.job("1")
    info = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}, "txnId": "spark"}
    table.put("00000000000000000001.json", write_actions([CommitInfo(info)]))
    with pytest.raises(CommitConflictError):
        table.commit(job)


@pytest.mark.parametrize("said", [True, "true"])
def test_dynamic_overwrite_of_another_engine_meets_jobs_of_its_partitions_alone(
    table: LogTable, said: object
) -> None:
    passes, replaces = table.job("2"), table.job("3", replaced=day("3"))
    meets = table.job("1")
    parameters = {"mode": "Overwrite", "isDynamicPartitionOverwrite": said}
    info = {"operation": "WRITE", "operationParameters": parameters, "txnId": "spark"}
    body = write_actions([CommitInfo(info), file_of("spark")])
    table.put("00000000000000000001.json", body)
    table.commit(passes)
    table.commit(replaces)
    with pytest.raises(CommitConflictError, match="replaced a partition that this job adds to"):
        table.commit(meets)


def test_replace_with_last_wins_removes_what_came_meanwhile(table: LogTable) -> None:
    job = table.job("1", replaced=day("1"), overtaking=Overtaking.LAST_WINS)
    table.append("1")
    table.commit(job)
    assert table.live() == {job.adds[0].path}


def test_two_removals_of_one_file_conflict(table: LogTable) -> None:
    path = table.append("1").entry.of(AddFile)[0].path
    one = table.job("1", removes=frozenset({path}))
    table.commit(table.job("1", removes=frozenset({path})))
    with pytest.raises(CommitConflictError, match="removed"):
        table.commit(one)


def test_removal_of_a_file_that_was_not_live_at_the_base_is_refused(table: LogTable) -> None:
    with pytest.raises(CommitConflictError, match="no longer"):
        table.commit(table.job("1", removes=frozenset({"data/x/0.parquet"})))


def test_change_of_a_read_partition_is_a_conflict(table: LogTable) -> None:
    job = table.job("2", reads=day("1"))
    table.append("1")
    with pytest.raises(CommitConflictError, match="was read"):
        table.commit(job)


def test_entries_between_a_read_and_the_opening_are_judged(table: LogTable) -> None:
    base = table.open().state
    table.append("1")
    job = table.job("2", reads=day("1"))
    bound = replace(job, base=LogBase(base.version, base.table_id))
    with pytest.raises(CommitConflictError, match="was read"):
        table.commit(bound)


def test_absence_of_a_table_is_judged_like_any_base() -> None:
    table = LogTable()
    merged = LogChange("merge", LogBase(-1), COLUMNS, (file_of("merge"),), reads=ALL)
    table.make()
    table.append("1")
    with pytest.raises(CommitConflictError):
        table.commit(merged)


def test_second_of_two_first_jobs_is_refused() -> None:
    table = LogTable()
    before = table.open()
    table.make()
    with pytest.raises(CommitConflictError):
        table.run(commit_change(LAYOUT, before, first("second"), NOW))
    assert table.versions() == [0]


class TestFirstJobs:
    """Jobs that found no table, each of which would make it."""

    def both(self, second: dict[str, Any], metadata: LogMetadata = COLUMNS) -> set[str]:
        """The days that are there after an append to day 1, and a second first job."""
        table = LogTable()
        before = table.open()
        one = first("one", adds=(file_of("one"),), columns=COLUMNS, joins=True)
        two = first("two", metadata, columns=metadata)
        given: dict[str, Any] = {"joins": True, **second}
        two = replace(two, **given)
        for change in (one, two):
            table.run(commit_change(LAYOUT, before, change, NOW))
        live = table.open().state.live.values()
        return {str(it.values["day"]) for it in live}

    def test_second_one_adds_to_the_table_that_the_first_has_made(self) -> None:
        assert self.both({"adds": (file_of("two", 0, "2"),)}) == {"1", "2"}

    def test_second_one_adds_to_the_same_partition(self) -> None:
        assert self.both({"adds": (file_of("two", 0, "1"),)}) == {"1"}

    def test_second_one_has_another_id_and_another_time(self) -> None:
        metadata = replace(COLUMNS, id="two", created_at=7)
        assert self.both({"adds": (file_of("two", 0, "2"),)}, metadata) == {"1", "2"}

    def test_second_one_replaces_another_partition(self) -> None:
        given = {"adds": (file_of("two", 0, "2"),), "replaced": day("2")}
        assert self.both(given) == {"1", "2"}

    @pytest.mark.parametrize(
        ("given", "metadata"),
        [
            ({"joins": False}, COLUMNS),
            ({"replaced": day("1")}, COLUMNS),
            ({"replaced": ALL}, COLUMNS),
            ({"reads": day("1")}, COLUMNS),
            ({"reads": ALL}, COLUMNS),
            ({}, replace(COLUMNS, partition_columns=())),
            (
                {},
                replace(
                    COLUMNS, properties={**COLUMNS.properties, "zero_rename.dataRoot": "s3://x/"}
                ),
            ),
            ({}, replace(COLUMNS, schema=COLUMNS.schema.replace("long", "integer"))),
            ({"protocol": LogProtocol(3, 7, frozenset({"timestampNtz"}))}, COLUMNS),
        ],
    )
    def test_second_one_is_refused_where_the_table_is_another_or_it_meets_the_first(
        self, given: dict[str, Any], metadata: LogMetadata
    ) -> None:
        with pytest.raises(CommitConflictError):
            self.both({"adds": (file_of("two", 0, "2"),), **given}, metadata)

    def test_append_beside_a_replace_of_its_partition_is_refused(self) -> None:
        table = LogTable()
        before = table.open()
        given: dict[str, Any] = {"columns": COLUMNS, "joins": True}
        one = first("one", adds=(file_of("one"),), replaced=day("1"), **given)
        table.run(commit_change(LAYOUT, before, one, NOW))
        two = first("two", adds=(file_of("two"),), **given)
        with pytest.raises(CommitConflictError):
            table.run(commit_change(LAYOUT, before, two, NOW))

    def test_third_one_meets_what_came_after_the_table(self) -> None:
        table = LogTable()
        before = table.open()
        table.make()
        table.replace("1")
        given: dict[str, Any] = {"columns": COLUMNS, "joins": True}
        late = first("late", adds=(file_of("late"),), replaced=day("1"), **given)
        with pytest.raises(CommitConflictError):
            table.run(commit_change(LAYOUT, before, late, NOW))
        added = first("added", adds=(file_of("added", 0, "2"),), **given)
        done = table.run(commit_change(LAYOUT, before, added, NOW))
        assert done.entry.version == 2
        assert not done.entry.of(LogMetadata)

    @pytest.mark.parametrize(
        ("met", "comes"),
        [
            ({"replaced": day("1")}, {}),
            ({"replaced": day("1"), **BY_RANK}, {"replaced": day("1"), **BY_RANK}),
        ],
        ids=["an append after a replace", "two replaces of one rank"],
    )
    def test_late_one_is_refused_where_its_listing_is_too_old_and_the_table_came_meanwhile(
        self, met: dict[str, Any], comes: dict[str, Any]
    ) -> None:
        table = LogTable()
        before = table.open()
        table.make()
        table.commit(replace(table.job("1"), **met))
        assert isinstance(table.store.clock, ManualClock)
        table.store.clock.advance(FRESH + 1)
        late = first("late", adds=(file_of("late"),), columns=COLUMNS, joins=True, **comes)
        with pytest.raises(CommitConflictError):
            table.run(commit_change(LAYOUT, before, late, NOW))
        assert len(table.live()) == 1


def test_append_without_a_table_is_refused() -> None:
    table = LogTable()
    job = LogChange("a", LogBase(-1), COLUMNS, (file_of("a"),))
    with pytest.raises(TableNotFoundError):
        table.commit(job)
    assert table.versions() == []


def test_base_of_another_table_is_refused(table: LogTable) -> None:
    job = replace(table.job("1"), base=LogBase(0, "table-0"))
    with pytest.raises(CommitConflictError, match="another one"):
        table.commit(job)


def test_files_that_do_not_fit_changed_columns_are_refused(table: LogTable) -> None:
    job = table.job("1")
    narrower = replace(COLUMNS, schema=COLUMNS.schema.replace("long", "integer"))
    table.commit(replace(table.job(), metadata=narrower, columns=None))
    with pytest.raises(CommitConflictError, match="columns"):
        table.commit(job)


def test_feature_switched_on_meanwhile_refuses_the_job_by_its_name(table: LogTable) -> None:
    job = table.job("1")
    feature = replace(COLUMNS, properties={"delta.enableChangeDataFeed": "true"})
    table.commit(replace(table.job(), metadata=feature, columns=None))
    with pytest.raises(TableMismatchError, match="enableChangeDataFeed"):
        table.commit(job)


def test_run_that_has_committed_is_told_its_entry(table: LogTable) -> None:
    one, two = table.job("1", run="daily"), table.job("1", run="daily")
    table.commit(one)
    done = table.commit(two)
    assert isinstance(done, RunDone)
    assert done.entry is not None
    assert (done.entry.job, len(table.live())) == (one.job, 1)
    assert table.run(open_log_job(LAYOUT, ids("third"), {}, run="daily")).done


@pytest.mark.parametrize("newest", [1_000, 1])
def test_run_that_committed_before_the_base_does_not_commit_again(
    table: LogTable, newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksum, "TRANSACTIONS", newest)
    table.append("1", run="daily")
    table.append("2", run="other")
    opened = table.open(LogDepth.BLIND)
    assert opened.state.all_transactions == (newest > 1)
    again = table.run(commit_change(LAYOUT, opened, table.job("1", run="daily"), NOW))
    assert isinstance(again, RunDone)
    assert len(table.live()) == 2


def newest(rank: float) -> dict[str, Any]:
    return {"overtaking": Overtaking.NEWEST_RUN, "ranks": LogRanks(other=RunRank(rank))}


class TestNewestRun:
    def test_older_run_is_refused_however_long_the_newer_one_is_there(
        self, table: LogTable
    ) -> None:
        table.replace("1", **newest(2))
        table.append("2")
        with pytest.raises(SupersededRunError):
            table.replace("1", **newest(1))
        table.replace("1", **newest(3))

    def test_older_run_is_refused_where_a_newer_one_left_no_file(self, table: LogTable) -> None:
        table.commit(table.job(replaced=day("1"), **newest(2)))
        with pytest.raises(SupersededRunError):
            table.replace("1", **newest(1))

    @pytest.mark.parametrize("appends", [False, True])
    def test_older_run_is_refused_where_another_engine_appended_since_a_newer_one_left_no_file(
        self, table: LogTable, appends: bool
    ) -> None:
        table.commit(table.job(replaced=day("1"), **newest(2)))
        theirs = AddFile("day=1/spark.parquet", {"day": "1"}, 7, NOW)
        version = table.open().state.version + 1
        table.put(f"{version:020d}.json", write_actions([CommitInfo({"txnId": "it"}), theirs]))
        if appends:
            table.append("1")  # A job without a rank.
        with pytest.raises(SupersededRunError):
            table.replace("1", **newest(1))
        table.replace("1", **newest(3))

    def test_rank_of_an_emptied_partition_is_found_among_many_transactions(
        self, table: LogTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checksum, "TRANSACTIONS", 1)
        monkeypatch.setattr(checksum, "RANKED", 1)
        table.commit(table.job(replaced=day("1"), **newest(2)))
        table.commit(table.job(replaced=day("3"), **newest(2)))
        table.append("2", run="another")
        assert not table.open(LogDepth.FILES).state.all_transactions
        with pytest.raises(SupersededRunError):
            table.replace("1", **newest(1))

    def test_append_gives_way_to_a_newer_replace_and_not_to_a_newer_append(
        self, table: LogTable
    ) -> None:
        table.append("1", **newest(3))
        table.append("1", **newest(1))
        with pytest.raises(SupersededRunError):
            table.replace("1", **newest(2))
        table.replace("1", **newest(4))
        with pytest.raises(SupersededRunError):
            table.append("1", **newest(3))
        table.append("1", **newest(5))
        table.append("1", **newest(4.5))

    def test_append_to_a_partition_that_a_newer_run_has_emptied_does_not_hide_that(
        self, table: LogTable
    ) -> None:
        table.commit(table.job(replaced=day("1"), **newest(3)))
        table.append("1", **newest(5))
        with pytest.raises(SupersededRunError):
            table.append("1", **newest(2))
        table.replace("1", **newest(1) | {"overtaking": Overtaking.LAST_WINS})
        table.append("1", **newest(2))
        table.append("1", **newest(1.5))

    def test_youngest_file_tells_who_replaced_its_partition_last(self, table: LogTable) -> None:
        files = [
            replace(file_of("other", n), tags={"v": str(9 - n), "ranks": f"[[3],[{2 + n}]]"})
            for n in (0, 1)
        ]
        table.put(f"{1:020}.json", write_actions([CommitInfo({"operation": "WRITE"}), *files]))
        table.append("1", **newest(2.5))
        with pytest.raises(SupersededRunError):
            table.append("1", **newest(1.5))

    @pytest.mark.parametrize(
        ("rank", "error"), [(2, CommitConflictError), (1, SupersededRunError), (3, None)]
    )
    def test_run_conflicts_with_one_as_new_as_itself_that_came_since_and_with_no_older_one(
        self, table: LogTable, rank: int, error: type[Exception] | None
    ) -> None:
        job = table.job("1", replaced=day("1"), **newest(rank))
        table.replace("1", ranks=LogRanks(other=RunRank(2)))
        with pytest.raises(error) if error else nullcontext():
            table.commit(job)
        assert (job.adds[0].path in table.live()) == (error is None)

    def test_files_written_again_keep_the_ranks_of_their_partition(self, table: LogTable) -> None:
        first = table.replace("1", ranks=LogRanks(other=RunRank(2)))
        old = frozenset(it.path for it in first.entry.of(AddFile))
        for changes_data in (False, True):
            (new,) = table.append("1", removes=old, changes_data=changes_data).entry.of(AddFile)
            old = frozenset({new.path})
            with pytest.raises(SupersededRunError):
                table.replace("1", **newest(1))
        table.commit(table.job(removes=old))
        assert table.live() == set()
        with pytest.raises(SupersededRunError):
            table.append("1", **newest(1))

    def test_rows_of_other_engines_are_older_than_any(self, table: LogTable) -> None:
        other = file_of("other")
        table.put(f"{1:020}.json", write_actions([CommitInfo({"operation": "WRITE"}), other]))
        table.replace("1", **newest(1))
        assert other.path not in table.live()

    def test_ranks_of_two_kinds_are_refused(self, table: LogTable) -> None:
        table.replace("1", **newest(1))
        by_number = LogRanks(other=RunRank(7, kind=RankKind.NUMBER))
        with pytest.raises(InvalidInputError, match="a number and a time"):
            table.replace("1", overtaking=Overtaking.NEWEST_RUN, ranks=by_number)

    def test_ranks_that_cannot_be_read_are_refused_by_who_compares_them(
        self, table: LogTable
    ) -> None:
        other = replace(file_of("other"), tags={"ranks": "[1]"})
        table.put(f"{1:020}.json", write_actions([CommitInfo({"operation": "WRITE"}), other]))
        with pytest.raises(RecordDamagedError, match="last_wins"):
            table.replace("1", **newest(1))
        table.append("1")
        table.replace("1", overtaking=Overtaking.LAST_WINS)
        table.replace("1", **newest(1e12))

    def test_handed_over_change_keeps_its_ranks(self, table: LogTable) -> None:
        ranks = LogRanks({("1",): RunRank(2, 5), (None,): None}, RunRank(7, kind=RankKind.NUMBER))
        job = replace(table.job("1"), ranks=ranks)
        assert take_over(hand_over(job), "key").ranks == ranks


class TestAnswers:
    def test_lost_answer_of_the_entry_commits_once(self) -> None:
        lost = []

        def fault(request: object, carry_out: object) -> object:
            answer = carry_out(request)  # type: ignore[operator]
            if isinstance(request, s.Put) and request.if_none_match and not lost:
                lost.append(request)
                return s.Unknown("time-out")
            return answer

        store = MemoryStore()
        table = LogTable(store, MemoryDriver(store, fault))
        table.make()
        assert len(lost) == 1
        assert table.versions() == [0]

    @pytest.mark.parametrize("first_answer", [s.Refused("ConditionalRequestConflict")])
    def test_conflict_answer_repeats_the_same_number(self, first_answer: s.Refused) -> None:
        keys = []

        def fault(request: object, carry_out: object) -> object:
            if isinstance(request, s.Put) and request.if_none_match:
                keys.append(request.key)
                if len(keys) == 1:
                    return first_answer
            return carry_out(request)  # type: ignore[operator]

        store = MemoryStore()
        table = LogTable(store, MemoryDriver(store, fault))
        table.make()
        assert keys[:2] == [LOG.entry(0), LOG.entry(0)]

    def test_store_that_never_answers_leaves_the_job_unknown_and_open(self) -> None:
        def fault(request: object, carry_out: object) -> object:
            if isinstance(request, s.Put) and request.key.endswith("1.json"):
                return s.Unknown("time-out")
            return carry_out(request)  # type: ignore[operator]

        store = MemoryStore()
        LogTable(store).make()
        table = LogTable(store, MemoryDriver(store, fault))
        with pytest.raises(CommitStateUnknownError):
            table.append("1", job="silent")
        assert store.keys(f"{LAYOUT.control}open/") == [f"{LAYOUT.control}open/silent.json"]


class TestFences:
    def test_fenced_job_does_not_commit(self, table: LogTable) -> None:
        job = table.job("1")
        assert table.run(recover_job(LAYOUT, job.job, "rescuer", NOW)).fenced
        with pytest.raises(JobFencedError):
            table.commit(job)
        assert table.live() == set()

    def test_fence_of_a_committed_job_finds_its_entry(self, table: LogTable) -> None:
        job = table.job("1")
        table.run(commit_change(LAYOUT, table.open(), job, NOW))
        table.append("2")
        found = table.run(recover_job(LAYOUT, job.job, "rescuer", NOW))
        assert found.entry.job == job.job
        assert table.store.keys(f"{LAYOUT.control}open/") == []

    def test_fence_is_a_transaction_which_checkpoints_keep(self, table: LogTable) -> None:
        job = table.job("1")
        table.run(recover_job(LAYOUT, job.job, "rescuer", NOW))
        assert table.open().state.transactions[FENCE + job.job].version == 1

    def test_fence_whose_log_is_cleaned_meanwhile_leaves_its_job_unknown(self) -> None:
        store = MemoryStore()
        others = LogTable(store)
        others.make(replace(COLUMNS, properties={"delta.enableExpiredLogCleanup": "true"}))
        job = others.job("1")
        happened: list[str] = []

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, s.Put) and request.key == LOG.entry(1) and not happened:
                happened.append("overtaken")
                others.append("2")
                store.clock.advance(FRESH + 1)  # type: ignore[attr-defined]
            elif isinstance(request, s.Get) and request.key == LOG.hint and len(happened) == 1:
                happened.append("cleaned")
                others.append("2")
                others.append("2")
                others.run(make_checkpoint(LAYOUT, NOW))
                for version in range(3):
                    del store.objects[LOG.entry(version)]
            return apply(request)

        table = LogTable(store, MemoryDriver(store, fault))
        with pytest.raises(OutcomeUnknownError, match="Whether the job is committed") as told:
            table.run(recover_job(LAYOUT, job.job, "rescuer", NOW))
        assert (told.value.job, len(happened)) == (job.job, 2)
        assert store.keys(f"{LAYOUT.control}open/") == [f"{LAYOUT.control}open/{job.job}.json"]

    def test_commit_and_withdrawal_of_one_job_end_in_one_decision(self, table: LogTable) -> None:
        job = table.job("1")
        opened_at = table.store.clock()
        table.run(hand_over_job(LAYOUT, job))
        assert isinstance(table.run(publish_job(LAYOUT, job.job, NOW)), EntryCommitted)
        # The publisher has closed it; its driver gives up all the same.
        found = table.run(withdraw_job(LAYOUT, job.job, opened_at, "driver", NOW))
        assert found.entry.job == job.job

    def test_two_publishers_commit_once(self, table: LogTable) -> None:
        job = table.job("1")
        table.run(hand_over_job(LAYOUT, job))
        before = table.open(LogDepth.BLIND)
        table.run(publish_job(LAYOUT, job.job, NOW))
        again = table.run(commit_change(LAYOUT, before, job, NOW))
        assert (again.entry.version, table.versions()) == (1, [0, 1])

    def test_run_transaction_of_another_application_is_no_fence(self, table: LogTable) -> None:
        table.put(
            "00000000000000000001.json",
            write_actions([CommitInfo({"txnId": "x"}), AppTransaction("spark-query", 7)]),
        )
        table.append("1")
        assert len(table.live()) == 1


class TestJobOpenForLong:
    """Any engine's VACUUM deletes files that no entry names and that are older than a week."""

    DAYS = 8

    def commit(self, table: LogTable, change: LogChange) -> EntryCommitted | RunDone:
        now = NOW + self.DAYS * 86_400_000
        return table.run(commit_job(LAYOUT, table.open(change.depth), change, now))

    def test_files_of_today_are_committed(self, table: LogTable) -> None:
        table.store.clock.advance(self.DAYS * 86_400)
        assert isinstance(self.commit(table, table.job("1", began=NOW / 1000)), EntryCommitted)

    def test_files_older_than_the_retention_are_refused(self, table: LogTable) -> None:
        change = table.job("1", began=NOW / 1000)
        table.store.clock.advance(self.DAYS * 86_400)
        with pytest.raises(CommitConflictError, match=r"open for 8\.0 days.* for 7\.0"):
            self.commit(table, change)
        assert table.live() == set()

    def test_files_that_are_gone_are_refused(self, table: LogTable) -> None:
        table.store.clock.advance(self.DAYS * 86_400)
        change = table.job("1", "2", began=NOW / 1000)
        del table.store.objects[LAYOUT.root.key_of(change.adds[1].path)]
        with pytest.raises(CommitConflictError, match="these are gone"):
            self.commit(table, change)

    def test_job_that_has_committed_is_told_its_entry(self, table: LogTable) -> None:
        change = table.job("1", began=NOW / 1000)
        first = table.commit(change)
        table.store.clock.advance(self.DAYS * 86_400)
        assert isinstance(first, EntryCommitted)
        again = self.commit(table, change)
        assert isinstance(again, EntryCommitted)
        assert again.entry.version == first.entry.version

    def test_retention_below_an_hour_judges_no_job_by_its_age(self) -> None:
        """Else nobody could commit there."""
        short = {**COLUMNS.properties, "delta.deletedFileRetentionDuration": "interval 0 days"}
        table = LogTable()
        table.make(replace(COLUMNS, properties=short))
        change = table.job("1", began=NOW / 1000)
        table.store.clock.advance(self.DAYS * 86_400)
        assert isinstance(self.commit(table, change), EntryCommitted)

    def test_younger_job_costs_no_request(self, table: LogTable) -> None:
        change = table.job("1", began=NOW / 1000)
        table.driver.requests.clear()
        table.commit(change)
        assert not [it for it in table.driver.requests if isinstance(it, s.Head)]


class TestEntryInTheVoid:
    """An entry that came into a number which others had cleaned, as a listing shows it."""

    def listed(self, *names: tuple[str, float]) -> ListedLog:
        objects = [s.ListedObject(f"{LOG.prefix}{name}", "etag", 1, at) for name, at in names]
        return sort_listing(LOG, tuple(objects), 0.0)

    def entry(self, version: int, at: float) -> tuple[str, float]:
        return f"{version:020d}.json", at

    def checkpoint(self, version: int, at: float) -> tuple[str, float]:
        return f"{version:020d}.checkpoint.parquet", at

    def test_may_be_one_where_a_checkpoint_above_it_is_older(self) -> None:
        later = [self.entry(it, 20) for it in range(2, 4)]
        assert not self.listed(self.entry(1, 20), *later, self.checkpoint(3, 30)).may_be_stale(1)
        assert self.listed(self.entry(1, 20), *later, self.checkpoint(3, 10)).may_be_stale(1)

    def test_may_be_one_where_entries_after_it_are_gone(self) -> None:
        since = [self.entry(it, 20) for it in range(5, 9)]
        assert self.listed(self.entry(1, 20), *since, self.checkpoint(8, 30)).may_be_stale(1)
        assert not self.listed(*since, self.checkpoint(8, 30)).may_be_stale(5)

    def test_may_be_one_where_an_entry_after_it_is_older_though_the_checkpoint_is_not(self) -> None:
        again = self.checkpoint(2, 40)
        assert self.listed(self.entry(1, 30), self.entry(2, 20), again).may_be_stale(1)
        assert not self.listed(self.entry(1, 24), self.entry(2, 20), again).may_be_stale(1)

    def test_may_be_one_where_a_checkpoint_alone_is_after_it(self) -> None:
        assert self.listed(self.entry(1, 20), self.checkpoint(8, 30)).may_be_stale(1)
