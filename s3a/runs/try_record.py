"""The record of a try: who made it, what it wrote, its last sign of life, what came of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from ...committer.format.job_spec import Mode, OnConflict, Owner
from ...committer.format.records.codec import decode, encode
from ...committer.format.records.marks import DEFAULTED, LEFT_OUT, Count
from ...committer.format.records.partition_ranks import Rank
from ...committer.format.settling import Settling
from ...committer.store.requests import Found
from ..hadoop.settings import Committer

#: States of a try that is open. ``fenced``: a retry has found it silent, and settles it.
SUBMITTED, FAILED, FENCED = "submitted", "failed", "fenced"
#: States of one that is settled. ``undone``: nothing of it is in the table, which has been made
#: sure.
COMMITTED, UNDONE = "committed", "undone"
SETTLED = (COMMITTED, UNDONE)
#: States of a write, which may be :data:`FAILED`, too: Spark has said so, and aborted its job.
WRITING, WRITTEN = "writing", "written"
#: Seconds between an application's heartbeats while it writes, and seconds without one after
#: which it counts as gone.
HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT = 15.0, 90.0
#: Seconds between an operator's heartbeats, and seconds without one after which nobody counts as
#: having the try in hand, where nobody knows better.
OPERATOR_INTERVAL, PATIENCE = 30.0, 600.0
#: The same for a try whose task is deferred: Airflow's trigger waits for its application, which
#: sends heartbeats while it writes alone. As long as an operator waits for a job of AWS.
DEFERRED_PATIENCE = 24 * 3600.0
_DIGITS = 4
_KIND = "s3a try"


def run_uuid() -> str:
    """A new try's UUID: random, its last four digits zero. It is handed in as
    ``fs.s3a.committer.uuid``; each write of ``save()`` has one made from it, since two jobs under
    one UUID would take each other's pending files for theirs."""
    return f"{str(uuid.uuid4())[:-_DIGITS]}{'0' * _DIGITS}"


def write_uuid(run: str, number: int) -> str:
    """The committer UUID of a try's write number 1, 2, …: the try's, with other last digits.

    :raises ValueError: more than 65,535 writes.
    """
    if not 0 <= number < 16**_DIGITS:
        raise ValueError(f"write number {number}")
    return f"{run[:-_DIGITS]}{number:0{_DIGITS}x}"


def run_of(write: str) -> str:
    """The try's UUID of a write's."""
    return f"{write[:-_DIGITS]}{'0' * _DIGITS}"


def is_of(run: str, job: str) -> bool:
    """Whether a job's UUID is that of a try, or of one of the try's numbered writes."""
    mine, other = run.lower(), job.lower()
    numbered = len(mine) == 36 and mine == run_of(mine)
    return bool(mine) and (mine == other or (numbered and mine == run_of(other)))


@dataclass(frozen=True)
class WriteRecord:
    """One write of a try's application: one job of a committer.

    :param uuid: the job's committer UUID.
    :param destination: ``s3://bucket/key``: the table's root, or one partition's folder.
    :param partition: the partition whose folder that is.
    :param part: which of the ``parts`` writes of one call this is; a call that replaces several
        partitions makes one for each.
    :param emptied: partitions that the write emptied besides, since no row of theirs arrived.
    :param opened_at: seconds by the store's clock; ``ended_at`` when it was said to be written.
    :param rows: how many Spark wrote; ``None`` while it writes, and where nobody counted them.
    :param among: the only partitions that its rows can be in; none for any.
    """

    uuid: str
    number: Count
    committer: str
    destination: str
    mode: str
    partition: Annotated[str | None, LEFT_OUT] = None
    part: Annotated[Count, LEFT_OUT] = 1
    parts: Annotated[Count, LEFT_OUT] = 1
    emptied: Annotated[tuple[str, ...], LEFT_OUT] = ()
    state: str = WRITING
    opened_at: float = 0.0
    ended_at: Annotated[float, LEFT_OUT] = 0.0
    rows: Annotated[int | None, LEFT_OUT] = None
    among: Annotated[tuple[str, ...], LEFT_OUT] = ()

    @property
    def since_ms(self) -> int:
        return int(self.opened_at * 1000)

    @property
    def empties(self) -> bool:
        """Whether the write has to empty partitions after its job: those named that got no row.
        Until its state is :data:`WRITTEN` it is not done, whatever the committer says."""
        named = self.partition is None and bool(self.among)
        return named and self.mode == Mode.REPLACE and self.committer == Committer.PARTITIONED

    @property
    def is_adding(self) -> bool:
        """Whether the same write once more would add its rows to those that are there. Otherwise
        what is there is replaced, or met by fail-if-exists."""
        return self.mode not in (Mode.REPLACE, Mode.FAIL_IF_EXISTS)


@dataclass(frozen=True)
class TryRecord:
    """One try of a run's task, what it wrote, and what came of it.

    :param uuid: the try's.
    :param idempotency_key: the run's key, which all its tries share; the try's UUID where no
        operator submitted it.
    :param partitions: those that it may write; none for any.
    :param opened_at: seconds by the store's clock; 0 in a record that was written only once,
        whose own age says so. The same of ``beat_at``, the last heartbeat.
    :param report: what the operator returned.
    :param replaced: of an undone try, the UUIDs of its writes that had committed: loading again
        takes their rows' place.
    :param recovered: UUIDs of its jobs that a recovery has committed: a retry must not load
        their rows again.
    :param rank: how new its run is; ``None``: not said.
    :param deferred: its task is deferred, so that no operator sends heartbeats.
    :param writes: by number.
    :param settles: by partition, the conflict of runs that it settles; an unpartitioned table's
        stands for all of its destination.
    :param kept: likewise, the conflict that was settled for it since its rows were visible.
    :param settings: those of its committer that were in force at its submission, if that is said.
    :param uploads: how many were pending below the table then; ``None``: nobody could list them.
    :param on_conflict: what its operator was to do about other runs.
    :param gave_way: the error by which it gave way to another run, before it was submitted.
    """

    uuid: str
    idempotency_key: str
    owner: Owner
    committer: str
    mode: str | None
    partitions: tuple[str, ...] = ()
    state: str = SUBMITTED
    opened_at: float = 0.0
    beat_at: Annotated[float, LEFT_OUT] = 0.0
    report: Mapping[str, Any] | None = None
    replaced: Annotated[tuple[str, ...], DEFAULTED] = ()
    recovered: Annotated[tuple[str, ...], LEFT_OUT] = ()
    writes: tuple[WriteRecord, ...] = ()
    rank: Rank = None
    deferred: Annotated[bool, LEFT_OUT] = False
    settles: Annotated[Mapping[str, Settling], LEFT_OUT] = field(default_factory=dict)
    kept: Annotated[Mapping[str, Settling], LEFT_OUT] = field(default_factory=dict)
    settings: Annotated[Mapping[str, str] | None, LEFT_OUT] = None
    uploads: Annotated[int | None, LEFT_OUT] = None
    on_conflict: Annotated[OnConflict, LEFT_OUT] = OnConflict.FAIL
    gave_way: Annotated[str, LEFT_OUT] = ""

    @property
    def is_alone(self) -> bool:
        """Whether no operator submitted it: nobody tries again, nor asks what came of it."""
        return self.idempotency_key == self.uuid

    @property
    def may_replace(self) -> bool:
        """Whether its rows may take the place of others': they may where it says no mode."""
        return self.mode != Mode.APPEND

    def with_write(self, write: WriteRecord) -> TryRecord:
        """The record with a write entered, or entered again."""
        others = {one.number: one for one in self.writes} | {write.number: write}
        return replace(self, writes=tuple(others[number] for number in sorted(others)))

    def with_kept(self, partition: str, settling: Settling) -> TryRecord:
        """The record with a conflict that was settled for its rows."""
        return replace(self, kept={**self.kept, partition: settling})

    def settling_of(self, partition: str) -> Settling | None:
        """The last conflict over a partition that the try settles, or that was settled for it."""
        return self.kept.get(partition, self.settles.get(partition))

    def encode(self, write_id: str) -> bytes:
        return encode(_KIND, write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> TryRecord:
        """:raises RecordDamagedError: it cannot be read."""
        return decode(body, _KIND, key).read(TryRecord)


@dataclass(frozen=True)
class StoredTry:
    """A try's record as it was found, its times filled in.

    :param key: where it lies, with this ``etag``.
    :param silent_for: seconds since the last heartbeat, by the store's clock.
    """

    record: TryRecord
    key: str
    etag: str
    silent_for: float

    @staticmethod
    def of(found: Found) -> StoredTry:
        read = TryRecord.decode(found.body, found.key)
        opened_at, beat_at = (at or found.last_modified for at in (read.opened_at, read.beat_at))
        record = replace(read, opened_at=opened_at, beat_at=beat_at)
        return StoredTry(record, found.key, found.etag, max(0.0, found.date - beat_at))

    @property
    def patience(self) -> float:
        """Seconds without a heartbeat after which nobody counts as having the try in hand."""
        waits = self.record.deferred and self.record.state == SUBMITTED
        return DEFERRED_PATIENCE if waits else PATIENCE

    @property
    def may_be_writing(self) -> bool:
        """Whether its application may be at work: somebody who has it in hand sent a heartbeat
        lately, and neither its operator nor each write says that it has ended."""
        goes_on = self.record.state == SUBMITTED
        goes_on = goes_on or any(write.state == WRITING for write in self.record.writes)
        return goes_on and self.silent_for < HEARTBEAT_TIMEOUT
