"""Copies of files of one table into an open job of another.

The bytes are the same, at keys of that job, with everything that is on record about the files. If
both tables are reached by the same client, the store copies by itself; else the bytes go through
this process. The rows of files that the table only adopted, or that lie in a directory without
records, have not been counted: these files are read and written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import blake2b

from .attempt import WholeOutputStream, attempt_writer, complete_whole, data_stream
from .commit.snapshot import Snapshot
from .commit.state.context import Progress
from .commit.state.job_state import Committed, OpenedJob
from .errors import DamagedError, InvalidInputError, SnapshotGoneError, StreamError
from .format.job_spec import FileOptions, JobSpec, Mode, Owner
from .format.layout import TableRoot, is_written_once
from .format.parquet.file_writer import file_settings
from .format.parquet.reader import read_batches
from .format.records.data_file import DataFile
from .format.records.pending_file import PendingFile, TaskResult
from .format.run_rank import NO_RANK
from .format.schema.evolution import lacked_of
from .store.copies import CopyFile, CopyPart, Place
from .store.driver import Driver
from .store.range_reader import RangeFile
from .store.requests import All, ByteRange, CreateUpload, Done, ObjectSettings, Refused, Step
from .store.upload_parts import parts_held
from .upkeep.compaction import content_kept

_MIB = 1024 * 1024
#: Bytes that the store copies in one request. S3 accepts five times as many, but may send no byte
#: of an answer while it copies.
_AT_ONCE = 1024 * _MIB
#: Files after which progress is reported; and files under way at once through this process.
_CHUNK, LANES = 100, 4
_READ = 8 * _MIB


@dataclass(frozen=True)
class Copied:
    """Report of a copy.

    :param source: the root of the table that was copied; ``table`` is that of the new one.
    :param job: the job that wrote it; ``repeated``: an earlier job had written it, and nothing was
        done now.
    :param partitions: how many hold files; so too ``files``, ``rows`` and ``bytes``.
    :param rewritten: files of the source that were written anew now, since their rows had not been
        counted.
    :param on_server: whether the store copied, or the bytes went through this process.
    :param changed: partitions of the source that hold something else by now; ``None``: the copy is
        committed, and the source could not be read again.
    """

    source: str
    table: str
    job: str
    partitions: int
    files: int
    rows: int
    bytes: int
    rewritten: int
    on_server: bool
    changed: tuple[str, ...] | None = ()
    repeated: bool = False

    @staticmethod
    def of(
        state: Snapshot, done: Committed, on_server: bool, changed: tuple[str, ...] | None
    ) -> Copied:
        """Build the report of a committed copy of a state."""
        return Copied(
            state.root.url,
            done.table,
            done.job,
            sum(change.files > 0 for change in done.partitions),
            done.files,
            done.rows,
            done.bytes,
            0 if done.repeated else sum(file.is_foreign for file in state.files),
            on_server,
            changed,
            done.repeated,
        )


def copy_spec(state: Snapshot, owner: Owner) -> JobSpec:
    """Return the specification of the job that copies a state into a new table.

    Its idempotency key is that of the state, so the same copy is made once. A foreign file may be
    written over at its key, so its size counts, too.
    """
    names = (f"{it.key}\n{it.size}" if it.is_foreign else it.key for it in state.files)
    digest = blake2b("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()
    return JobSpec(
        state.schema,
        Mode.FAIL_IF_EXISTS,
        partition_by=state.partition_by,
        lacked=lacked_of(state.schema),
        run_rank=NO_RANK,
        idempotency_key=f"copy of {state.root.url} {digest}",
        owner=owner,
        files=FileOptions(content=content_kept(state.files)),
    )


def emptied_since(new: TableRoot, old: TableRoot, job: str) -> InvalidInputError:
    """Build the error of a repeated copy into a table that has been emptied."""
    return InvalidInputError(
        f"Job {job} has copied this very state of {old.url} before, and {new.url} has been emptied "
        "since. Nothing was copied now.",
        table=new.url,
        remedy="Copy to another root, or bring the rows back: zero-rename restore, of a Delta "
        "table, takes it to where it held them.",
    )


class FileCopier:
    """Copier of a state's files into a job.

    :param source: reaches the state's files, ``target`` the job's table.
    :param lanes: threads through which bytes go, one for each file under way; ``None``: the store
        copies.
    :param progress: called as files are copied.
    """

    def __init__(
        self,
        source: Driver,
        target: Driver,
        opened: OpenedJob,
        lanes: ThreadPoolExecutor | None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._source, self._target, self._opened = source, target, opened
        self._lanes = lanes
        self._progress = progress
        self._settings = file_settings(opened.job, opened.spec.files)

    def copy(self, state: Snapshot) -> list[TaskResult]:
        """Copy all files, one partition after the other, and check that all of them are there.

        :returns: results like those of tasks: one of the files that were copied, one of those whose
            rows were written anew.
        :raises SnapshotGoneError: a file is gone.
        :raises DamagedError: a file has other bytes than were committed.
        :raises StreamError: the store refused a file.
        """
        try:
            return self._copy_all(state)
        except SnapshotGoneError as error:
            raise SnapshotGoneError(
                "A file of the table was removed or replaced while it was copied. Nothing of the "
                "copy is visible.",
                table=state.root.url,
                key=error.key,
                remedy="Copy again while nobody replaces or purges.",
            ) from error

    def _copy_all(self, state: Snapshot) -> list[TaskResult]:
        files = sorted(state.files, key=lambda it: (it.partition, it.key))
        placed = list(self._placed([file for file in files if not file.is_foreign]))
        made: list[PendingFile] = []
        for start in range(0, len(placed), _CHUNK):
            made += self._copy_some(state.root, placed[start : start + _CHUNK])
            self._progress(Progress(self._opened.job, len(made), len(files)))
        self._target.run(_check(self._opened, made))
        results = [TaskResult(self._opened.job, 0, 0, tuple(made))]
        if len(made) < len(files):
            results.append(self._rewrite(state, [file for file in files if file.is_foreign]))
            self._progress(Progress(self._opened.job, len(files), len(files)))
        return results

    def _placed(self, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, str]]:
        """Yield files with the keys of their copies."""
        opened, numbers = self._opened, dict[str, int]()
        for file in files:
            number = numbers[file.partition] = numbers.get(file.partition, -1) + 1
            yield file, opened.root.data_key(file.partition, 0, opened.job, number)

    def _copy_some(
        self, root: TableRoot, files: Sequence[tuple[DataFile, str]]
    ) -> list[PendingFile]:
        if self._lanes is None:
            steps = tuple(self._copy_there(root, file, key) for file, key in files)
            return list(self._target.run(All(steps)))
        sent = [self._lanes.submit(self._send, file, key) for file, key in files]
        try:
            return [it.result() for it in sent]
        except BaseException as error:
            for it in sent:
                it.cancel()
            # The abort that follows lists the job's uploads: none may begin after that. After an
            # interruption there is no time to wait for whole files.
            if isinstance(error, Exception):
                wait(sent)
            raise

    def _copy_there(self, root: TableRoot, file: DataFile, key: str) -> Step[PendingFile]:
        """Have the store copy a file as an upload, which the commit completes."""
        upload, etags = yield from _copy_parts(root, file, key, self._settings)
        return _pending(file, key, upload, etags)

    def _send(self, file: DataFile, key: str) -> PendingFile:
        """Copy a file through this process, and compare its checksum."""
        once = is_written_once(file.key)
        source = RangeFile(self._source, file.key, file.size, tail=_READ, once=once)
        with data_stream(self._target, self._opened, key, self._settings) as stream:
            while body := source.read(_READ):
                stream.write(body)
        sent = stream.upload
        if sent.checksum != file.checksum:
            raise DamagedError(
                "The object's bytes are not those that were committed: their SHA-256 differs. "
                "Nothing of the copy is visible.",
                key=file.key,
                remedy="Verify the table; something else has written to this key.",
            )
        return _pending(file, key, sent.upload_id, tuple(sent.etags))

    def _rewrite(self, state: Snapshot, files: Sequence[DataFile]) -> TaskResult:
        writer = attempt_writer(self._target, self._opened, 1, 0)
        try:
            for file in files:
                for rows in read_batches(
                    self._source, state.schema, state.partition_by, file, rewrites=True
                ):
                    writer.write(rows)
            return writer.close()
        except BaseException:
            writer.abort()
            raise


def copy_whole(root: TableRoot, file: DataFile, key: str, settings: ObjectSettings) -> Step[str]:
    """Have the store copy a file to a key that no other process uses; return the copy's ETag.

    :raises SnapshotGoneError: the file is gone.
    :raises StreamError: the store refused it.
    """
    if file.size <= _AT_ONCE:
        answer = yield from CopyFile(Place(root.bucket, file.key), key, settings)
        return _etag(answer, file)
    upload, etags = yield from _copy_parts(root, file, key, settings)
    return (yield from complete_whole(key, upload, etags, file.size))


def _copy_parts(
    root: TableRoot, file: DataFile, key: str, settings: ObjectSettings
) -> Step[tuple[str, tuple[str, ...]]]:
    """Have the store copy a file as an upload; return the upload's id and its parts' ETags."""
    place = Place(root.bucket, file.key)
    upload = (yield from CreateUpload(key, settings)).upload_id
    spans = [
        ByteRange(first, min(first + _AT_ONCE, file.size) - 1)
        for first in range(0, file.size, _AT_ONCE)
    ]
    parts = spans if len(spans) > 1 else [None]
    answers = yield from All(
        tuple(CopyPart(place, key, upload, n, part) for n, part in enumerate(parts, start=1))
    )
    return upload, tuple(_etag(answer, file) for answer in answers)


def send_whole(driver: Driver, file: DataFile, key: str, settings: ObjectSettings) -> None:
    """Copy a file through this process to a key that no other process uses.

    :param driver: reaches both.
    :raises SnapshotGoneError: the file is gone.
    :raises DamagedError: it has another size.
    :raises StreamError: the store refused it.
    """
    source = RangeFile(driver, file.key, file.size, tail=_READ, once=True)
    with WholeOutputStream(driver, key, settings) as stream:
        while body := source.read(_READ):
            stream.write(body)


def _pending(file: DataFile, key: str, upload_id: str, etags: tuple[str, ...]) -> PendingFile:
    return PendingFile(
        key=key,
        partition=file.partition,
        upload_id=upload_id,
        etags=etags,
        size=file.size,
        rows=file.rows,
        checksum=file.checksum,
        summary=file.summary,
        content=file.content,
    )


def _etag(answer: Done | Refused, file: DataFile) -> str:
    if isinstance(answer, Done):
        return answer.etag
    if answer.code == "NoSuchKey":
        raise SnapshotGoneError("A file is gone.", key=file.key)
    raise StreamError(f"The store refused to copy the file ({answer.code}).", key=file.key)


def _check(opened: OpenedJob, files: Sequence[PendingFile]) -> Step[None]:
    """Check that each file is there with its bytes, by a listing of its upload's parts.

    :raises DamagedError: a file is not there, or has another size.
    """
    held = yield from All(tuple(parts_held(file.key, file.upload_id) for file in files))
    there = {file.key: it.size for file, it in zip(files, held, strict=True) if it is not None}
    for file in files:
        if there.get(file.key) != file.size:
            raise DamagedError(
                f"The copy of a file has {there.get(file.key, 'no')} bytes in the store, and "
                f"{file.size} were to be copied. Nothing of the copy is visible.",
                table=opened.root.url,
                job=opened.job,
                key=file.key,
                remedy="Verify the table that was to be copied: another may have written to the "
                "file's key.",
            )
