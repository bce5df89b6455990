"""Whose an S3A job is: a record that a run keeps while its application is at work.

The committers leave nothing that says which run made a job, or whether it lives. So whoever
submits an application writes this record first, renews it as a heartbeat, and removes it when
the application is known to have ended.

It lies *beside* the table (``<parent>/_zero_rename/s3a/<table>/<id>.json``), never below it: an
object there would make the destination exist, so that Spark's mode ``error`` and the committers'
conflict mode ``fail`` refused the first write; and Spark's overwrite deletes the destination with
all that lies in it before the job is set up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from urllib.parse import quote

from ...committer.errors import InvalidInputError, OutcomeUnknownError, RecordDamagedError
from ...committer.job_spec import NOBODY, Owner
from ...committer.layout import CONTROL, TableRoot, new_write_id
from ...committer.records.codec import decode, encode
from ...committer.records.open_record import owner_from
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import (
    Absent,
    All,
    Delete,
    Done,
    Found,
    Get,
    Put,
    Refused,
    Step,
    Unknown,
)

_KIND = "s3a-run"
#: What a record's ``outcome`` says once recovery has committed a job of the run.
ROLLED_FORWARD = "rolled-forward"
#: A run whose heartbeats come so many intervals late is silent, and so many seconds at least.
_INTERVALS, _LEAST_PATIENCE = 10, 600.0
_TRIES = 3
#: The last digits of a run's UUID where it makes several writes: write n has n, in hexadecimal.
_RUN_SUFFIX = "0000"


def is_run_of(run: str, job: str) -> bool:
    """Whether a job's UUID is that of a run, or of one of the run's numbered writes."""
    mine, other = run.lower(), job.lower()
    if mine == other:
        return bool(mine)
    return len(mine) == 36 and mine.endswith(_RUN_SUFFIX) and other[:-4] == mine[:-4]


@dataclass(frozen=True)
class RunRecord:
    """A run, and the job or jobs that are its.

    :param id: names the record; the UUID where one is handed to the committer.
    :param owner: DAG, run, task, try.
    :param committer: ``magic``, ``directory``, ``partitioned``.
    :param mode: ``append``, ``overwrite`` …; ``None`` leaves it to the application.
    :param uuid: the committer's UUID; ``None`` where the run does not know it.
    :param interval: seconds between heartbeats; ``None`` when nobody sends any.
    :param opened_at: when the first version was written, by the store's clock.
    :param outcome: ``rolled-forward`` once a recovery has committed a job of this run: a retry
        must not load its rows again. ``recovered`` has the UUIDs of those jobs.
    """

    id: str
    owner: Owner = NOBODY
    committer: str = ""
    mode: str | None = None
    uuid: str | None = None
    interval: float | None = None
    opened_at: float | None = None
    outcome: str = ""
    recovered: tuple[str, ...] = ()
    write_id: str = ""

    @property
    def patience(self) -> float:
        """Seconds of silence after which the run's submitter counts as gone."""
        return max(_INTERVALS * (self.interval or 0.0), _LEAST_PATIENCE)

    def is_of(self, job: str) -> bool:
        """Whether the job of that UUID is this run's: its own, or one of its numbered writes."""
        return self.uuid is not None and is_run_of(self.uuid, job)

    def encode(self) -> bytes:
        members = asdict(self)
        write_id = members.pop("write_id")
        return encode(_KIND, write_id, members)

    @staticmethod
    def decode(body: bytes, key: str) -> RunRecord:
        """:raises RecordDamagedError: it cannot be read."""
        read = decode(body, _KIND, key)
        return RunRecord(
            id=read.string("id"),
            owner=owner_from(read.within("owner")),
            committer=read.string("committer", ""),
            mode=read.optional_string("mode"),
            uuid=read.optional_string("uuid"),
            interval=read.number("interval", None),
            opened_at=read.number("opened_at", None),
            outcome=read.string("outcome", ""),
            recovered=read.strings("recovered", ()),
            write_id=read.string("write_id"),
        )


@dataclass(frozen=True)
class KnownRecord:
    """A record as it was read.

    :param record: ``None`` for one that cannot be read; ``damage`` says why.
    :param silent_for: seconds since it was last renewed, by the store's clock.
    """

    record: RunRecord | None
    silent_for: float
    damage: str = ""

    @property
    def is_renewed(self) -> bool:
        """Whether whoever submitted the application sent a heartbeat lately."""
        return self.record is None or self.silent_for < self.record.patience


def records_prefix(root: TableRoot) -> str:
    parent, slash, name = root.prefix.rpartition("/")
    return f"{parent}{slash}{CONTROL}/s3a/{quote(name, safe='')}/"


def record_key(root: TableRoot, id: str) -> str:
    """The key of a run's record.

    :raises InvalidInputError: an id that cannot be part of a key.
    """
    if not id or "/" in id or not id.isprintable():
        raise InvalidInputError(f"{id!r} cannot be the id of a run's record.", table=root.url)
    return f"{records_prefix(root)}{id}.json"


def write_record(
    root: TableRoot, record: RunRecord, write_id: Callable[[], str] = new_write_id
) -> Step[RunRecord]:
    """Say that a run is about to submit its application.

    :returns: the record as it was written.
    """
    written = replace(record, write_id=write_id())
    put = Put(record_key(root, record.id), written.encode())
    answer = yield put
    if isinstance(answer, Unknown | Refused):
        yield put
    return written


def renew_record(
    root: TableRoot, id: str, interval: float, write_id: Callable[[], str] = new_write_id
) -> Step[bool]:
    """Send a heartbeat; a record that was removed stays removed.

    :param interval: seconds until the next one.
    :returns: whether the record is there.
    """
    key = record_key(root, id)
    found = yield Get(key)
    if isinstance(found, Absent):
        return False
    record = RunRecord.decode(found.body, key)
    opened_at = record.opened_at if record.opened_at is not None else found.last_modified
    new = replace(record, interval=interval, opened_at=opened_at, write_id=write_id())
    yield Put(key, new.encode(), if_match=found.etag)
    return True


def note_rolled_forward(
    root: TableRoot, id: str, job: str, write_id: Callable[[], str] = new_write_id
) -> Step[None]:
    """Say in a run's record that recovery committed a job of it, for the run's next try to read.

    :raises OutcomeUnknownError: the store does not say whether it was written.
    """
    key = record_key(root, id)
    for _ in range(_TRIES):
        found = yield Get(key)
        if isinstance(found, Absent):
            return
        record = RunRecord.decode(found.body, key)
        if job in record.recovered:
            return
        recovered = (*record.recovered, job)
        new = replace(record, outcome=ROLLED_FORWARD, recovered=recovered, write_id=write_id())
        if isinstance((yield Put(key, new.encode(), if_match=found.etag)), Done):
            return
    raise OutcomeUnknownError(
        f"Whether the record of run {id} says that its job was committed is not known.",
        table=root.url,
        key=key,
        remedy="Run the recovery again.",
    )


def remove_record(root: TableRoot, id: str) -> Step[None]:
    """Say that a run's application is known to have ended."""
    answer = yield Delete(record_key(root, id))
    if isinstance(answer, Unknown):
        yield Delete(record_key(root, id))


def list_records(root: TableRoot) -> Step[tuple[KnownRecord, ...]]:
    """The records of all runs that have not said that they ended."""
    listing = yield from list_objects(records_prefix(root))
    found = yield All(tuple(_read(key) for key in listing.keys if key.endswith(".json")))
    return tuple(known for known in found if known is not None)


def _read(key: str) -> Step[KnownRecord | None]:
    found: Found | Absent = yield Get(key)
    if isinstance(found, Absent):
        return None
    silent_for = max(0.0, found.date - found.last_modified)
    try:
        record = RunRecord.decode(found.body, key)
    except RecordDamagedError as error:
        return KnownRecord(None, silent_for, str(error))
    if record.opened_at is None:
        record = replace(record, opened_at=found.last_modified)
    return KnownRecord(record, silent_for)
