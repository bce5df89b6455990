"""Who is held for live, dead, superseded or unknown, and on whose word."""

from __future__ import annotations

from typing import Any

import pytest

from support.s3a_jobs import JOB, OTHER, ROOT, World, a_try
from zero_rename.committer.job_spec import Owner
from zero_rename.s3a.recovery.leftover_job import Kind, LeftoverJob
from zero_rename.s3a.recovery.liveness import QUIET, Knowledge, State, judge
from zero_rename.s3a.recovery.recover import RecoveryOptions, recover_jobs
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.open_tries import OpenTry

NOW = 1_000_000.0


def job(silent_for: float = 0.0, uuid: str = JOB, kind: Kind = Kind.MAGIC) -> LeftoverJob:
    newest = NOW - silent_for
    return LeftoverJob(uuid, kind, ROOT.prefix, None, (), (), (), (), newest - 50, newest)


def owner(number: int = 1, **changes: Any) -> Owner:
    known = {"dag_id": "flights", "run_id": "r", "task_id": "load", "map_index": -1}
    return Owner(**{**known, "try_number": number, **changes})


def record(silent_for: float = 0.0, **changes: Any) -> OpenTry:
    return OpenTry(a_try(**{"owner": owner(), "opened_at": NOW - 100, **changes}), silent_for)


def states(silent_for: float, known: Knowledge, **given: Any) -> tuple[State, bool]:
    found = judge(job(silent_for, **given), NOW, known)
    assert found.reason
    return found.state, found.stated


class TestNobodyKnows:
    def test_it_wrote_lately(self) -> None:
        assert states(QUIET - 1, Knowledge()) == (State.LIVE, False)

    def test_it_is_silent(self) -> None:
        assert states(1e9, Knowledge()) == (State.UNKNOWN, False)

    def test_silent_longer_than_its_caller_has_patience(self) -> None:
        assert states(99, Knowledge(patience=100)) == (State.LIVE, False)
        assert states(100, Knowledge(patience=100)) == (State.DEAD, False)

    def test_the_caller_states_it(self) -> None:
        assert states(0, Knowledge(dead={JOB})) == (State.DEAD, True)
        assert states(0, Knowledge(dead={OTHER})) == (State.LIVE, False)
        assert states(0, Knowledge(dead={""}), uuid="") == (State.LIVE, False)


class TestItsRunsRecord:
    def test_it_is_renewed(self) -> None:
        assert states(1e6, Knowledge([record(599)], patience=0)) == (State.LIVE, True)
        late = record(601, interval=70.0)
        assert states(1e6, Knowledge([late], patience=0)) == (State.LIVE, True)

    def test_it_is_silent(self) -> None:
        """In cluster mode the application outlives its submitter."""
        assert states(1e6, Knowledge([record(601)])) == (State.UNKNOWN, False)
        assert states(10, Knowledge([record(601)])) == (State.LIVE, False)
        assert states(1e6, Knowledge([record(601)], patience=60)) == (State.DEAD, False)

    def test_the_caller_states_that_it_is_dead(self) -> None:
        for dead in ({JOB}, {ledger.write_uuid(JOB, 1)}):
            known = Knowledge([record(1)], dead=dead)
            assert states(0, known, uuid=ledger.write_uuid(JOB, 1)) == (State.DEAD, True)

    def test_its_application_sent_a_heartbeat(self) -> None:
        known = Knowledge([record(1e6)], heartbeats={JOB: 89.0}, patience=0)
        assert states(1e6, known) == (State.LIVE, True)
        known = Knowledge([record(1e6)], heartbeats={JOB: 91.0}, patience=0)
        assert states(1e6, known) == (State.DEAD, False)

    @pytest.mark.parametrize("number", [1, 0x2A, 0xFFFF])
    def test_one_of_several_writes(self, number: int) -> None:
        uuid = ledger.write_uuid(JOB, number)
        assert states(1e6, Knowledge([record()]), uuid=uuid) == (State.LIVE, True)

    def test_another_runs(self) -> None:
        other = record(0, uuid=OTHER)
        assert states(1e6, Knowledge([other])) == (State.UNKNOWN, False)
        # A UUID that does not end in zeros has no numbered writes.
        other = record(0, uuid=f"{JOB[:-4]}abcd")
        assert states(1e6, Knowledge([other])) == (State.UNKNOWN, False)


class TestWhatTheSchedulerSays:
    @pytest.mark.parametrize(
        ("said", "silent_for", "expected"),
        [
            (State.LIVE, 1e6, (State.LIVE, True)),
            (State.DEAD, 1e6, (State.DEAD, True)),
            (State.SUPERSEDED, 1e6, (State.SUPERSEDED, True)),
            (None, 1e6, (State.LIVE, True)),
            # Its task is over; its application may not be.
            (State.DEAD, 599, (State.LIVE, True)),
            (State.SUPERSEDED, 599, (State.LIVE, True)),
        ],
    )
    def test_it_counts_more_than_heartbeats(
        self, said: State | None, silent_for: float, expected: tuple[State, bool]
    ) -> None:
        assert states(silent_for, Knowledge([record(1)], ask=lambda _: said)) == expected

    @pytest.mark.parametrize(("patience", "silent_for"), [(0.0, 0), (100.0, 100), (1e6, 600)])
    def test_patience_makes_the_wait_shorter_only(self, patience: float, silent_for: int) -> None:
        known = Knowledge([record(1)], ask=lambda _: State.DEAD, patience=patience)
        assert states(silent_for, known) == (State.DEAD, True)
        if silent_for:
            assert states(silent_for - 1, known) == (State.LIVE, True)

    def test_nobody_can_state_that_a_running_task_is_dead(self) -> None:
        known = Knowledge([record(1e6)], dead={JOB}, ask=lambda _: State.LIVE, patience=0)
        assert states(1e6, known) == (State.LIVE, True)


class TestALaterTry:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, State.SUPERSEDED),
            ({"map_index": None}, State.SUPERSEDED),
            ({"map_index": 1}, State.UNKNOWN),
            ({"run_id": "s"}, State.UNKNOWN),
            ({"try_number": 1}, State.UNKNOWN),
        ],
    )
    def test_supersedes(self, changes: dict[str, Any], expected: State) -> None:
        late = Owner(**{**vars(owner(2)), **changes})
        later = record(0, uuid=OTHER, owner=late)
        assert states(1e6, Knowledge([record(1e6), later]))[0] is expected

    def test_it_sends_heartbeats_itself(self) -> None:
        later = record(0, uuid=OTHER, owner=owner(2))
        assert states(0, Knowledge([record(1e6), later]), uuid=OTHER) == (State.LIVE, True)


class TestShield:
    """A run at work that may be the job's."""

    def test_uploads_that_name_no_job(self) -> None:
        known = Knowledge([record(0)], patience=0)
        assert states(50, known, uuid=OTHER, kind=Kind.UPLOADS)[0] is State.LIVE
        assert states(50, known, uuid=OTHER)[0] is State.DEAD
        # What had ended before the run began is not its.
        assert states(101, known, uuid=OTHER, kind=Kind.UPLOADS)[0] is State.DEAD
        silent = Knowledge([record(1e6)], patience=0)
        assert states(50, silent, uuid=OTHER, kind=Kind.UPLOADS)[0] is State.DEAD

    def test_a_record_that_cannot_be_read(self) -> None:
        known = Knowledge([OpenTry(None, 1e9, "it is not JSON")], patience=0)
        assert states(1e6, known) == (State.UNKNOWN, False)


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
        write = ledger.WriteRecord(
            uuid=JOB, run=JOB, number=0, committer="magic", destination=ROOT.url, mode="append"
        )
        world.driver.run(ledger.put_write(ROOT, write))
        (found,) = world.driver.run(recover_jobs(ROOT, RecoveryOptions(apply=True, patience=60)))
        assert found.state is State.LIVE
        assert found.state_reason == "its application sent a heartbeat 0 s ago"
        assert found.owner.dag_id == "flights"


@pytest.fixture
def world() -> World:
    return World()
