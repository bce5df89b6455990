"""Conflicts of runs that loaded by Hadoop's committers, found in the ledger.

The report has the same form as that of this package's own tables
(:mod:`~.committer.upkeep.conflicts`). An attempt's record says when it opened, when it wrote last,
and which partitions it wrote. The store's times have whole seconds, so two runs count as
overlapping only if the record of one of them says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...committer.errors import OutcomeUnknownError, RecordDamagedError
from ...committer.format.given_numbers import check_age
from ...committer.format.job_spec import Mode
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.run_conflict import ConflictingRun
from ...committer.store.listing import list_objects
from ...committer.store.requests import All, Step
from ...committer.upkeep.conflicts.conflict_book import ConflictBook
from ...committer.upkeep.conflicts.conflict_look import FIRST
from ...committer.upkeep.conflicts.conflict_record import ROUNDS, read_conflicts
from ...committer.upkeep.conflicts.conflict_search import ConflictReport, remembered
from ...committer.upkeep.conflicts.met_runs import RunCommit
from .ledger import beside, read_record, runs_prefix, tries_on_record
from .rivals import has_committed, in_order_of_writing, met_others, replaces, written_at
from .try_record import StoredTry, TryRecord

_KIND = "s3a-conflicts"
#: Kind of runs in a report: those of Hadoop's committers.
S3A = "s3a"


def conflicts_key(root: TableRoot) -> str:
    """Return the key of the record of conflicts found so far, which lies beside a destination."""
    return f"{beside(root, _KIND)}conflicts.json"


def find_s3a_conflicts(
    root: TableRoot, seconds: float | None = None, remember: bool = True
) -> Step[ConflictReport]:
    """Find the conflicts of a destination.

    A LIST for each thousand attempts, and two requests. If the record of an attempt has changed in
    the time that is searched, also a GET for each attempt.

    :param seconds: how far back to search, by the store's clock; ``None``: since the last search.
    :param remember: record the result, so that the next search begins where this one ends;
        ``False`` writes nothing.
    :raises InvalidInputError: ``seconds`` is negative or no number.
    :raises RecordDamagedError: the record of earlier searches cannot be read.
    :raises OutcomeUnknownError: other processes wrote that record again and again.
    """
    check_age("seconds", seconds)
    key = conflicts_key(root)
    for _ in range(ROUNDS):
        record = yield from read_conflicts(key)
        listing = yield from list_objects(runs_prefix(root))
        began = listing.since
        since = record.said.looked_at or began - FIRST
        book = ConflictBook.of(record.said, began)
        if seconds is not None:
            since, book = began - seconds, ConflictBook(began, {})
        unread: list[str] = []
        notes: list[str] = []
        keys = tries_on_record(listing.keys)
        changed = {it.key for it in listing.objects if it.last_modified >= int(since)}
        if changed.intersection(keys):
            found = yield from All(tuple(_readable(it) for it in keys))
            unread += [it for it in found if isinstance(it, str)]
            tries = [it for it in found if isinstance(it, StoredTry)]
            new = frozenset(it.record.uuid for it in tries if it.key in changed)
            _Timeline.of(it.record for it in tries).judge(book, new)
        if seconds is not None:
            book.recall(record.said)
        elif remember:
            # If a record cannot be read, the next search covers the same time again.
            until = since if unread else began
            said = replace(record.said, looked_at=until, mark=until)
            if not (yield from remembered(key, record, said, book, notes)):
                continue
        found = book.conflicts
        return ConflictReport(root.url, S3A, found, since, began, tuple(unread), tuple(notes))
    raise OutcomeUnknownError(
        "Other processes wrote the record of conflicts again and again. Nothing was settled.",
        key=key,
        remedy="Look again.",
    )


def _readable(key: str) -> Step[StoredTry | str | None]:
    """Read an attempt's record. Return the reason instead if it cannot be read."""
    try:
        return (yield from read_record(key))
    except RecordDamagedError as error:
        return str(error)


@dataclass
class _Timeline:
    """Loads of each partition, in the order in which they ended."""

    loads: Mapping[str, Sequence[TryRecord]]
    gave_way: Sequence[TryRecord]
    there: dict[str, list[RunCommit]] = field(default_factory=dict)

    @staticmethod
    def of(tries: Iterable[TryRecord]) -> _Timeline:
        """Make the timeline of some attempts, which it orders by when they wrote last."""
        records = list(tries)
        done = in_order_of_writing(it for it in records if has_committed(it))
        loads: dict[str, list[TryRecord]] = defaultdict(list)
        for record in done:
            for name in _partitions(record):
                loads[name].append(record)
        return _Timeline(loads, [it for it in records if it.gave_way])

    def judge(self, book: ConflictBook, new: Collection[str]) -> None:
        """Enter the conflicts of loads, and of runs that gave way, into a book.

        A record may say late that its attempt wrote. So in each partition all loads from the first
        new one on are judged, even if an earlier search has judged them: they may have removed its
        rows, too.

        :param new: the attempts whose records have changed since the last search.
        """
        for name, records in self.loads.items():
            there: list[RunCommit] = []
            is_due = False
            for number, record in enumerate(records):
                commit = _commit(records, number, name)
                is_due = is_due or record.uuid in new
                if is_due:
                    book.committed(name, commit, there)
                there = [commit] if commit.takes_place else [*there, commit]
            self.there[name] = there
        lost = {
            key
            for records in self.loads.values()
            for record in records
            for settling in (*record.settles.values(), *record.kept.values())
            for key in settling.runs.losers
        }
        for record in self.gave_way:
            # A run that lost by a settlement gives way ever after. The settlement itself is
            # recorded already.
            if record.uuid in new and record.idempotency_key not in lost:
                self._judge_refused(book, record)
        for name in sorted(book.touched):
            book.see(name, {it.key: it for it in self.there.get(name, ())}, 0)

    def _judge_refused(self, book: ConflictBook, record: TryRecord) -> None:
        for name in record.partitions or tuple(self.loads):
            commits = [_commit(self.loads[name], at, name) for at in range(len(self.loads[name]))]
            own = [it for it in commits if it.key == record.idempotency_key]
            others = [it for it in commits if it.key != record.idempotency_key]
            if not others or any(it.at >= record.opened_at for it in own):
                continue
            # The run at work at that time is the first one that ended after it.
            later = [it for it in others if it.at >= record.opened_at]
            if not (record.partitions or later):
                continue  # It holds the whole table, and nobody was at work on this partition.
            by_policy = record.gave_way == "SupersededRunError"
            other = others[-1] if by_policy or not later else later[0]
            book.gave_way(name, _run_of(record), other, commits[-1], by_policy)


def _run_of(record: TryRecord) -> ConflictingRun:
    return ConflictingRun(
        record.idempotency_key,
        record.uuid,
        record.opened_at,
        record.owner,
        record.rank,
        gave_way=True,
        message="It gave way before anything was submitted.",
    )


def _commit(records: Sequence[TryRecord], number: int, partition: str) -> RunCommit:
    """Describe an attempt's load of a partition, by its place among the attempts that loaded it."""
    record = records[number]
    before = [it for it in records[:number] if written_at(it) < record.opened_at]
    met = bool(met_others(record)) and number > 0
    entries = (record.report or {}).get("partitions") or ()
    rows = next((it.get("rows") for it in entries if it.get("partition") == partition), None)
    return RunCommit(
        record.idempotency_key,
        record.uuid,
        written_at(record),
        record.owner,
        record.rank,
        rows,
        number + 1,
        min(len(before), number - 1) if met else number,
        replaces(record),
        record.on_conflict,
        settles=partition in record.settles or UNPARTITIONED in record.settles,
    )


def _partitions(record: TryRecord) -> list[str]:
    """Name the partitions that an attempt has loaded; the whole table if they are not recorded."""
    entries = (record.report or {}).get("partitions") or ()
    named = (it["partition"] or UNPARTITIONED for it in entries if "partition" in it)
    own = record.partitions if record.mode == Mode.REPLACE else ()
    return sorted({*own, *named}) or [*record.partitions] or [UNPARTITIONED]
