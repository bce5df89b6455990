"""Search for conflicts of runs over a table's partitions, by decisions, heads and failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...commit.snapshot import Survey, survey, take_snapshot
from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.found_table import read_table
from ...commit.state.heads import read_head
from ...commit.state.tolerance import or_damage
from ...errors import (
    DamagedError,
    InvalidInputError,
    OutcomeUnknownError,
    StoreRefusedError,
    counted,
)
from ...format.job_spec import Coordination
from ...format.layout import job_in_key
from ...format.records.head import HeadState, Slot
from ...format.records.partition_decision import PartitionDecision
from ...format.records.run_conflict import ConflictingRun, ConflictRecord, RunConflict, SettledBy
from ...store.requests import All, Step
from .conflict_book import ConflictBook
from .conflict_look import NewRecords, StoredFailure, head_met, look_back, look_since
from .conflict_record import ROUNDS, StoredConflicts, put_conflicts, read_conflicts, with_settled
from .met_runs import RunCommit


@dataclass(frozen=True)
class ConflictReport:
    """Conflicts that a search found, and earlier ones that are not settled.

    :param table: the destination's root.
    :param committer: the committer of the runs: ``zero_rename`` or ``s3a``.
    :param conflicts: ordered by partition.
    :param since: the time from which on the search asked for commits; ``until``: the time of the
        search; Unix seconds by the store's clock.
    :param unread: the errors of runs' records that could not be read. It is not known whether these
        runs are in conflict, so they count as not settled.
    :param notes: further remarks on the search.
    """

    table: str
    committer: str
    conflicts: tuple[RunConflict, ...]
    since: float
    until: float
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unresolved(self) -> tuple[RunConflict, ...]:
        """The conflicts that are not settled."""
        return tuple(it for it in self.conflicts if not it.is_settled)


def find_conflicts(
    context: Context, seconds: float | None = None, remember: bool = True
) -> Step[ConflictReport]:
    """Find the conflicts of runs over a table's partitions (:meth:`.table.Table.conflicts`).

    :param seconds: search so far back, and change no record; ``None``: since the last search.
    :param remember: record the conflicts that were found.
    :raises InvalidInputError: the table has coordination *none*.
    :raises RecordDamagedError: the record of conflicts cannot be read.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none writers do not notice each other, and no record says "
            "whose rows another one removed. Nothing can be said of conflicts."
        )
    context, key = context.of(table), context.root.conflicts_key
    for _ in range(ROUNDS):
        record = yield from read_conflicts(key)
        if seconds is not None:
            found = yield from look_back(context, seconds)
            book = ConflictBook(found.began, {})
            search = _ConflictSearch(context, found, book, damaged=list(found.damaged))
            yield from search.run()
            search.book.recall(record.said)
            return search.report()
        found = yield from look_since(context, record.said)
        book = ConflictBook.of(record.said, found.began)
        search = _ConflictSearch(context, found, book, damaged=list(found.damaged))
        yield from search.run()
        said = record.said
        if not search.damaged:
            said = replace(
                said,
                looked_at=found.began,
                mark=found.mark,
                known=found.known,
                waiting=found.waiting,
            )
        if not remember or (yield from remembered(key, record, said, search.book, search.notes)):
            return search.report()
    raise OutcomeUnknownError(
        "Other processes wrote the record of conflicts again and again. Nothing was settled.",
        key=key,
        remedy="Look again.",
    )


def remembered(
    key: str, before: StoredConflicts, said: ConflictRecord, book: ConflictBook, notes: list[str]
) -> Step[bool]:
    """Record the result of a search; ``False``: another search was recorded first.

    Without the right to write the search still counts, and the next search finds the same again.

    :param notes: receives a note about that missing right.
    """
    said = replace(said, open=())
    for conflict in book.settled:
        said = with_settled(said, conflict)
    # An open conflict may have begun after another one over the same partition was settled.
    said = replace(said, open=tuple(it for _, it in sorted(book.open.items())))
    try:
        return (yield from put_conflicts(key, before, said))
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        notes.append(f"This look is not on record, since it may not write: {error.message}")
        return True


@dataclass
class _ConflictSearch:
    """A search through new records and the records that they refer to.

    :param damaged: errors of records that the next search would not read again, since it goes on
        from the end of this one. While there are any, that end is not recorded.
    """

    context: Context
    found: NewRecords
    book: ConflictBook
    unread: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: dict[str, Decided | DamagedError | None] = field(default_factory=dict)
    heads: dict[str, HeadState | DamagedError] = field(default_factory=dict)

    def report(self) -> ConflictReport:
        """Return the report of the search."""
        found = self.found
        unread = tuple(dict.fromkeys((*found.unread, *self.damaged, *self.unread)))
        return ConflictReport(
            self.context.root.url,
            "zero_rename",
            self.book.conflicts,
            found.since,
            found.began,
            unread,
            tuple(self.notes),
        )

    def run(self) -> Step[None]:
        """Judge every commit that may have removed rows of another run, and every run that gave
        way; then find out whose rows readers see."""
        self.decisions |= {it.decision.job: it for it in self.found.decided}
        by_partition: dict[str, list[tuple[RunCommit, PartitionDecision]]] = defaultdict(list)
        for decided in self.found.decided:
            for change in decided.decision.partitions:
                by_partition[change.partition].append((RunCommit.of(decided, change), change))
        # For all partitions together, so that each decision is read once.
        yield from self._read_removed(by_partition)
        for name in sorted(by_partition):
            for commit, change in sorted(by_partition[name], key=lambda it: it[0].version):
                yield from self._judge(name, commit, change)
        # A settlement is bound to a version, and appends and compactions move the version, too.
        self.book.touched |= by_partition.keys() & self.book.open.keys()
        for decided in self.found.decided:
            yield from self._judge_left_out(decided)
        for failure in self.found.failures:
            yield from self._judge_failure(failure)
        yield from self._see_visible()
        self._note_condensed()

    def _note_condensed(self) -> None:
        """Note the runs that cannot be judged, since their decisions were condensed before."""
        number = sum(
            decided.decision.condensed
            and any(it.replace and it.sums.removed for it in decided.decision.partitions)
            for decided in self.found.decided
        )
        if number:
            self.notes.append(
                f"The records of {counted(number, 'run')} were condensed before this search: "
                "whose rows they removed is not known any more. gc does this after a week, so "
                "search for conflicts more often."
            )

    def _read_removed(
        self, by_partition: Mapping[str, Iterable[tuple[RunCommit, PartitionDecision]]]
    ) -> Step[None]:
        """Read the decisions of all jobs whose files were removed by these commits, in parallel."""
        files = (
            it
            for commits in by_partition.values()
            for commit, change in commits
            if commit.takes_place
            for it in change.removals
        )
        yield from self._read_decisions(job_in_key(it.key) for it in files)

    def _read_heads(self, names: Iterable[str]) -> Step[None]:
        new = [name for name in names if name not in self.heads]
        slots = [Slot.partition(self.context.root, name) for name in new]
        found = yield from All(tuple(or_damage(read_head(self.context, it)) for it in slots))
        self.heads |= dict(zip(new, found, strict=True))
        self.damaged += [str(it) for it in found if isinstance(it, DamagedError)]

    def _read_decisions(self, jobs: Iterable[str | None]) -> Step[None]:
        new = sorted({job for job in jobs if job} - self.decisions.keys())
        found = yield from All(tuple(or_damage(read_decision(self.context, it)) for it in new))
        self.decisions |= dict(zip(new, found, strict=True))
        self.damaged += [str(it) for it in found if isinstance(it, DamagedError)]

    def _judge(self, name: str, commit: RunCommit, change: PartitionDecision) -> Step[None]:
        settled = change.ranks.settled
        if commit.settles and settled is not None and change.settles_alone:
            self.book.restored(name, commit, settled.stands, SettledBy.KEPT)
            return
        removed: list[RunCommit] = []
        if commit.takes_place:
            jobs = {job_in_key(it.key) for it in change.removals}
            removed = yield from self._writers(name, jobs)
        self.book.committed(name, commit, removed)

    def _writers(self, name: str, jobs: Iterable[str | None]) -> Step[list[RunCommit]]:
        """Read the commits of jobs in a partition. For a job that rewrote rows, return the commits
        of the jobs that first wrote these rows."""
        wanted = {job for job in jobs if job}
        yield from self._read_decisions(wanted)
        origins = {job for it in wanted for job in self._origins(name, it) if job}
        yield from self._read_decisions(origins)
        found = [self._commit(name, job) for job in sorted(origins)]
        return [it for it in found if it is not None]

    def _origins(self, name: str, job: str) -> tuple[str, ...]:
        decided = self.decisions.get(job)
        if not isinstance(decided, Decided):
            return ()
        merged = [it for change in decided.changes.get(name, ()) for it in change.merged]
        return tuple(merged) or (job,)

    def _commit(self, name: str, job: str) -> RunCommit | None:
        decided = self.decisions.get(job)
        changes = decided.changes.get(name) if isinstance(decided, Decided) else None
        if not changes or not isinstance(decided, Decided):
            return None
        return RunCommit.of(decided, changes[-1])

    def _judge_left_out(self, decided: Decided) -> Step[None]:
        """Record the partitions that a job left out because newer runs had loaded them."""
        decision = decided.decision
        for name, job in (decision.superseded or {}).items():
            yield from self._read_decisions([job])
            winner = self._commit(name, job)
            if winner is not None:
                run = ConflictingRun(
                    decision.idempotency_key or decision.job,
                    decision.job,
                    decided.date,
                    decision.owner,
                    gave_way=True,
                    message=f"The run left {name} out: a newer one had loaded it.",
                )
                self.book.gave_way(name, run, winner, None, by_policy=True)

    def _judge_failure(self, failure: StoredFailure) -> Step[None]:
        """Judge a run that gave way; one that has committed since is passed over."""
        said = failure.said
        met: dict[str, str] = dict(said.gave_way or {})
        if not met and (partition := head_met(self.context.root, said)) is not None:
            met = {partition: ""}
        if not met or (yield from self._has_committed(failure)):
            return
        for name, job in met.items():
            yield from self._read_decisions([job])
            last = yield from self._last_writer(name)
            head = self.heads[name]
            if isinstance(head, HeadState) and head.head.ranks.has_lost(said.idempotency_key):
                continue  # It lost by a settlement, which is on record itself.
            other = self._commit(name, job) or last
            if other is not None:
                run = failure.run_in(name)
                by_policy = said.error == "SupersededRunError"
                self.book.gave_way(name, run, other, last, by_policy)

    def _last_writer(self, name: str) -> Step[RunCommit | None]:
        yield from self._read_heads([name])
        head = self.heads[name]
        job = head.head.last_job if isinstance(head, HeadState) else None
        found = yield from self._writers(name, [job])
        return found[-1] if found else None

    def _has_committed(self, failure: StoredFailure) -> Step[bool]:
        """Return whether a run that gave way has committed since."""
        slot = Slot.run(self.context.root, failure.said.idempotency_key)
        state = yield from or_damage(read_head(self.context, slot))
        if not isinstance(state, HeadState) or state.head.last_job is None:
            return False
        yield from self._read_decisions([state.head.last_job])
        decided = self.decisions[state.head.last_job]
        return isinstance(decided, Decided) and decided.date >= int(failure.at)

    def _see_visible(self) -> Step[None]:
        """Find out whose rows readers see in the partitions that the search has touched."""
        names = sorted(self.book.touched)
        if not names:
            return
        seen = yield from self._seen_of(names)
        snapshot, files = seen.snapshot, seen.snapshot.by_partition()
        self.damaged += [str(error) for error in seen.damaged.values()]
        for name in (name for name in names if name not in seen.damaged):
            jobs = {it.job for it in files.get(name, ())}
            there = {it.key: it for it in (yield from self._writers(name, jobs))}
            self.book.see(name, there, snapshot.versions.get(name, 0))

    def _seen_of(self, names: list[str]) -> Step[Survey]:
        """Read partitions; if one of them cannot be read, every record of the others."""
        try:
            return Survey((yield from take_snapshot(self.context, names)))
        except DamagedError:
            return (yield from survey(self.context, names))
