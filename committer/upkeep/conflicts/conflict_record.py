"""Record of conflicts beside a table, or beside a destination of Hadoop's committers: those that
are not settled, and those settled lately."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...errors import InvalidInputError, OutcomeUnknownError, first_few
from ...format.layout import new_write_id
from ...format.records.run_conflict import ConflictRecord, RunConflict, Settlement
from ...store.conditional_put import NotWritten, Uncertain, put_record
from ...store.requests import LIST_BYTES, Found, Get, Put, Step

#: Seconds for which settled conflicts stay on record, and how many at most.
KEPT_FOR, _MOST_SETTLED = 90 * 24 * 3600.0, 1_000
#: How often a step is repeated when another process wrote the record meanwhile.
ROUNDS = 5


@dataclass(frozen=True)
class StoredConflicts:
    """The record of conflicts as it was read.

    :param etag: ``None`` if there is no record yet.
    :param date: when it was read, by the store's clock.
    """

    said: ConflictRecord
    etag: str | None
    date: float


def read_conflicts(key: str) -> Step[StoredConflicts]:
    """Read the record of conflicts: one request.

    :raises RecordDamagedError: the record cannot be read.
    """
    found = yield from Get(key, most=LIST_BYTES)
    if not isinstance(found, Found):
        return StoredConflicts(ConflictRecord(""), None, found.date)
    return StoredConflicts(ConflictRecord.decode(found.body, key), found.etag, found.date)


def open_conflicts(key: str, partitions: Collection[str] | None = None) -> Step[list[RunConflict]]:
    """Return the recorded conflicts that are not settled.

    :param partitions: only the conflicts over these; ``None``: all.
    :raises InvalidInputError: one of the partitions has no such conflict on record.
    """
    record = (yield from read_conflicts(key)).said
    found = {it.partition: it for it in record.open}
    if partitions is None:
        return list(found.values())
    missing = [name for name in partitions if name not in found]
    if missing:
        settled = {it.partition for it in record.settled}
        is_settled = f", and that over {missing[0]} is settled" if missing[0] in settled else ""
        raise InvalidInputError(
            f"No runs that conflict over {first_few(missing)} are on record{is_settled}. Nothing "
            "was changed.",
            key=key,
            remedy="Look for conflicts first: zero-rename conflicts TABLE",
        )
    return [found[name] for name in partitions]


def settle(key: str, conflict: RunConflict, settlement: Settlement) -> Step[RunConflict]:
    """Record the settlement of a conflict, or why it has failed. Repeating it changes nothing.

    :return: the conflict with its settlement, as it is on record.
    :raises OutcomeUnknownError: it is not known whether the settlement is on record.
    """
    for _ in range(ROUNDS):
        record = yield from read_conflicts(key)
        done = conflict.settled(replace(settlement, at=settlement.at or record.date))
        for it in (*record.said.open, *record.said.settled):
            said = it.settlement
            if it.partition != done.partition or said is None:
                continue
            if replace(said, at=settlement.at) == settlement:
                return it
        if (yield from put_conflicts(key, record, with_settled(record.said, done))):
            return done
    raise OutcomeUnknownError(
        f"Whether the settlement over {conflict.name} is on record is not known: other processes "
        "wrote there again and again.",
        key=key,
        remedy="Resolve it again: what is done already is not done twice.",
    )


def with_settled(record: ConflictRecord, conflict: RunConflict) -> ConflictRecord:
    """Return the record with a conflict that is settled, or whose settlement has failed.

    It stays unchanged if more runs have joined the conflict; also if the settlement has failed, but
    another process has settled the conflict meanwhile."""
    jobs = {it.job for it in conflict.runs}
    mine = [it for it in record.open if it.partition == conflict.partition]
    if any(not jobs.issuperset(run.job for run in it.runs) for it in mine):
        return record  # Further runs have joined it meanwhile.
    others = tuple(it for it in record.open if it.partition != conflict.partition)
    if not conflict.is_settled:
        if not mine:
            return record  # Another process has settled it meanwhile.
        still_open = sorted((*others, conflict), key=lambda it: it.partition)
        return replace(record, open=tuple(still_open))
    settled = [*record.settled, conflict]
    times = [it.settlement.at if it.settlement else 0.0 for it in settled]
    young = [it for it, at in zip(settled, times, strict=True) if at >= max(times) - KEPT_FOR]
    return replace(record, open=others, settled=tuple(young[-_MOST_SETTLED:]))


def put_conflicts(key: str, before: StoredConflicts, after: ConflictRecord) -> Step[bool]:
    """Write a record over the one that was read; ``False``: another process has written first.

    :raises OutcomeUnknownError: the store did not confirm the record.
    """
    made = replace(after, write_id=new_write_id())
    put = Put(key, made.encode(), if_none_match=before.etag is None, if_match=before.etag)
    outcome = yield from put_record(put, made.write_id)
    if isinstance(outcome, Uncertain):
        raise OutcomeUnknownError(
            f"The store did not confirm the record of conflicts ({outcome.cause}).",
            key=key,
            remedy="Look again when the store answers.",
        )
    return not isinstance(outcome, NotWritten)
