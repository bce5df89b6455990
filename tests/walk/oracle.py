"""The oracle: what each partition holds after each decision, in plain Python.

It knows nothing of heads, versions or files: of each job what its user asked for, and when its
decision came into the store. Jobs follow each other in the order of their decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

#: An id, and each column that it was written with beside the change that wrote it.
Row = tuple[int, frozenset[tuple[str, int]]]
#: By partition and job, the rows in that job's files.
State = Mapping[str, Mapping[str, tuple[Row, ...]]]


class Violation(AssertionError):
    """The table is not what the oracle says."""


@dataclass
class Effect:
    """What a job is asked to do.

    :param opened: how many decisions there were when it was open.
    :param partitions: those that its decision names.
    """

    job: str
    opened: int = 0
    partitions: tuple[str, ...] = field(default=(), init=False)

    def apply(self, oracle: Oracle, state: State) -> State:
        """The state after it.

        :raises Violation: it must not have committed.
        """
        return state


@dataclass
class Write(Effect):
    """Rows, in the place of others or not.

    :param rows: by partition.
    :param named: partitions that it replaces, rows or none; ``whole``: all.
    :param read: by partition, the ids that the rows were computed from, under *fail*.
    :param rank: how new its run is, in seconds since the epoch; ``None``: as its job.
    :param marks: whether it leaves a ``_SUCCESS`` in each partition.
    :param columns: that the table has from then on, with ``merges`` besides its others.
    :param foreign: columns of files from before, where it ``merges`` and makes the table of them.
    """

    rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    mode: str = "append"
    named: tuple[str, ...] = ()
    whole: bool = False
    last_wins: bool = False
    idempotency_key: str | None = None
    on_repeat: str = "skip"
    read: dict[str, Counter[int]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    merges: bool = False
    foreign: dict[str, str] = field(default_factory=dict)
    overwrites: bool = False
    marks: bool = True
    rank: float | None = None

    def apply(self, oracle: Oracle, state: State) -> State:
        for name, gone in self._taken_back(oracle).items():
            state = {**state, name: _without(state.get(name, {}), gone)}
        self._check(oracle, state)
        new = {name: dict(jobs) for name, jobs in state.items()}
        replaced = set(self.named) | (set(new) if self.whole else set())
        if self.mode == "replace":
            replaced |= set(self.rows)
        for name in replaced:
            new[name] = {}
            oracle.kept.pop(name, None)
        for name, rows in self.rows.items():
            new.setdefault(name, {})[self.job] = rows
        makes = oracle.columns is None and self.merges
        columns = {**self.foreign, **self.columns} if makes else self.columns
        oracle.bring(columns, self.merges, self.overwrites)
        oracle.ran(self.idempotency_key, self.job)
        return new

    def _taken_back(self, oracle: Oracle) -> dict[str, set[int]]:
        """The ids of the run's rows that this job's take the place of, by partition, whoever wrote
        them again."""
        before = oracle.run_before(self.job, self.idempotency_key, self.on_repeat)
        if before is None or self.on_repeat != "replace_own":
            return {}
        return oracle.left_by_run(self.idempotency_key or "")

    def _check(self, oracle: Oracle, state: State) -> None:
        for name, seen in self.read.items():
            if name in {*self.rows, *self.named} and ids(state, name) != seen:
                raise Violation(f"{self.job} writes over {name} as it had not read it: {seen}")
        if self.mode == "fail-if-exists":
            for name, rows in self.rows.items():
                if rows and rows_of(state, name):
                    raise Violation(f"{self.job} fails if {name} exists, and it does")
        if self.last_wins:
            return
        for number in range(self.opened, len(oracle.commits)):
            replaces = self.mode == "replace"
            for name in ({*self.rows, *self.named} | self._every(state)) & oracle.touched(
                number, not replaces
            ):
                raise Violation(
                    f"{self.job} commits over {oracle.commits[number]}, which changed {name} after "
                    "it had opened"
                )

    def _every(self, state: State) -> set[str]:
        return set(state) if self.whole else set()


def _without(
    held: Mapping[str, tuple[Row, ...]], gone: Collection[int]
) -> Mapping[str, tuple[Row, ...]]:
    """Rows by job, without some ids."""
    return {job: tuple(row for row in rows if row[0] not in gone) for job, rows in held.items()}


@dataclass
class Adopt(Effect):
    """Files from before get heads; where there was no table, their columns become its own."""

    def apply(self, oracle: Oracle, state: State) -> State:
        if oracle.columns is None:
            oracle.columns = {"n": "int32"}
        return state


@dataclass
class Rewrite(Effect):
    """A compaction."""

    def apply(self, oracle: Oracle, state: State) -> State:
        (partition,) = self.partitions
        return oracle.rewritten(state, partition, self.job, rows_of(state, partition))


@dataclass
class Resolve(Effect):
    """A partition is to hold the rows of some jobs, and of those that are not in conflict."""

    partition: str = ""
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    discard: bool = False

    def apply(self, oracle: Oracle, state: State) -> State:
        here = state.get(self.partition, {})
        left = {job: them for job, them in here.items() if job not in self.dropped and them}
        rows = dict.fromkeys(row for them in left.values() for row in them)
        there = oracle.first_of(left, self.partition)
        # What was written again is there with what wrote it again, as it has become since.
        for job in sorted(self.kept, key=lambda job: (job, self.partition) in oracle.again):
            own = oracle.first_of([job], self.partition)
            if not here.get(job) and not own <= there:
                rows |= dict.fromkeys(oracle.wrote(job, self.partition))
                there |= own
        return oracle.rewritten(
            state, self.partition, self.job, tuple(rows), not self.discard, there
        )


@dataclass
class Undo(Effect):
    """A partition is to hold what it held before the job that changed it last."""

    partition: str = ""
    undone: str = ""
    discard: bool = False

    def apply(self, oracle: Oracle, state: State) -> State:
        last = oracle.commits.index(self.undone)
        if self.partition not in oracle.named[last]:
            raise Violation(f"{self.undone} did nothing to {self.partition}, and it was undone")
        if ids(oracle.states[last + 1], self.partition) != ids(state, self.partition):
            others = oracle.touches(self.partition)
            raise Violation(f"{self.undone} was undone over {others[-1]}")
        before = oracle.states[last]
        rows, held = rows_of(before, self.partition), before.get(self.partition, {})
        first = oracle.first_of((job for job in held if held[job]), self.partition)
        return oracle.rewritten(state, self.partition, self.job, rows, not self.discard, first)


def rows_of(state: State, partition: str) -> tuple[Row, ...]:
    return tuple(row for rows in state.get(partition, {}).values() for row in rows)


def ids(state: State, partition: str) -> Counter[int]:
    return Counter(row[0] for row in rows_of(state, partition))


@dataclass
class Oracle:
    """All states so far.

    :param commits: jobs in the order of their decisions; ``states`` and ``shapes``, the table's
        columns (``None``: there is no table), have one more each; ``named``: the partitions that
        each decision names.
    :param kept: partitions of which replaced files may be left in the store, for readers that list.
    :param again: by job and partition, the jobs that wrote the rows first which it wrote again.
    :param told: what the users of jobs were told: *committed* or *refused*.
    """

    effects: dict[str, Effect] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    aborts: set[str] = field(default_factory=set)
    states: list[State] = field(default_factory=lambda: [{}])
    shapes: list[dict[str, str] | None] = field(default_factory=lambda: [None])
    named: list[tuple[str, ...]] = field(default_factory=list)
    runs: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, str] | None = None
    kept: dict[str, str] = field(default_factory=dict)
    again: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> State:
        return self.states[-1]

    def decided(self, job: str, commit: bool, partitions: tuple[str, ...]) -> None:
        """A decision came into the store."""
        if job in self.commits or job in self.aborts:
            raise Violation(f"{job} is decided a second time")
        if not commit:
            self.aborts.add(job)
            if self.told.get(job) == "committed":
                raise Violation(f"{job} was told committed, and is aborted")
            return
        if self.told.get(job) == "refused":
            raise Violation(f"{job} was told refused, and commits")
        effect = self.effects[job]
        effect.partitions = partitions
        after = effect.apply(self, self.state)
        self.states.append(after)
        self.shapes.append(self.columns)
        self.named.append(partitions)
        self.commits.append(job)

    def run_before(self, job: str, idempotency_key: str | None, on_repeat: str) -> str | None:
        """The job that did a run's work before.

        :raises Violation: another one must not do it again.
        """
        before = self.runs.get(idempotency_key or "", [])
        if before and on_repeat == "skip":
            raise Violation(f"{job} repeats {before[-1]}, which did the work of {idempotency_key}")
        return before[-1] if before else None

    def ran(self, idempotency_key: str | None, job: str) -> None:
        """A job has done a run's work."""
        if idempotency_key is not None:
            self.runs.setdefault(idempotency_key, []).append(job)

    def left_by_run(self, idempotency_key: str) -> dict[str, set[int]]:
        """The ids of a run's rows that its next job takes the place of, by partition."""
        gone: dict[str, set[int]] = {}
        for job in reversed(self.runs[idempotency_key]):
            effect = self.effects[job]
            if not isinstance(effect, Write):
                break  # A change wrote others' rows again: nobody takes these out of them.
            for name, rows in effect.rows.items():
                gone.setdefault(name, set()).update(number for number, _ in rows)
            # What this one took out may have been brought back.
            if effect.on_repeat != "replace_own":
                break
        return gone

    def bring(self, columns: Mapping[str, str], merges: bool, overwrites: bool = False) -> None:
        """A job brings columns, which become the table's where it has none, beside its own, or in
        their place."""
        if overwrites or self.columns is None:
            self.columns = dict(columns)
        elif merges:
            kinds = {**columns, **self.columns}
            if "int64" in (columns.get("n"), self.columns.get("n")):
                kinds["n"] = "int64"
            self.columns = kinds

    def tell(self, job: str, word: str) -> None:
        """What the user of a job is told."""
        self.told[job] = word
        if word == "refused" and job in self.commits:
            raise Violation(f"{job} is committed, and its user is told that it was refused")
        if word == "committed" and job not in self.commits:
            raise Violation(f"{job} is not committed, and its user is told that it is")

    def correct(self, effect: Resolve, kept: Collection[str], dropped: Collection[str]) -> None:
        """A resolution says whose rows it kept and dropped: of a job that came while it was
        planned, it need not have known."""
        number = self.commits.index(effect.job)
        strangers = {*effect.kept, *effect.dropped} - {*kept, *dropped}
        if strangers or {*kept} & {*dropped} or number + 1 < len(self.commits):
            raise Violation(f"{effect.job} says nothing of {strangers}")
        effect.kept, effect.dropped = tuple(kept), tuple(dropped)
        self.states[-1] = effect.apply(self, self.states[number])

    def touches(self, partition: str) -> list[str]:
        """The jobs whose decisions name a partition, in their order."""
        named = zip(self.commits, self.named, strict=True)
        return [job for job, partitions in named if partition in partitions]

    def touched(self, number: int, replaced: bool = False) -> set[str]:
        """Partitions that a commit changed; ``replaced``: took the place of something in."""
        before, after = self.states[number], self.states[number + 1]
        names = {*before, *after}
        found = {name for name in names if before.get(name, {}) != after.get(name, {})}
        if not replaced:
            return found
        effect = self.effects[self.commits[number]]
        if not isinstance(effect, Write) or effect.whole:
            return found
        # Where it has no rows it takes out at most those of its run's try before.
        written = effect.rows if effect.mode == "replace" else ()
        return found & {*written, *effect.named}

    def first_of(self, jobs: Iterable[str], partition: str) -> frozenset[str]:
        """The jobs that first wrote the rows in the files of some in a partition."""
        return frozenset().union(*(self.again.get((it, partition), {it}) for it in jobs))

    def wrote(self, job: str, partition: str) -> tuple[Row, ...]:
        """The rows that a job's files in a partition held when it committed."""
        number = self.commits.index(job)
        return self.states[number + 1].get(partition, {}).get(job, ())

    def rewritten(
        self,
        state: State,
        partition: str,
        job: str,
        rows: tuple[Row, ...],
        keeps: bool = False,
        first: frozenset[str] | None = None,
    ) -> State:
        """A partition that a job wrote anew, with the columns that there are.

        :param first: who wrote the rows first; ``None``: those of the rows that were there.
        """
        if first is None:
            here = state.get(partition, {})
            first = self.first_of((it for it in here if here[it]), partition)
        self.again[job, partition] = first
        if keeps:
            self.kept[partition] = job
        elif partition not in self.states[0]:
            # Of files of other programs nothing tells those that were kept from those that came
            # since, which nobody has read: only a replace removes them.
            self.kept.pop(partition, None)
        now = self.columns or ()
        kept = ((it, frozenset(had for had in row if had[0] in now)) for it, row in rows)
        return {**state, partition: {job: tuple(kept)}}

    def visible(self, state: State) -> dict[str, Counter[Row]]:
        """What a reader sees of a state, by partition."""
        found = {name: Counter(rows_of(state, name)) for name in state}
        return {name: rows for name, rows in found.items() if rows}


def older(rows: Mapping[str, tuple[Row, ...]]) -> State:
    """A state with files from before the table."""
    return {name: {"older": them} for name, them in rows.items()}
