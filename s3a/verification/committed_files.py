"""The files of a committed S3A job: which they are, and whether they are there in full.

* Files and bytes that the job counted (``committer_commits_completed``,
  ``committer_bytes_committed``) are compared with the objects. A marker names at most 100 files,
  and no sizes. The others are found by the write's own UUID, which Spark puts into the names of
  all files of one write.
* An upload under way of a file of that write may be rows lost, if the file is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...committer.errors import VerificationError
from ...committer.layout import UNPARTITIONED, TableRoot
from ...committer.records.success_marker import FILENAMES_LIMIT, SuccessMarker
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import Absent, All, Found, Get, Head, Step
from ..hadoop.commit_files import JobSummary
from ..hadoop.magic_paths import uuids_in_name, why_outside
from ..hadoop.upload_owners import list_uploads
from .expectation import Expectation

_SHOWN = 5
_NOT_AGAIN = "Compare the table's rows with the source before loading anything again."


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
        outside = why_outside(root.bucket, key, root, root.prefix)
        if outside:
            raise VerificationError(
                f"The _SUCCESS marker {outside}.", table=root.url, job=job, remedy=_NOT_AGAIN
            )
    if not named:
        yield from _check_empty(root, summary, expectation)
        return {}
    if len(named) < FILENAMES_LIMIT or summary.files == len(named):
        files = yield from _sizes(named)
    else:
        files = yield from _of_the_write(root, job, named)
    missing = sorted(set(named) - files.keys())
    if missing:
        raise VerificationError(
            f"{len(missing)} files that the job committed are not there: {_some(missing)}. A job "
            "that replaced them since would have left its own marker.",
            table=root.url,
            job=job,
            key=missing[0],
            remedy=_NOT_AGAIN,
        )
    _check_totals(root, summary, files)
    return files


def _check_totals(root: TableRoot, summary: JobSummary, files: Mapping[str, int]) -> None:
    """What the job counted; markers of other makers, or of old releases, may not say."""
    there = (len(files), sum(files.values()))
    counted = (summary.files, summary.bytes)
    for what, is_there, was in zip(("files", "bytes"), there, counted, strict=True):
        if was is not None and was != is_there:
            raise VerificationError(
                f"The job committed {was} {what}, and {is_there} of it are there.",
                table=root.url,
                job=summary.marker.job,
                remedy=_NOT_AGAIN,
            )


def _check_empty(root: TableRoot, summary: JobSummary, expectation: Expectation) -> Step[None]:
    """A committer without files to commit: nothing was written, or tasks went past it."""
    job = summary.marker.job
    if summary.files:
        raise VerificationError(
            f"The job committed {summary.files} files, and its marker names none.",
            table=root.url,
            job=job,
            remedy=_NOT_AGAIN,
        )
    if expectation.rows == 0:
        # Whatever came since is of jobs beside this one.
        return
    came = yield from may_be_its(root, job, expectation.since_ms, expectation.partitions)
    if came or expectation.rows:
        wrote = f", though Spark wrote {expectation.rows} rows" if expectation.rows else ""
        files = f"{len(came)} came since the job began: {_some(sorted(came))}" if came else "none"
        raise VerificationError(
            f"The committer committed no file{wrote}; of files, {files}. Tasks wrote directly "
            "into the table, which nothing undoes when one of them fails; or another job wrote "
            "beside this one.",
            table=root.url,
            job=job,
            key=min(came) if came else None,
            remedy="Set spark.sql.sources.commitProtocolClass to PathOutputCommitProtocol, as "
            "the operator's settings do: formats other than Parquet are bound to the committer "
            "by it alone.",
        )


def _sizes(keys: Sequence[str]) -> Step[dict[str, int]]:
    """Sizes of those of the keys that are there: one HEAD each."""
    answers = yield All(tuple(Head(key) for key in keys))
    return {found.key: found.size for found in answers if isinstance(found, Found)}


def _of_the_write(root: TableRoot, job: str, named: Sequence[str]) -> Step[dict[str, int]]:
    """All files with a UUID that all the named ones have in their names, by a listing."""
    common = set(uuids_in_name(named[0]))
    for key in named:
        common &= set(uuids_in_name(key))
    # Spark's own UUID is one write's; the committer's may have been handed to several.
    common = common - {job.lower()} or common
    wanted = set(named)
    listing = yield from list_objects(f"{root.prefix}/", wanted=root.is_data)
    return {
        item.key: item.size
        for item in listing.objects
        if item.key in wanted or common & set(uuids_in_name(item.key))
    }


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
    found = yield Get(root.marker_key(UNPARTITIONED))
    marker = None if isinstance(found, Absent) else SuccessMarker.parse_or_none(found.body)
    others: set[str] = set()
    if marker is not None and marker.job != job:
        others = {name.removeprefix("/") for name in marker.filenames}
    # Spark's own UUID of that write, which its unnamed files have in their names as well.
    writes = set.intersection(*(set(uuids_in_name(key)) for key in others)) if others else set()
    return {
        key: size
        for key, size in came.items()
        if key not in others
        and not writes & set(uuids_in_name(key))
        and (not partitions or root.partition_of_data_key(key) in partitions)
    }


def left_uploads(
    root: TableRoot, job: str, files: Collection[str], warnings: list[str]
) -> Step[None]:
    """Uploads under way below the destination: the job's own should be none.

    :param files: the keys the job committed.
    :param warnings: gets a sentence where uploads are left that no row depends on.
    :raises VerificationError: an upload of the job whose file is not there.
    """
    uploads = yield from list_uploads(root)
    marks = {job.lower()}
    for key in files:
        marks |= set(uuids_in_name(key))
    own = [upload for upload in uploads if marks & set(uuids_in_name(upload.key))]
    there = yield from _sizes(sorted({upload.key for upload in own} - set(files)))
    lost = sorted({upload.key for upload in own} - set(files) - there.keys())
    if lost:
        raise VerificationError(
            f"{len(lost)} files of the job are uploaded, not completed and not there: "
            f"{_some(lost)}. Their rows may be missing.",
            table=root.url,
            job=job,
            key=lost[0],
            remedy=_NOT_AGAIN,
        )
    if own:
        warnings.append(
            f"{len(own)} uploads of the job are left, of attempts that were repeated: their files "
            "are there. `zero-rename s3a-recover` aborts them."
        )
    if len(uploads) > len(own):
        warnings.append(
            f"{len(uploads) - len(own)} other uploads are under way below the destination: of "
            "jobs that are writing, or that died."
        )


def _some(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"
