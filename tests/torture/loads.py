"""What a writer is asked to write, and the ledger of what must be visible because of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

#: A row's identity: the load it belongs to, its number in it, and the partition it is for.
Row = tuple[int, int, int]

SCHEMA = pa.schema(
    [("load", pa.int64()), ("row", pa.int64()), ("day", pa.int32()), ("payload", pa.binary())]
)
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Load:
    """One write.

    :param days: the partitions it has rows for, and of a replace the ones it replaces.
    :param rows: rows in each of them.
    :param rows_per_file: so many rows make a file.
    :param payload: bytes in each row, so that files can have several parts.
    :param idempotency_key: the run's key; tries of the same load share it.
    """

    number: int
    mode: str
    days: tuple[int, ...]
    rows: int
    rows_per_file: int
    partitioned: bool = True
    payload: int = 0
    idempotency_key: str | None = None
    on_repeat: str = "skip"

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("day",) if self.partitioned else ()

    def row_ids(self) -> list[Row]:
        total = self.rows * len(self.days)
        return [(self.number, n, self.days[n % len(self.days)]) for n in range(total)]

    def table(self) -> pa.Table:
        rows = self.row_ids()
        noise = Random(self.number)
        columns = {
            "load": [row[0] for row in rows],
            "row": [row[1] for row in rows],
            "day": [row[2] for row in rows],
            "payload": [noise.randbytes(self.payload) for _ in rows],
        }
        return pa.table(columns, SCHEMA)


def random_load(number: int, rng: Random, partitioned: bool, large: bool) -> Load:
    """Any load: append or replace, with and without a run's key, some partitions and files."""
    days = tuple(sorted(rng.sample(range(1, 6), rng.randint(1, 4))))
    big = large and rng.random() < 0.15
    rows = 12 if big else rng.randint(1, 8)
    return Load(
        number,
        mode=rng.choice(("append", "append", "replace")),
        days=days[:1] if big else days,
        rows=rows,
        rows_per_file=rows if big else rng.choice((2, 3, 100)),
        partitioned=partitioned,
        payload=_MIB if big else 0,
        idempotency_key=f"run {number}" if rng.random() < 0.5 else None,
        on_repeat=rng.choice(("skip", "skip", "replace_own")),
    )


@dataclass
class Ledger:
    """What was committed, in order, and so what every reader must find in a table.

    :param attempts: the job of every attempt, with its load; ``None``: it never opened.
    """

    attempts: list[tuple[str | None, Load]] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    _rows: list[tuple[str, Row]] = field(default_factory=list)
    _runs: dict[str, str] = field(default_factory=dict)

    def commit(self, job: str, load: Load) -> None:
        """A job's decision is commit."""
        gone = set(load.days) if load.mode == "replace" else set()
        if not load.partitioned and gone:
            gone = {row[2] for _, row in self._rows}
        earlier = (
            self._runs.get(load.idempotency_key or "") if load.on_repeat == "replace_own" else None
        )
        self._rows = [(j, row) for j, row in self._rows if row[2] not in gone and j != earlier]
        self._rows += [(job, row) for row in load.row_ids()]
        if load.idempotency_key is not None:
            self._runs[load.idempotency_key] = job
        self.committed.append(job)

    def run_of(self, idempotency_key: str) -> str | None:
        """The job that did a run's work."""
        return self._runs.get(idempotency_key)

    def expected(self) -> Counter[Row]:
        return Counter(row for _, row in self._rows)

    def last_job(self, days: Iterable[int] | None = None) -> str | None:
        """The job that last put rows into one of ``days`` that are still there."""
        wanted = None if days is None else set(days)
        jobs = [job for job, row in self._rows if wanted is None or row[2] in wanted]
        return jobs[-1] if jobs else None


@dataclass(frozen=True)
class Difference:
    """How what a reader found differs from the ledger, in rows.

    :param lost: rows of committed jobs that are not there.
    :param doubled: rows that are there more often than once.
    :param stray: rows of aborted or replaced jobs.
    """

    lost: int
    doubled: int
    stray: int

    @staticmethod
    def between(expected: Counter[Row], found: Counter[Row]) -> Difference:
        surplus = found - expected
        doubled = sum(count for row, count in surplus.items() if row in expected)
        return Difference((expected - found).total(), doubled, surplus.total() - doubled)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.stray)
