"""What is asked of this project, beside its peers in the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.results import Comparison, Measurement
from bench.workloads import (
    BY_US_ON_4_1,
    DELTA,
    DELTA_ON_4_1,
    DELTA_TOGETHER_ON_4_1,
    ICEBERG,
    ICEBERG_NEWEST,
    LOCAL,
    ON_4_1,
    OURS,
    TOGETHER_ON_4_1,
)


@dataclass(frozen=True)
class Goal:
    """One ratio.

    :param workload: of the peer above the line, ``below`` of the one below it, where that differs.
    :param least: whether ``wanted`` is a lower bound, else an upper one.
    """

    title: str
    workload: str
    above: str
    below: str
    of: Callable[[Measurement], float]
    wanted: float
    least: bool = False
    other_workload: str = ""

    def value(self, tables: Mapping[str, Comparison]) -> float | None:
        """``None`` where one of the two was not measured."""
        above, below = (
            tables[name].row(peer) if name in tables else None
            for name, peer in (
                (self.workload, self.above),
                (self.other_workload or self.workload, self.below),
            )
        )
        return above.ratio(below, self.of) if above and below else None

    def met(self, value: float) -> bool:
        return value >= self.wanted if self.least else value <= self.wanted

    @property
    def ours(self) -> str:
        """The peer of this project that is to become faster."""
        return self.below if self.least else self.above

    @property
    def bound(self) -> str:
        return f"at {'least' if self.least else 'most'} {self.wanted}"


def seconds(run: Measurement) -> float:
    return run.seconds


def cpu(run: Measurement) -> float:
    return run.all_cpu


def _memory(group: str) -> Goal:
    return Goal(
        f"memory of {'the driver' if group == 'driver' else 'a worker'}, 365 partitions, twice "
        "the rows",
        "365 partitions",
        OURS,
        OURS,
        lambda run: run.memory.get(group, 0),
        1.1,
        other_workload="half of 365 partitions",
    )


def _beside_iceberg(workload: str, ours: str = DELTA_ON_4_1, peer: str = ICEBERG) -> Goal:
    named = "31 partitions" if workload == "replace" else workload
    of = "Iceberg's" if peer == ICEBERG else "Iceberg's, of the newest state"
    title = f"{named} on {ours.removeprefix(f'{OURS}, ')}: our seconds in {of}"
    return Goal(title, workload, ours, peer, seconds, 1)


GOALS = (
    _beside_iceberg("one file"),
    _beside_iceberg("64 files"),
    _beside_iceberg("replace"),
    _beside_iceberg("365 partitions"),
    _beside_iceberg("merge"),
    *(
        _beside_iceberg(f"read {it}", peer=peer)
        for it in ("a few rows", "one partition")
        for peer in (ICEBERG_NEWEST, ICEBERG)
    ),
    # Where all of many small files are opened, the guide says who opens them sooner.
    *(_beside_iceberg(f"read {it}", BY_US_ON_4_1) for it in ("one column", "all columns")),
    Goal("64 files: seconds of magic", "64 files", "magic", OURS, seconds, 4, True),
    Goal("64 files: seconds of directory", "64 files", "directory", OURS, seconds, 1.3, True),
    Goal("8 files: our seconds in those of a local disk", "8 files", OURS, LOCAL, seconds, 1.3),
    Goal("8 files: our CPU in that of a local disk", "8 files", OURS, LOCAL, cpu, 1.3),
    _memory("driver"),
    _memory("workers"),
    Goal("64 files: our seconds on Spark 4.1 in ours on 4.3", "64 files", ON_4_1, OURS, seconds, 2),
    Goal("64 files on Spark 4.1: our seconds in Delta's", "64 files", ON_4_1, DELTA, seconds, 0.8),
    *(
        Goal(
            f"31 partitions on Spark 4.1{how}, brought together: our seconds in Iceberg's",
            "replace",
            peer,
            ICEBERG,
            seconds,
            1,
        )
        for how, peer in (("", TOGETHER_ON_4_1), (", as a Delta table", DELTA_TOGETHER_ON_4_1))
    ),
)


def compared(workload: str) -> set[str]:
    """The peers whose rows of a workload a goal compares."""
    above = {goal.above for goal in GOALS if goal.workload == workload}
    below = {it.below for it in GOALS if (it.other_workload or it.workload) == workload}
    return above | below
