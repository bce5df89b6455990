"""Errors of this package, in one tree.

::

    ZeroRenameError
    ├── RefusedError                 nothing happened; it is safe to clean up and to try again
    │   ├── InvalidInputError        an option, a table root, a partition name: mend the call
    │   │   ├── UnsupportedTypeError a column that Parquet or a directory name cannot hold
    │   │   └── SettingsRefusedError Spark settings that would lose or double rows
    │   ├── TableMismatchError       the table has another layout, coordination or schema
    │   ├── TableNotFoundError       no table of this package at that root
    │   ├── StoreRefusedError        the store said no: credentials, rights, bucket
    │   │   └── StoreFullError       a quota is used up: free space and try again
    │   ├── StoreUnreachableError    no answer at all, before anything was written
    │   │   └── FastRootGoneError    no answer from a table's fast root; its records are safe
    │   ├── StoreUnfitError          the store lacks what the protocol needs
    │   ├── CommitConflictError      another job changed a partition first; this one was aborted
    │   │   └── DestinationExistsError  fail-if-exists met files
    │   ├── SupersededRunError       a newer run has loaded the partition; this one gave way
    │   ├── JobFencedError           another process declared this job dead; it was aborted
    │   ├── OtherJobError            another job in this one's way cannot be finished or fenced
    │   ├── UnfinishedAbortError     the job is aborted; some of what it left is not removed yet
    │   ├── TaskResultsError         the tasks' messages do not add up; nothing was decided
    │   └── TaskLateError            a task ended after its job was decided without it
    ├── OutcomeUnknownError          it may have happened: clean nothing up, check again
    │   └── CommitStateUnknownError  the decision may be written: ask ``zero-rename jobs``
    ├── UnfinishedCommitError        the job *is* committed; applying it is not finished
    ├── UnfinishedUpkeepError        maintenance is not finished: run it again
    ├── DamagedError                 an object in the store is wrong or missing
    │   ├── RecordDamagedError       a control object that cannot be read; names object and field
    │   ├── HeadMovedError           a record that a head named is gone, since the head has moved
    │   └── DataLostError            a decided file that has neither upload nor object
    ├── VerificationError            an application left something else than a committed job
    ├── SnapshotGoneError            a later replace removed a file of the state being read
    └── StreamError                  an output stream was used against its contract, or failed
        └── StreamClosedError        write after close or after abort

Refused and unknown are different classes because only the first allows cleaning up (the
distinction of PyIceberg's ``CommitFailedException`` and ``CommitStateUnknownException``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType


class ZeroRenameError(Exception):
    """Base of all errors. Says what happened, to what, and what to do next.

    :param message: what happened and what is safe now, one or more sentences.
    :param table: the table's root, ``s3://bucket/prefix``.
    :param job: the id of the job concerned, ``zr1-…``.
    :param key: the object's key in the bucket.
    :param remedy: what to do next, a sentence.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        job: str | None = None,
        key: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, table, job, key, remedy)
        self.message = message
        self.table = table
        self.job = job
        self.key = key
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))

    def __str__(self) -> str:
        named = (("table", self.table), ("job", self.job), ("key", self.key))
        context = ", ".join(f"{name} {escaped(value)}" for name, value in named if value)
        parts = [printable(self.message)]
        if context:
            parts.append(f"[{context}]")
        if self.remedy:
            parts.append(printable(self.remedy))
        return " ".join(parts)


def _rebuild(kind: type[ZeroRenameError], args: tuple[str, ...], state: dict) -> ZeroRenameError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


@contextmanager
def about(table: str) -> Iterator[None]:
    """Add this table to errors from inside that name no table."""
    try:
        yield
    except ZeroRenameError as error:
        error.table = error.table or table
        raise


def printable(text: str) -> str:
    """Escape control characters of a text: records and keys are untrusted when logged."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def escaped(text: str) -> str:
    """Escape a text to one line that a terminal shows unchanged: keys and owners are untrusted."""
    return printable(text).replace("\n", "\\n")


def counted(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun: ``1 file``, ``1,024 files``.

    :param many: the plural, if it is not ``one`` with an *s*, as with a verb: ``file is``, ``files
        are``.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def names_user(endpoint: str) -> bool:
    """Return whether the URL of an endpoint holds a user or a password."""
    return re.match(r"[^/]*//[^/@]*@", endpoint) is not None


def without_secrets(url: str) -> str:
    """Return a refused URL for use in messages: no user, no password, no query."""
    place, query, _ = url.partition("?")
    place = re.sub(r"//\S*@", "//…@", place)  # A secret may have slashes.
    place = re.sub(r"^[^\s/]*:(?!//)\S*@", "…@", place)
    return place[:200] + query + ("…" if query else "")


def first_few(names: Sequence[str]) -> str:
    """List the first five names: ``a, b, c, d, e and 3 more``."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


class RefusedError(ZeroRenameError):
    """Nothing happened. Cleaning up and trying again are safe.

    :ivar overtaken: under ``on_conflict=fail`` another job has changed meanwhile what this one was
        to change, or is about to. If the job is run again, it begins on that, and may overwrite it.
        A person must decide that, not a scheduler.
    :ivar gave_way: partitions in which the job gave way to others, each with the job that was there
        first.
    :ivar run_ranks: the ranks of its run in them, as of :class:`.run_rank.RunRanks`; ``""``: not
        known.
    """

    overtaken = False
    gave_way: Mapping[str, str] = MappingProxyType({})
    run_ranks = ""


class InvalidInputError(RefusedError, ValueError):
    """An argument, option, table root or partition name is invalid."""


class UnsupportedTypeError(InvalidInputError):
    """A column type that Parquet, Arrow or a partition directory cannot hold."""


class SettingsRefusedError(InvalidInputError):
    """The settings in force would lose or double rows; nothing was submitted or written."""


class TableMismatchError(RefusedError):
    """The table exists with another layout, coordination or schema."""


class TableNotFoundError(RefusedError):
    """No table of this package is at that root."""


class StoreRefusedError(RefusedError):
    """The store refused a request: wrong credentials, missing rights, missing bucket.

    :param lacks_right: the credentials are known and may not do this.
    :param no_bucket: there is no such bucket.
    :param no_keys: there are no credentials, or the store does not know them.
    """

    def __init__(
        self,
        message: str,
        *,
        lacks_right: bool = False,
        no_bucket: bool = False,
        no_keys: bool = False,
        **context: str | None,
    ) -> None:
        super().__init__(message, **context)
        self.lacks_right = lacks_right
        self.no_bucket = no_bucket
        self.no_keys = no_keys


class StoreFullError(StoreRefusedError):
    """A quota is used up: nothing can be written; objects can still be read and removed."""


class StoreUnreachableError(RefusedError):
    """The store did not answer a request that changes nothing."""


class FastRootGoneError(StoreUnreachableError):
    """The fast root of a table does not answer, or its bucket is gone.

    The table's records, and files that a checkpoint has copied, lie elsewhere.
    """


class StoreUnfitError(RefusedError):
    """The store lacks a guarantee that the protocol needs."""


class CommitConflictError(RefusedError):
    """Another job changed a partition since this one opened; this one was aborted."""


class DestinationExistsError(CommitConflictError):
    """Mode fail-if-exists, and a partition that receives rows already holds files."""


class SupersededRunError(RefusedError):
    """A newer run has loaded what this run was to load, under ``on_conflict=newest_run``.

    Or a conflict was settled against this run, under any policy but ``last_wins``. It is final: no
    other attempt of this run is newer.

    :param partitions: those in which the run gave way, each with the job that wrote it last.
    :param skips: the job may leave such partitions out, and no other one remained: its scheduler
        counts it as skipped.
    """

    def __init__(
        self,
        message: str,
        *,
        partitions: Mapping[str, str] | None = None,
        skips: bool = False,
        **context: str | None,
    ) -> None:
        super().__init__(message, **context)
        self.partitions = dict(partitions or {})
        self.skips = skips


class JobFencedError(RefusedError):
    """Another process wrote this job's abort decision; it can no longer commit."""


class OtherJobError(RefusedError):
    """Another job is in this one's way and cannot be finished or fenced.

    This job has decided nothing.

    :param other: the other job's id.
    """

    def __init__(self, message: str, *, other: str = "", **context: str | None) -> None:
        super().__init__(message, **context)
        self.other = other


class UnfinishedAbortError(RefusedError):
    """The job is aborted and may be run again; some of what it left is not removed yet."""


class TaskResultsError(RefusedError):
    """Task messages are missing, doubled or foreign. Nothing was decided."""


class TaskLateError(RefusedError):
    """A task attempt ended after its job was decided without it. Its uploads are removed."""


class OutcomeUnknownError(ZeroRenameError):
    """It may or may not have happened. Nothing may be cleaned up."""


class CommitStateUnknownError(OutcomeUnknownError):
    """The decision was sent and neither confirmed nor refuted."""


class UnfinishedCommitError(ZeroRenameError):
    """The job is committed and must not run again; any process can finish applying it."""


class UnfinishedUpkeepError(ZeroRenameError):
    """Maintenance has changed something, and the store failed before it ended.

    The table is whole; running the maintenance again does the rest.
    """


class DamagedError(ZeroRenameError):
    """An object in the store contradicts the protocol, or is missing."""


class RecordDamagedError(DamagedError):
    """A control object cannot be read: truncated, foreign or of a newer format.

    :param field: the member at fault, dotted, or ``""`` for the object as a whole.
    """

    def __init__(self, message: str, *, field: str = "", **context: str | None) -> None:
        super().__init__(message, **context)
        self.field = field


class HeadMovedError(DamagedError):
    """A record that a partition's head named is gone, and the head has moved since it was read.

    Nothing is damaged: a reader that reads the head again finds its files.
    """


class DataLostError(DamagedError):
    """A committed file has neither upload nor object."""


class VerificationError(ZeroRenameError):
    """An application ended without an error, but left something else than a committed job."""


class SnapshotGoneError(ZeroRenameError):
    """A file of the planned state was removed by a later replace. Plan again."""


class StreamError(ZeroRenameError, OSError):
    """An output stream failed, or was used against its contract."""

    @staticmethod
    def told(error: Exception, name: str, after: str, key: str) -> ZeroRenameError:
        """Build the error of a file that was not written, if the stream's user made no mistake.

        :param after: what became of its upload.
        :returns: a :class:`FastRootGoneError` if ``error`` is one.
        """
        message = error.message if isinstance(error, ZeroRenameError) else str(error)
        kind = FastRootGoneError if isinstance(error, FastRootGoneError) else StreamError
        return kind(
            f"Writing {name} failed: {message} {after} Nothing of it is visible.",
            table=getattr(error, "table", None),
            key=key,
            remedy=getattr(error, "remedy", None),
        )


class StreamClosedError(StreamError):
    """Write after close or abort."""
