"""The record of an attempt: its owner, its writes, its last heartbeat and its result.

An *attempt* is one execution of the application of a run that loads by Hadoop's committers: the
first, or a retry. One that no operator submitted is its own run. What Spark and YARN repeat by
themselves is called *task attempts* and *application attempts*.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from ...committer.format.job_spec import Mode, OnConflict, Owner
from ...committer.format.layout import TableRoot
from ...committer.format.records.codec import decode, encode
from ...committer.format.records.marks import DEFAULTED, LEFT_OUT, Count
from ...committer.format.records.partition_ranks import Rank
from ...committer.format.settling import Settling
from ...committer.store.requests import Found
from ..hadoop.settings import Committer

#: States of an open attempt. ``fenced``: a retry or a recovery has judged it dead, and settles it.
SUBMITTED, FAILED, FENCED = "submitted", "failed", "fenced"
#: States of a settled attempt. ``undone``: it has been made sure that none of its rows are in the
#: table.
COMMITTED, UNDONE = "committed", "undone"
SETTLED = (COMMITTED, UNDONE)
#: States of a write. It may be :data:`FAILED`, too: Spark has reported this and aborted its job.
WRITING, WRITTEN = "writing", "written"
#: Seconds between an application's heartbeats while it writes, and seconds without one after
#: which it counts as ended.
HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT = 15.0, 90.0
#: Seconds between an operator's heartbeats, and seconds without one after which the attempt counts
#: as abandoned, unless Airflow knows more.
OPERATOR_INTERVAL, PATIENCE = 30.0, 600.0
#: The timeout for an attempt whose task is deferred. Airflow's trigger waits for its application,
#: which sends heartbeats only while it writes. It equals an operator's timeout for a job of AWS.
DEFERRED_PATIENCE = 24 * 3600.0
_DIGITS = 4
_KIND = "s3a try"


def run_uuid() -> str:
    """Make a new attempt's UUID: random, with zeros as its last four digits.

    The application gets it as ``fs.s3a.committer.uuid``. Each write of ``save()`` has a UUID made
    from it, since two jobs with one UUID would take each other's pending files for their own.
    """
    return f"{str(uuid.uuid4())[:-_DIGITS]}{'0' * _DIGITS}"


def write_uuid(run: str, number: int) -> str:
    """Make the committer UUID of an attempt's write 1, 2, …: the attempt's, other last digits.

    :raises ValueError: more than 65,535 writes.
    """
    if not 0 <= number < 16**_DIGITS:
        raise ValueError(f"write number {number}")
    return f"{run[:-_DIGITS]}{number:0{_DIGITS}x}"


def run_of(write: str) -> str:
    """Return the UUID of the attempt that a write's UUID was made from."""
    return f"{write[:-_DIGITS]}{'0' * _DIGITS}"


def is_of(run: str, job: str) -> bool:
    """Return whether a job's UUID is that of an attempt, or of one of its numbered writes."""
    mine, other = run.lower(), job.lower()
    numbered = len(mine) == 36 and mine == run_of(mine)
    return bool(mine) and (mine == other or (numbered and mine == run_of(other)))


@dataclass(frozen=True)
class WriteRecord:
    """One write of an attempt's application, which is one job of a committer.

    :param uuid: the job's committer UUID.
    :param destination: ``s3://bucket/key``: the table's root, or one partition's folder.
    :param partition: the partition, if the destination is its folder.
    :param part: which of the ``parts`` writes of one call this is. A call that replaces several
        partitions makes one for each.
    :param emptied: partitions that the write also emptied, since they received no row.
    :param opened_at: Unix seconds by the store's clock.
    :param ended_at: the same, of when it was recorded as written.
    :param rows: number of rows that Spark wrote; ``None`` while it writes, and if the rows were
        not counted.
    :param among: the only partitions that its rows can be in; empty for any.
    :param unfinished: its job has committed, and named partitions that got no row may still hold
        their old files.
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
    unfinished: Annotated[bool, LEFT_OUT] = False

    @property
    def root(self) -> TableRoot:
        """The destination. A partition's folder may have a name that no table may have."""
        bucket, _, prefix = self.destination.partition("://")[2].partition("/")
        return TableRoot(bucket, prefix.rstrip("/"))

    @property
    def since_ms(self) -> int:
        return int(self.opened_at * 1000)

    @property
    def is_done(self) -> bool:
        """True if its job has committed, and nothing is left to do after that."""
        return self.state == WRITTEN and not self.unfinished

    @property
    def empties(self) -> bool:
        """True if the write has to empty named partitions that got no row, after its job.

        Such a write is not done until its record says so, even if its job has committed.
        """
        named = self.partition is None and bool(self.among)
        return named and self.mode == Mode.REPLACE and self.committer == Committer.PARTITIONED

    def is_to(self, root: TableRoot) -> bool:
        """Return whether it writes into a table: to its root, or to a folder in it.

        An application may also write other tables.
        """
        return f"{self.destination}/".startswith(f"{root.url}/")

    @property
    def is_adding(self) -> bool:
        """True if a repetition of the write would add its rows a second time.

        Otherwise the repetition replaces the present rows, or fails because of them
        (fail-if-exists).
        """
        return self.mode not in (Mode.REPLACE, Mode.FAIL_IF_EXISTS)


@dataclass(frozen=True)
class TryRecord:
    """One attempt of a run's task, with its writes and its result.

    :param uuid: the attempt's.
    :param idempotency_key: the run's key, which all its attempts share; the attempt's UUID if no
        operator submitted it.
    :param partitions: the partitions that it may write; empty for any.
    :param opened_at: Unix seconds by the store's clock; 0 in a record that was written only once,
        since the object's own time says it.
    :param beat_at: the same, of the last heartbeat.
    :param report: the report that the operator returned.
    :param replaced: in an undone attempt, the UUIDs of its writes that had committed. The next load
        replaces their rows.
    :param recovered: UUIDs of its jobs that a recovery has committed. A retry must not load
        their rows again.
    :param rank: how new its run is; ``None``: not given.
    :param deferred: its task is deferred, so no operator sends heartbeats.
    :param writes: in order of their numbers.
    :param settles: by partition, the conflict of runs that the attempt settles. In an unpartitioned
        table, the name of its only partition stands for the whole destination.
    :param kept: by partition, the conflict that was settled for the attempt because its rows were
        visible.
    :param settings: its committer's settings in force at its submission, if they were recorded.
    :param uploads: number of uploads under way below the table at that time; ``None``: they could
        not be listed.
    :param on_conflict: the policy of its operator about other runs.
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
        """True if no operator submitted it. Then no next attempt follows, or reads its result."""
        return self.idempotency_key == self.uuid

    def mode_of(self, writes: Iterable[WriteRecord]) -> str | None:
        """Return its mode; if only its application knows that, the one that its writes have.

        ``None`` if these have several.
        """
        modes = {it.mode for it in writes if it.mode}
        return self.mode or (modes.pop() if len(modes) == 1 else None)

    @property
    def may_replace(self) -> bool:
        """True if its rows may replace others, also if the mode is not recorded."""
        return self.mode != Mode.APPEND

    def with_write(self, write: WriteRecord) -> TryRecord:
        """Return the record with a write added, or updated."""
        others = {one.number: one for one in self.writes} | {write.number: write}
        return replace(self, writes=tuple(others[number] for number in sorted(others)))

    def with_kept(self, partition: str, settling: Settling) -> TryRecord:
        """Return the record with a conflict that was settled in favour of its rows."""
        return replace(self, kept={**self.kept, partition: settling})

    def settling_of(self, partition: str) -> Settling | None:
        """Return the last conflict over a partition that the attempt settles, or that was settled
        for it."""
        return self.kept.get(partition, self.settles.get(partition))

    def encode(self, write_id: str) -> bytes:
        return encode(_KIND, write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> TryRecord:
        """Decode a record's body.

        :raises RecordDamagedError: it cannot be read.
        """
        return decode(body, _KIND, key).read(TryRecord)


@dataclass(frozen=True)
class StoredTry:
    """An attempt's record as it was read, with its times filled in.

    :param key: the key that it was read from, with this ``etag``.
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
        """Seconds without a heartbeat after which the attempt counts as abandoned."""
        waits = self.record.deferred and self.record.state == SUBMITTED
        return DEFERRED_PATIENCE if waits else PATIENCE

    @property
    def may_be_writing(self) -> bool:
        """True if its application may still be at work.

        That is so if it had a heartbeat within :data:`HEARTBEAT_TIMEOUT`, and either its operator
        or one of its writes has not reported an end.
        """
        goes_on = self.record.state == SUBMITTED
        goes_on = goes_on or any(write.state == WRITING for write in self.record.writes)
        return goes_on and self.silent_for < HEARTBEAT_TIMEOUT
