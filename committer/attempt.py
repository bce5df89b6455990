"""Writer of a task attempt of an open job, and its output streams.

In a Delta table a file is written whole, where no reader looks for it. No two attempts share a key.
So a request that arrives late writes what is there already, or an object that no reader knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from secrets import token_hex

from .commit.state.decide import refuse_late
from .commit.state.job_state import OpenedJob
from .errors import StreamError, ZeroRenameError, about
from .format.parquet.task_writer import TaskWriter
from .store.backoff import Backoff
from .store.driver import Driver
from .store.requests import (
    CompleteUpload,
    Delete,
    Done,
    Found,
    Head,
    ObjectSettings,
    PutFile,
    Refused,
    Step,
)
from .store.upload_stream import DelayedOutputStream

#: Waits as long as a request that the driver repeats.
_COMPLETE = Backoff(tries=16, first=0.5, cap=8.0)


def complete_whole(key: str, upload_id: str, etags: Sequence[str], size: int) -> Step[str]:
    """Complete the upload of a file that is written whole, and return its ETag.

    If it is complete already, only its ETag is read.

    :raises StreamError: the store says that it is not complete, or does not say.
    """
    cause = ""
    for attempt in _COMPLETE.attempts():
        yield from _COMPLETE.pause(attempt)
        answer = yield from CompleteUpload(key, upload_id, tuple(etags))
        if isinstance(answer, Done):
            return answer.etag
        found = yield from Head(key)
        if isinstance(found, Found) and found.size == size:
            return found.etag  # No other writer has this key.
        cause = answer.code if isinstance(answer, Refused) else answer.cause
        if isinstance(answer, Refused) and attempt:
            break
    raise StreamError(f"The store did not complete the file's upload ({cause}).", key=key)


class WholeOutputStream(DelayedOutputStream):
    """Stream like :class:`DelayedOutputStream` whose ``close`` writes the object.

    ``abort`` removes the object. Requests: one if everything fits into a part; else one that
    creates the upload, one per part, and one that completes it. ``upload`` then names no upload,
    and the object's ETag.
    """

    def begin(self) -> None:
        """Do nothing: most files are one request."""

    def seal(self) -> None:
        """Close: most files have no part that could be sent before."""
        self.close()

    def _finish(self) -> None:
        if self._upload_id is None:
            body, self._buffer = self._buffer, bytearray()
            self._sent = True
            answer = self._driver.perform(PutFile(self.key, memoryview(body), self._settings))
            if isinstance(answer, Refused):
                raise StreamError(f"The store refused the file ({answer.code}).")
            self._etags = [answer.etag]
        else:
            super()._finish()
            self._sent = True
            completing = complete_whole(self.key, self._upload_id, self._etags, self.tell())
            self._etags = [self._driver.run(completing)]
        self._upload_id = ""

    def _discard(self) -> Exception | None:
        """Remove the object if it may be there, and abort an upload that is not completed."""
        if not self._sent:
            return super()._discard()
        try:
            answer = self._driver.perform(Delete(self.key))
        except ZeroRenameError as error:
            return error
        left = None if self._upload_id == "" else super()._discard()
        if isinstance(answer, Done):
            return left
        return StreamError(f"The object {self.key} may be left, unseen.", key=self.key)


def _own_keys(opened: OpenedJob, attempt: str) -> Callable[[str, int], str] | None:
    """Return a function for keys that no other attempt has; ``None`` in a table of directories.

    There, files lie in the partitions' directories.
    """
    if opened.log is None:
        return None
    # The key does not contain the partition: some engines do not find keys with non-ASCII letters.
    data, numbers = opened.log.data, count()
    return lambda _partition, _number: f"{data}part-{attempt}-{next(numbers):04d}.parquet"


def data_stream(
    driver: Driver, opened: OpenedJob, key: str, settings: ObjectSettings
) -> DelayedOutputStream:
    """Make the stream of one data file of an open job."""
    kind = DelayedOutputStream if opened.log is None else WholeOutputStream
    return kind(driver, key, settings, part_bytes=opened.spec.files.part_bytes)


def task_writer(
    driver: Driver,
    opened: OpenedJob,
    task: int,
    attempt: int,
    at_end: Callable[[], object] | None = None,
) -> TaskWriter:
    """Make the writer of a task's attempt of an open job.

    :param at_end: as :class:`TaskWriter` takes it.
    """
    spec = opened.spec
    return TaskWriter(
        opened.root,
        opened.job,
        task,
        attempt,
        opened.schema,
        opened.partition_by,
        spec.files,
        partial(data_stream, driver, opened),
        spec.allowed_partitions,
        absent=frozenset(opened.schema.names).difference(spec.schema.names),
        # In a log, a late attempt's files have keys of their own, which no reader knows.
        at_end=at_end if opened.log is None else None,
        key_of=_own_keys(opened, f"{task:05d}-{attempt}-{token_hex(4)}"),
        describe=None if opened.log is None else opened.log.describe,
        keep_partition_by=opened.log is not None,
        sorted_by=spec.sorted_by,
        narrowed=opened.narrowed,
    )


def attempt_writer(driver: Driver, opened: OpenedJob, task: int, attempt: int) -> TaskWriter:
    """Make a writer like :func:`task_writer`, for an attempt that the job may not wait for.

    Such an attempt checks at its end whether the job is decided.
    """

    def check() -> None:
        with about(opened.root.url):
            driver.run(refuse_late(opened.root, opened.job, task))

    return task_writer(driver, opened, task, attempt, None if opened.awaited else check)
