"""Kill a writer at a random moment, let another process recover, compare with the ledger."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from torture.inspection import Damage, inspect
from torture.loads import Ledger, Load, random_load
from torture.phases import Phase, Target
from torture.proxy import Proxy, Trap, When
from torture.servers import Store
from torture.spark_writers import SparkWriter
from torture.writers import PlainWriter, Recoverer, Writer, recover_by_command, verify_by_command

from zero_rename import Table
from zero_rename.committer.commit.state.job_state import JobState

#: Kills of one table, so that it neither stays empty nor grows without end.
PER_TABLE = 8
#: One writer in so many is a Spark driver.
SPARK_EVERY = 10
#: How often each phase is aimed at. Not by its number of requests: the decision has one.
_AIMS = {
    Phase.OPENING: 4,
    Phase.WRITING: 3,
    Phase.CLAIMING: 4,
    Phase.DECIDING: 4,
    Phase.APPLYING: 6,
    Phase.CLOSING: 3,
    Phase.DONE: 1,
}
#: The most requests into a phase that are aimed at.
_DEEPEST = {Phase.OPENING: 12, Phase.WRITING: 8, Phase.CLAIMING: 8, Phase.APPLYING: 14}
_LONGEST_DELAY = 0.1
_FATES = {JobState.COMMITTED: "committed", JobState.ABORTED: "aborted"}


@dataclass
class Summary(Damage):
    """What came of all kills.

    :param fates: by phase and what became of the job: committed, aborted, or nothing begun.
    """

    kills: Counter[str] = field(default_factory=Counter)
    fates: Counter[tuple[Phase, str]] = field(default_factory=Counter)
    recoverers_killed: int = 0
    repeats_skipped: int = 0
    probes: int = 0
    tableless: int = 0

    def __str__(self) -> str:
        fates = ("committed", "aborted", "nothing begun")
        lines = [f"{'killed while':<14}{'kills':>7}" + "".join(f"{fate:>15}" for fate in fates)]
        for phase in list(Phase)[1:]:
            counts = [self.fates[phase, fate] for fate in fates]
            name = phase.name.lower()
            lines.append(f"{name:<14}{sum(counts):>7}" + "".join(f"{n:>15}" for n in counts))
        totals = [sum(self.fates[phase, fate] for phase in Phase) for fate in fates]
        lines.append(f"{'all':<14}{sum(totals):>7}" + "".join(f"{n:>15}" for n in totals))
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        lines += [
            f"writers: {kinds}; recoverers killed too: {self.recoverers_killed}; "
            f"tries skipped as repeats: {self.repeats_skipped}",
            f"killed before there was a table: {self.tableless}; probe uploads left by that: "
            f"{self.probes}",
            self.counted,
        ]
        return "\n".join([*lines, *self.problems])


class Torture:
    """Kills writers of tables on one store.

    :param store: the server. Writers reach it through a proxy of ours.
    :param bucket: an existing bucket.
    :param seed: what is written, and where it is struck, follows from it; what requests of one
        moment overtake which does not.
    :param say: called with a line per kill.
    :param large: write files of several parts too.
    :param aims: the phases to strike in, one after the other; none: at random.
    """

    def __init__(
        self,
        store: Store,
        proxy: Proxy,
        bucket: str,
        seed: int,
        say: Callable[[str], None] = lambda line: None,
        large: bool = False,
        aims: Sequence[Phase] = (),
    ) -> None:
        self.store = store
        self.proxy = proxy
        self.bucket = bucket
        self.seed = seed
        self.large = large
        self.aims = aims
        self.summary = Summary()
        self._say = say
        self._client = store.client()
        self._variables = store.environment(proxy.endpoint)

    def run(self, kills: int, spark: Callable[[int], bool] | None = None) -> Summary:
        """Kill so many writers.

        :param spark: whether the writer of that number is a Spark driver.
        """
        is_spark = spark or (lambda number: number % SPARK_EVERY == SPARK_EVERY - 1)
        numbers = iter(range(kills))
        for table in itertools.count():
            if not self._series(table, numbers, is_spark):
                return self.summary
        raise AssertionError

    def _series(self, table: int, numbers: Iterator[int], spark: Callable[[int], bool]) -> bool:
        """The kills of one table; ``False`` when there are no more to do."""
        rng = Random(f"{self.seed}/{table}")
        name = f"s3://{self.bucket}/table-{self.seed}-{table}"
        series = _Series(self, name, rng, partitioned=rng.random() < 0.8)
        batch = list(itertools.islice(numbers, PER_TABLE))
        for number in batch:
            series.kill(number, spark(number))
        if batch:
            series.finish()
        return bool(batch)


class _Series:
    """One table, one ledger, one writer at a time."""

    def __init__(self, torture: Torture, url: str, rng: Random, partitioned: bool) -> None:
        self._torture = torture
        self._url = url
        self._rng = rng
        self._partitioned = partitioned
        self._ledger = Ledger()
        self._table = Table(url, client=torture.store.client())
        self._again: Load | None = None
        #: A writer was killed before it made the table: recovery finds no table, and its open
        #: record stays until the next writer has made one.
        self._tableless = False

    def kill(self, number: int, spark: bool) -> None:
        """One writer, one kill, one recovery, one inspection."""
        load, target, trap = self._plan(number, spark)
        torture = self._torture
        with tempfile.TemporaryDirectory(prefix="zero-rename-spark-") as folder:
            writer = self._start(load, spark, Path(folder))
            torture.proxy.watch(replace(trap, act=writer.kill))
            try:
                answer = writer.answer()
            finally:
                writer.close()
        torture.proxy.drain()
        struck = Phase.DONE if answer is not None else target.struck_in
        outcome = self._recover()
        fate = self._settle(load, target.tracker.job, answer, number)
        self._tableless = self._tableless and not self._table.exists()
        kind = "Spark drivers" if spark else "plain jobs"
        torture.summary.kills[kind] += 1
        torture.summary.fates[struck, fate] += 1
        torture._say(
            f"{number:>4} {kind[:-1]:<12} {load.mode:<8}{'once' if load.idempotency_key else '':<5}"
            f"killed while {struck.name.lower():<9} {trap.when.name.lower():<7}{fate:<14}"
            f"{answer or ''} {outcome}"
        )

    def _plan(self, number: int, spark: bool) -> tuple[Load, Target, Trap]:
        rng = self._rng
        again, self._again = self._again, None
        load = again or random_load(number, rng, self._partitioned, self._torture.large)
        if spark:
            load = replace(load, payload=0)
        (phase,) = rng.choices(list(_AIMS), list(_AIMS.values()))
        if aims := self._torture.aims:
            phase = aims[number % len(aims)]
        target = Target(phase, rng.randrange(_DEEPEST.get(phase, 2)))
        when = rng.choice(list(When))
        trap = Trap(target, when, lambda: None, rng.uniform(0, _LONGEST_DELAY))
        return load, target, trap

    def _start(self, load: Load, spark: bool, folder: Path) -> Writer:
        variables = self._torture._variables
        if spark:
            return SparkWriter(self._url, load, variables, folder)
        return PlainWriter(self._url, load, variables)

    def _recover(self) -> str:
        """In another process; sometimes that is killed too, and another one recovers."""
        torture, rng = self._torture, self._rng
        torture.proxy.watch()
        kind = rng.randrange(10)
        if kind < 3:
            recoverer = Recoverer(self._url, torture._variables)
            strike = rng.randrange(12)
            torture.proxy.watch(
                Trap(lambda n, _: n >= strike, rng.choice(list(When)), recoverer.kill)
            )
            if recoverer.outcomes() is None:
                torture.summary.recoverers_killed += 1
            torture.proxy.watch()
            torture.proxy.drain()
        if kind == 9:
            return _said(recover_by_command(self._url, torture._variables))
        return _said(Recoverer(self._url, torture._variables).outcomes())

    def _settle(self, load: Load, job: str | None, answer: str | None, number: int) -> str:
        """Enter into the ledger what the store says became of the job; inspect the table."""
        state = self._table.job_state(job) if job else JobState.UNKNOWN
        if answer == "committed" and state is JobState.UNKNOWN and self._is_done(load):
            answer = "repeated"  # A Spark driver cannot tell: its write returns nothing.
        self._ledger.attempts.append((job, load))
        problems = []
        if state is JobState.COMMITTED and job is not None:
            self._ledger.commit(job, load)
        elif answer == "committed":
            problems.append(f"{job} said it was committed and is {state}")
        if answer == "repeated":
            self._torture.summary.repeats_skipped += 1
            if not self._is_done(load):
                problems.append(f"{job} skipped a run that nobody has done")
        elif answer is not None and answer != "committed" and not self._is_refusal(answer):
            problems.append(f"{job} answered {answer}")
        if load.idempotency_key is not None and answer is None:
            # What Airflow does: the same run again, in another process.
            self._again = load if self._rng.random() < 0.7 else None
        if not self._table.exists():
            # Killed before there was a table: recovery refuses what no job has made yet.
            self._tableless = job is not None or self._tableless
            self._torture.summary.tableless += 1
            self._note(number, problems)
            return _FATES.get(state, "nothing begun")
        found = inspect(self._table, self._torture._client, self._ledger)
        self._torture.summary.add(found.rows)
        self._note(number, [*problems, *found.left])
        if found.rows:
            self._note(number, [f"rows differ: {found.rows}"])
        return _FATES.get(state, "nothing begun")

    def _is_done(self, load: Load) -> bool:
        return (
            load.idempotency_key is not None
            and self._ledger.run_of(load.idempotency_key) is not None
        )

    def _is_refusal(self, answer: str) -> bool:
        """On a store without atomic conditions a second writer is refused while another's open
        record is there, and nobody could recover that before there was a table."""
        return self._tableless and answer.startswith("StoreUnfitError")

    def _note(self, number: int, problems: list[str]) -> None:
        where = f"kill {number}, {self._url}, seed {self._torture.seed}"
        self._torture.summary.problems += [f"{where}: {problem}" for problem in problems]

    def _write(self, load: Load) -> str:
        """One undisturbed writer; recovery then finds what was left before there was a table."""
        torture = self._torture
        target = Target(Phase.DONE, 0)
        torture.proxy.watch(Trap(target, When.BEFORE, lambda: None))
        writer = PlainWriter(self._url, load, torture._variables)
        answer = writer.answer()
        writer.close()
        if self._tableless:
            self._recover()
        self._again = None
        self._settle(load, target.tracker.job, answer, -1)
        return answer or ""

    def finish(self) -> None:
        """Carry out the run that was killed last once more, undisturbed; verify by command."""
        if not self._ledger.attempts:
            return
        torture = self._torture
        load = self._again or random_load(10_000, self._rng, self._partitioned, False)
        answer = self._write(load)
        if self._is_refusal(answer):
            self._recover()
            self._write(load)
        torture.summary.probes += inspect(self._table, torture._client, self._ledger).probes
        findings = verify_by_command(self._url, torture._variables)
        if findings:
            self._note(-1, [f"zero-rename verify: {findings}"])


def _said(outcomes: list[dict[str, str]] | str | None) -> str:
    if isinstance(outcomes, list):
        return ", ".join(f"recovered: {outcome['outcome']}" for outcome in outcomes)
    return str(outcomes)[:90]
