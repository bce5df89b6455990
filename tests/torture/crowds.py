"""Crowds: many processes that append to, replace and merge parts of one Delta table at once, one of
them killed or none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import pyarrow as pa
from torture.inspection import Damage, left_in_delta, rows_of
from torture.loads import Difference
from torture.proxy import Proxy, Trap, When
from torture.servers import Store
from torture.writers import Child, enter

from support.engine_process import EngineProcess
from zero_rename.committer import OnRepeat
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.tables import DeltaTable

#: A row: its key, the load that wrote it last, and its partition.
Row = tuple[int, int, int]
COLUMNS = ["id", "value", "day"]
_SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("day", pa.int32())])
_MERGED, _REPLACED, _OWN = 1, 2, 3
#: The rows that all merges are about, of the table's first job.
_FIRST: tuple[Row, ...] = tuple((key, 0, _MERGED) for key in range(4))
_KINDS = ("append", "append", "replace", "replace own", "merge")
#: Of each process in the long form.
JOBS = 8
#: Requests of a process before the latest one at which it is killed.
_DEEPEST = 40

#: Reads the table at an URL by another engine, as it spells values.
Reader = Callable[[str], list[list[str]]]


@dataclass(frozen=True)
class CrowdLoad:
    """One job of a process in a crowd.

    :param run: its run, whose former rows it replaces; ``None``: it has none.
    """

    kind: str
    rows: tuple[Row, ...]
    run: str | None = None

    def carry_out(self, table: DeltaTable) -> str:
        """Do it by a job; return the job's id."""
        data = _data(self.rows)
        if self.kind == "merge":
            done = table.merge(data, ["id"]).committed
            assert done is not None
            return done.job
        mode = "replace" if self.kind == "replace" else "append"
        again = OnRepeat.REPLACE_OWN if self.run else OnRepeat.SKIP
        with table.job(mode=mode, idempotency_key=self.run, on_repeat=again) as job:
            job.write(data)
        assert job.job is not None
        return job.job

    def apply(self, held: list[tuple[Row, str | None]]) -> list[tuple[Row, str | None]]:
        """The rows of a table after it, each with the run that it is of.

        :param held: those before it.
        """
        keys = {(row[0], row[2]) for row in self.rows}
        gone: dict[str, Callable[[Row, str | None], bool]] = {
            "append": lambda row, run: False,
            "replace": lambda row, run: row[2] == _REPLACED,
            "replace own": lambda row, run: run == self.run,
            "merge": lambda row, run: (row[0], row[2]) in keys,
        }
        kept = [it for it in held if not gone[self.kind](*it)]
        return [*kept, *((row, self.run) for row in self.rows)]


def _loads(writer: int, count: int, rng: Random) -> list[CrowdLoad]:
    """Make the jobs of one process, in their order."""
    return [_load(writer, (writer + 1) * 1000 + at, rng) for at in range(count)]


def _load(writer: int, number: int, rng: Random) -> CrowdLoad:
    kind = rng.choice(_KINDS)
    new = [(number * 10 + at, number) for at in range(rng.randint(1, 3))]
    if kind == "merge":
        shared = rng.sample([row[0] for row in _FIRST], rng.randint(1, 2))
        return CrowdLoad(
            kind, tuple((*it, _MERGED) for it in [*((key, number) for key in shared), new[0]])
        )
    if kind == "replace own":
        return CrowdLoad(kind, tuple((*it, _OWN) for it in new), f"run of {writer}")
    day = _REPLACED if kind == "replace" else rng.choice((_MERGED, _REPLACED))
    return CrowdLoad(kind, tuple((*it, day) for it in new))


class CrowdWriter(Child):
    """A process that does its loads once it is told to, and says what became of each."""

    def __init__(self, url: str, loads: Sequence[CrowdLoad], variables: Mapping[str, str]) -> None:
        super().__init__(_write_all, url, loads, dict(variables))

    def begin(self) -> None:
        self._mine.send("begin")

    def answers(self, count: int) -> list[tuple[str | None, str]]:
        """The job and the answer of each load, until all are told or the process has died."""
        return [it for _ in range(count) if (it := self.answer()) is not None]


def _write_all(
    url: str, loads: Sequence[CrowdLoad], variables: Mapping[str, str], told: Connection
) -> None:
    """Runs in the writer's process."""
    enter(variables)
    table = DeltaTable(url)
    told.recv()
    for load in loads:
        try:
            told.send((load.carry_out(table), "committed"))
        except ZeroRenameError as error:
            told.send((error.job, f"{type(error).__name__}: {error}"))


@dataclass
class Crowd(Damage):
    """What came of a crowd.

    :param what: its size, and whether one of it was killed.
    :param committed: jobs by kind; ``refused``: likewise.
    """

    what: str = ""
    seconds: float = 0.0
    committed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{kind} {self.committed[kind]} of {self.committed[kind] + self.refused[kind]}"
            for kind in dict.fromkeys(_KINDS)
        )
        told = f"{self.what}, {self.seconds:.0f} s: {kinds} committed; {self.counted}"
        return "\n".join([told, *self.problems])


def crowd(
    store: Store,
    url: str,
    writers: int,
    jobs: int,
    seed: int,
    read: Reader | None = None,
    victim: Proxy | None = None,
) -> Crowd:
    """Let so many processes change a new Delta table at once; compare it with what they were told.

    :param store: a server on which writers may race.
    :param jobs: of each process.
    :param read: reads it by another engine, too.
    :param victim: where the first process is killed, at one of its requests; ``None``: none is.
    """
    rng = Random(f"{seed}/crowd")
    table = DeltaTable(url, store.client())
    with table.job(_SCHEMA, partition_by=["day"]) as first:
        first.write(_data(_FIRST))
    loads = [_loads(it, jobs, rng) for it in range(writers)]
    ways = [store.endpoint] * writers
    if victim is not None:
        ways[0] = victim.endpoint
    crowd = [
        CrowdWriter(url, its, store.environment(way)) for its, way in zip(loads, ways, strict=True)
    ]
    killed = "" if victim is None else ", one of them killed"
    found = Crowd(what=f"{writers} writers of {jobs} jobs each{killed}")
    try:
        if victim is not None:
            strike, when = rng.randrange(_DEEPEST), rng.choice([When.BEFORE, When.AFTER])
            victim.watch(Trap(lambda number, _: number >= strike, when, crowd[0].kill))
        begun = time.monotonic()
        for writer in crowd:
            writer.begin()
        told = [writer.answers(jobs) for writer in crowd]
        found.seconds = time.monotonic() - begun
    finally:
        for writer in crowd:
            writer.close()
    if victim is not None:
        victim.drain()
        table.recover(0.0)
        table.purge(apply=True)
    _compare(table, store.client(), found, loads, told, first.job, victim is not None)
    if read is not None:
        _compare_rows(found, "another engine", Counter(map(_row_of, read(url))), table)
    return found


def _data(rows: Sequence[Row]) -> pa.Table:
    return pa.table(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)), _SCHEMA)


def _row_of(values: Sequence[str]) -> Row:
    key, value, day = map(int, values)
    return key, value, day


def _rows(table: DeltaTable) -> Counter[Row]:
    return rows_of(table.scan(columns=COLUMNS).to_arrow(), COLUMNS)


def _compare_rows(found: Crowd, reader: str, seen: Counter[Row], table: DeltaTable) -> None:
    """See that another engine reads the rows that this package reads."""
    if difference := Difference.between(_rows(table), seen):
        found.problems.append(f"{table.root.url}: {reader} reads other rows: {difference}")


def _compare(
    table: DeltaTable,
    client: Any,
    found: Crowd,
    loads: Sequence[Sequence[CrowdLoad]],
    told: Sequence[Sequence[tuple[str | None, str]]],
    first: str | None,
    one_died: bool,
) -> None:
    """Compare the table, and its log, with what the processes were told."""
    known: dict[str, CrowdLoad] = {}
    problems: list[str] = []
    for its, answers in zip(loads, told, strict=True):
        for load, (job, answer) in zip(its, answers, strict=False):
            if answer == "committed":
                assert job is not None
                known[job] = load
            elif not answer.startswith("CommitConflictError"):
                problems.append(f"{job}: {answer}")
            (found.committed if answer == "committed" else found.refused)[load.kind] += 1
    # Fences and the entries of a purge have no rows.
    entries = [it for it in table.history() if it.operation not in ("FENCE", "FORGET")][::-1]
    jobs = [it.job for it in entries if it.job is not None]
    assert jobs.pop(0) == first
    unsaid = [job for job in jobs if job not in known]
    if one_died and len(unsaid) == 1 and len(told[0]) < len(loads[0]):
        # It was killed after its entry was there and before it could say so.
        known[unsaid[0]] = loads[0][len(told[0])]
        unsaid = []
    problems += [f"{job} is committed, and nobody was told" for job in unsaid]
    problems += [f"{job} was told as committed, and is not" for job in known.keys() - {*jobs}]
    problems += [f"{job} is committed {n} times" for job, n in Counter(jobs).items() if n > 1]
    held: list[tuple[Row, str | None]] = [(row, None) for row in _FIRST]
    for load in (known[job] for job in jobs if job in known):
        held = load.apply(held)
    found.add(Difference.between(Counter(row for row, _ in held), _rows(table)))
    problems += [f"open: {it.job}" for it in table.open_jobs()]
    problems += [f"left: {key}" for key in left_in_delta(table, client)]
    problems += [f"verify: {it}" for it in table.verify()]
    found.problems += [f"{table.root.url}: {it}" for it in problems]


def read_by_delta_rs(engine: EngineProcess, store: Store) -> Reader:
    """Make a reader of delta-rs."""
    options = {**store.environment(), "AWS_ALLOW_HTTP": "true"}

    def read(url: str) -> list[list[str]]:
        return engine.ask(
            do="read", engine="delta-rs", folder=url, columns=COLUMNS, where=None, options=options
        )

    return read


def crowds(
    store: Store, bucket: str, seed: int, writers: int, read: Reader | None = None
) -> Iterator[Crowd]:
    """Let two crowds of ``writers`` processes change a table each; of the second one a process is
    killed."""
    url = f"s3://{bucket}/crowd-{writers}"
    yield crowd(store, url, writers, JOBS, seed, read)
    with Proxy(store.endpoint) as proxy:
        yield crowd(store, f"{url}-killed", writers, JOBS, seed, read, victim=proxy)
