"""Traces of a job in the store: its magic tree, names with its UUID, its reports, its uploads.

::

    dest/__magic_job-<uuid>/job-<uuid>/<NN>/<task id>.pendingset          committed tasks
    dest/__magic_job-<uuid>/job-<uuid>/<NN>/tasks/<attempt>/__base/…      files of running ones

``NN`` is the application's attempt, ``00`` in Spark. A file written below the last ``__base``
appears, when its upload is completed, in the parent of the magic element: sources are Hadoop's
``CommitUtilsWithMR`` and ``MagicCommitPaths``. It is so since Hadoop 3.4.0 (HADOOP-18797). The
``__magic/`` of earlier releases, which all jobs of a destination share, is not read: ``magic`` is
refused there.

The staging committers keep their pending sets on the cluster's file system: in the store they
leave nothing but uploads, whose keys are those of the finished files.

``_SUCCESS`` is whichever job's that committed last, and each job deletes it when it begins: of two
that load days of one table side by side, one finds none, or the other's. A job's own summary
(``fs.s3a.committer.summary.report.directory``) stays.
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
    rf"(?P<tree>(?P<destination>.*?)/{MAGIC_JOB}(?P<job>[^/]+)/)"
    r"(?:job-(?P=job)/(?P<attempt>\d{2,})/(?P<rest>.*))?",
    re.DOTALL,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: What this package puts into a magic tree to say what becomes of the job.
DIRECTION_NAME = "zero_rename_recovery.json"


@dataclass(frozen=True)
class MagicPath:
    """A key below a magic element, taken apart.

    :param tree: the prefix of all that belongs to the job, ending with a slash: what its
        clean-up deletes.
    :param destination: the job's output, a prefix without a slash at its end.
    :param attempt: the application's attempt, ``00``; ``""`` above it.
    :param rest: the path below the attempt's directory, or what there is of it.
    """

    tree: str
    destination: str
    job: str
    attempt: str
    rest: str

    @property
    def is_set(self) -> bool:
        """A committed task's: directly in the attempt's directory, as the job commit lists. It has
        the name of the task, not the attempt: the attempt that commits last overwrites the set of
        an earlier one (HADOOP-17258)."""
        return "/" not in self.rest and self.rest.endswith(PENDING_SET_SUFFIX)

    @property
    def final_key(self) -> str | None:
        """For a ``.pending`` of a running task, the key its file will have; else ``None``."""
        if not self.rest.endswith(PENDING_SUFFIX) or not self.rest.startswith("tasks/"):
            return None
        path = self.rest.removesuffix(PENDING_SUFFIX)
        _above, base, below = path.rpartition("/__base/")
        name = below if base else path.rpartition("/")[2]
        return f"{self.destination}/{name}" if name else None


def is_magic(key: str) -> bool:
    return f"/{MAGIC_JOB}" in key


def parse(key: str) -> MagicPath | None:
    """Take a key below a magic element apart; ``None`` for other keys."""
    found = _PATH.match(key)
    return None if found is None else MagicPath(**found.groupdict(""))


def uuids_in_name(key: str) -> tuple[str, ...]:
    """The UUIDs in a key's last component, in lower case: Spark puts one of its own into the
    names of all files of one write, the staging committers add the job's."""
    return tuple(found.lower() for found in _UUID.findall(key.rsplit("/", 1)[-1]))


def staging_job(key: str) -> str:
    """The job in the name of a staging committer's file, ``""`` for none: it adds its UUID behind
    Spark's, so the last is the job's."""
    return (uuids_in_name(key) or ("",))[-1]


def is_staged_name(key: str) -> bool:
    """Whether a file has the name that a staging committer gives it: Spark's UUID of the write,
    and the job's (``fs.s3a.committer.staging.unique-filenames``, which is on)."""
    return len(uuids_in_name(key)) > 1


def is_native(key: str) -> bool:
    """Whether this package's own committer makes the file; its own recovery sees to that."""
    return job_in_key(key) is not None or f"/{CONTROL}/" in key


def why_outside(bucket: str, key: str, root: TableRoot, destination: str) -> str | None:
    """Why a commit record's bucket and key are refused; ``None`` where they are not.

    Whoever may write below a destination may write its pending sets, and whoever carries them
    out may have more rights than that: the S3A architecture text's confused deputy.

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
        "which has control characters": not key.isprintable(),
    }
    return next((f"names the key {key!r}, {why}" for why, is_so in wrong.items() if is_so), None)


#: A store that lists uploads by prefix as it should; others may show none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"


@dataclass(frozen=True)
class Marker:
    """The ``_SUCCESS`` of a destination; ``etag`` is ``""`` where there is none.

    :param last_modified: by the store's clock, in whole seconds.
    :param is_empty: as the classic rename committer writes it.
    :param said: what it says; ``None`` where that is not what an S3A committer writes.
    :param damage: why it is not, of one that is not empty; ``""`` otherwise.
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
        """The job that it says has committed."""
        return self.job if self.said is not None and self.said.marker.success else None

    def is_newer_than(self, moment: float) -> bool:
        """Whether it is there and was not written before a moment, by the store's clock."""
        return bool(self.etag) and int(self.last_modified) >= int(moment)


def read_marker(destination: str) -> Step[Marker]:
    """The marker of a destination, which is given without a slash at its end."""
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
    """A job's summary report; ``None`` where there is none to be seen. Its name has the id of the
    MapReduce job, which nobody was told, so all that are there are read.

    :param folder: a prefix of the table's bucket, without a slash at its end.
    :raises VerificationError: several jobs of that UUID have committed.
    """
    listing = yield from list_objects(f"{folder}/summary-")
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
    """The uploads below a folder, with a slash at its end, but those of this package's own
    committer.

    A store may show none for a prefix and all for the bucket: where the first shows none, the
    second is asked, unless the store is known to do as it should.
    """
    found = yield from list_uploads(prefix)
    if not found and (yield from ServerName()) != _LISTS_BY_PREFIX:
        found = yield from list_uploads("")
    # A store that pages badly lists an upload twice.
    unique = {(u.key, u.upload_id): u for u in found if u.key.startswith(prefix)}
    return [u for u in unique.values() if not is_native(u.key)]
