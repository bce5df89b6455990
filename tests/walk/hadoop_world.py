"""The world of a walk with Hadoop's committers: a store in memory, processes on it, virtual time.

Beside the store it keeps the author of each file, and of the last change of each partition.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from walk.hadoop_plan import HadoopPlan, PlannedRun
from walk.strands import Strand
from walk.world import ROOT, Crash, in_memory

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename.committer import Table, rival_wait
from zero_rename.committer.format.job_spec import OnConflict
from zero_rename.committer.store import requests as s
from zero_rename.maintenance import residue
from zero_rename.orchestration.s3a import load
from zero_rename.orchestration.s3a.tries import Tries
from zero_rename.s3a.recovery import execute, leftovers, living
from zero_rename.s3a.verification import verify

#: The share of a process's requests before or after which others run.
_INTERRUPTED = 0.05
#: Modules that ask for the host's time or sleep.
_TIMED = (load, rival_wait, execute, living, leftovers, residue)
#: Seconds between heartbeats; where hours pass, there are fewer.
_BEAT, _RARE_BEAT, _LONG = 14.0, 59.0, 9_000.0


@dataclass(frozen=True)
class Author:
    """The author of a file: a run, its attempt and the attempt's job."""

    run: str
    attempt: str
    job: str


@dataclass(frozen=True)
class CommittedJob:
    """A job that has written its ``_SUCCESS``.

    :param keys: of its files.
    """

    uuid: str
    attempt: str
    keys: frozenset[str]

    def keys_in(self, partition: str) -> set[str]:
        return {key for key in self.keys if ROOT.partition_of_data_key(key) == partition}


@dataclass(frozen=True)
class Settled:
    """A settlement that stands in a partition: ids of runs, and when it was made."""

    winner: str
    losers: frozenset[str]
    at: float


class HadoopWorld:
    """Everything that a walk has.

    :param staging: where the staging committers keep their pending sets.
    """

    def __init__(self, plan: HadoopPlan, staging: Path) -> None:
        self.plan, self.staging = plan, staging
        self.rng = random.Random(plan.seed)
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.strands: list[Strand] = []
        #: What sends the heartbeats of those that live.
        self.heartbeats: list[Callable[[], None]] = []
        self.committed: list[CommittedJob] = []
        self.authors: dict[str, Author] = {}
        #: By partition, the run that has changed its files last.
        self.touched: dict[str, str] = {}
        self.settled: dict[str, Settled] = {}
        #: Partitions that two runs may have written at once, as *last_wins* lets them.
        self.shared: set[str] = set()
        self._writers: list[tuple[PlannedRun, Strand]] = []
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.trace: list[str] = []
        self.is_calm = False
        self.arrived = 0
        self._running: Strand | None = None
        self.sensor = self.table()

    def say(self, *words: object) -> None:
        self.trace.append(f"{self.clock.now - 1.7e9:9.1f} {' '.join(map(str, words))}")

    def count(self, verb: str, outcome: str = "done") -> None:
        self.outcomes[verb, outcome] += 1

    # Processes and time.

    def begin(
        self, name: str, body: Callable[[], None], interrupted: float = _INTERRUPTED
    ) -> Strand:
        strand = Strand(name, body, interrupted)
        self.strands.append(strand)
        return strand

    def begin_writing(self, run: PlannedRun, name: str, body: Callable[[], None]) -> Strand:
        """Begin an application of a run."""
        if run.policy.on_conflict is OnConflict.LAST_WINS:
            for other, its in self._writers:
                if other != run and not its.is_over:
                    self.shared |= {*run.partitions} & {*other.partitions}
        strand = self.begin(name, body)
        self._writers.append((run, strand))
        return strand

    def resume(self, strand: Strand) -> None:
        with self._turn_of(strand):
            strand.resume()

    def kill(self, strand: Strand) -> None:
        with self._turn_of(strand):
            strand.kill()

    @contextmanager
    def _turn_of(self, strand: Strand) -> Iterator[None]:
        outer, self._running = self._running, strand
        try:
            yield
        finally:
            self._running = outer

    def pause(self, place: str, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Let others run before the running process goes on, if one is running."""
        if self._running is not None:
            self._running.pause(place, may_go_on)

    def sleep(self, seconds: float) -> None:
        until = self.clock.now + seconds
        self.pause(f"a sleep of {seconds:g} s", lambda: self.clock.now >= until)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with the heartbeats of all that live."""
        end, step = self.clock.now + seconds, _BEAT if seconds < _LONG else _RARE_BEAT
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            for send in self.heartbeats:
                send()

    # The store.

    def table(self) -> Table:
        """A table of which its process knows nothing yet."""
        return Table(ROOT.url, client=MemoryDriver(self.store, self._carry_out, self.clock))

    def _carry_out(self, request: Any, apply: Callable[[Any], Any]) -> Any:
        self.arrived += 1
        strand = self._running
        if strand is not None and strand.is_killed:
            raise Crash
        if strand is None or self.is_calm or self.rng.random() >= strand.interrupted:
            return apply(request)
        name = type(request).__name__
        if self.rng.random() < 0.5:
            self.pause(f"before {name}")
            return apply(request)
        answer = apply(request)
        self.pause(f"after {name}")
        return answer

    def perform(self, request: Any) -> Any:
        """Carry out a request of Hadoop's own, which nothing interrupts."""
        self.arrived += 1
        return self.store.apply(request)

    def delete(self, key: str, run: str) -> None:
        self.perform(s.Delete(key))
        self.touch(ROOT.partition_of_data_key(key), run)

    def touch(self, partition: str | None, run: str) -> None:
        """Note that a run changes the files of a partition."""
        if partition:
            self.touched[partition] = run

    def files(self, partition: str) -> list[str]:
        """The keys of a partition's files, as readers list them."""
        keys = self.store.keys(f"{ROOT.prefix}/{partition}/")
        return [it for it in keys if ROOT.partition_of_data_key(it)]

    def authors_in(self, partition: str) -> list[Author]:
        return [self.authors[key] for key in self.files(partition)]

    def make_uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

    # In the modules of the product.

    def time(self) -> float:
        return self.clock.now

    monotonic = time


@contextmanager
def hadoop_world(plan: HadoopPlan) -> Iterator[HadoopWorld]:
    """Give a world in which the product's time is the world's, and nothing depends on chance."""
    with tempfile.TemporaryDirectory(prefix="hadoop-walk-") as staging, ExitStack() as stack:
        stack.enter_context(in_memory())
        world = HadoopWorld(plan, Path(staging))
        for module in _TIMED:
            stack.enter_context(mock.patch.object(module, "time", world))
        stack.enter_context(mock.patch.object(load, "Tries", partial(Tries, pause=world.sleep)))
        stack.enter_context(mock.patch.object(load, "repeating", return_value=nullcontext()))
        stack.enter_context(mock.patch.object(verify, "count_rows", _one_row_each))
        stack.enter_context(mock.patch("uuid.uuid4", world.make_uuid))
        try:
            yield world
        finally:
            for strand in world.strands:
                world.kill(strand)


def _one_row_each(driver: object, sizes: dict[str, int]) -> dict[str, int]:
    return dict.fromkeys(sizes, 1)
