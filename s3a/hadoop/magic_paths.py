"""Places of S3A committers in the store: magic paths, pending sets, names with UUIDs.

::

    dest/__magic_job-<uuid>/job-<uuid>/<NN>/<task id>.pendingset          committed tasks
    dest/__magic_job-<uuid>/job-<uuid>/<NN>/tasks/<attempt>/__base/…      files of running ones
    dest/__magic/job-<uuid>/<NN>/…                                        before Hadoop 3.4.0
    dest/__magic/app-attempt-<NNNN>/…                                     before Hadoop 3.3.1

``NN`` is the application's attempt, ``00`` in Spark. A file written below the last ``__base``
appears, when its upload is completed, in the parent of the magic element: sources are Hadoop's
``CommitUtilsWithMR`` and ``MagicCommitPaths``. HADOOP-18797 gave every job a root of its own.

The staging committers keep their pending sets on the cluster's file system: in the store they
leave nothing but uploads, whose keys are those of the finished files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...committer.layout import CONTROL, TableRoot, job_in_key
from .commit_files import PENDING_SET_SUFFIX, PENDING_SUFFIX

#: One magic root for all jobs, before Hadoop 3.4.0.
SHARED_MAGIC = "__magic"
MAGIC_JOB = "__magic_job-"
_JOB = "job-"
_BASE = "__base"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TASK_NUMBER = re.compile(r"_[mr]_(\d+)")
_ATTEMPT_DIRECTORY = re.compile(r"\d{2,}|app-attempt-\d+")
#: What this package puts into a magic tree to say what becomes of the job.
DIRECTION_NAME = "zero_rename_recovery.json"


@dataclass(frozen=True)
class MagicPath:
    """A key below a magic element, taken apart.

    :param tree: the prefix of all that belongs to the job, ending with a slash: what its
        clean-up deletes. For a key of the shared ``__magic`` that names no job, ``__magic/``.
    :param destination: the job's output, a prefix without a slash at its end.
    :param job: the UUID; ``""`` where a path of the shared ``__magic`` names none.
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
        """A committed task's: directly in the attempt's directory, as the job commit lists."""
        return (
            bool(self.attempt) and "/" not in self.rest and self.rest.endswith(PENDING_SET_SUFFIX)
        )

    @property
    def task(self) -> str:
        """The task's id of a pending set, which has the name of the task, not the attempt: the
        attempt that commits last overwrites the set of an earlier one (HADOOP-17258)."""
        return self.rest.removesuffix(PENDING_SET_SUFFIX) if self.is_set else ""

    @property
    def final_key(self) -> str | None:
        """For a ``.pending`` of a running task, the key its file will have; else ``None``."""
        if not self.rest.endswith(PENDING_SUFFIX) or not self.rest.startswith("tasks/"):
            return None
        path = self.rest.removesuffix(PENDING_SUFFIX)
        _above, base, below = path.rpartition(f"/{_BASE}/")
        name = below if base else path.rpartition("/")[2]
        return f"{self.destination}/{name}" if name else None


def magic_root(key: str) -> str | None:
    """The prefix that ends with a key's magic element and a slash; ``None`` for other keys."""
    parts = key.split("/")
    for index, part in enumerate(parts[:-1]):
        if part == SHARED_MAGIC or part.startswith(MAGIC_JOB):
            return "/".join(parts[: index + 1]) + "/"
    return None


def is_magic(key: str) -> bool:
    return magic_root(key) is not None


def parse(key: str) -> MagicPath | None:
    """Take a key below a magic element apart; ``None`` for other keys."""
    root = magic_root(key)
    if root is None:
        return None
    destination, _, element = root[:-1].rpartition("/")
    parts = key[len(root) :].split("/")
    job = element.removeprefix(MAGIC_JOB) if element != SHARED_MAGIC else ""
    tree = root
    if parts[0].startswith(_JOB) and len(parts) > 1:
        named = parts[0].removeprefix(_JOB)
        if not job:
            job, tree = named, f"{root}{parts[0]}/"
        if named == job:
            parts = parts[1:]
    attempt = ""
    if len(parts) > 1 and _ATTEMPT_DIRECTORY.fullmatch(parts[0]):
        attempt, parts = parts[0], parts[1:]
    return MagicPath(tree, destination, job, attempt, "/".join(parts))


def job_of(key: str) -> str | None:
    """The UUID of the job whose magic tree a key is in; ``None`` where there is none."""
    path = parse(key)
    return (path.job or None) if path else None


def job_tree(destination: str, job: str) -> str:
    """The prefix of a job's magic tree, since Hadoop 3.4.0."""
    return f"{destination}/{MAGIC_JOB}{job}/"


def task_number(task: str) -> int | None:
    """A task's number in its job, from ``task_202311142213_0001_m_000003``."""
    found = _TASK_NUMBER.search(task)
    return int(found.group(1)) if found else None


def uuids_in_name(key: str) -> tuple[str, ...]:
    """The UUIDs in a key's last component, in lower case: Spark puts one of its own into the
    names of all files of one write, the staging committers add the job's."""
    return tuple(found.lower() for found in _UUID.findall(key.rsplit("/", 1)[-1]))


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
    if any(part in ("", ".", "..") for part in parts):
        return f"names the key {key!r}, which has an empty, '.' or '..' component"
    if any(part == CONTROL or part.startswith(SHARED_MAGIC) for part in parts):
        return f"names the key {key!r}, among the records of committers"
    if parts[-1] == "_SUCCESS":
        return f"names the key {key!r}, a marker"
    if not key.isprintable():
        return f"names the key {key!r}, which has control characters"
    return None
