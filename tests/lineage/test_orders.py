"""Corrections, recomputes, gc and compactions in any order: what is told of it holds, and broken
variants of it are caught."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.old_records import gc_of_all
from zero_rename import Table
from zero_rename.committer import Content, FileOptions, readable_table, rewritable_table
from zero_rename.committer.commit import commit
from zero_rename.committer.commit.changes import compose_decision
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.format.records import decision, inputs
from zero_rename.committer.scan import reads
from zero_rename.committer.upkeep import compaction
from zero_rename.lineage import JobNode, Plan, Step, look_up, plan, tables
from zero_rename.lineage import LineageState as State

WEEKS = (0, 1)
#: A file a row, so that there is something to compact.
BY_ROWS = FileOptions(content=Content.ROWS, rows_per_file=1)
Rows = Counter[tuple[int, int]]


class Broken(AssertionError):
    """What is told is not so."""


class Lake:
    """Three tables in memory, what each was made from, and all that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.daily, self.weekly, self.monthly = (
            Table(f"s3://bucket/{name}") for name in ("daily", "weekly", "monthly")
        )
        self.read: dict[tuple[str, int], Rows] = {}
        #: The weeks that a run wrote, and by week the run whose rows it holds.
        self.runs: dict[str, tuple[int, ...]] = {}
        self.holder: dict[int, str] = {}
        for day in (0, 1, 8):
            self.load(day, 1)
        for week in WEEKS:
            self.week(week)
        self.month()

    def load(self, day: int, x: int, mode: str = "overwrite") -> None:
        self._write(self.daily, "day", [(x, day)], mode, [])

    def week(self, *weeks: int) -> None:
        """Weeks that follow each other, by one run."""
        first, last = 7 * weeks[0], 7 * weeks[-1] + 7
        scan = self.daily.scan(filter=[("day", ">=", first), ("day", "<", last)])
        found = self.rows(scan.to_arrow(), "day")
        rows = [(x, week) for week in weeks for x in (_total(_of_week(found, week)), 0)]
        job = self._write(self.weekly, "week", rows, "overwrite", [scan])
        self.runs[job] = weeks
        for week in weeks:
            self.read["weekly", week], self.holder[week] = found, job

    def month(self) -> None:
        """Made of what its process has read: nothing else says of what."""
        reads.forget_reads()
        self.read["monthly", 1] = found = self.rows(self.weekly.scan().to_arrow(), "week")
        self._write(self.monthly, "month", [(_total(found), 1)], "overwrite", None)

    def _write(self, table: Table, by: str, rows: list, mode: str, made_of: list | None) -> str:
        data = pa.table({"x": [x for x, _ in rows], by: [number for _, number in rows]})
        policy: dict[str, Any] = {"mode": mode, "files": BY_ROWS, "inputs": made_of}
        with table.job(data.schema, partition_by=[by], **policy) as job:
            job.write(data)
        assert job.job is not None
        return job.job

    def rows(self, found: pa.Table, by: str) -> Rows:
        return Counter(zip(found[by].to_pylist(), found["x"].to_pylist(), strict=True))

    def act(self) -> None:
        """Anything, by chance."""
        chance, table = self.random, self.random.choice([self.daily, self.weekly, self.monthly])
        day = chance.choice([0, 1, 2, 8])
        kinds: list[Callable[[], Any]] = [
            lambda: self.load(day, chance.choice([1, 2])),
            lambda: self.load(day, 1, "append"),
            lambda: self.week(chance.choice(WEEKS)),
            lambda: self.week(*WEEKS),
            lambda: self.daily.delete([("x", "==", 1)], partitions=[f"day={day}"]),
            self.month,
            lambda: [it.compact(apply=True) for it in (self.daily, self.weekly, self.monthly)],
            lambda: [gc_of_all(table) for _ in range(2)],
            self.first_layer,
            self.two_users,
        ]
        chance.choice(kinds)()

    def first_layer(self) -> bool:
        """Run the plan's first layer again; whether there was one."""
        found = self._plan()
        for it in found.refused:
            if "holds since" not in it.why:
                raise Broken(f"refused: {it}")
            # What a person does then: what it still holds, by a run of its own.
            for week in self.runs[it.job]:
                if self.holder[week] == it.job:
                    self.week(week)
        for step in found.layers[0] if found.layers else ():
            if not self._moved(step.job):
                raise Broken(f"{step.job} is made again, and its inputs are as it has read them")
            self._again(step.job)
        return bool(found.layers or found.refused)

    def two_users(self) -> None:
        """Both have the same plan, and both run its first layer again."""
        for step in (it for layer in self._plan().layers[:1] for it in layer):
            self._again(step.job)
            self._again(step.job, self.runs.get(step.job, ()))

    def _plan(self) -> Plan:
        return planning.of([self.monthly.root.url])

    def _again(self, job: str, taken: Sequence[int] = ()) -> None:
        """:param taken: weeks that the same run has loaded again meanwhile."""
        weeks = self.runs.get(job, ())
        others = [week for week in weeks if self.holder[week] != job and week not in taken]
        if others:
            raise Broken(f"a recompute of {job} takes rows of others in {others}")
        self.week(*weeks) if weeks else self.month()

    def _now(self) -> dict[tuple[str, int], Rows]:
        """What each partition would be made of."""
        days = self.rows(self.daily.scan().to_arrow(), "day")
        found = {
            ("weekly", week): sum((_of_week(days, w) for w in self.runs[job]), Counter())
            for week, job in self.holder.items()
        }
        return {**found, ("monthly", 1): self.rows(self.weekly.scan().to_arrow(), "week")}

    def _moved(self, job: str) -> bool:
        """Whether a job's inputs are others than it has read."""
        own = {("weekly", week) for week in self.runs.get(job, ())} or {("monthly", 1)}
        return any(rows != self.read[key] for key, rows in self._now().items() if key in own)

    def check(self) -> None:
        """Everything that is told of the tables is so."""
        stale = {key for key, rows in self._now().items() if rows != self.read[key]}
        for found in look_up([self.weekly.root.url, self.monthly.root.url]).partitions():
            key = found.table.rpartition("/")[2], int(found.partition.partition("=")[2])
            if found.state is State.UNKNOWN:
                raise Broken(f"what {key} was made from is not known any more")
            if (found.state is State.STALE) is not (key in stale):
                raise Broken(f"{key} is called {found.state}, {found.why}")
            if found.state is State.FRESH and key[0] == "monthly" and stale:
                raise Broken(f"{key} is called fresh, and {stale} are stale")

    def finish(self) -> None:
        """The plan, carried out to its end: all is as a full rebuild would make it."""
        for _ in range(4):
            self.first_layer()
        if self.first_layer():
            raise Broken("the plan does not end")
        self.check()
        days = self.rows(self.daily.scan().to_arrow(), "day")
        sums = {week: _total(_of_week(days, week)) for week in WEEKS}
        weeks = self.rows(self.weekly.scan().to_arrow(), "week")
        months = self.rows(self.monthly.scan().to_arrow(), "month")
        if weeks != Counter([*sums.items(), *((w, 0) for w in WEEKS)]) or months != Counter(
            [(1, sum(sums.values()))]
        ):
            raise Broken("a full rebuild would come out otherwise")


def _of_week(days: Rows, week: int) -> Rows:
    return Counter({row: count for row, count in days.items() if row[0] // 7 == week})


def _total(rows: Rows) -> int:
    return sum(x * count for (_, x), count in rows.items())


class Planning:
    """How who runs jobs again comes by a plan: anew, each time."""

    def of(self, targets: Sequence[str]) -> Plan:
        return plan(look_up(targets, lost=True))


_stores: list[MemoryStore] = []
planning = Planning()


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are on the last store that was made, whoever makes them. While a job of a month
    commits, its process reads the days, for something else."""

    def connect(bucket: str, client: Any = None) -> MemoryDriver:
        return MemoryDriver(_stores[-1], bucket=bucket)

    def reading_meanwhile(context: Any, opened: OpenedJob, *given: Any) -> Any:
        if opened.root.prefix == "monthly":
            Table("s3://bucket/daily").snapshot()
        return compose_decision(context, opened, *given)

    monkeypatch.setattr(readable_table, "connect", connect)
    monkeypatch.setattr(commit, "compose_decision", reading_meanwhile)


def walk(seed: int, steps: int = 10) -> None:
    planning.__init__()
    _stores[:] = [MemoryStore(clock=ManualClock())]
    lake = Lake(seed)
    lake.check()
    for _ in range(steps):
        lake.act()
        lake.check()
    lake.finish()


@pytest.mark.parametrize("seed", range(6))
def test_what_is_told_is_so(seed: int) -> None:
    walk(seed)


def condenses_inputs_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Condensed(decision.CondensedDecision):
        @staticmethod
        def of(decision: Any, at: float) -> Any:
            return _of(replace(decision, inputs=inputs.UNKNOWN_INPUTS), at)

    _of = decision.CondensedDecision.of
    monkeypatch.setattr(decision.CondensedDecision, "of", Condensed.of)


def compacts_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritable_table, "compaction_spec", _compacting_alone)


_spec = compaction.compaction_spec


def _compacting_alone(*given: Any) -> Any:
    spec, _ = yield from _spec(*given)
    return spec, inputs.UNKNOWN_INPUTS


def compares_versions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "content_of", lambda files: repr([file.key for file in files]))


def clears_a_job_that_lost_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    planning: Any = importlib.import_module("zero_rename.lineage.plan")
    refusal = planning._refusal

    def refused(node: JobNode, step: Step, in_cycle: bool) -> str:
        return refusal(replace(node, replaced={}), step, in_cycle)

    monkeypatch.setattr(planning, "_refusal", refused)


def forgets_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "read_of", lambda state: replace(_read(state), filters=()))


_read = reads.read_of


def notes_what_was_read_after_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    reading_meanwhile: Any = vars(commit)["compose_decision"]

    def noting(context: Any, opened: OpenedJob, *given: Any) -> Any:
        work = reading_meanwhile(context, opened, *given)
        if opened.root.prefix == "monthly":
            work = compose_decision(context, replace(opened, inputs=reads.noted().inputs), *given)
        return work

    monkeypatch.setattr(commit, "compose_decision", noting)


class _PlannedOnce(Planning):
    """Carries a plan out to its end before it makes another one."""

    def __init__(self) -> None:
        self._left: tuple[Any, ...] = ()

    def of(self, targets: Sequence[str]) -> Plan:
        found = super().of(targets)
        self._left = self._left or found.layers
        layers, self._left = self._left, self._left[1:]
        return replace(found, layers=layers)


def content_only_at_the_plans_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.planning", _PlannedOnce())


class _PlannedBefore(Planning):
    """Goes by the plan that was made when another user began."""

    def __init__(self) -> None:
        self._before: Plan | None = None

    def of(self, targets: Sequence[str]) -> Plan:
        now = super().of(targets)
        before, self._before = self._before, now
        return before or now


def two_plans_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.planning", _PlannedBefore())


@pytest.mark.parametrize(
    ("variant", "seed", "told"),
    [
        (condenses_inputs_away, 4, "not known any more"),
        (compacts_without_them, 0, "not known any more|is called fresh"),
        (compares_versions_only, 4, "is called stale"),
        (forgets_the_filter, 4, "is called fresh"),
        (clears_a_job_that_lost_a_partition, 4, "takes rows of others"),
        (notes_what_was_read_after_the_claim, 4, "'monthly', 1\\) is called stale"),
        (content_only_at_the_plans_beginning, 4, "is made again, and its inputs are as"),
        (two_plans_at_once, 4, "is made again, and its inputs are as|takes rows of others"),
    ],
)
def test_a_broken_variant_is_caught(
    variant: Callable[[pytest.MonkeyPatch], None],
    seed: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variant(monkeypatch)
    with pytest.raises(Broken, match=told):
        walk(seed)
