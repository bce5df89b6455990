"""Two writers race for partitions that overlap, and one of them is killed at a random request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from torture.inspection import Damage, inspect
from torture.loads import Ledger, Load
from torture.phases import Phase, Target
from torture.proxy import Proxy, Trap, When
from torture.servers import Store
from torture.writers import RacingWriter, Recoverer

from zero_rename import Table
from zero_rename.committer import OnConflict
from zero_rename.committer.commit.state.job_state import JobState

_PER_TABLE = 8
_AIMS = (Phase.CLAIMING, Phase.CLAIMING, Phase.DECIDING, Phase.APPLYING, Phase.CLOSING)
_DEEPEST = {Phase.CLAIMING: 8, Phase.APPLYING: 14}
_LONGEST_DELAY = 0.1


@dataclass
class Races(Damage):
    """What came of all races.

    :param fates: by the phase in which the victim was struck, what became of it and of the
        survivor.
    """

    fates: Counter[tuple[Phase, str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"{'victim killed while':<22}{'it':<12}{'the other':<14}{'races':>6}"]
        for (phase, victim, survivor), count in sorted(self.fates.items()):
            lines.append(f"{phase.name.lower():<22}{victim:<12}{survivor:<14}{count:>6}")
        lines.append(f"{self.fates.total()} races with a kill; {self.counted}")
        return "\n".join([*lines, *self.problems])


def kill_racers(
    store: Store,
    bucket: str,
    seed: int,
    races: int,
    latency: float = 0.0,
    say: Callable[[str], None] = lambda line: None,
) -> Races:
    """Kill one of two racing writers, so many times; recover; compare with the ledger.

    :param store: a server on which writers may race.
    :param bucket: an existing bucket.
    :param latency: seconds each request takes longer.
    """
    summary = Races()
    with Proxy(store.endpoint, latency) as mine, Proxy(store.endpoint, latency) as theirs:
        series = None
        for number in range(races):
            if series is None or number % _PER_TABLE == 0:
                series = _Series(store, f"s3://{bucket}/races-{seed}-{number}", summary)
            rng = Random(f"{seed}/race/{number}")
            fate = series.race(number, rng, mine, theirs)
            summary.fates[fate] += 1
            phase, victim, survivor = fate
            say(f"{number:>4} killed while {phase.name.lower():<10} {victim:<10} {survivor}")
    return summary


class _Series:
    """One table and its ledger."""

    def __init__(self, store: Store, url: str, summary: Races) -> None:
        self._store = store
        self._client = store.client()
        self._table = Table(url, client=self._client)
        self._summary = summary
        self._ledger = Ledger()

    def race(self, number: int, rng: Random, mine: Proxy, theirs: Proxy) -> tuple[Phase, str, str]:
        """One race, one kill, one recovery, one inspection."""
        url = self._table.root.url
        loads = [_load(10 * number + place, rng) for place in (1, 2)]
        policy = rng.choice((OnConflict.FAIL, OnConflict.LAST_WINS))
        aim = rng.choice(_AIMS)
        target = Target(aim, rng.randrange(_DEEPEST.get(aim, 2)))
        mine.watch()
        theirs.watch()
        writers = [
            RacingWriter(url, load, self._store.environment(proxy.endpoint), on_conflict=policy)
            for load, proxy in zip(loads, (mine, theirs), strict=True)
        ]
        victim, survivor = writers
        try:
            jobs = [writer.opened() for writer in writers]
            target.tracker.job = jobs[0]
            trap = Trap(target, rng.choice(list(When)), victim.kill, rng.uniform(0, _LONGEST_DELAY))
            mine.watch(trap)
            for writer in writers:
                writer.go_on()
            answers = [writer.answer() for writer in (victim, survivor)]
        finally:
            for writer in writers:
                writer.close()
        mine.drain()
        theirs.drain()
        outcomes = Recoverer(url, self._store.environment()).outcomes()
        if not isinstance(outcomes, list):
            self._summary.problems.append(f"race {number}: recovery: {outcomes}")
        fates = self._enter(number, jobs, loads, answers)
        self._inspect(number)
        struck = Phase.DONE if answers[0] is not None else target.struck_in
        return struck, *fates

    def _enter(
        self, number: int, jobs: list[str], loads: list[Load], answers: list[str | None]
    ) -> tuple[str, str]:
        """Enter what was committed into the ledger, in the order of the partitions' versions."""
        states = [self._table.job_state(job) for job in jobs]
        for job, state, answer in zip(jobs, states, answers, strict=True):
            if answer is not None and (answer == "committed") != (state is JobState.COMMITTED):
                self._summary.problems.append(f"race {number}: {job} said {answer}, is {state}")
        attempts = list(zip(jobs, loads, strict=True))
        self._ledger.attempts += attempts
        committed = [
            attempt
            for attempt, state in zip(attempts, states, strict=True)
            if state is JobState.COMMITTED
        ]
        for job, load in self._in_order(number, committed):
            self._ledger.commit(job, load)
        first, second = (str(state) for state in states)
        return first, second

    def _in_order(self, number: int, committed: list[tuple[str, Load]]) -> list[tuple[str, Load]]:
        """Two jobs follow each other in all partitions they share, or the history has no order."""
        if len(committed) < 2:
            return committed
        versions = []
        for job, _ in committed:
            result = self._table.result(job)
            assert result is not None
            versions.append({change.partition: change.version for change in result.partitions})
        shared = versions[0].keys() & versions[1].keys()
        firsts = {versions[0][name] < versions[1][name] for name in shared}
        if len(firsts) != 1:
            self._summary.problems.append(f"race {number}: no order among {versions}")
        return committed if firsts == {True} else committed[::-1]

    def _inspect(self, number: int) -> None:
        found = inspect(self._table, self._client, self._ledger)
        self._summary.add(found.rows)
        where = f"race {number}, {self._table.root.url}"
        self._summary.problems += [f"{where}: {problem}" for problem in found.left]
        if found.rows:
            self._summary.problems.append(f"{where}: rows differ: {found.rows}")


def _load(number: int, rng: Random) -> Load:
    """Partition 2 is in every load, so that two always meet."""
    days = tuple(sorted({2, *rng.sample(range(1, 5), rng.randint(0, 2))}))
    mode = rng.choice(("append", "replace"))
    return Load(number, mode, days, rows=rng.randint(1, 6), rows_per_file=2)
