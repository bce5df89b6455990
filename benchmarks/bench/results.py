"""What a run of the benchmark found: of each workload a table, of each peer a row of runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.store import price
from bench.workloads import Workload


@dataclass(frozen=True)
class Measurement:
    """What a peer took once.

    :param cpu: seconds of the process tree, by group; ``memory``: bytes at the most.
    :param written: bytes that the store was given, or copied itself.
    :param throttled: answers that asked to slow down: the run counts for nothing.
    """

    round: int
    seconds: float
    cpu: dict[str, float]
    memory: dict[str, int]
    requests: dict[str, int]
    throttled: int = 0
    written: int = 0

    @property
    def all_cpu(self) -> float:
        return sum(self.cpu.values())

    @property
    def dollars(self) -> float:
        return price(self.requests)


@dataclass
class Row:
    """A peer at a workload.

    :param runs: the first of them is cold.
    :param files: data files that are there after the last run, and their bytes.
    :param found: rows that a reader found.
    :param cut: whether the time was up before its last round.
    :param why: that there are no runs, or no more of them.
    """

    peer: str
    runs: list[Measurement] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    found: int | None = None
    why: str = ""
    cut: bool = False

    @classmethod
    def of(cls, data: dict[str, Any]) -> Row:
        fields: dict[str, Any] = {**data, "runs": [Measurement(**run) for run in data["runs"]]}
        return cls(**fields)

    @property
    def counted(self) -> list[Measurement]:
        """Warm runs that nothing disturbed; the cold one where there is no other."""
        calm = [run for run in self.runs if not run.throttled]
        return calm[1:] if len(self.runs) > 1 and calm[:1] == self.runs[:1] else calm

    @property
    def throttled(self) -> int:
        """Runs that count for nothing."""
        return sum(1 for run in self.runs if run.throttled)

    def median(self, of: Callable[[Measurement], float]) -> float | None:
        values = [of(run) for run in self.counted]
        return statistics.median(values) if values else None

    def ratio(self, to: Row, of: Callable[[Measurement], float]) -> float | None:
        """The median of the ratios to another peer, round by round: of one run, so that a machine
        that grows slower disturbs both."""
        theirs = {run.round: of(run) for run in to.counted}
        pairs = [of(run) / theirs[run.round] for run in self.counted if theirs.get(run.round)]
        if not pairs:  # Too slow to be asked again: its first beside the other's first.
            first = next((of(run) for run in to.runs if not run.throttled), 0)
            pairs = [of(run) / first for run in self.counted[:1] if first]
        return statistics.median(pairs) if pairs else None


@dataclass
class Comparison:
    """A workload, and what came of it."""

    workload: Workload
    rows: list[Row]

    def row(self, peer: str) -> Row | None:
        found = [row for row in self.rows if row.peer == peer and row.counted]
        return found[0] if found else None

    def as_dict(self) -> dict[str, Any]:
        return {"workload": asdict(self.workload), "rows": [asdict(row) for row in self.rows]}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Comparison:
        rows = [Row.of(row) for row in data["rows"]]
        return cls(Workload(**data["workload"]), rows)
