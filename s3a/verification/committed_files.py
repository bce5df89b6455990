"""The files of a committed S3A job: which they are, and whether they are there in full.

* Files and bytes that the job counted (``committer_commits_completed``,
  ``committer_bytes_committed``) are compared with the objects. A marker names at most 100 files,
  and no sizes. The others are found by the write's own UUID, which Spark puts into the names of
  all files of one write.
* An upload under way of a file of that write may be rows lost, if the file is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...committer.errors import VerificationError, counted
from ...committer.format.layout import TableRoot
from ...committer.format.records.success_marker import FILENAMES_LIMIT
from ...committer.store.listing import list_objects
from ...committer.store.requests import All, Found, Head, Step
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_reports import Marker, read_marker
from ..hadoop.magic_paths import uuids_in_name, why_outside
from ..hadoop.uploads import uploads_below

_SHOWN = 5
_NOT_AGAIN = "Compare the table's rows with the source before loading anything again."
_PROTOCOL = (
    "Set spark.sql.sources.commitProtocolClass to PathOutputCommitProtocol, as the operator's "
    "settings do: formats other than Parquet are bound to the committer by it alone."
)


@dataclass(frozen=True)
class Expectation:
    """One write that verification holds the store to, which is one job of a committer.

    :param committer: ``magic``, ``directory`` or ``partitioned``.
    :param uuid: handed in as ``fs.s3a.committer.uuid``; ``None`` where the application writes
        more than once under UUIDs of Spark's own: then any marker that is new enough is its.
    :param since_ms: when the job began, milliseconds by the *store's* clock (the ``Date`` of an
        answer): a marker that the store wrote in an earlier second is another job's.
    :param rows: how many Spark wrote; ``None`` where nobody counted them.
    :param partitions: the only ones that may have received rows; none where any may.
    """

    committer: str
    uuid: str | None
    since_ms: int
    rows: int | None = None
    partitions: tuple[str, ...] = ()


def committed_files(
    root: TableRoot, summary: JobSummary, expectation: Expectation
) -> Step[dict[str, int]]:
    """Keys and sizes of the files that a marker or report stands for.

    :raises VerificationError: files that it names are not there, are outside the destination, or
        do not add up to what the job counted.
    """
    job = summary.marker.job
    named = [name.removeprefix("/") for name in summary.marker.filenames]
    for key in named:
        if outside := why_outside(root.bucket, key, root, root.prefix):
            raise _wrong(root, job, f"What the job left {outside}.")
    if not named and not summary.files:
        yield from _check_empty(root, job, expectation)
        return {}
    if len(named) < FILENAMES_LIMIT or summary.files == len(named):
        files = yield from _sizes(named)
    else:
        files = yield from _of_the_write(root, job, named)
    if missing := sorted(set(named) - files.keys()):
        gone = f"{counted(len(missing), 'file')} of the job not there any more: {_some(missing)}"
        raise _wrong(root, job, f"{gone}. Another job may have replaced them since.", missing[0])
    there = {"files": (summary.files, len(files)), "bytes": (summary.bytes, sum(files.values()))}
    for what, (told, is_there) in there.items():
        # Markers of other makers, or of old releases, may not say.
        if told is not None and told != is_there:
            why = f"The job committed {told} {what}, and {is_there} are there."
            raise _wrong(root, job, why)
    return files


def _check_empty(root: TableRoot, job: str, expectation: Expectation) -> Step[None]:
    """A committer without files to commit: nothing was written, or tasks went past it."""
    if expectation.rows == 0:
        return  # Whatever came since is of jobs beside this one.
    came = yield from may_be_its(root, job, expectation.since_ms, expectation.partitions)
    if came or expectation.rows:
        wrote = (
            f", though Spark wrote {counted(expectation.rows, 'row')}" if expectation.rows else ""
        )
        files = f"{len(came)} came since the job began: {_some(sorted(came))}" if came else "none"
        why = (
            f"The committer committed no file{wrote}; of files, {files}. Tasks wrote directly into "
            "the table, which nothing undoes when one of them fails; or another job wrote beside "
            "this one."
        )
        raise _wrong(root, job, why, min(came, default=None), _PROTOCOL)


def _sizes(keys: Iterable[str]) -> Step[dict[str, int]]:
    """Sizes of those of the keys that are there: one HEAD each."""
    answers = yield from All(tuple(Head(key) for key in keys))
    return {found.key: found.size for found in answers if isinstance(found, Found)}


def _of_the_write(root: TableRoot, job: str, named: Sequence[str]) -> Step[dict[str, int]]:
    """All files with a UUID that all the named ones have in their names, by a listing."""
    common = _common_uuids(named)
    # Spark's own UUID is one write's; the committer's may have been handed to several.
    common = common - {job.lower()} or common
    files = yield from files_since(root, 0)
    wanted = set(named)
    return {k: n for k, n in files.items() if k in wanted or common & set(uuids_in_name(k))}


def _common_uuids(keys: Collection[str]) -> set[str]:
    return set.intersection(*(set(uuids_in_name(key)) for key in keys)) if keys else set()


def files_since(root: TableRoot, since_ms: int) -> Step[dict[str, int]]:
    """Keys and sizes of the data files that the store wrote since then, by its own clock, whose
    times have whole seconds."""
    listing = yield from list_objects(f"{root.prefix}/", wanted=root.is_data)
    return {
        item.key: item.size
        for item in listing.objects
        if int(item.last_modified) >= since_ms // 1000
    }


def may_be_its(
    root: TableRoot, job: str, since_ms: int, partitions: Collection[str]
) -> Step[dict[str, int]]:
    """Keys and sizes of the files that came since then and may be a job's.

    Left out are those that lie in partitions of which the job can have no row, and those of the
    write whose ``_SUCCESS`` lies there, if that is another job's.

    :param partitions: the only ones that it may have written; none for any.
    """
    came = yield from files_since(root, since_ms)
    marker: Marker = yield from read_marker(root.prefix)
    others: set[str] = set()
    if marker.said is not None and marker.job != job:
        others = {name.removeprefix("/") for name in marker.said.marker.filenames}
    # Spark's own UUID of that write, which its unnamed files have in their names as well.
    writes = _common_uuids(others)
    return {
        key: size
        for key, size in came.items()
        if key not in others
        and not writes & set(uuids_in_name(key))
        and (not partitions or root.partition_of_data_key(key) in partitions)
    }


def left_uploads(root: TableRoot, job: str, files: Collection[str]) -> Step[list[str]]:
    """Uploads under way below the destination: the job's own should be none.

    :param files: the keys the job committed.
    :returns: sentences about uploads that are left and that no row depends on.
    :raises VerificationError: an upload of the job whose file is not there.
    """
    uploads = yield from uploads_below(f"{root.prefix}/")
    marks = {job.lower()}.union(*(uuids_in_name(key) for key in files))
    own = [upload.key for upload in uploads if marks & set(uuids_in_name(upload.key))]
    open_keys = set(own) - set(files)
    if lost := sorted(open_keys - (yield from _sizes(sorted(open_keys))).keys()):
        some = f"uploaded, not completed and not there: {_some(lost)}"
        why = f"{counted(len(lost), 'file')} of the job {some}. Their rows may be missing."
        raise _wrong(root, job, why, lost[0])
    counts = {
        "uploads of the job are left, of attempts that were repeated: their files are there. "
        "`zero-rename s3a-recover` aborts them.": len(own),
        "other uploads are under way below the destination: of jobs that are writing, or that "
        "died.": len(uploads) - len(own),
    }
    return [f"{count} {what}" for what, count in counts.items() if count]


def _wrong(
    root: TableRoot, job: str, what: str, key: str | None = None, remedy: str = _NOT_AGAIN
) -> VerificationError:
    return VerificationError(what, table=root.url, job=job, key=key, remedy=remedy)


def _some(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"
