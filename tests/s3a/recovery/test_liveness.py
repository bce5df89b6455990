"""Who is held for live, dead, superseded or unknown, and on whose word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.s3a_jobs import JOB, OTHER, ROOT, World, a_try
from zero_rename.committer.format.job_spec import Owner
from zero_rename.s3a.recovery.leftovers import Kind, LeftoverJob
from zero_rename.s3a.recovery.liveness import QUIET, JobLiveness, RecoveryOptions, judge
from zero_rename.s3a.recovery.recover import recover_jobs
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.ledger import OpenTries
from zero_rename.s3a.runs.try_record import (
    FAILED,
    PATIENCE,
    StoredTry,
    TryRecord,
    WriteRecord,
    write_uuid,
)

NOW = 1_000_000.0


def job(silent_for: float = 0.0, uuid: str = JOB, kind: Kind = Kind.MAGIC) -> LeftoverJob:
    newest = NOW - silent_for
    return LeftoverJob(uuid, kind, ROOT.prefix, newest - 50, newest)


def owner(number: int = 1, **changes: Any) -> Owner:
    known = {"dag_id": "flights", "run_id": "r", "task_id": "load", "map_index": -1}
    given: dict[str, Any] = {**known, "try_number": number, **changes}
    return Owner(**given)


def record(silent_for: float = 0.0, **changes: Any) -> StoredTry:
    given: dict[str, Any] = {"owner": owner(), "opened_at": NOW - 100, **changes}
    made = a_try(**given)
    return StoredTry(made, "k", "e", silent_for)


def known(*tries: StoredTry, **given: Any) -> tuple[OpenTries, RecoveryOptions]:
    return OpenTries(tries), RecoveryOptions(**given)


def states(
    silent_for: float, knowledge: tuple[OpenTries, RecoveryOptions], **given: Any
) -> JobLiveness:
    found = judge(job(silent_for, **given), NOW, *knowledge)
    assert found.reason
    return found.state


class TestNobodyKnows:
    def test_it_wrote_lately(self) -> None:
        assert states(QUIET - 1, known()) == JobLiveness.LIVE

    def test_it_is_silent(self) -> None:
        assert states(1e9, known()) == JobLiveness.UNKNOWN

    def test_silent_longer_than_its_caller_has_patience(self) -> None:
        assert states(99, known(patience=100)) == JobLiveness.LIVE
        assert states(100, known(patience=100)) == JobLiveness.DEAD

    def test_the_caller_states_it(self) -> None:
        assert states(0, known(dead={JOB})) == JobLiveness.DEAD
        assert states(0, known(dead={OTHER})) == JobLiveness.LIVE
        assert states(0, known(dead={""}), uuid="") == JobLiveness.LIVE


class TestItsRunsRecord:
    def test_it_is_renewed(self) -> None:
        assert states(1e6, known(record(599), patience=0)) == JobLiveness.LIVE
        assert states(1e6, known(record(600), patience=0)) == JobLiveness.DEAD

    def test_nobody_submitted_it(self) -> None:
        """A save() of its own sends a heartbeat every 15 s, or is at its end."""
        assert states(1e6, known(record(89, idempotency_key=JOB), patience=0)) == JobLiveness.LIVE
        assert states(1e6, known(record(90, idempotency_key=JOB), patience=0)) == JobLiveness.DEAD

    def test_it_is_silent(self) -> None:
        """In cluster mode the application outlives its submitter."""
        assert states(1e6, known(record(601))) == JobLiveness.UNKNOWN
        assert states(10, known(record(601))) == JobLiveness.LIVE
        assert states(1e6, known(record(601), patience=60)) == JobLiveness.DEAD

    def test_the_caller_states_that_it_is_dead(self) -> None:
        for dead in ({JOB}, {write_uuid(JOB, 1)}):
            given = known(record(1), dead=dead)
            assert states(0, given, uuid=write_uuid(JOB, 1)) == JobLiveness.DEAD

    @pytest.mark.parametrize("number", [1, 0x2A, 0xFFFF])
    def test_one_of_several_writes(self, number: int) -> None:
        uuid = write_uuid(JOB, number)
        assert states(1e6, known(record()), uuid=uuid) == JobLiveness.LIVE

    def test_another_runs(self) -> None:
        other = record(0, uuid=OTHER)
        assert states(1e6, known(other)) == JobLiveness.UNKNOWN
        # A UUID that does not end in zeros has no numbered writes.
        other = record(0, uuid=f"{JOB[:-4]}abcd")
        assert states(1e6, known(other)) == JobLiveness.UNKNOWN


class TestWhatTheSchedulerSays:
    @pytest.mark.parametrize(
        ("said", "silent_for", "expected"),
        [
            (JobLiveness.LIVE, 1e6, JobLiveness.LIVE),
            (JobLiveness.DEAD, 1e6, JobLiveness.DEAD),
            (JobLiveness.SUPERSEDED, 1e6, JobLiveness.SUPERSEDED),
            (None, 1e6, JobLiveness.LIVE),
            # Its task is over; its application may not be.
            (JobLiveness.DEAD, 599, JobLiveness.LIVE),
            (JobLiveness.SUPERSEDED, 599, JobLiveness.LIVE),
        ],
    )
    def test_it_counts_more_than_the_operators_heartbeats(
        self, said: JobLiveness | None, silent_for: float, expected: JobLiveness
    ) -> None:
        assert states(silent_for, known(record(91), ask=lambda _: said)) == expected

    @pytest.mark.parametrize("said", [JobLiveness.DEAD, JobLiveness.SUPERSEDED])
    def test_its_application_is_not_its_task(self, said: JobLiveness) -> None:
        """Which may be over, and the driver on the cluster still writes."""
        given = known(record(89), ask=lambda _: said, patience=0)
        assert states(1e6, given) == JobLiveness.LIVE
        given = known(record(0, state=FAILED), ask=lambda _: said, patience=0)
        assert states(1e6, given) == said

    @pytest.mark.parametrize(("patience", "silent_for"), [(0.0, 0), (100.0, 100), (1e6, 600)])
    def test_patience_makes_the_wait_shorter_only(self, patience: float, silent_for: int) -> None:
        given = known(record(91), ask=lambda _: JobLiveness.DEAD, patience=patience)
        assert states(silent_for, given) == JobLiveness.DEAD
        if silent_for:
            assert states(silent_for - 1, given) == JobLiveness.LIVE

    def test_nobody_can_state_that_a_running_task_is_dead(self) -> None:
        given = known(record(1e6), dead={JOB}, ask=lambda _: JobLiveness.LIVE, patience=0)
        assert states(1e6, given) == JobLiveness.LIVE


class TestALaterTry:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, JobLiveness.SUPERSEDED),
            ({"map_index": None}, JobLiveness.SUPERSEDED),
            ({"map_index": 1}, JobLiveness.UNKNOWN),
            ({"run_id": "s"}, JobLiveness.UNKNOWN),
            ({"try_number": 1}, JobLiveness.UNKNOWN),
        ],
    )
    def test_supersedes(self, changes: dict[str, Any], expected: JobLiveness) -> None:
        late = Owner(**{**vars(owner(2)), **changes})
        later = record(0, uuid=OTHER, owner=late)
        assert states(1e6, known(record(1e6), later)) is expected

    @pytest.mark.parametrize(("patience", "least"), [(None, 600), (60.0, 60), (1e6, 600)])
    def test_supersedes_no_job_that_wrote_a_moment_ago(
        self, patience: float | None, least: int
    ) -> None:
        given = known(record(1e6), record(0, uuid=OTHER, owner=owner(2)), patience=patience)
        assert states(least - 1, given) is JobLiveness.LIVE
        assert states(least, given) is JobLiveness.SUPERSEDED

    def test_whoever_states_that_it_is_dead(self) -> None:
        """It loaded instead: what this one left would double its rows."""
        later = record(0, uuid=OTHER, owner=owner(2))
        assert states(1e6, known(record(1e6), later, dead={JOB})) is JobLiveness.SUPERSEDED
        over = known(record(1e6), dead={JOB}, ask=lambda _: JobLiveness.SUPERSEDED)
        assert states(1e6, over) is JobLiveness.SUPERSEDED

    def test_it_sends_heartbeats_itself(self) -> None:
        later = record(0, uuid=OTHER, owner=owner(2))
        assert states(0, known(record(1e6), later), uuid=OTHER) == JobLiveness.LIVE


class TestShield:
    """A run at work that may be the job's."""

    def test_uploads_that_name_no_job(self) -> None:
        given = known(record(0), patience=0)
        assert states(50, given, uuid=OTHER, kind=Kind.UPLOADS) is JobLiveness.LIVE
        assert states(50, given, uuid=OTHER) is JobLiveness.DEAD
        # What had ended before the run began is not its.
        assert states(101, given, uuid=OTHER, kind=Kind.UPLOADS) is JobLiveness.DEAD
        silent = known(record(1e6), patience=0)
        assert states(50, silent, uuid=OTHER, kind=Kind.UPLOADS) is JobLiveness.DEAD

    def test_uploads_that_name_no_job_of_a_try_that_is_silent_for_minutes(self) -> None:
        """An application that its submitter has lost from sight goes on for as long as that."""
        for silent_for, expected in (
            (PATIENCE - 1, JobLiveness.LIVE),
            (PATIENCE, JobLiveness.DEAD),
        ):
            given = known(record(silent_for), patience=0)
            assert states(50, given, uuid=OTHER, kind=Kind.UPLOADS) is expected
        over = known(record(1), ask=lambda _: JobLiveness.DEAD, patience=0)
        assert states(50, over, uuid=OTHER, kind=Kind.UPLOADS) is JobLiveness.DEAD
        at_work = known(record(1e6), ask=lambda _: JobLiveness.LIVE, patience=0)
        assert states(50, at_work, uuid=OTHER, kind=Kind.UPLOADS) is JobLiveness.LIVE

    def test_a_record_that_cannot_be_read(self) -> None:
        given = OpenTries(damage="it is not JSON"), RecoveryOptions(patience=0)
        assert states(1e6, given) == JobLiveness.UNKNOWN


class TestRecords:
    def test_they_are_no_jobs(self, world: World) -> None:
        world.driver.run(ledger.open_try(ROOT, a_try()))
        assert world.driver.run(recover_jobs(ROOT, RecoveryOptions(deep=True))) == ()

    def test_an_applications_own_heartbeat_is_asked_for(self, world: World) -> None:
        """The operator is gone, and the driver on the cluster still writes."""
        made = world.job()
        made.task(0)
        world.driver.run(ledger.open_try(ROOT, a_try(owner=owner())))
        world.clock.advance(10_000)
        write = WriteRecord(JOB, 0, "magic", ROOT.url, "append")

        def entered(found: TryRecord, now: float) -> TryRecord:
            return replace(found.with_write(write), beat_at=now)

        world.driver.run(ledger.change(ROOT, a_try(owner=owner()), entered))
        (found,) = world.driver.run(recover_jobs(ROOT, RecoveryOptions(apply=True, patience=60)))
        assert found.state is JobLiveness.LIVE
        assert found.state_reason.endswith("attempt 1 sent a heartbeat 0 s ago")
        assert found.owner.dag_id == "flights"
