"""A task of a scheduler that loads by one of Hadoop's committers, and its attempts."""

from __future__ import annotations

from typing import Any

from walk.hadoop_application import Application, ApplicationError
from walk.hadoop_plan import PlannedRun
from walk.hadoop_world import HadoopWorld
from walk.strands import Strand
from walk.world import ROOT

from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    RefusedError,
    SupersededRunError,
    ZeroRenameError,
)
from zero_rename.committer.rival_wait import RivalWait
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.orchestration.s3a.configuration import LoadRequest
from zero_rename.orchestration.s3a.load import S3ALoad, loaded_by_s3a
from zero_rename.orchestration.s3a.settling import taken_plan

WAITING, RUNNING, RETRY = "waiting", "running", "up_for_retry"
SUCCESS, FAILED, SKIPPED = "success", "failed", "skipped"


class Task:
    """A task instance.

    :param state: as the scheduler has it.
    :param report: what its last attempt has returned.
    :param error: the end of its last attempt.
    """

    def __init__(self, world: HadoopWorld, run: PlannedRun) -> None:
        self.world, self.run = world, run
        self.attempt, self.most = 0, run.retries
        self.state, self.report, self.error = WAITING, None, None
        self.report: dict[str, Any] | None
        self.error: Exception | None
        self.application: Application | None = None
        self.worker: Strand | None = None
        self._load: S3ALoad | None = None
        world.heartbeats.append(self.send_heartbeat)

    @property
    def is_due(self) -> bool:
        return self.state in (WAITING, RETRY)

    @property
    def is_writing(self) -> bool:
        """Whether its application is at work."""
        return self.application is not None and not self.application.strand.is_over

    @property
    def is_done(self) -> bool:
        """Whether its last attempt has succeeded and reported."""
        return self.state == SUCCESS and self.report is not None

    @property
    def _run(self) -> TaskRun:
        first = max(1, self.most - self.run.retries + 1)
        series = f"2013-01-01T00:00:00 {self.most}"
        return TaskRun(
            "flights", self.run.id, "load", -1, self.attempt, min(first, self.attempt), series
        )

    def start(self) -> None:
        self.attempt += 1
        self.state, self.error, self.application = RUNNING, None, None
        self.worker = self.world.begin(f"{self.run.id}'s worker {self.attempt}", self._carry_out)
        self.world.say("start", self.run.id, self.attempt)

    def clear(self) -> None:
        self.most = self.attempt + self.run.retries
        self.state = WAITING

    def kill(self, application: bool = True) -> None:
        """Let the worker die, and its application with it or not."""
        assert self.worker is not None
        if application and self.application is not None:
            self.application.kill()
        self.world.kill(self.worker)
        self._end(self._next_state, "Crash")

    def mark(self, state: str) -> None:
        """End the attempt by hand, as a user does."""
        self.kill()
        self.state, self.report = state, None

    def send_heartbeat(self) -> None:
        at_work = self.state == RUNNING and self.application is not None
        if at_work and self._load is not None:
            try:
                self._load._send_heartbeat()
            except ZeroRenameError as error:
                self.world.say(self.run.id, "sends no heartbeat:", error)

    @property
    def _next_state(self) -> str:
        return RETRY if self.attempt <= self.most else FAILED

    def _carry_out(self) -> None:
        try:
            self.report = self._loaded()
        except SupersededRunError as error:
            self.error = error
            self._end(SKIPPED if error.skips else FAILED, "refused")
        except (CommitConflictError, InvalidInputError) as error:
            self.error = error
            self._end(FAILED, "refused")
        except (ZeroRenameError, ApplicationError) as error:
            self.error = error
            is_refused = isinstance(error, RefusedError)
            self._end(self._next_state, "refused" if is_refused else type(error).__name__)
        else:
            self._end(SUCCESS, "committed")

    def _loaded(self) -> dict[str, Any]:
        """Load as the operator does; return the report."""
        table, run, mine = self.world.table(), self.run, self._run
        policy = run.policy.on_conflict
        report = loaded_by_s3a(table, mine, run.said, run.on_repeat, policy, run.named)
        if report is not None:
            return report
        wanted = LoadRequest(run.committer, ROOT, run.said, run.named)
        waiting = None if run.waits is None else RivalWait(run.waits, pause=self.world.sleep)
        plan = taken_plan(table, mine)
        load = S3ALoad(table, mine, wanted, run.policy, run.rank, plan, waiting)
        with load.submitted({}):
            self._load = load
            self.application = application = Application(self.world, run, self.attempt, load)
            self.world.pause("its application runs", lambda: application.strand.is_over)
            if application.failure is not None:
                raise ApplicationError(application.failure)
        return load.report()

    def _end(self, state: str, outcome: str) -> None:
        self.state = state
        self.world.count(f"load by {self.run.committer}", outcome)
        self.world.say(self.run.id, self.attempt, state, self.error or outcome)
