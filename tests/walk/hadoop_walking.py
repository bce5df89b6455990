"""Walks with Hadoop's committers: runs over one destination, with whatever may happen beside them.

Attempts load by the product's own code, one process at a time. Between any two requests another
one may run, or an application, its worker or both may die. Tasks are cleared and marked by hand;
recovery, the search for conflicts, their settlement, purges and sensors come at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from walk.hadoop_oracle import check_end, look
from walk.hadoop_plan import HadoopPlan, make_hadoop_plan
from walk.hadoop_task import FAILED, RETRY, RUNNING, SKIPPED, SUCCESS, Task
from walk.hadoop_world import HadoopWorld, Settled, hadoop_world
from walk.oracle import Violation
from walk.walks import WalkFailure, Walks
from walk.world import ROOT

from zero_rename.committer.errors import ZeroRenameError
from zero_rename.maintenance.conflicts import resolve_by_restore
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder, purge_destination
from zero_rename.s3a.recovery.liveness import JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import settle_jobs
from zero_rename.s3a.runs.run_conflicts import find_s3a_conflicts
from zero_rename.s3a.runs.try_record import TryRecord

#: What the scheduler's state of a task says of its last attempt.
_LIVENESS = {
    RUNNING: JobLiveness.LIVE,
    RETRY: JobLiveness.SUPERSEDED,
    SUCCESS: JobLiveness.UNKNOWN,
    FAILED: JobLiveness.DEAD,
    SKIPPED: JobLiveness.DEAD,
}
#: The share of requests of a process at the destination before or after which others run.
_INTERRUPTED = 0.1
_HOUR, _DAY = 3_600.0, 86_400.0
#: Turns in which all must have ended, once nothing goes wrong any more.
_MOST = 3_000


def walk_hadoop(plan: HadoopPlan) -> Walks:
    """Carry out a plan.

    :raises WalkFailure: at the first thing that is not as it should be.
    """
    with hadoop_world(plan) as world:
        walker = _Walker(world)
        try:
            walker.to_the_end()
        except Exception as error:
            raise WalkFailure(plan, walker.step, error, world.trace) from error
        return Walks(1, len(world.committed), world.arrived, outcomes=world.outcomes)


class _Walker:
    def __init__(self, world: HadoopWorld) -> None:
        self.world, self.rng, self.step = world, world.rng, ""
        self.tasks = [Task(world, run) for run in world.plan.runs]

    def to_the_end(self) -> None:
        for _ in range(self.world.plan.turns):
            self._turn()
        self.step = "the end"
        self._let_all_end()
        for seconds in (2_000.0, _DAY + _HOUR):
            self.world.pass_time(seconds)
            self._recover()
        self.step = "the look at the end"
        check_end(self.world, self.tasks)

    def _turn(self) -> None:
        """Let one thing happen, of those that can."""
        due = [it for it in self.tasks if it.is_due]
        running = [it for it in self.tasks if it.state == RUNNING]
        writing = [it for it in running if it.is_writing]
        over = [it for it in self.tasks if it.state in (SUCCESS, FAILED, SKIPPED)]
        happenings: list[tuple[int, Callable[[], None]]] = [
            (40 * any(it.is_ready for it in self.world.strands), self._go_on),
            (4 * bool(due), lambda: self.rng.choice(due).start()),
            (2 * bool(over), lambda: self._clear(self.rng.choice(over))),
            (2 * bool(writing), lambda: self._kill_application(self.rng.choice(writing))),
            (bool(running), lambda: self._kill_worker(self.rng.choice(running))),
            (bool(running), lambda: self._kill_both(self.rng.choice(running))),
            (bool(running), lambda: self._mark(self.rng.choice(running))),
            (1, lambda: self._then_look(self._recover)),
            (1, self._search_conflicts),
            (1, lambda: self._beside("settle conflicts", self._settle)),
            (3 * self.world.plan.purges, lambda: self._beside("purge", self._purge)),
            (4, self._look),
            (4, lambda: self.world.pass_time(self.rng.choice([0.3, 1.1, 5.0, 30.0, 100.0]))),
            (2, lambda: self._then_look(self._let_hours_pass)),
        ]
        weights = [weight for weight, _ in happenings]
        self.rng.choices(happenings, weights)[0][1]()

    def _go_on(self) -> None:
        """Let a process go on for a while."""
        strand = self.rng.choice([it for it in self.world.strands if it.is_ready])
        self.step = strand.name
        for _ in range(self.rng.choice([1, 1, 3, 20])):
            if strand.is_ready:
                self.world.resume(strand)
        self.world.say("  ", strand.name, "is over" if strand.is_over else f"at: {strand.place}")

    def _beside(self, name: str, body: Callable[[], None]) -> None:
        """Begin a process beside the others."""
        self.step = name
        self.world.resume(self.world.begin(name, body, _INTERRUPTED))

    def _let_hours_pass(self) -> None:
        days = [_DAY + _HOUR] if self.world.plan.purges else []
        seconds = self.rng.choice([200.0, 700.0, 4_000.0, *days])
        self.world.say(f"{seconds:g} s pass")
        self.world.pass_time(seconds)

    # What users and accidents do to tasks.

    def _clear(self, task: Task) -> None:
        self.world.say("clear", task.run.id)
        self.world.count("clear")
        task.clear()

    def _mark(self, task: Task) -> None:
        state = self.rng.choice([FAILED, SUCCESS])
        self.world.say("mark", task.run.id, state)
        self.world.count("mark by hand")
        task.mark(state)

    def _kill_application(self, task: Task) -> None:
        assert task.application is not None
        self.world.say("kill the application of", task.run.id, task.application.strand.place)
        self.world.count("kill application")
        task.application.kill()

    def _kill_worker(self, task: Task) -> None:
        """Kill a worker, whose application goes on or not."""
        self.world.say("kill the worker of", task.run.id)
        self.world.count("kill worker")
        task.kill(application=self.rng.random() < 0.5)

    def _kill_both(self, task: Task) -> None:
        self.world.say("kill worker and application of", task.run.id)
        self.world.count("kill worker and application")
        task.kill()

    # What others do at the destination.

    def _liveness(self, record: TryRecord) -> JobLiveness | None:
        task = next((it for it in self.tasks if it.run.key == record.idempotency_key), None)
        return None if task is None else _LIVENESS.get(task.state)

    def _staging(self) -> str | None:
        return str(self.world.staging) if self.rng.random() < 0.7 else None

    def _attempted(self, verb: str, work: Callable[[], object]) -> None:
        """Do what may fail, and count it."""
        try:
            work()
        except ZeroRenameError as error:
            self.world.say(verb, type(error).__name__, error)
            self.world.count(verb, type(error).__name__)
        else:
            self.world.count(verb)

    def _recover(self) -> None:
        self.step = "recover"
        silence = self.rng.choice([None, _HOUR])
        options = RecoveryOptions(
            apply=True,
            ask=self._liveness,
            strangers=False,
            staging=self._staging(),
            patience=silence,
        )

        def recover() -> None:
            for _, job in self.world.table().run(settle_jobs(ROOT, options)):
                self.world.say("recovered", job.job, job.outcome, job.state, job.reason)

        self._attempted("recover", recover)

    def _search_conflicts(self) -> None:
        self.step = "search conflicts"
        table = self.world.table()
        self._attempted("search conflicts", lambda: table.run(find_s3a_conflicts(ROOT)))

    def _settle(self) -> None:
        self._attempted("settle conflicts", self._settle_all)

    def _settle_all(self) -> None:
        world, table = self.world, self.world.table()
        table.run(find_s3a_conflicts(ROOT))
        policy = self.rng.choice(["newest_run", *({"keep": [it.run.key]} for it in self.tasks)])
        for conflict in resolve_by_restore(table, policy, apply=True):
            made = conflict.settlement
            if made is None or made.error:
                continue
            winner = made.stands.split("/")[1]
            losers = frozenset(it.split("/")[1] for it in made.losers)
            world.say("settled", conflict.partition, "for", winner, "against", *sorted(losers))
            world.count("settle a conflict")
            world.settled[conflict.partition] = Settled(winner, losers, world.clock.now)
            there = {it.run for it in world.authors_in(conflict.partition)}
            others = there - {winner} if world.plan.replaces else there & losers
            if world.is_calm and others:
                raise Violation(f"{conflict.partition} is settled for {winner}; there are {there}")

    def _purge(self) -> None:
        self._attempted("purge", self._purge_all)

    def _purge_all(self) -> None:
        table = self.world.table()
        order = PurgeOrder(
            apply=True,
            foreign_age=self.rng.choice([_HOUR, _DAY]),
            ask=self._liveness,
            s3a_patience=self.rng.choice([None, _HOUR]),
            staging=self._staging(),
        )
        done = purge_destination(table, table.run(destination_at(ROOT)), order)
        self.world.say("purged", done.counts, [(it.job, it.outcome) for it in done.jobs])

    def _then_look(self, happening: Callable[[], None]) -> None:
        happening()
        self._look()

    def _look(self) -> None:
        self.step = "a look"
        look(self.world, self.tasks)
        self.world.count("ask sensors")

    def _let_all_end(self) -> None:
        """Let all go on, with nothing in the way, until every run has ended.

        :raises Violation: they do not end.
        """
        world = self.world
        world.is_calm = True
        for _ in range(_MOST):
            ready = [it for it in world.strands if it.is_ready]
            due = [it for it in self.tasks if it.is_due]
            if ready:
                world.resume(self.rng.choice(ready))
            elif any(not it.is_over for it in world.strands):
                world.pass_time(20.0)
            elif due:
                world.pass_time(5.0)
                self.rng.choice(due).start()
            else:
                return
        raise Violation("the runs do not end")


def walk_hadoop_seed(seed: int, words: Collection[str] = ()) -> Walks:
    """Carry out the plan of a seed.

    :raises WalkFailure: at the first thing that is not as it should be.
    """
    return walk_hadoop(make_hadoop_plan(seed, words))
