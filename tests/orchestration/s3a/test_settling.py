"""Settlement of an earlier try that is cut short, or whose application was not dead: at every
request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, at
from support.memory_store import MemoryDriver
from support.s3a_jobs import JOB, ROOT, World, a_try
from zero_rename.committer import OutcomeUnknownError, Table
from zero_rename.committer.format.job_spec import Owner
from zero_rename.orchestration.s3a.tries import Tries
from zero_rename.s3a.recovery.liveness import RecoveryOptions
from zero_rename.s3a.recovery.recover import recover_jobs
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    HEARTBEAT_TIMEOUT,
    UNDONE,
    TryRecord,
    WriteRecord,
    write_uuid,
)

ONCE = "flights/r/load"
JOB_1 = write_uuid(JOB, 1)


def never(seconds: float) -> None:
    pytest.fail(f"It waits for {seconds} s.")


class Run:
    """A run whose first try died in its job commit, or before it.

    :param began: its commit had completed a file.
    """

    def __init__(self, began: bool) -> None:
        self.world = World()
        write = WriteRecord(JOB_1, 1, "magic", ROOT.url, "append", opened_at=self.world.clock())
        opened = a_try(
            idempotency_key=ONCE, owner=Owner("flights", "r", "load", -1, 1), mode="append"
        )
        self.record = self.world.driver.run(ledger.open_try(ROOT, opened.with_write(write)))
        job = self.world.job(uuid=JOB_1)
        job.task(0)
        job.task(1)
        job.complete(*job.files[: int(began)])
        self.files = job.keys if began else []
        self.world.clock.advance(HEARTBEAT_TIMEOUT + 10)

    def settle(self, fault: Any = None, pause: Callable[[float], object] | None = None) -> str:
        """A retry does it. Returns the state that it finds or makes.

        :param pause: ``None`` where it is not to wait.
        """
        table = Table(ROOT.url)
        driver = MemoryDriver(self.world.store, fault, self.world.clock)
        table.driver = driver  # pyrefly: ignore[bad-assignment]
        Tries(table, ONCE, lambda record, _: {"job": record.uuid}, pause=pause or never).settle()
        self.asked = len(driver.requests)
        (known,) = self.world.driver.run(ledger.tries_of(ROOT, ONCE))
        return known.record.state

    def beat(self) -> str:
        """The application's heartbeat, and why it may not write any more."""

        def beaten(found: TryRecord, now: float) -> TryRecord:
            return replace(found, beat_at=now)

        self.world.driver.run(ledger.change(ROOT, self.record, beaten))
        return self.world.driver.run(ledger.superseded(ROOT, ONCE, JOB))

    def assert_settled(self, state: str) -> None:
        assert state == (COMMITTED if self.files else UNDONE)
        # Of one whose _SUCCESS stands, maintenance clears up what is left besides.
        self.world.driver.run(recover_jobs(ROOT, RecoveryOptions(apply=True, dead={JOB})))
        assert self.world.visible() == self.files
        self.world.assert_clean()


def requests_of(began: bool) -> int:
    run = Run(began)
    run.assert_settled(run.settle())
    return run.asked


@pytest.mark.parametrize("began", [True, False])
@pytest.mark.parametrize("applied", [True, False])
def test_a_retry_that_dies_is_followed_by_one_that_does_it(began: bool, applied: bool) -> None:
    for number in range(1, requests_of(began) + 1):
        run = Run(began)
        with pytest.raises(Crash):
            run.settle(at(number, Crash, applied=applied))
        run.assert_settled(run.settle())


@pytest.mark.parametrize("began", [True, False])
def test_who_is_settled_may_not_write_any_more(began: bool) -> None:
    """An application that was only paused: it wakes up at any request, and sends heartbeats."""
    outcomes = {woken(Run(began), number) for number in range(1, requests_of(began) + 1)}
    assert outcomes == {(True, False), (False, False), (False, True)}


def woken(run: Run, number: int) -> tuple[bool, bool]:
    """Whether the try was settled, and whether its application may write, or was told so since."""
    told: list[str] = []

    def beats(seconds: float) -> None:
        run.world.clock.advance(seconds)
        told.append(run.beat())

    try:
        run.settle(at(number, lambda: beats(1)), beats)
    except OutcomeUnknownError:
        return False, run.beat() == ""
    return True, "" in (*told, run.beat())
