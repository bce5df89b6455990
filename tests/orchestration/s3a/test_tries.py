"""What a retry takes for done, what it loads again, and what it leaves to a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, on
from support.memory_store import MemoryDriver
from support.s3a_jobs import JOB, OTHER, ROOT, World, a_try
from support.s3a_stand_in import marker
from zero_rename.committer import OutcomeUnknownError, RefusedError, Table, VerificationError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.store.requests import Deleted, DeleteMany, Put
from zero_rename.orchestration.s3a.load import described
from zero_rename.orchestration.s3a.tries import Tries, refuse_late_commits
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    HEARTBEAT_TIMEOUT,
    SUBMITTED,
    UNDONE,
    WRITING,
    WRITTEN,
    TryRecord,
    WriteRecord,
    write_uuid,
)

ONCE = "flights/r/load"
FIRST, SECOND = write_uuid(JOB, 1), write_uuid(JOB, 2)
DAY1, DAY2 = f"{ROOT.url}/day=1", f"{ROOT.url}/day=2"


def write(uuid: str = FIRST, **given: Any) -> WriteRecord:
    number = 1 if uuid == FIRST else 2
    said = {"committer": "magic", "destination": ROOT.url, "mode": "append", "state": WRITTEN}
    fields: dict[str, Any] = {**said, "opened_at": 1.0, **given}
    return WriteRecord(uuid, number, **fields)


class Run:
    """A run whose first try has ended so, long ago."""

    def __init__(self, *writes: WriteRecord, **given: Any) -> None:
        self.world = World()
        self.table = Table(ROOT.url)
        self.table.driver = MemoryDriver(self.world.store, None, self.world.clock)  # pyrefly: ignore[bad-assignment]
        self.reported: list[Sequence[WriteRecord]] = []
        said = {"owner": Owner("flights", "r", "load", -1, 1), "mode": "append", "state": FAILED}
        fields: dict[str, Any] = {**said, **given}
        self.record = self.add(a_try(idempotency_key=ONCE, writes=writes, **fields))
        self.world.clock.advance(HEARTBEAT_TIMEOUT + 10)

    def add(self, record: TryRecord) -> TryRecord:
        return self.table.run(ledger.open_try(ROOT, record))

    def report(self, record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
        self.reported.append(writes)
        return {"job": record.uuid}

    def settle(self, insist: bool = False, report: Any = None) -> TryRecord:
        """The first try's record when a retry has settled it."""
        found = Tries(self.table, ONCE, report or self.report, insist, self.never).settle()
        settled = self.first().record
        assert (found == settled) is (settled.state == COMMITTED)
        return settled

    def first(self) -> Any:
        known = self.table.run(ledger.find(ROOT, ONCE, JOB))
        assert known is not None
        return known

    @staticmethod
    def never(seconds: float) -> None:
        pytest.fail(f"It waits for {seconds} s.")


class TestWhatCountsAsDone:
    def test_a_whole_one(self) -> None:
        run = Run(write())
        assert run.settle().state == COMMITTED
        # Settled once: a second retry asks for nothing.
        assert run.settle().state == COMMITTED
        assert len(run.reported) == 1

    @pytest.mark.parametrize("state", [COMMITTED, UNDONE])
    def test_one_whose_record_was_not_closed_is_closed(self, state: str) -> None:
        """Its process died when it had written the result: sensors would wait for it for ever."""
        run = Run(write())
        closed = ledger.closed_key(ROOT, ONCE, JOB)
        dying = MemoryDriver(run.world.store, on(Put, Crash, closed), run.world.clock)
        with pytest.raises(Crash):
            dying.run(ledger.settle_try(ROOT, run.first(), state=state))
        assert run.first().key != closed
        assert run.settle().state == state
        assert run.first().key == closed
        assert list(run.world.store.keys(ledger.runs_prefix(ROOT))) == [closed]
        assert run.reported == []

    def test_a_replace_of_two_partitions_of_which_one_is_written(self) -> None:
        """The driver died between the two: the second partition was never loaded."""
        both: dict[str, Any] = {"mode": "replace", "parts": 2}
        first = write(destination=DAY1, partition="day=1", part=1, **both)
        run = Run(first, mode="replace")
        done = run.settle()
        assert (done.state, done.replaced) == (UNDONE, (FIRST,))
        assert run.reported == []
        second = write(SECOND, destination=DAY2, partition="day=2", part=2, **both)
        assert Run(first, second, mode="replace").settle().state == COMMITTED

    @pytest.mark.parametrize(("among", "state"), [(("day=1", "day=2"), UNDONE), ((), COMMITTED)])
    def test_a_replace_that_recovery_rolled_forward(
        self, among: tuple[str, ...], state: str
    ) -> None:
        """Of partitions that it names those without rows were to be emptied afterwards."""
        half = write(committer="partitioned", mode="replace", among=among, state=WRITING)
        run = Run(half, committer="partitioned", mode="replace", recovered=(FIRST,))
        assert run.settle().state == state

    @pytest.mark.parametrize(("among", "state"), [(("day=1", "day=2"), UNDONE), ((), COMMITTED)])
    def test_a_replace_of_which_its_marker_alone_is_there(
        self, among: tuple[str, ...], state: str
    ) -> None:
        half = write(committer="partitioned", mode="replace", among=among, state=WRITING)
        run = Run(half, committer="partitioned", mode="replace")
        success = marker(FIRST, "partitioned", {})
        run.world.store.apply(Put(f"{ROOT.prefix}/_SUCCESS", success))
        assert run.settle().state == state

    def test_a_replace_whose_partitions_without_rows_could_not_be_emptied(self) -> None:
        """Their old rows are still there: the retry does not report the load as done."""
        half = write(committer="partitioned", mode="replace", among=("day=1", "day=2"))
        run = Run(replace(half, unfinished=True), committer="partitioned", mode="replace")
        assert run.settle().state == UNDONE
        refuse_late_commits(run.table, ONCE, quiet=True)
        assert Run(half, committer="partitioned", mode="replace").settle().state == COMMITTED

    @pytest.mark.parametrize("mode", ["replace", "append"])
    def test_mode_that_only_the_application_knew_is_on_record(self, mode: str) -> None:
        """A look for conflicts asks whether the load replaced rows."""
        assert Run(write(mode=mode), mode=None).settle().mode == mode
        several = Run(write(mode=mode), write(SECOND, mode="fail-if-exists"), mode=None)
        assert several.settle().mode is None

    def test_what_maintenance_has_rolled_forward_is_not_added_again(self) -> None:
        run = Run(write(state=WRITING), recovered=(FIRST,))
        assert run.settle().state == COMMITTED
        assert Run(write(state=WRITING)).settle().state == UNDONE

    def test_the_last_that_committed_is_the_one(self) -> None:
        run = Run(write())
        run.add(replace(run.record, uuid=OTHER, writes=(), state=UNDONE))
        assert run.settle().uuid == JOB

    def test_a_closed_one_is_not_judged_again(self) -> None:
        run = Run(write())
        run.settle()
        run.world.store.objects.pop(ledger.open_key(ROOT, ONCE, JOB), None)
        assert run.settle().state == COMMITTED
        assert len(run.reported) == 1

    def test_an_undone_one_stays_undone(self) -> None:
        """Its rows were replaced by a later try, or taken back."""
        run = Run(write())
        undone = replace(run.record, state=UNDONE, replaced=(FIRST,))
        run.table.run(ledger.close_try(ROOT, run.record, state=UNDONE, replaced=undone.replaced))
        assert run.settle().state == UNDONE
        assert run.reported == []

    @pytest.mark.parametrize(("mode", "adds"), [("append", True), ("replace", False)])
    def test_what_does_not_pass_verification(self, mode: str, adds: bool) -> None:
        """Rows that are there are not added again; replaced ones are loaded again."""

        def unsound(*_: Any) -> dict[str, Any]:
            raise VerificationError("A file is missing.")

        run = Run(write(mode=mode), mode=mode)
        if adds:
            with pytest.raises(VerificationError):
                run.settle(report=unsound)
            assert run.first().record.state not in (COMMITTED, UNDONE)
        else:
            assert run.settle(report=unsound).state == UNDONE
        assert Run(write(mode=mode), mode=mode).settle(True, unsound).state == UNDONE


class TestWhatWouldDouble:
    @pytest.mark.parametrize("day", ["city=東京\u3000都", "c=a._COPYING_"])
    def test_a_replace_of_a_partition_whose_folder_no_table_could_be(self, day: str) -> None:
        """Its value has a blank that Spark does not escape, or an ending that readers skip."""
        folder = f"{ROOT.prefix}/{day}"
        run = Run(
            write(mode="replace", state=WRITING, destination=f"{ROOT.url}/{day}", partition=day)
        )
        assert run.settle().state == UNDONE
        run = Run(
            write(mode="replace", state=WRITING, destination=f"{ROOT.url}/{day}", partition=day)
        )
        key = f"{folder}/part-0.parquet"
        run.world.store.apply(Put(key, b"rows"))
        run.world.store.apply(Put(f"{folder}/_SUCCESS", marker(FIRST, "magic", {key: 4})))

        def report(record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
            return {"job": record.uuid, "files": described(run.table, record, writes[0]).files}

        settled = run.settle(report=report)
        assert settled.report == {"job": JOB, "files": 1}

    def test_two_appends_of_which_one_committed(self) -> None:
        writes = (write(), write(SECOND, state=WRITING))
        run = Run(*writes)
        with pytest.raises(RefusedError, match="1 of its writes committed and others did not") as e:
            run.settle()
        assert f"Remove the files of {FIRST}" in str(e.value)
        assert Run(*writes).settle(insist=True).state == UNDONE

    def test_two_replaces_of_which_one_committed(self) -> None:
        writes = (write(mode="replace"), write(SECOND, mode="replace", state=WRITING))
        assert Run(*writes, mode="replace").settle().state == UNDONE

    def test_files_that_may_be_its_own(self) -> None:
        lost = write(state=WRITING)
        run = Run(lost)
        run.world.job().put(f"{ROOT.prefix}/day=1/part-0.parquet", b"rows")
        with pytest.raises(RefusedError, match=r"1 file came .* that may be its own"):
            run.settle()
        run = Run(replace(lost, mode="replace"), mode="replace")
        run.world.job().put(f"{ROOT.prefix}/day=1/part-0.parquet", b"rows")
        assert run.settle().state == UNDONE

    def test_a_staging_committers_own_files_are_taken_back(self) -> None:
        run = Run(write(committer="directory", state=WRITING), committer="directory")
        mine, others = (f"{ROOT.prefix}/day=1/part-0-{it}.parquet" for it in (FIRST, OTHER))
        for key in (mine, others):
            run.world.store.apply(Put(key, b"rows"))
        assert run.settle().state == UNDONE
        assert run.world.visible() == [others]

    @pytest.mark.parametrize("unique", ["false", "true", None])
    def test_files_that_may_be_its_own_where_staged_names_have_no_uuid(
        self, unique: str | None
    ) -> None:
        """Of an application without save(): that sets it for each write. A service's job may have
        a value that is not on record."""
        name = "fs.s3a.committer.staging.unique-filenames"
        said = {"fs.s3a.committer.name": "directory"} | ({name: unique} if unique else {})
        run = Run(committer="directory", settings=said)
        run.world.store.apply(Put(f"{ROOT.prefix}/day=1/part-0-{OTHER}.parquet", b"rows"))
        if unique == "true":
            assert run.settle().state == UNDONE
        else:
            with pytest.raises(RefusedError, match=r"may be its own, since .* no job's UUID"):
                run.settle()

    def test_nothing_is_undone_where_they_cannot_be_removed(self) -> None:
        run = Run(write(committer="directory", state=WRITING), committer="directory")
        run.world.store.apply(Put(f"{ROOT.prefix}/day=1/part-0-{FIRST}.parquet", b"rows"))

        def denied(request: Any, apply: Any) -> Any:
            if not isinstance(request, DeleteMany):
                return apply(request)
            return Deleted({key: "AccessDenied" for key, _ in request.items})

        run.table.driver.fault = denied  # pyrefly: ignore[missing-attribute]
        with pytest.raises(RefusedError, match=r"left 1 file in .* \(AccessDenied\)"):
            run.settle()
        assert run.first().record.state not in (COMMITTED, UNDONE)

    @pytest.mark.parametrize("came", ["day=2", "day=1"])
    def test_a_file_that_came_to_another_partition_is_none_of_it(self, came: str) -> None:
        """save() lets a load write the partitions only that its task names."""
        self.check_file_that_came(Run(write(state=WRITING, among=("day=1",))), came)

    @pytest.mark.parametrize("came", ["day=2", "day=1"])
    def test_a_file_of_another_partition_is_none_of_an_attempt_that_came_to_no_write(
        self, came: str
    ) -> None:
        self.check_file_that_came(Run(partitions=("day=1",)), came)

    @staticmethod
    def check_file_that_came(run: Run, came: str) -> None:
        """A file that came to the run's own partition may be its own; to another one, it is not."""
        run.world.store.apply(Put(f"{ROOT.prefix}/{came}/part-0.parquet", b"rows"))
        if came == "day=2":
            assert run.settle().state == UNDONE
        else:
            with pytest.raises(RefusedError):
                run.settle()

    def test_a_job_that_cannot_be_settled(self) -> None:
        run = Run(write(state=WRITING))
        job = run.world.job(uuid=FIRST)
        job.task(0)
        job.put(job.set_key(0), b"{")
        with pytest.raises(OutcomeUnknownError, match="could not be settled"):
            run.settle()
        assert run.first().record.state not in (COMMITTED, UNDONE)


class TestOtherTables:
    """An application may write other tables, too."""

    REJECTS = f"{ROOT.url}_rejects"

    def test_write_to_another_table_alone_is_no_load_of_this_one(self) -> None:
        elsewhere = write(mode="replace", destination=self.REJECTS)
        run = Run(elsewhere, mode="replace")
        assert run.settle().state == UNDONE
        assert run.reported == []

    def test_rows_added_to_another_table_alone_are_not_added_again(self) -> None:
        run = Run(write(destination=self.REJECTS))
        with pytest.raises(RefusedError, match=r"wrote nothing to this table, .*_rejects, so"):
            run.settle()
        assert run.first().record.state not in (COMMITTED, UNDONE)

    def test_both_tables_are_the_load(self) -> None:
        run = Run(write(), write(SECOND, destination=self.REJECTS))
        assert run.settle().state == COMMITTED

    def test_unknown_append_to_another_bucket_is_not_repeated(self) -> None:
        """Files there cannot be seen from here."""
        run = Run(write(state=WRITING, destination="s3://elsewhere/rejects"))
        with pytest.raises(RefusedError, match="that bucket is not read from here"):
            run.settle()


class TestWhoIsAtWork:
    def test_one_that_sends_a_heartbeat_while_it_is_waited_for(self) -> None:
        run = Run(write(state=WRITING), state=SUBMITTED)
        waited: list[float] = []

        def beat() -> None:
            run.world.clock.advance(1)
            now = run.world.clock()
            run.table.run(ledger.change(ROOT, run.record, lambda it, _: replace(it, beat_at=now)))

        def goes_on(seconds: float) -> None:
            waited.append(seconds)
            assert len(waited) == 1
            beat()

        beat()
        with pytest.raises(OutcomeUnknownError, match="is still writing"):
            Tries(run.table, ONCE, run.report, pause=goes_on).settle()
        assert len(waited) == 1

    def test_one_that_was_killed_a_moment_ago(self) -> None:
        """Waited for, until it is known not to send another heartbeat."""
        run = Run(write(state=WRITING))
        now = run.world.clock()
        run.table.run(ledger.change(ROOT, run.record, lambda it, _: replace(it, beat_at=now)))
        Tries(run.table, ONCE, run.report, pause=run.world.clock.advance).settle()
        assert run.first().record.state == UNDONE
        assert run.world.clock() - now >= HEARTBEAT_TIMEOUT

    def test_a_heartbeat_while_it_is_settled(self) -> None:
        """It is not closed over the head of an application that has just woken up."""
        run = Run(write())

        def beats(record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
            now = run.world.clock()
            run.table.run(ledger.change(ROOT, run.record, lambda it, _: replace(it, beat_at=now)))
            return {"job": record.uuid}

        with pytest.raises(OutcomeUnknownError, match="is still writing"):
            run.settle(report=beats)
        assert run.first().record.state not in (COMMITTED, UNDONE)


class TestComeBack:
    """A try that counted as dead, and has committed after all."""

    def undone(self, **given: Any) -> Run:
        run = Run(write(state=WRITING), **given)
        assert run.settle().state == UNDONE
        return run

    def come_back(self, run: Run, **given: Any) -> None:
        def written(found: TryRecord, now: float) -> TryRecord:
            return replace(found, writes=(write(),), **given)

        known = run.first()
        assert run.table.run(ledger.swap(known, written(known.record, 0.0)))

    def test_nothing_came(self) -> None:
        run = self.undone()
        refuse_late_commits(run.table, ONCE)
        refuse_late_commits(run.table, ONCE, quiet=True)

    def test_it_committed(self) -> None:
        run = self.undone()
        self.come_back(run)
        with pytest.raises(VerificationError, match="committed after all") as caught:
            refuse_late_commits(run.table, ONCE)
        assert caught.value.job == FIRST

    def test_one_without_save_committed(self) -> None:
        """It enters no write: its own report says so."""
        run = Run()
        assert run.settle().state == UNDONE
        refuse_late_commits(run.table, ONCE)
        report = f"{ledger.report_prefix(ROOT, JOB, 0)}/summary-j.json"
        run.world.store.apply(Put(report, marker(JOB, "magic", {})))
        with pytest.raises(VerificationError, match="committed after all") as caught:
            refuse_late_commits(run.table, ONCE)
        assert caught.value.job == JOB

    def test_what_the_later_try_has_replaced_is_none_of_it(self) -> None:
        run = self.undone()
        self.come_back(run, replaced=(FIRST,))
        refuse_late_commits(run.table, ONCE)

    def test_one_that_is_settled_as_committed_is_none(self) -> None:
        run = Run(write())
        run.settle()
        self.come_back(run)
        refuse_late_commits(run.table, ONCE)

    def test_one_that_writes_again(self) -> None:
        run = self.undone()

        def wakes(found: TryRecord) -> TryRecord:
            now = run.world.clock()
            return replace(found, writes=(write(state=WRITING),), beat_at=now)

        known = run.first()
        assert run.table.run(ledger.swap(known, wakes(known.record)))
        refuse_late_commits(run.table, ONCE)
        with pytest.raises(OutcomeUnknownError, match="is still writing"):
            refuse_late_commits(run.table, ONCE, quiet=True)
