"""Plans of walks with Hadoop's committers: the runs and their settings, made of one integer."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from zero_rename.committer.format.job_spec import Mode, OnConflict, OnSuperseded
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.orchestration.s3a.conflicts import ConflictPolicy
from zero_rename.s3a.hadoop.settings import Committer

T = TypeVar("T")
DAYS = ("day=1", "day=2", "day=3")
_TURNS = 120


@dataclass(frozen=True)
class PlannedRun:
    """A run of a task that loads by one of Hadoop's committers.

    :param number: the larger, the newer.
    :param partitions: that its application writes.
    :param named: partitions that its operator names; empty for any.
    :param said: the mode that its operator names; ``None``: only its application knows it.
    :param retries: of its task.
    :param waits: seconds for which it waits for other runs.
    """

    number: int
    committer: Committer
    mode: Mode
    partitions: tuple[str, ...]
    policy: ConflictPolicy
    named: tuple[str, ...]
    said: Mode | None
    on_repeat: str
    retries: int
    waits: float | None

    @property
    def id(self) -> str:
        return f"run-{self.number}"

    @property
    def key(self) -> str:
        return f"flights/{self.id}/load"

    @property
    def rank(self) -> RunRank:
        return RunRank.of(self.number + 1)

    @property
    def replaces(self) -> bool:
        return self.mode is Mode.REPLACE

    def __str__(self) -> str:
        names = ", ".join(self.partitions)
        said = f"{self.id}: {self.mode} of {names} by {self.committer}, {self.policy.on_conflict}"
        more = f"on_repeat={self.on_repeat}, retries={self.retries}, waits={self.waits}"
        return f"{said}, says {self.said} of {', '.join(self.named) or 'any'}, {more}"


@dataclass(frozen=True)
class HadoopPlan:
    """A walk.

    :param purges: whether uploads are purged, and days pass.
    """

    seed: int
    runs: tuple[PlannedRun, ...]
    purges: bool
    turns: int = _TURNS

    @property
    def partitions(self) -> list[str]:
        return sorted({name for run in self.runs for name in run.partitions})

    @property
    def replaces(self) -> bool:
        """Whether all runs replace partitions."""
        return all(run.replaces for run in self.runs)

    def __str__(self) -> str:
        head = f"seed {self.seed}, {self.turns} turns{', purges' if self.purges else ''}"
        return "\n".join([head, *(f"  {run}" for run in self.runs)])


def make_hadoop_plan(seed: int, words: Collection[str] = ()) -> HadoopPlan:
    """Make a plan of a seed.

    :param words: committers, modes and policies that it is about; of none of a kind: all.
    """
    rng = random.Random(seed)
    policy = rng.choice(_of([*OnConflict], words))
    modes = _of([Mode.REPLACE, Mode.APPEND], words)
    modes = rng.choice([*([it] for it in modes), modes])
    committers = _of([*Committer], words)
    usual = rng.choice(committers)
    runs = []
    for number in range(rng.choice([1, 2, 3, 4])):
        committer = usual if rng.random() < 0.8 else rng.choice(committers)
        runs.append(_run(rng, number, committer, rng.choice(modes), policy))
    return HadoopPlan(seed, tuple(runs), rng.random() < 0.25)


def _of(options: list[T], words: Collection[str]) -> list[T]:
    return [it for it in options if it in words] or options


def _run(
    rng: random.Random, number: int, committer: Committer, mode: Mode, policy: OnConflict
) -> PlannedRun:
    count = rng.choice([1, 1, 2])
    partitions = tuple(sorted(rng.sample(DAYS[: rng.choice([count, 3])], count)))
    named, said, superseded = partitions, mode, OnSuperseded.FAIL
    if policy is OnConflict.NEWEST_RUN:
        if rng.random() < 0.4:
            superseded = OnSuperseded.SKIP
    else:
        if rng.random() < 0.2:
            said = None
        may_be_any = said is not Mode.REPLACE or committer is Committer.PARTITIONED
        if may_be_any and rng.random() < 0.2:
            named = ()
    repeats = mode is Mode.REPLACE and rng.random() < 0.15
    return PlannedRun(
        number,
        committer,
        mode,
        partitions,
        ConflictPolicy(policy, superseded),
        named,
        said,
        on_repeat=rng.choice(["replace_own", "append"]) if repeats else "auto",
        retries=rng.choice([0, 2, 3]),
        waits=3_000.0 if rng.random() < 0.3 else None,
    )
