"""Search for conflicts of runs over the partitions of a Delta table, in the entries of its log.

The report is the same as for tables of directories (:mod:`~.committer.upkeep.conflicts`). A search
reads each entry since the last search once. It also reads the state before the first of them: its
files show which runs had written the rows that an entry removed. For partitions with a change it
reports whose rows readers see.

A settlement is bound to a version: that of the last entry that changed the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..committer.commit.state.tolerance import or_damage
from ..committer.errors import (
    DamagedError,
    InvalidInputError,
    OutcomeUnknownError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    counted,
)
from ..committer.format.layout import TableRoot
from ..committer.format.records.run_conflict import ConflictingRun, ConflictRecord, SettledBy
from ..committer.store.listing import Listing, list_objects
from ..committer.store.requests import Step
from ..committer.upkeep.conflicts.conflict_book import ConflictBook
from ..committer.upkeep.conflicts.conflict_look import FIRST, StoredFailure, failures_since
from ..committer.upkeep.conflicts.conflict_record import ROUNDS, read_conflicts
from ..committer.upkeep.conflicts.conflict_search import ConflictReport, remembered
from ..committer.upkeep.conflicts.met_runs import RunCommit
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import AddFile, RemoveFile
from ..log.change import RESTORE
from ..log.entries import ListedLog, LogEntry
from ..log.opening import LogDepth, list_log, open_log, read_entries
from ..log.replay import LogState, Partition, replay
from ..log.searching import find_run
from ..log.settling import lost_in, settles_of
from .delta_files import log_partition, name_told
from .delta_runs import LogRuns, takes_place

#: The committer that a report names. Runs of other engines in the same log are included.
COMMITTER = "zero_rename"
#: How many entries are read at once.
_AT_ONCE = 64


def find_log_conflicts(
    root: TableRoot, layout: DeltaLayout, seconds: float | None = None, remember: bool = True
) -> Step[ConflictReport]:
    """Find the conflicts of runs in a Delta table. This takes four requests if nothing has happened
    since the last search; otherwise those of an opening, and one for each entry.

    :param seconds: search so far back, by the store's clock; ``None``: since the last search.
    :param remember: record the result, so that the next search goes on from it; ``False`` writes
        nothing.
    :raises RecordDamagedError: the record of conflicts cannot be read.
    :raises TableNotFoundError: there is no table. Nothing was written.
    """
    key = root.conflicts_key
    for _ in range(ROUNDS):
        record = yield from read_conflicts(key)
        # Before the log: if a run gave way by then, the listing has the entry that it gave way to.
        failed = yield from list_objects(root.failures_prefix)
        look = _Look.of(root, layout, record.said, failed, seconds)
        damage = yield from or_damage(look.run())
        if isinstance(damage, DamagedError):
            look.unread.append(str(damage))
        if seconds is not None:
            look.book.recall(record.said)
            return look.report()
        said = record.said if look.unread else look.after(record.said)
        if not remember or (yield from remembered(key, record, said, look.book, look.notes)):
            return look.report()
    raise OutcomeUnknownError(
        "Other processes wrote the record of conflicts again and again. Nothing was settled.",
        key=key,
        remedy="Look again.",
    )


@dataclass
class _Look:
    """A search of the entries of a log that came since the last search.

    :param since: the time from which on entries and failures are read, by the store's clock.
    :param version: the last version that the last search has read; ``None``: entries are selected
        by their time.
    :param table: the id of the table that the last search has read.
    :param state: the state after the judged entries; ``None``: the log was not opened.
    :param changed: by partition, the version of the last entry that changed it.
    :param judged: the entries since the last search.
    :param lost: versions of cleaned entries whose rows take part in the comparison.
    """

    root: TableRoot
    layout: DeltaLayout
    book: ConflictBook
    failed: Listing
    since: float
    version: int | None
    table: str | None
    runs: LogRuns
    state: LogState | None = None
    changed: dict[str, int] = field(default_factory=dict)
    judged: list[LogEntry] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def of(
        root: TableRoot,
        layout: DeltaLayout,
        said: ConflictRecord,
        failed: Listing,
        seconds: float | None,
    ) -> _Look:
        """Return a search that goes on from the last one, or that goes back by some time.

        :param seconds: how far it goes back; ``None``: to the last search.
        """
        began, runs = failed.since, LogRuns(layout.folder)
        if seconds is not None:
            book = ConflictBook(began, {})
            return _Look(root, layout, book, failed, began - seconds, None, None, runs)
        since, book = said.looked_at or began - FIRST, ConflictBook.of(said, began)
        version, table = said.log_version, said.log_table
        return _Look(root, layout, book, failed, since, version, table, runs)

    def report(self) -> ConflictReport:
        """Return the report of the search."""
        found = self.book.conflicts
        unread, notes = tuple(self.unread), tuple(self.notes)
        return ConflictReport(
            self.root.url, COMMITTER, found, self.since, self.book.now, unread, notes
        )

    def after(self, said: ConflictRecord) -> ConflictRecord:
        """Return the record after the search."""
        looked = replace(said, looked_at=self.book.now, mark=self.book.now)
        if self.state is None:
            return looked
        return replace(looked, log_version=self.state.version, log_table=self.state.table_id)

    def run(self) -> Step[None]:
        """Judge every entry since the last search, and every run that gave way."""
        listed = yield from list_log(self.layout.folder, self.version or 0)
        failures, damaged = yield from failures_since(self.failed, self.since)
        self.unread += damaged
        if self.version is not None and self.version not in listed.entries:
            # That entry was cleaned, or this is another table.
            listed = yield from list_log(self.layout.folder)
        if not listed.entries and not listed.checkpoints:
            # Write no record: a table of another layout or format may have its own here.
            raise TableNotFoundError(
                "There is no Delta table here. Nothing was noted.",
                table=self.root.url,
                remedy="Check the root. A table of directories is opened by zero_rename.Table(…).",
            )
        first = self._first(listed)
        if first > listed.end and not failures:
            return
        state = yield from self._before(listed, first)
        if state.exists and self.table not in (None, state.table_id):
            self._begin_anew()
            first = self._first(listed)
            state = yield from self._before(listed, first)
        for start in range(state.version + 1, listed.end + 1, _AT_ONCE):
            some = range(start, min(start + _AT_ONCE, listed.end + 1))
            found = yield from read_entries(self.layout.folder, some)
            entries = [it for it in found if it is not None]
            if len(entries) < len(found):
                raise OutcomeUnknownError(
                    "Entries of the log were cleaned while it was read. Nothing was noted.",
                    table=self.root.url,
                    remedy="Look again.",
                )
            before, state = state, replay(state, entries)
            named_by = replace(before, metadata=state.metadata)
            for entry in entries:
                yield from self._judge(entry, named_by)
        self.layout.check_readable(state)
        self.state = state
        if not state.exists:
            return
        # A settlement is bound to a version, and an append moves the version, too.
        self.book.touched |= self.changed.keys() & self.book.open.keys()
        yield from self._judge_left_out(state)
        for failure in failures:
            yield from self._judge_failure(failure, state)
        yield from self._see_visible(state)
        self._note_lost()

    def _begin_anew(self) -> None:
        """Forget the results of former searches, which were about another table at this root."""
        self.version = None
        self.book.open.clear()
        self.notes.append("Another table is here since the last look: its log is read anew.")

    def _first(self, listed: ListedLog) -> int:
        """Return the first version to judge; the version after the end if there is none."""
        if self.version is not None and self.version in listed.entries:
            return self.version + 1
        recent = (v for v, it in listed.entries.items() if it.last_modified >= self.since)
        return min(recent, default=listed.end + 1)

    def _before(self, listed: ListedLog, first: int) -> Step[LogState]:
        """Read the state before the first version to judge, or the oldest state after it that can
        be read."""
        if first <= 0:
            return LogState()
        try:
            return (yield from open_log(self.layout, LogDepth.FILES, first - 1)).state
        except (SnapshotGoneError, TableMismatchError) as error:
            unread = error
        for version in sorted(v for v in listed.checkpoints if v >= first):
            try:
                state = (yield from open_log(self.layout, LogDepth.FILES, version)).state
            except TableMismatchError:
                continue
            self.since = max(self.since, listed.checkpoints[version][0].last_modified)
            gone = isinstance(unread, SnapshotGoneError)
            why = "were cleaned" if gone else "need a feature that is not supported here"
            self.notes.append(
                f"The entries of the log before version {version + 1} {why}, so the runs of before "
                "are not compared."
            )
            return state
        raise unread

    # Entries

    def _judge(self, entry: LogEntry, state: LogState) -> Step[None]:
        """Judge an entry.

        :param state: a state with the files before the entry and the columns after it.
        """
        self.runs.note(entry, state)
        self.judged.append(entry)
        parts, settles = self.runs.parts(entry, state), settles_of(entry)
        taken = takes_place(entry, state).partitions
        for place in sorted(parts.changed | taken | settles.keys(), key=repr):
            name = self._name(place, state)
            commit = self.runs.commit(entry, place, state)
            if place in settles and not commit.takes_place:
                how = SettledBy.RESTORE if entry.operation == RESTORE else SettledBy.KEPT
                self.book.restored(name, commit, settles[place].runs.stands, how)
                self.changed[name] = entry.version
                continue
            others: list[RunCommit] = []
            if commit.takes_place:
                others = yield from self._writers(parts.removed.get(place, ()), place, state)
            self.book.committed(name, commit, others)
            self.changed[name] = entry.version

    def _writers(
        self, files: Iterable[AddFile | RemoveFile], place: Partition, state: LogState
    ) -> Step[list[RunCommit]]:
        found = yield from self.runs.writers(files, place, state)
        self.lost |= found.lost
        return self.runs.commits(found.versions, place, state)

    def _name(self, place: Partition, state: LogState) -> str:
        assert state.metadata is not None
        return name_told(place, arrow_schema(state.metadata), state.metadata.partition_columns)

    def _place(self, name: str, state: LogState) -> Partition | None:
        """Return the partition of a recorded name; ``None``: it does not fit the columns now."""
        assert state.metadata is not None
        by = state.metadata.partition_columns
        try:
            return log_partition(name, arrow_schema(state.metadata), by)
        except InvalidInputError:
            return None

    def _judge_left_out(self, state: LogState) -> Step[None]:
        """Record the partitions that jobs left out because newer runs had loaded them."""
        for entry in self.judged:
            left = entry.ours.get("superseded")
            for name, job in left.items() if isinstance(left, dict) else ():
                place = self._place(name, state)
                winner = None
                if place is not None:
                    winner = yield from self._commit_of(job, place, state)
                if place is None or winner is None:
                    continue
                own = self.runs.commit(entry, place, state)
                message = f"The run left {name} out: a newer one had loaded it."
                run = ConflictingRun(
                    *(own.key, own.job, own.at, own.owner), gave_way=True, message=message
                )
                self.book.gave_way(name, run, winner, None, by_policy=True)

    def _commit_of(self, job: str, place: Partition, state: LogState) -> Step[RunCommit | None]:
        """Return a job's commit in a partition; ``None``: it is not known. If the job's entry was
        not read yet, it is found by the job's files there."""
        for entry in self.runs.entries.values():
            if entry is not None and entry.job == job:
                return self.runs.commit(entry, place, state)
        own = [it for it in _files_at(state, place) if it.tags.get("job") == job]
        found = yield from self._writers(own, place, state)
        return found[-1] if found else None

    # Runs that gave way

    def _judge_failure(self, failure: StoredFailure, state: LogState) -> Step[None]:
        """Judge a run that gave way; one that has committed since is passed over."""
        said = failure.said
        if not said.gave_way or (yield from self._has_committed(failure, state)):
            return
        for name, job in said.gave_way.items():
            if (place := self._place(name, state)) is None:
                continue
            if place in lost_in(state, said.idempotency_key, ()):
                continue  # It lost by a settlement, which is on record itself.
            found = yield from self._writers(_files_at(state, place), place, state)
            last = found[-1] if found else None
            other = (yield from self._commit_of(job, place, state)) if job else last
            if (other := other or last) is not None:
                by_policy = said.error == "SupersededRunError"
                self.book.gave_way(name, failure.run_in(name), other, last, by_policy)

    def _has_committed(self, failure: StoredFailure, state: LogState) -> Step[bool]:
        """Return whether a run that gave way has committed since."""
        done = yield from find_run(self.layout, state, failure.said.idempotency_key, "")
        if done is None:
            return False
        yield from self.runs.read([done.version])
        entry = self.runs.entries[done.version]
        return entry is not None and entry.written_at >= int(failure.at)

    # What readers see

    def _see_visible(self, state: LogState) -> Step[None]:
        """Find out whose rows readers see in the partitions that the search has touched."""
        named = {name: self._place(name, state) for name in sorted(self.book.touched)}
        files: dict[Partition, list[AddFile]] = {it: [] for it in named.values() if it is not None}
        for add in state.live.values() if files else ():
            if (there := state.partition(add)) is not None and there in files:
                files[there].append(add)
        for name, place in named.items():
            if place is None:
                continue
            found = yield from self._writers(files[place], place, state)
            before = self.book.open.get(name)
            version = self.changed.get(name, before.version if before is not None else 0)
            self.book.see(name, {it.key: it for it in found}, version or state.version)

    def _note_lost(self) -> None:
        if self.lost:
            number = counted(len(self.lost), "run")
            self.notes.append(
                f"The entries of {number} whose rows are concerned were cleaned from the log: they "
                "are not compared."
            )


def _files_at(state: LogState, place: Partition) -> list[AddFile]:
    return [it for it in state.live.values() if state.partition(it) == place]
