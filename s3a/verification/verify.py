"""Verification of a finished S3A job: the right job, by the right committer, with all its files.

Spark also reports success if a half-configured committer renamed, or wrote directly into the table,
or if a commit's clean-up failed after the marker was written
(``AbstractS3ACommitter.commitJob`` writes it before). So the store is read. A fact that may mean
missing, doubled or unprotected rows is a :class:`~.committer.errors.VerificationError`. Anything
that is only left over is a warning: a task that failed because of it would load the rows again.

* The files and bytes that the job counted (``committer_commits_completed``,
  ``committer_bytes_committed``) are compared with the objects. A marker names at most 100 files,
  and no sizes. The others are found by the write's own UUID, which Spark puts into the names of
  all files of one write.
* An upload under way for a file of that write may mean lost rows, if the file does not exist.
* If the directory has become a table of this package, only the files that its log or its heads name
  count.
* Spark names a file only by task and folder. If the folders of two partitions have the same name,
  one file replaces the other, and every committer reports both as committed. So rows are counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...committer.errors import InvalidInputError, VerificationError, counted, first_few
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.parquet.footers import count_rows
from ...committer.format.records.success_marker import COMMITTER as NATIVE
from ...committer.format.records.success_marker import FILENAMES_LIMIT
from ...committer.store.listing import list_objects
from ...committer.store.requests import All, Found, Head, Step
from ...committer.store.s3_urls import SCHEME
from ...committer.table import Table
from ...committer.upkeep.counted_files import uncounted_files
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_traces import find_report, read_marker, uploads_below, uuids_in_name, why_outside
from ..hadoop.settings import MARKER_KEY, Committer
from ..runs.ledger import read_report, report_dir
from ..runs.try_record import WriteRecord
from .delta_around import find_delta, may_hold

#: Returns the keys, of those given, that the log of the Delta table at a root knows.
KnownToLog = Callable[[TableRoot, Collection[str]], Step[Collection[str]]]
_NOT_AGAIN = "Compare the table's rows with the source before loading anything again."
_PROTOCOL = (
    "Set spark.sql.sources.commitProtocolClass to PathOutputCommitProtocol, as the submitter's "
    "settings do: formats other than Parquet are bound to the committer by it alone."
)
_NO_MARKER = (
    "Nothing should read this load before its files were looked at. A marker is not written "
    f"where {MARKER_KEY} is false, with dynamic partition overwrite (SPARK-35279), where the "
    "application wrote elsewhere or not at all, and by commits that failed."
)
_LOOK = (
    "Look at the application's log and its settings (`zero-rename checks` names what "
    "half-configures a committer), and for files with this job's UUID, before anything reads the "
    "table or the rows are loaded again: they may all be there."
)
_SETTING = (
    "Its files are committed. Find out which setting won: `zero-rename checks` names those that "
    "decide, and a setting in the application wins over the submitter's."
)
#: Descriptions of other committers that write their names into a marker.
_OTHERS = {
    NATIVE: ", this project's own",
    "magicv2": (
        ", EMR's own, which shows the rows of a static insert when a task commits, so that a job "
        "that is killed leaves rows"
    ),
}
_AGAIN = (
    "Load the rows again by committer='zero_rename', into a Delta table by layout='delta'; where "
    "they were to be appended, with on_repeat='append', too. Then delete these files."
)
_AGAIN_BY_OVERWRITE = (
    "The table counts the job's other files. Load the partitions again by committer='zero_rename', "
    "into a Delta table by layout='delta', in mode overwrite. Then delete these files."
)
_REPLACED = (
    "Nothing should read this load. An overwrite can be loaded again once the cause is mended; "
    "after an append, remove the job's files first: its report or its _SUCCESS names them."
)


@dataclass(frozen=True)
class Expectation:
    """The write to verify, which is one job of a committer.

    :param committer: ``magic``, ``directory`` or ``partitioned``.
    :param uuid: the UUID given as ``fs.s3a.committer.uuid``; ``None`` if the application writes
        more than once under Spark's own UUIDs. Then any marker that is new enough counts.
    :param since_ms: when the job began, milliseconds by the *store's* clock (the ``Date`` of an
        answer). A marker that the store wrote in an earlier second is another job's.
    :param rows: number of rows that Spark wrote; ``None`` if they were not counted.
    :param partitions: the only partitions that may have received rows; empty if any may.
    """

    committer: str
    uuid: str | None
    since_ms: int
    rows: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """A job that verification found to be committed.

    :param uuid: the committer's.
    :param sizes: the sizes in bytes of the files that the job committed, by key.
    :param warnings: sentences about uploads that are left over, or facts that could not be read.
    """

    uuid: str
    committer: str
    sizes: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(self.sizes))

    @property
    def files(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def verify_job(
    root: TableRoot, expectation: Expectation, *, report_dir: str | None = None
) -> Step[Verified]:
    """Verify that a job committed, and that all its files are there.

    :param root: the job's destination: a table, or one partition's folder.
    :param report_dir: ``fs.s3a.committer.summary.report.directory``, if it was set. It is read if
        it is in the table's bucket and the job's UUID is known. If it has a report that the job
        succeeded, the marker is not read: another job may have replaced or removed it since.
    :raises InvalidInputError: the expected committer is not one of Hadoop's.
    :raises VerificationError: neither the report nor the marker says that this job committed, by
        that committer; files are missing or have other sizes; or uploads are left whose files do
        not exist.
    """
    asked = expectation.committer
    if asked not in list(Committer):
        raise InvalidInputError(
            f"There is no S3A committer {asked!r} whose job could be verified.",
            remedy=f"Choose one of {', '.join(Committer)}.",
        )
    report, warnings = None, list[str]()
    # Not parsed as a table's root: it may lie in a folder that readers skip.
    folder = re.fullmatch(rf"{SCHEME}{re.escape(root.bucket)}/(.*?)/*", report_dir or "")
    if folder is not None and expectation.uuid is not None:
        report = yield from find_report(root, expectation.uuid, folder[1])
    if report_dir and report is None:
        warnings.append(f"There is no report of the job in {report_dir} that can be read.")
    committed = report if report is not None and report.marker.success else None
    summary = committed or (yield from _of_marker(root, expectation, report))
    if (ran := summary.marker.committer) != asked:
        own = _OTHERS.get(ran.lower(), "")
        what = f"The committer {ran!r} ran{own}, and {asked!r} was asked for."
        raise _wrong(root, expectation.uuid, what, remedy=_SETTING)
    sizes = yield from committed_files(root, summary, expectation)
    warnings += yield from left_uploads(root, summary.marker.job, sizes)
    return Verified(summary.marker.job, asked, sizes, tuple(warnings))


def _of_marker(
    root: TableRoot, expectation: Expectation, failed: JobSummary | None
) -> Step[JobSummary]:
    """Return the content of the marker if it says that this job succeeded.

    :param failed: the job's own report, if it says that the job failed.
    :raises VerificationError: it does not, or the job's own report says that it failed.
    """
    marker = yield from read_marker(root.prefix)
    said, since = marker.said, expectation.since_ms / 1000
    is_new = marker.is_newer_than(since)
    is_own = said is not None and expectation.uuid in (None, marker.job)
    if said is not None and is_new and is_own and said.marker.success and failed is None:
        return said
    remedy = _LOOK if is_new else _NO_MARKER
    if not marker.etag:
        came = yield from files_since(root, expectation.since_ms)
        what = f"it left no _SUCCESS marker, and {counted(len(came), 'file')} came since"
    elif marker.is_empty:
        what = f"_SUCCESS is empty: the classic rename committer ran, not {expectation.committer}"
    elif said is None:
        what = "_SUCCESS is not what an S3A committer writes"
    elif not is_own and not marker.job:
        what = "_SUCCESS names no job; that of Hadoop before 3.3.1 never does"
    elif not is_own:
        what = f"_SUCCESS is of job {marker.job} of {said.marker.hostname!r}, not of this one"
    else:
        what = "_SUCCESS is of this UUID"
    if marker.etag and not is_new:
        what += ", and older than this job, which left none"
    if is_own and is_new:
        clean_up = ", as of a commit that failed in its clean-up"
        what += ", and says that the job failed" if failed is None else clean_up
    if failed is not None:
        reason = failed.exception.splitlines()[0][:300] if failed.exception else "no reason"
        stage = failed.stage or "unknown"
        what += f". The job's own report says that it failed at stage {stage!r}: {reason}"
    what = f"The job is not known to have committed: {what}."
    raise _wrong(root, expectation.uuid, what, root.marker_key(UNPARTITIONED), remedy)


def committed_files(
    root: TableRoot, summary: JobSummary, expectation: Expectation
) -> Step[dict[str, int]]:
    """Find all files that a marker or report stands for. Return their sizes by key.

    :raises VerificationError: files that it names are missing or outside the destination; the files
        do not add up to the counts of the job; or it has no file, though rows were written or files
        came.
    """
    job = summary.marker.job
    named = [name.removeprefix("/") for name in summary.marker.filenames]
    for key in named:
        if outside := why_outside(root.bucket, key, root, root.prefix):
            raise _wrong(root, job, f"What the job left {outside}.")
    if not named and not summary.files:
        yield from _check_empty(root, job, expectation)
        return {}
    files = yield from committed_there(root, summary)
    if missing := sorted(set(named) - files.keys()):
        gone = (
            f"{counted(len(missing), 'file')} of the job not there any more: {first_few(missing)}"
        )
        raise _wrong(root, job, f"{gone}. Another job may have replaced them since.", missing[0])
    there = {"file": (summary.files, len(files)), "byte": (summary.bytes, sum(files.values()))}
    for what, (told, is_there) in there.items():
        # Markers of other programs, or of old releases, may not have the counts.
        if told is not None and told != is_there:
            why = f"The job committed {counted(told, what)}, and {is_there:,} are there."
            raise _wrong(root, job, why)
    return files


def committed_there(root: TableRoot, summary: JobSummary) -> Step[dict[str, int]]:
    """Return the sizes by key of the files that are there, of those that a job has committed."""
    named = [name.removeprefix("/") for name in summary.marker.filenames]
    is_all = len(named) < FILENAMES_LIMIT or summary.files == len(named)
    of_job = _sizes(named) if is_all else _of_the_write(root, summary.marker.job, named)
    return (yield from of_job)


def _check_empty(root: TableRoot, job: str, expectation: Expectation) -> Step[None]:
    """Check that a job without committed files wrote no row.

    :raises VerificationError: Spark wrote rows or files came, so tasks may have bypassed the
        committer.
    """
    rows = expectation.rows
    if rows == 0:
        return  # All files that came since are of other jobs.
    came = yield from may_be_its(root, job, expectation.since_ms, expectation.partitions)
    if came or rows:
        wrote = f", though Spark wrote {counted(rows, 'row')}" if rows else ""
        files = (
            f"{len(came)} came since the job began: {first_few(sorted(came))}" if came else "none"
        )
        why = (
            f"The committer committed no file{wrote}; of files, {files}. Tasks wrote directly into "
            "the table, which nothing undoes when one of them fails; or another job wrote beside "
            "this one."
        )
        raise _wrong(root, job, why, min(came, default=None), _PROTOCOL)


def _sizes(keys: Iterable[str]) -> Step[dict[str, int]]:
    """Return the sizes of the keys that exist: one HEAD for each key."""
    answers = yield from All(tuple(Head(key) for key in keys))
    return {found.key: found.size for found in answers if isinstance(found, Found)}


def _of_the_write(root: TableRoot, job: str, named: Sequence[str]) -> Step[dict[str, int]]:
    """List the files of a write: the named ones, and those with a UUID that all named ones have."""
    common = _common_uuids(named)
    # Spark's own UUID is that of one write; several writes may have got the committer's.
    common = common - {job.lower()} or common
    files = yield from files_since(root, 0)
    wanted = set(named)
    return {k: n for k, n in files.items() if k in wanted or common & set(uuids_in_name(k))}


def _common_uuids(keys: Collection[str]) -> set[str]:
    return set.intersection(*(set(uuids_in_name(key)) for key in keys)) if keys else set()


def files_since(root: TableRoot, since_ms: int) -> Step[dict[str, int]]:
    """Return the sizes by key of the data files that the store wrote since a moment.

    :param since_ms: milliseconds by the store's clock, whose times have whole seconds.
    """
    listing = yield from list_objects(f"{root.prefix}/", wanted=root.is_data)
    since = since_ms // 1000
    return {it.key: it.size for it in listing.objects if int(it.last_modified) >= since}


def may_be_its(
    root: TableRoot, job: str, since_ms: int, partitions: Collection[str]
) -> Step[dict[str, int]]:
    """Return the sizes by key of the files that came since a moment and may be a job's.

    Files in partitions that the job cannot have written are left out. So are those of the write
    whose ``_SUCCESS`` is at the destination, if that is another job's.

    :param partitions: the only partitions that it may have written; empty for any.
    """
    came = yield from files_since(root, since_ms)
    marker = yield from read_marker(root.prefix)
    named = marker.said.marker.filenames if marker.said and marker.job != job else ()
    others = {name.removeprefix("/") for name in named}
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
    """Describe the uploads that are still under way below the destination of a finished job.

    :param files: the keys that the job committed.
    :returns: sentences about uploads that are left and that no row depends on.
    :raises VerificationError: there is an upload of the job whose file does not exist.
    """
    uploads = yield from uploads_below(f"{root.prefix}/")
    marks = {job.lower()}.union(*(uuids_in_name(key) for key in files))
    own = [upload.key for upload in uploads if marks & set(uuids_in_name(upload.key))]
    others, open_keys = len(uploads) - len(own), set(own) - set(files)
    if lost := sorted(open_keys - (yield from _sizes(sorted(open_keys))).keys()):
        some = f"uploaded, not completed and not there: {first_few(lost)}"
        why = f"{counted(len(lost), 'file')} of the job {some}. Their rows may be missing."
        raise _wrong(root, job, why, lost[0])
    said = {
        f"{counted(len(own), 'upload of the job is', 'uploads of the job are')} left, of attempts "
        "that were repeated: their files are there. `zero-rename s3a-recover` aborts them.": own,
        f"{counted(others, 'other upload is', 'other uploads are')} under way below the "
        "destination: of jobs that are writing, or that died.": others,
    }
    return [sentence for sentence, are_some in said.items() if are_some]


def _wrong(
    root: TableRoot, job: str | None, what: str, key: str | None = None, remedy: str = _NOT_AGAIN
) -> VerificationError:
    return VerificationError(what, table=root.url, job=job, key=key, remedy=remedy)


_log = logging.getLogger("zero_rename.s3a.verification.verify")


@dataclass(frozen=True)
class Contents:
    """Number of files, rows and bytes in one partition; ``rows`` is ``None`` if not counted."""

    files: int = 0
    rows: int | None = 0
    bytes: int = 0

    def __add__(self, other: Contents) -> Contents:
        either = self.rows, other.rows
        rows = None if None in either else sum(filter(None, either))
        return Contents(self.files + other.files, rows, self.bytes + other.bytes)


@dataclass(frozen=True)
class CommittedWrite:
    """One committed job of an attempt.

    :param files: how many it committed, of ``bytes`` in all; ``None``: not known any more.
    :param partitions: its files in each partition, if they are known.
    """

    uuid: str
    files: int | None
    bytes: int | None
    rows: int | None = None
    partitions: Mapping[str, Contents] = field(default_factory=dict)


def verified(
    table: Table, records: TableRoot, write: WriteRecord, known_to_log: KnownToLog
) -> CommittedWrite:
    """Verify that a write has committed, and that its files hold all rows of the write.

    :param records: the table beside which the record of the attempt lies.
    :raises VerificationError: it has not, or files or rows are missing, or the directory has become
        a Delta table whose log does not know the files.
    """
    expected = Expectation(write.committer, write.uuid, write.since_ms, write.rows, write.among)
    reports = report_dir(records, write)
    found = table.run(verify_job(write.root, expected, report_dir=reports))
    for warning in found.warnings:
        _log.warning("Job %s: %s", write.uuid, warning)
    table.run(_check_counted(write.root, write.uuid, found.keys, known_to_log))
    partitions = {name: Contents() for name in (write.partition, *write.emptied) if name}
    rows = count_rows(table.driver, found.sizes)
    for key, size in found.sizes.items():
        name = table.root.partition_of_data_key(key)
        if name is not None:
            one = Contents(1, None if rows is None else rows[key], size)
            partitions[name] = partitions.get(name, Contents()) + one
    hold = None if rows is None else sum(rows.values())
    check_rows(table.root, write.uuid, write.rows, hold)
    return CommittedWrite(write.uuid, found.files, found.bytes, hold, partitions)


def _check_counted(
    root: TableRoot, job: str, keys: Sequence[str], known_to_log: KnownToLog
) -> Step[None]:
    """Check that a job's files count, if the directory has become a table of this package.

    :raises VerificationError: its log does not know all of them; or a partition of them has a head
        that does not name them.
    """
    if not keys:
        return
    places = [it for it in (root, *root.around) if may_hold(it, root.prefix)]
    delta = yield from find_delta(places, root.prefix)
    if delta is None:
        what = "A table of this package has been made of the directory, whose heads do not name"
        unknown = yield from uncounted_files(places, keys)
    else:
        what = f"The directory has become the Delta table {delta.url}, whose log does not name"
        known = yield from known_to_log(delta, keys)
        unknown = sorted(set(keys).difference(known))
    if unknown:
        why = (
            f"{what} {counted(len(unknown), 'file')} of the job, which was at work then. No reader "
            "of that table sees their rows."
        )
        remedy = _AGAIN if len(unknown) == len(keys) else _AGAIN_BY_OVERWRITE
        raise _wrong(root, job, why, unknown[0], remedy)


def remembered(
    table: Table, write: WriteRecord, report: JobSummary | None, known_to_log: KnownToLog
) -> CommittedWrite:
    """Describe a committed write by its report, where other jobs have replaced some of its files.

    Rows are counted in partitions whose files are all there.

    :param report: of its job; ``None``: it left none, so its files are not known.
    :raises VerificationError: the files that are there do not count in the table that the directory
        has become.
    """
    if report is None:
        return CommittedWrite(write.uuid, None, None)
    partitions = {name: Contents() for name in (write.partition, *write.emptied) if name}
    named = [name.removeprefix("/") for name in report.marker.filenames]
    sizes = table.run(committed_there(write.root, report))
    table.run(_check_counted(write.root, write.uuid, sorted(sizes), known_to_log))
    rows = count_rows(table.driver, sizes) or {}
    for key in sorted({*named, *sizes}):
        name = table.root.partition_of_data_key(key)
        if name is not None:
            one = Contents(1, rows.get(key), sizes.get(key, 0))
            partitions[name] = partitions.get(name, Contents()) + one
    return CommittedWrite(write.uuid, report.files, report.bytes, None, partitions)


def check_rows(root: TableRoot, job: str, wrote: int | None, hold: int | None) -> None:
    """Check that no row is missing.

    :param wrote: number of rows that Spark wrote; ``None``: they could not be counted.
    :param hold: number of rows in the job's files; ``None``: they could not be counted.
    :raises VerificationError: the numbers differ.
    """
    if wrote is not None and hold is not None and hold != wrote:
        what = (
            f"Spark wrote {counted(wrote, 'row')}, and the files of the job hold {hold:,}. Where "
            "rows are missing, two partition values have shared a folder's name, and one file has "
            "replaced another."
        )
        raise _wrong(root, job or None, what, remedy=_REPLACED)


def is_proved(records: TableRoot, write: WriteRecord) -> Step[bool]:
    """Return whether a write's ``_SUCCESS`` or report in the store shows that it committed."""
    marker = yield from read_marker(write.root.prefix)
    if marker.committed_job == write.uuid:
        return True
    report = yield from read_report(records, write)
    return report is not None and report.marker.success
