"""Ledger of S3A loads: the tries of each run, and the writes of each try's application.

S3A's own traces do not suffice. ``_SUCCESS`` names only the last job of a destination, the files
of the magic committer do not carry their job's UUID, nothing says which run made a job or whether
it lives, and a driver that died may have committed or not. So the operator records each try, and
renews the record by heartbeats until the application is known to have ended; the application's
driver records each write. The records lie beside the table, not in it: an object below a
destination makes it exist (``mode("error")`` and conflict mode *fail* would refuse each first
write), and Spark's overwrite deletes it whole.

* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>-open.json``: a try, by the operator
* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>.json``: the same once it is closed
* ``<parent>/_zero_rename/s3a-writes/<table>/<uuid>/<n>.json``: its application's n-th write
* ``<parent>/_zero_rename/s3a-reports/<table>/<uuid>/<n>/``: the committer's own report of it

A try is open from before its submission until it is known what came of it; recovery asks for the
open ones, whose number stays small. The closed record is written before the open one is deleted,
and comes after it in a listing, so that a listing shows one at least; where both are there, the
closed one counts.

A try has a UUID, handed in as ``fs.s3a.committer.uuid``. Each write has one made from it
(:func:`write_uuid`): two jobs under one UUID would take each other's pending files for theirs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote

from ...committer.errors import StoreUnreachableError
from ...committer.job_spec import Mode, Owner
from ...committer.layout import CONTROL, TableRoot, new_write_id
from ...committer.records.codec import decode, encode
from ...committer.records.marks import DEFAULTED, LEFT_OUT, Count
from ...committer.s3.deletion import remove
from ...committer.s3.listing import first_object, list_objects
from ...committer.s3.requests import (
    All,
    Delete,
    Done,
    Found,
    Get,
    Put,
    Step,
    Unknown,
)
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_reports import find_report
from ..hadoop.settings import Committer

#: States of a try.
SUBMITTED, COMMITTED, FAILED = "submitted", "committed", "failed"
#: An earlier try of which nothing is in the table, which has been made sure.
UNDONE = "undone"
#: States of a write. ``failed``: Spark has said so, and aborted its job.
WRITING, WRITTEN = "writing", "written"
#: Seconds between an application's heartbeats while it writes, and seconds without one after
#: which it counts as gone.
HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT = 15.0, 90.0
#: A try whose operator's heartbeats come so many intervals late is silent, and so many seconds at
#: least.
_INTERVALS, _LEAST_PATIENCE = 10, 600.0
OPEN, _CLOSED = "-open.json", ".json"
_DIGITS = 4
R = TypeVar("R", "TryRecord", "WriteRecord")


def run_uuid() -> str:
    """A new try's UUID: random, its last four digits zero."""
    return f"{str(uuid.uuid4())[:-_DIGITS]}{'0' * _DIGITS}"


def write_uuid(run: str, number: int) -> str:
    """The committer UUID of a try's write number 1, 2, …: the try's, with other last digits.

    :raises ValueError: more than 65,535 writes.
    """
    if not 0 <= number < 16**_DIGITS:
        raise ValueError(f"write number {number}")
    return f"{run[:-_DIGITS]}{number:0{_DIGITS}x}"


def is_of(run: str, job: str) -> bool:
    """Whether a job's UUID is that of a try, or of one of the try's numbered writes."""
    mine, other = run.lower(), job.lower()
    if mine == other:
        return bool(mine)
    numbered = len(mine) == 36 and mine.endswith("0" * _DIGITS)
    return numbered and other[:-_DIGITS] == mine[:-_DIGITS]


def run_of(write: str) -> str:
    """The try's UUID of a write's."""
    return f"{write[:-_DIGITS]}{'0' * _DIGITS}"


@dataclass(frozen=True)
class TryRecord:
    """One try of a run's task, and what came of it.

    :param uuid: the try's.
    :param once: the run's key, which all its tries share.
    :param partitions: those that it may write; none for any.
    :param state: :data:`SUBMITTED`, :data:`COMMITTED`, :data:`FAILED` or :data:`UNDONE`.
    :param opened_at: seconds by the store's clock; 0 in a record that was written only once,
        whose own age says so.
    :param report: what the operator returned.
    :param replaced: of an undone try, the UUIDs of its writes that had committed: loading again
        takes their rows' place.
    :param recovered: UUIDs of its jobs that a recovery has committed: a retry must not load
        their rows again.
    :param interval: seconds between its operator's heartbeats; ``None`` where none are sent.
    """

    uuid: str
    once: str
    owner: Owner
    committer: str
    mode: str | None
    partitions: tuple[str, ...] = ()
    state: str = SUBMITTED
    opened_at: float = 0.0
    report: Mapping[str, Any] | None = None
    replaced: Annotated[tuple[str, ...], DEFAULTED] = ()
    recovered: Annotated[tuple[str, ...], LEFT_OUT] = ()
    interval: Annotated[float | None, LEFT_OUT] = None

    @property
    def patience(self) -> float:
        """Seconds of silence after which the try's operator counts as gone."""
        return max(_INTERVALS * (self.interval or 0.0), _LEAST_PATIENCE)

    def encode(self) -> bytes:
        return encode("s3a try", new_write_id(), self)

    @staticmethod
    def decode(body: bytes, key: str) -> TryRecord:
        return decode(body, "s3a try", key).read(TryRecord)


@dataclass(frozen=True)
class WriteRecord:
    """One write of an application: one job of a committer.

    :param uuid: the job's committer UUID; ``run`` the try's.
    :param destination: ``s3://bucket/key``: the table's root, or one partition's folder.
    :param partition: the partition whose folder that is.
    :param dynamic: the write replaces whatever partitions its rows have, which leaves no
        ``_SUCCESS`` (SPARK-35279).
    :param part: which of the ``parts`` writes of one call this is; a call that replaces several
        partitions makes one for each.
    :param emptied: partitions that the write emptied besides, since no row of theirs arrived.
    :param opened_at: seconds by the store's clock.
    :param rows: how many Spark wrote; ``None`` while it writes, and where nobody counted them.
    :param among: the only partitions that its rows can be in; none for any.
    :param reports: the folder of its committer's report, ``s3a://bucket/key``, where the session
        names one; else it is :func:`report_prefix`.
    """

    uuid: str
    run: str
    number: Count
    committer: str
    destination: str
    mode: str
    partition: str | None = None
    dynamic: bool = False
    part: Count = 1
    parts: Count = 1
    emptied: tuple[str, ...] = ()
    state: str = WRITING
    opened_at: float = 0.0
    rows: Annotated[int | None, LEFT_OUT] = None
    among: Annotated[tuple[str, ...], LEFT_OUT] = ()
    reports: Annotated[str | None, LEFT_OUT] = None

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

    def encode(self) -> bytes:
        return encode("s3a write", new_write_id(), self)

    @staticmethod
    def decode(body: bytes, key: str) -> WriteRecord:
        return decode(body, "s3a write", key).read(WriteRecord)


@dataclass(frozen=True)
class Known(Generic[R]):
    """A record as it was found.

    :param silent_for: seconds since it was written, by the store's clock.
    :param since: when it was first written, by the store's clock; ``at`` when last.
    """

    record: R
    silent_for: float
    since: float
    at: float = 0.0


def open_key(root: TableRoot, once: str, run: str) -> str:
    return f"{_run_prefix(root, once)}{run}{OPEN}"


def closed_key(root: TableRoot, once: str, run: str) -> str:
    return f"{_run_prefix(root, once)}{run}{_CLOSED}"


def _closed(key: str) -> str:
    return f"{key.removesuffix(OPEN)}{_CLOSED}" if key.endswith(OPEN) else key


def keys_of_tries(keys: Sequence[str]) -> list[str]:
    """One key for each try among those of its records."""
    known = set(keys)
    return [k for k in keys if k.endswith(_CLOSED) and (_closed(k) == k or _closed(k) not in known)]


def runs_prefix(root: TableRoot) -> str:
    """Below which the tries of all runs of a table are."""
    return _beside(root, "s3a-runs")


def _run_prefix(root: TableRoot, once: str) -> str:
    digest = hashlib.sha256(once.encode()).hexdigest()[:16]
    return f"{runs_prefix(root)}{quote(once, safe='')[:80]}-{digest}/"


def write_key(root: TableRoot, run: str, number: int) -> str:
    return f"{_writes_prefix(root, run)}{number}.json"


def _writes_prefix(root: TableRoot, run: str) -> str:
    return f"{_beside(root, 's3a-writes')}{run}/"


def report_prefix(root: TableRoot, run: str, number: int) -> str:
    """Where the committer leaves its summary report of a write: it says that the job committed
    also when the marker is a later job's. Without a slash at its end."""
    return f"{_beside(root, 's3a-reports')}{run}/{number}"


def report_dir(root: TableRoot, write: WriteRecord) -> str:
    """The folder of a write's report, ``s3a://bucket/key``."""
    return write.reports or f"s3a://{root.bucket}/{report_prefix(root, write.run, write.number)}"


def read_report(root: TableRoot, write: WriteRecord) -> Step[JobSummary | None]:
    """The committer's report of a write; ``None`` where it left none of this job."""
    since_ms = int(write.opened_at * 1000)
    report, _ = yield from find_report(root.bucket, write.uuid, report_dir(root, write), since_ms)
    return report


def _beside(root: TableRoot, kind: str) -> str:
    parent, _, name = root.prefix.rpartition("/")
    return "/".join(filter(None, (parent, CONTROL, kind, name))) + "/"


def open_try(root: TableRoot, record: TryRecord) -> Step[TryRecord]:
    """Say that a try is about to be submitted. Returns its record with its time by the store's
    clock."""
    date = yield from _put(open_key(root, record.once, record.uuid), record.encode())
    return record if record.opened_at else replace(record, opened_at=date)


def close_try(root: TableRoot, record: TryRecord) -> Step[None]:
    """Write what came of a try, whose application is known to have ended."""
    key, body = closed_key(root, record.once, record.uuid), record.encode()
    if not isinstance((yield Put(key, body)), Done):
        yield from _put(key, body)
    deletion = Delete(open_key(root, record.once, record.uuid))
    if isinstance((yield deletion), Unknown):
        yield deletion


def put_write(root: TableRoot, record: WriteRecord) -> Step[WriteRecord]:
    """Write a write's record, also again as a heartbeat."""
    date = yield from _put(write_key(root, record.run, record.number), record.encode())
    return record if record.opened_at else replace(record, opened_at=date)


def _put(key: str, body: bytes) -> Step[float]:
    answer = yield Put(key, body)
    if not isinstance(answer, Done):
        raise StoreUnreachableError(
            f"The store did not confirm a record ({answer}).",
            key=key,
            remedy="Try again when the store answers.",
        )
    return answer.date


def tries_of(root: TableRoot, once: str) -> Step[tuple[Known[TryRecord], ...]]:
    """A run's tries, the oldest first."""
    listing = yield from list_objects(_run_prefix(root, once))
    read = yield All(tuple(_read_try(key) for key in keys_of_tries(listing.keys)))
    found = [known for known in read if known is not None]
    # The store's times have whole seconds.
    return tuple(sorted(found, key=lambda k: (k.since, k.record.owner.try_number or 0)))


def _read_try(key: str) -> Step[Known[TryRecord] | None]:
    """A try by the key of its record, which may have been closed since it was listed."""
    for place in dict.fromkeys((key, _closed(key))):
        found = yield Get(place)
        if isinstance(found, Found):
            return _known(TryRecord.decode(found.body, found.key), found)
    return None


def superseded(root: TableRoot, once: str, run: str) -> Step[str]:
    """Why a try may not write any more, a sentence; ``""`` where it may.

    Later tries that are known to have left nothing do not count.
    """
    known = yield from tries_of(root, once)
    order = [k.record for k in known if k.record.state != UNDONE or k.record.uuid == run]
    mine = next((at for at, record in enumerate(order) if record.uuid == run), None)
    if mine is None:
        return ""
    if mine < len(order) - 1:
        return f"A later try of this run has begun (try {order[-1].owner.try_number})"
    return "A retry has found this try to be dead" if order[mine].state == UNDONE else ""


def writes_of(root: TableRoot, run: str) -> Step[tuple[Known[WriteRecord], ...]]:
    """The writes of a try's application, in their order."""
    found = yield from _read_all(_writes_prefix(root, run), WriteRecord.decode)
    return tuple(sorted(found, key=lambda known: known.record.number))


def find_try(root: TableRoot, run: str) -> Step[Known[TryRecord] | None]:
    """A try's record by its UUID, or by that of one of its writes: one LIST per thousand runs."""
    names = tuple(f"/{run_of(run)}{ending}" for ending in (OPEN, _CLOSED))
    item = yield from first_object(runs_prefix(root), lambda it: it.key.endswith(names))
    if item is None:
        return None
    return (yield from _read_try(_closed(item.key))) or (yield from _read_try(item.key))


def remove_writes(root: TableRoot, run: str) -> Step[Mapping[str, str]]:
    """Forget a try's writes, once the try's own record says what came of them.

    :returns: records that may still be there, with the reason: they say nothing any more, and
        only take up room.
    """
    own = yield from list_objects(_writes_prefix(root, run))
    reports = yield from list_objects(f"{_beside(root, 's3a-reports')}{run}/")
    return (yield from remove((key, None) for key in (*own.keys, *reports.keys)))


def last_heartbeat(root: TableRoot, run: str) -> Step[float | None]:
    """Seconds since the try's application last said that it writes; ``None`` where it never
    did or said that it is done."""
    found = yield from writes_of(root, run)
    silences = [known.silent_for for known in found if known.record.state == WRITING]
    return min(silences) if silences else None


def _read_all(prefix: str, read: Callable[[bytes, str], Any]) -> Step[list[Known[Any]]]:
    listing = yield from list_objects(prefix)
    answers = yield All(tuple(Get(key) for key in listing.keys if key.endswith(".json")))
    found = [answer for answer in answers if isinstance(answer, Found)]
    return [_known(read(one.body, one.key), one) for one in found]


def _known(record: Any, found: Found) -> Known[Any]:
    silent = max(0.0, found.date - found.last_modified)
    return Known(record, silent, record.opened_at or found.last_modified, found.last_modified)
