"""Writes of a table by one of Hadoop's S3A committers, each recorded, and one job at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...committer.commit.state.data_listing import list_data
from ...committer.errors import (
    DestinationExistsError,
    JobFencedError,
    OutcomeUnknownError,
    UnfinishedCommitError,
    VerificationError,
    ZeroRenameError,
)
from ...committer.format.handoff import Handoff
from ...committer.format.job_spec import Mode
from ...committer.periodic import repeating
from ...committer.store.deletion import remove
from ...committer.store.listing import first_object
from ...committer.table import Table
from ...s3a.hadoop.settings import REPORT_KEY, UNIQUE_KEY, UUID_KEY, Committer
from ...s3a.runs import ledger, try_record
from ...s3a.runs.ledger import FOUND_DEAD
from ...s3a.runs.try_record import (
    FAILED,
    FENCED,
    WRITTEN,
    TryRecord,
    WriteRecord,
    run_uuid,
    write_uuid,
)
from ...s3a.verification.verify import is_proved, verified
from ...s3a.write_plan import (
    SAVE_MODES,
    PlannedWrite,
    as_settings,
    check_call_options,
    check_destination,
    plan,
)
from ...tables.files_in_log import known_to_log
from ..job_tags import Operations
from ..write_target import WriteTarget
from .session import SessionView, check_session, client_of, encryption_for
from .written_rows import RowCount, check_names, check_timestamps, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("zero_rename.spark.s3a.recorded_write")
#: Seconds without a heartbeat after which a write ends itself: a retry waits for
#: :data:`~.s3a.runs.try_record.HEARTBEAT_TIMEOUT`, and Spark's tasks need a while to stop.
GIVE_UP = try_record.HEARTBEAT_TIMEOUT - 30.0
#: Errors of a connection to Spark, by name: not every Python has py4j or gRPC.
_OF_A_CONNECTION = {"Py4JNetworkError", "RpcError", "RetriesExceeded"}
_lock, _opening = threading.Lock(), threading.Lock()
_numbers: dict[str, int] = {}
#: The writes that this process has entered, by attempt and number.
_writes: dict[str, dict[int, WriteRecord]] = {}
#: The attempts that no other driver writes as.
_alone: set[str] = set()


def save_by_s3a(frame: DataFrame, target: WriteTarget, handoff: Handoff) -> None:
    """Write a frame for :func:`~.save_frame.save`.

    In all of these cases nothing was written, unless the message says otherwise.

    :raises SettingsRefusedError: the session's settings are harmful, or there is a table of
        ``zero_rename``.
    :raises TableMismatchError: the folder belongs to another table format.
    :raises DestinationExistsError: the mode is fail-if-exists, and there are files.
    :raises JobFencedError: a later attempt of the run has begun.
    """
    committer = Committer(target.committer)
    writes = plan(committer, target.mode, target.root, target.partition_by, target.among)
    view = SessionView(frame.sparkSession)
    job = _Application(target, view, handoff)
    check_timestamps(frame, target.partition_by, target.root.url)
    check_names(frame, target.among, target.root.url)
    job.check(writes)
    for part, write in enumerate(writes, 1):
        job.write(rows_of(frame, target, write), write, part, len(writes))
    job.end()


class _Application:
    """The application's side of one call: its writes, and the record of its attempt.

    :param handoff: names the attempt, if an operator has submitted the application.
    """

    def __init__(self, target: WriteTarget, view: SessionView, handoff: Handoff) -> None:
        self._target = target
        self._view = view
        run = handoff.s3a_run or run_uuid()
        named = handoff.table if handoff.s3a_run else None
        #: The records lie beside the table that the operator reads.
        self._beside = named or target.root
        self._try = TryRecord(
            uuid=run,
            idempotency_key=(handoff.idempotency_key if handoff.s3a_run else None) or run,
            owner=replace(handoff.owner, application=view.hadoop("spark.app.name")),
            committer=target.committer,
            mode=str(target.mode),
            partitions=target.among,
        )
        self._table = Table(target.root.url, client_of(view, target.root.bucket))
        self._records = Table(self._beside.url, client_of(view, self._beside.bucket))
        for table in (self._table, self._records):
            table.driver.encrypt_by_default(encryption_for(view, table.root.bucket))

    def check(self, writes: tuple[PlannedWrite, ...]) -> None:
        """Check everything that may be refused, before the first byte is written."""
        target = self._target
        check_destination(self._table, target.committer)
        facts = {
            "committer": target.committer,
            "destination": writes[0].path,
            "save_mode": writes[0].save_mode,
        }
        check_call_options(target.options, writes, target.mode, target.partition_by)
        settings = {**as_settings(target.options), **writes[0].settings}
        check_session(self._view, facts, settings, target.root.bucket)
        for prefix in (prefix for write in writes for prefix in write.must_be_empty):
            there = self._table.run(first_object(prefix, target.root.is_data))
            if there is not None:
                raise DestinationExistsError(
                    "There is data already, and the mode is fail-if-exists; nothing was written.",
                    table=target.root.url,
                    key=there.key,
                    remedy="Use mode overwrite or append, or another table.",
                )

    def write(self, frame: DataFrame, write: PlannedWrite, part: int, parts: int) -> None:
        """Carry out one write, which is recorded from before its start until after its end."""
        record = self._begin(write, part, parts)
        cancel = Operations(frame.sparkSession, record.uuid).cancel
        fence = Fence(lambda: self._heartbeat(record), cancel)
        count = RowCount(record.uuid)
        done = record
        try:
            with repeating(fence.heartbeat, try_record.HEARTBEAT_INTERVAL):
                self._spark_writes(count.of(frame), write, record)
                done = replace(record, state=WRITTEN, rows=count.rows())
                self._verify(done)
                emptied = self._empty_the_rest(record)
        except Exception as error:
            if done.state == WRITTEN:
                # It is committed, but files or rows are missing, or the other partitions are not
                # empty yet: a retry finds this by the record, and so do other runs.
                self._note(replace(done, unfinished=record.empties))
                raise
            if not _lost_spark(error):
                self._note(replace(record, state=FAILED))
                self.end()
            if fence.reason:
                why = f"{fence.reason}. So this write was ended; its job was aborted"
                remedy = "Nothing is to be done: that attempt, or the next, loads the rows."
                raise self._fenced(record, why, remedy) from error
            raise
        self._enter_end(replace(done, emptied=emptied))
        if fence.reason:
            raise OutcomeUnknownError(
                f"{fence.reason}, and this write was to end; but its commit had begun already, "
                "which Spark cannot cancel, and went through. Its rows may be in the table twice.",
                table=self._target.root.url,
                job=record.uuid,
                remedy="See what the later attempt loaded: its log says so, too. Its _SUCCESS "
                "and report name its files; those of this job have to go where both are there.",
            )
        logger.info("Written: %s, job %s", write.path, record.uuid)

    def end(self) -> None:
        """Remove the attempt's record if no operator submitted it: then nothing will read it."""
        if not self._try.is_alone:
            return
        _writes.pop(self._try.uuid, None)
        _alone.discard(self._try.uuid)
        try:
            left = self._records.run(ledger.remove_try(self._beside, self._try))
        except ZeroRenameError as error:
            left = {self._try.uuid: str(error)}
        if left:
            logger.warning("Records that nobody needs any more were left: %s", left)

    def _begin(self, write: PlannedWrite, part: int, parts: int) -> WriteRecord:
        """Take the next number and record the write, and then check for a later attempt of the run.

        In this order, either the later attempt sees this write, or this write sees the later
        attempt.
        """
        number = _next_number(self._try.uuid)
        record = WriteRecord(
            uuid=write_uuid(self._try.uuid, number),
            number=number,
            committer=self._target.committer,
            destination=write.path.replace("s3a://", "s3://", 1),
            mode=str(self._target.mode),
            partition=write.partition,
            part=part,
            parts=parts,
            among=() if write.partition else self._target.among,
        )
        with _opening:
            # Also after a save() that was refused here, whose error the program may have caught.
            if self._try.uuid not in _alone:
                self._check_alone()
                _alone.add(self._try.uuid)
        if reason := self._heartbeat(record):
            self._note(replace(record, state=FAILED))
            remedy = "Nothing is to be done: that attempt loads the rows."
            raise self._fenced(record, f"{reason}; nothing was written", remedy)
        return _writes[self._try.uuid][number]

    def _check_alone(self) -> None:
        """Check that no other driver writes as this attempt, and open its record if there is none.

        If YARN starts a driver again, the second one would write the same rows again, under the
        same numbers.
        """
        known = self._records.run(
            ledger.find(self._beside, self._try.idempotency_key, self._try.uuid)
        )
        if known is None:
            self._records.run(ledger.open_try(self._beside, self._try))
            return
        others = [w for w in known.record.writes if w.number not in _writes[self._try.uuid]]
        if others:
            raise self._fenced(
                others[0],
                "Another driver of this attempt has written already: the cluster has started the "
                "driver again. Nothing was written by this one",
                "Set spark.yarn.maxAppAttempts=1; the task's next attempt settles what the "
                "first driver left.",
            )

    def _enter(self, write: WriteRecord) -> TryRecord | None:
        """Enter a write's present state into the attempt's record, which is a heartbeat, too.

        The earlier writes are entered again with it: if the store ignores conditions, their entries
        may have been lost.

        :returns: the attempt's record as it is now; ``None`` if it was removed.
        """
        mine = _writes[self._try.uuid]

        def entered(found: TryRecord, now: float) -> TryRecord:
            ended_at = now if write.state == WRITTEN else 0.0
            timed = replace(write, opened_at=write.opened_at or now, ended_at=ended_at)
            mine[write.number] = timed
            for one in tuple(mine.values()):
                found = found.with_write(one)
            return replace(found, beat_at=now)

        with _lock:  # Otherwise threads of one driver would overtake each other again and again.
            return self._records.run(ledger.change(self._beside, self._try, entered))

    def _enter_end(self, done: WriteRecord) -> None:
        """Enter a write that Spark has committed.

        :raises UnfinishedCommitError: it could not be recorded; the rows are visible.
        """
        try:
            self._enter(done)
        except ZeroRenameError as error:
            raise UnfinishedCommitError(
                f"The job's rows are committed, and its record could not say so: {error}",
                table=self._target.root.url,
                job=done.uuid,
                remedy="Do not load the rows again by save() alone: they are there. A retry by the "
                "scheduler finds them by the job's report.",
            ) from error

    def _spark_writes(self, frame: DataFrame, write: PlannedWrite, record: WriteRecord) -> None:
        options = {
            **self._target.options,
            **write.options,
            UUID_KEY: record.uuid,
            # The report stays when the next job replaces the marker.
            REPORT_KEY: ledger.report_dir(self._beside, record),
            # The UUIDs in names show which files are the job's, and which partitions got no row.
            UNIQUE_KEY: "true",
        }
        writer = frame.write.format("parquet").mode(SAVE_MODES[write.save_mode]).options(**options)
        if write.partition_by:
            writer = writer.partitionBy(*write.partition_by)
        with Operations(frame.sparkSession, record.uuid):
            writer.save(write.path)

    def _verify(self, record: WriteRecord) -> None:
        """Verify that the files of the job are there, with the rows that Spark wrote.

        :raises VerificationError: files or rows are missing.
        """
        try:
            if self._table.run(is_proved(self._beside, record)):
                verified(self._table, self._beside, record, known_to_log)
            else:
                # Spark says that it committed; another job's marker may have replaced this one's.
                logger.warning("No report of job %s is to be seen: not compared", record.uuid)
        except VerificationError:
            raise
        except ZeroRenameError as error:
            logger.warning("The rows of job %s could not be compared: %s", record.uuid, error)

    def _heartbeat(self, record: WriteRecord) -> str:
        """Send a heartbeat. Return why this attempt must not write on, a sentence, or ``""``."""
        there = self._enter(record)
        if there is None:
            return "The record of this attempt was removed, as that of a dead one"
        mine = self._try
        if mine.is_alone:
            return FOUND_DEAD if there.state == FENCED else ""
        return self._records.run(ledger.superseded(self._beside, mine.idempotency_key, mine.uuid))

    def _fenced(self, record: WriteRecord, why: str, remedy: str) -> JobFencedError:
        table = self._target.root.url
        return JobFencedError(f"{why}.", table=table, job=record.uuid, remedy=remedy)

    def _empty_the_rest(self, record: WriteRecord) -> tuple[str, ...]:
        """Empty the named partitions that got no row, which the partitioned committer leaves.

        This is not atomic with the job: it comes directly after it.

        :return: these partitions, also those that held no file before.
        :raises UnfinishedCommitError: one could not be emptied; the job's rows are visible.
        """
        target = self._target
        if target.committer != Committer.PARTITIONED or target.mode is not Mode.REPLACE:
            return ()
        emptied = []
        for name in target.among:
            try:
                files = self._table.run(list_data(target.root, name))
                if any(record.uuid in item.key for item in files):
                    continue
                left = self._table.run(remove((item.key, None) for item in files)) if files else {}
            except ZeroRenameError as error:
                raise self._not_emptied(record, name, f"its old files ({error})") from error
            for key, cause in left.items():
                raise self._not_emptied(
                    record, name, f"{len(left)} of its old files ({cause})", key
                )
            emptied.append(name)
        return tuple(emptied)

    def _not_emptied(
        self, record: WriteRecord, partition: str, what: str, key: str | None = None
    ) -> UnfinishedCommitError:
        return UnfinishedCommitError(
            f"The job's rows are committed, and the partition {partition}, which got none of them, "
            f"could not be emptied: still there may be {what}.",
            table=self._target.root.url,
            job=record.uuid,
            key=key,
            remedy="Load the partitions again when the store allows deletes: an overwrite adds "
            "nothing twice. Or delete the partition's files.",
        )

    def _note(self, record: WriteRecord) -> None:
        """Record a write; a failure is only logged, so that it hides no other error."""
        try:
            self._enter(record)
        except ZeroRenameError as error:
            logger.warning("The record of job %s could not be renewed: %s", record.uuid, error)


class Fence:
    """Heartbeats of one write, which end it if they come too late.

    An S3A committer does not refuse the commit of a job that others have declared dead. So the
    application itself checks, with each heartbeat, for a later attempt of its run. And it ends its
    write if it cannot send a heartbeat in time. Spark cannot cancel a commit that has begun.

    :param beat: sends a heartbeat, and returns why the attempt must not write any more, a sentence,
        or ``""``.
    :param cancel: cancels the write's Spark jobs. Called again with each later heartbeat, since a
        write may be between two jobs.
    :param clock: seconds, by a clock that does not jump.
    """

    def __init__(
        self,
        beat: Callable[[], str],
        cancel: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beat = beat
        self._cancel = cancel
        self._clock = clock
        self._last = clock()
        #: Why the write was ended; ``""`` while it may go on.
        self.reason = ""

    def heartbeat(self) -> None:
        """Send a heartbeat, or end the write.

        :raises ZeroRenameError: it could not be sent; the next one may succeed.
        """
        if not self.reason:
            self.reason = self._why_not()
        if self.reason:
            self._cancel()

    def _why_not(self) -> str:
        begun = self._clock()
        try:
            reason = self._beat()
        except ZeroRenameError as error:
            silent = self._clock() - self._last
            if silent < GIVE_UP:
                raise
            return (
                f"It could send no heartbeat for {silent:.0f} s ({error}), after which a "
                "retry may load the same rows"
            )
        self._last = begun
        return reason


def _next_number(run: str) -> int:
    with _lock:
        number = _numbers[run] = _numbers.get(run, 0) + 1
        _writes.setdefault(run, {})
        return number


def _lost_spark(error: Exception) -> bool:
    """Return whether the connection to Spark was lost, so that the job's result is not known.

    Errors of the job itself are those that Spark reports: in a classic session with Java's trace,
    on Spark Connect of a subclass.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, ConnectionError) or kinds & _OF_A_CONNECTION:
        return True
    # py4j raises this for a connection that broke while it waited for the answer.
    is_bare = type(error).__name__ == "Py4JError" and "Trace:" not in str(error)
    return is_bare or type(error).__name__ == "SparkConnectGrpcException"
