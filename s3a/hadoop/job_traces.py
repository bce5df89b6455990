"""Traces of a job in the store: its magic tree, names with its UUID, its reports, its uploads.

::

    dest/__magic_job-<uuid>/job-<uuid>/<NN>/<task id>.pendingset          of committed tasks
    dest/__magic_job-<uuid>/job-<uuid>/<NN>/tasks/<attempt>/__base/…      files of running tasks

``NN`` is the application's attempt, ``00`` in Spark. When the upload of a file written below the
last ``__base`` is completed, the file appears in the parent of the magic element. The sources are
Hadoop's ``CommitUtilsWithMR`` and ``MagicCommitPaths``. This is so since Hadoop 3.4.0
(HADOOP-18797). In earlier releases all jobs of a destination share one ``__magic/``. That folder is
not read, and ``magic`` is refused on those releases.

The staging committers keep their pending sets on the cluster's file system. In the store they
leave only uploads, under the keys of the finished files.

``_SUCCESS`` is that of the job that committed last, and each job deletes it when it begins. If two
jobs load days of one table at the same time, one of them finds no ``_SUCCESS``, or the other's. A
job's own summary (``fs.s3a.committer.summary.report.directory``) stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...committer.errors import RecordDamagedError, VerificationError
from ...committer.format.layout import CONTROL, TableRoot, job_in_key
from ...committer.store.listing import list_objects, list_uploads
from ...committer.store.requests import All, Found, Get, ListedUpload, ServerName, Step
from .commit_files import PENDING_SET_SUFFIX, PENDING_SUFFIX, JobSummary

MAGIC_JOB = "__magic_job-"
_PATH = re.compile(
    rf"(?P<tree>(?:(?P<destination>.*?)/)?{MAGIC_JOB}(?P<job>[^/]+)/)"
    r"(?:job-(?P=job)/(?P<attempt>\d{2,})/(?P<rest>.*))?",
    re.DOTALL,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Control characters and line ends. Blanks such as U+3000 and joiners are allowed: Spark writes
#: them into the names of partitions' folders as they are.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: Name of the object in a magic tree by which recovery says whether it rolls forward or back.
DIRECTION_NAME = "zero_rename_recovery.json"


@dataclass(frozen=True)
class MagicPath:
    """A key below a magic element, split into its parts.

    :param tree: the prefix of all objects of the job, ending with a slash. The job's clean-up
        deletes it.
    :param destination: the job's output, a prefix without a slash at its end; ``""``: the bucket.
    :param attempt: the application's attempt, ``00``; ``""`` if the key lies above it.
    :param rest: the path below the attempt's directory; ``""`` if the key lies above it.
    """

    tree: str
    destination: str
    job: str
    attempt: str
    rest: str

    @property
    def is_set(self) -> bool:
        """True for the pending set of a committed task.

        It lies directly in the attempt's directory, which the job commit lists. It has the name of
        the task, not of the task attempt: the attempt that commits last overwrites the set of
        an earlier one (HADOOP-17258).
        """
        return "/" not in self.rest and self.rest.endswith(PENDING_SET_SUFFIX)

    @property
    def final_key(self) -> str | None:
        """The key of the finished file, for a ``.pending`` of a running task; else ``None``."""
        if not self.rest.endswith(PENDING_SUFFIX) or not self.rest.startswith("tasks/"):
            return None
        path = self.rest.removesuffix(PENDING_SUFFIX)
        _above, base, below = path.rpartition("/__base/")
        name = below if base else path.rpartition("/")[2]
        return f"{prefix_of(self.destination)}{name}" if name else None


def prefix_of(destination: str) -> str:
    """Return the prefix of what lies in a destination, ``""`` for the bucket itself."""
    return f"{destination}/" if destination else ""


def is_magic(key: str) -> bool:
    return f"/{MAGIC_JOB}" in f"/{key}"


def parse(key: str) -> MagicPath | None:
    """Split a key below a magic element into its parts; ``None`` for other keys."""
    found = _PATH.match(key)
    return None if found is None else MagicPath(**found.groupdict(""))


def uuids_in_name(key: str) -> tuple[str, ...]:
    """Return the UUIDs in a key's last component, in lower case.

    Spark puts one UUID into the names of all files of one write. The staging committers add the
    job's.
    """
    return tuple(found.lower() for found in _UUID.findall(key.rsplit("/", 1)[-1]))


def staging_job(key: str) -> str:
    """Return the job's UUID in the name of a staging committer's file; ``""`` for none.

    The committer adds the job's UUID after Spark's, so the last one in the name is the job's.
    """
    return (uuids_in_name(key) or ("",))[-1]


def is_staged_name(key: str) -> bool:
    """Return whether a file's name is that of a staging committer's file.

    Such a name has two UUIDs: Spark's of the write, and the job's
    (``fs.s3a.committer.staging.unique-filenames``, which is on).
    """
    return len(uuids_in_name(key)) > 1


def is_native(key: str) -> bool:
    """Return whether a key belongs to this package's own committer, which has its own recovery."""
    return job_in_key(key) is not None or f"/{CONTROL}/" in key


def why_outside(bucket: str, key: str, root: TableRoot, destination: str) -> str | None:
    """Return why a commit record's bucket and key are refused; ``None`` if they are not.

    A process that may write below a destination may also write pending sets there, and the process
    that completes them may have more rights: the "confused deputy" of the S3A architecture text.

    :param destination: the job's own, within the table at ``root``.
    """
    if bucket != root.bucket:
        return f"names the bucket {bucket!r}"
    if not key.startswith(f"{destination}/"):
        return f"names the key {key!r}, which is outside the job's destination"
    parts = key[len(destination) + 1 :].split("/")
    wrong = {
        "which has an empty, '.' or '..' component": not {"", ".", ".."}.isdisjoint(parts),
        "among the records of committers": any(p.startswith((CONTROL, "__magic")) for p in parts),
        "a marker": parts[-1] == "_SUCCESS",
        "a file of this package's own committer": is_native(key),
        "which has control characters": _CONTROLS.search(key),
    }
    return next((f"names the key {key!r}, {why}" for why, is_so in wrong.items() if is_so), None)


#: Server name of S3, which lists uploads by prefix correctly. Others may list none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"


@dataclass(frozen=True)
class Marker:
    """The ``_SUCCESS`` of a destination.

    :param etag: ``""`` if the destination has no ``_SUCCESS``.
    :param last_modified: by the store's clock, in whole seconds.
    :param is_empty: it has no content, like those of the classic rename committer.
    :param said: its content; ``None`` if an S3A committer does not write such content.
    :param damage: why a content cannot be read; ``""`` otherwise.
    """

    etag: str = ""
    last_modified: float = 0.0
    is_empty: bool = False
    said: JobSummary | None = None
    damage: str = ""

    @property
    def job(self) -> str | None:
        return self.said.marker.job if self.said else None

    @property
    def committed_job(self) -> str | None:
        """The job that has committed, if the marker says so."""
        return self.job if self.said is not None and self.said.marker.success else None

    def is_newer_than(self, moment: float) -> bool:
        """Return whether it exists and was not written before a moment, by the store's clock."""
        return bool(self.etag) and int(self.last_modified) >= int(moment)


def read_marker(destination: str) -> Step[Marker]:
    """Read the marker of a destination.

    :param destination: a prefix without a slash at its end.
    """
    found = yield from Get(f"{destination}/_SUCCESS")
    if not isinstance(found, Found):
        return Marker()
    if not found.body:
        return Marker(found.etag, found.last_modified, is_empty=True)
    try:
        said, damage = JobSummary.parse(found.body, found.key), ""
    except RecordDamagedError as error:
        said, damage = None, str(error)
    return Marker(found.etag, found.last_modified, said=said, damage=damage)


def find_report(root: TableRoot, job: str, folder: str) -> Step[JobSummary | None]:
    """Find a job's summary report in a folder; ``None`` if no readable one is there.

    A report's name has the id of the MapReduce job, which this package does not know. So all
    reports in the folder are read.

    :param folder: a prefix of the table's bucket, without a slash at its end; ``""``: the bucket.
    :raises VerificationError: several jobs of that UUID have committed.
    """
    listing = yield from list_objects(f"{prefix_of(folder)}summary-")
    newest = sorted(listing.objects, key=lambda item: item.last_modified, reverse=True)
    bodies = yield from All(tuple(Get(item.key) for item in newest))
    read = [_read(found) for found in bodies if isinstance(found, Found)]
    own = [summary for summary in read if summary is not None and summary.marker.job == job]
    if sum(summary.marker.success for summary in own) > 1:
        raise VerificationError(
            "The application wrote more than once under the one UUID that it was given, so "
            "nothing tells which files are all of its own.",
            table=root.url,
            job=job,
            remedy="Let it write with zero_rename.spark.save, which gives each write a UUID of its "
            f"own. The reports below s3://{root.bucket}/{folder} name the files of each.",
        )
    return own[0] if own else None


def _read(found: Found) -> JobSummary | None:
    try:
        return JobSummary.parse(found.body, found.key)
    except RecordDamagedError:
        return None


def uploads_below(prefix: str) -> Step[list[ListedUpload]]:
    """List the uploads below a folder, without those of this package's own committer.

    A store may list no upload for a prefix, and all for the bucket. If the prefix shows none, the
    bucket is listed, unless the store is known to list by prefix correctly.

    :param prefix: the folder, with a slash at its end.
    """
    found = yield from list_uploads(prefix)
    if not found and (yield from ServerName()) != _LISTS_BY_PREFIX:
        found = yield from list_uploads("")
    # A store with faulty paging lists an upload twice.
    unique = {(u.key, u.upload_id): u for u in found if u.key.startswith(prefix)}
    return [u for u in unique.values() if not is_native(u.key)]
