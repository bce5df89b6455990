"""Layout of a table: its root, job ids, and the keys of control and data objects."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import InvalidInputError, without_secrets
from ..store.fast_root import FAST, FastRoot
from ..store.s3_urls import SCHEME, check_bucket_part
from .run_file import file_of_run

if TYPE_CHECKING:
    from ..store.requests import ListedObject

CONTROL = "_zero_rename"
#: The folder of a bucket where programs that submit jobs put this package for them.
PACKAGES = "_zero_rename_packages"
#: The name of the object metadata that ties every data file to its job.
JOB_METADATA = "zero-rename-job"
#: The name of the one partition of an unpartitioned table. No partition directory has this name,
#: since the name of such a directory contains ``=``.
UNPARTITIONED = "_unpartitioned"
#: The part of a key before the job's id, for files in a data root.
_DATA = re.compile(rf"{FAST}[^/]+/")
JOB_ID = re.compile(r"zr1-[0-9A-HJKMNP-TV-Z]{26}")
#: The key up to a job's folder of files, in a table that has a log or in the table's data root.
_IN_LOG = re.compile(rf"(.+)(?:/data/|{FAST}[^/]+/)({JOB_ID.pattern})/")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-_]{1,253}[A-Za-z0-9]")
_MAX_KEY_BYTES = 1024


def _crockford(number: int, digits: int) -> str:
    return "".join(_CROCKFORD[(number >> (5 * i)) & 31] for i in reversed(range(digits)))


def new_ulid() -> str:
    """Make a ULID: 48 bits of milliseconds, 80 bits of randomness, 26 characters."""
    return _crockford(int(time.time() * 1000), 10) + _crockford(
        int.from_bytes(os.urandom(10), "big"), 16
    )


def new_job_id() -> str:
    """Make a job id.

    It is random, made once per driver process, and never derived from anything: a restarted driver
    is another job.
    """
    return f"zr1-{new_ulid()}"


def job_ids_begin(at: float, digits: int) -> str:
    """Return a prefix of the ids of jobs that began at about a time, for a listing of these jobs.

    :param at: Unix seconds.
    :param digits: the number of digits of the time, at most ten; the prefix with one digit less
        covers a period 32 times as long.
    """
    return f"zr1-{_crockford(max(0, int(at * 1000)), 10)[:digits]}"


def job_began(job: str) -> float:
    """Return the time at which a job began, by its driver's clock; Unix seconds."""
    number = 0
    for digit in job.removeprefix("zr1-")[:10]:
        number = number * 32 + _CROCKFORD.index(digit)
    return number / 1000


def is_job_id(text: str) -> bool:
    return JOB_ID.fullmatch(text) is not None


def require_job_id(text: str) -> None:
    """Refuse a text that is not a job id.

    :raises InvalidInputError: it is not of a job id's form.
    """
    if not is_job_id(text):
        remedy = "Give it as `zero-rename history` and `jobs` do: zr1- and 26 letters and digits."
        raise InvalidInputError(f"{text!r} is no job's id. Nothing was done.", remedy=remedy)


def job_of_part(prefix: str, key: str) -> str | None:
    """Return the job, if a key below ``prefix`` is a part of its decision; otherwise ``None``."""
    job, _, rest = key.removeprefix(prefix).partition(".")
    return job if is_job_id(job) and rest != "json" else None


def jobs_on_record(prefix: str, keys: Iterable[str]) -> list[str]:
    """Return the jobs whose records lie directly below a prefix; other keys are ignored."""
    names = (key.removeprefix(prefix).removesuffix(".json") for key in keys)
    return [name for name in names if is_job_id(name)]


def jobs_between(first: float, last: float, most: int) -> list[str]:
    """Return at most ``most`` prefixes of the ids of jobs that began between two times.

    They cover a little more than that period, as little as so few prefixes can. In an id, the ten
    characters after ``zr1-`` are the milliseconds.

    :param first: Unix seconds, by the clocks of the jobs' drivers.
    """
    for digits in range(9, 0, -1):
        bits = 5 * (10 - digits)
        begin, end = (max(0, int(at * 1000)) >> bits for at in (first, last))
        if end - begin < most:
            return [f"zr1-{_crockford(period, digits)}" for period in range(begin, end + 1)]
    return ["zr1-"]


def job_in_key(key: str) -> str | None:
    """Return the job id in a data file's key; ``None`` for a foreign key.

    It is in the file's name, or, in a data root, the name of a folder.
    """
    found = JOB_ID.search(key.rsplit("/", 1)[-1])
    if found is None and (before := _DATA.search(key)) is not None:
        found = JOB_ID.match(key, before.end())
    return found.group() if found else None


def log_job_in_key(key: str) -> tuple[str, str] | None:
    """Return the table's prefix and the job of a file in a table that has a log.

    ``None`` for a key that is not of this kind.
    """
    found = _IN_LOG.match(key)
    if found is None or CONTROL in found[1].split("/"):
        return None  # No table lies below another table's control folder.
    return found[1], found[2]


def is_written_once(key: str) -> bool:
    """Return whether a data file's key is never written again.

    A job of a Delta table gives each of its files a key of its own.
    """
    return _DATA.search(key) is not None or log_job_in_key(key) is not None


def new_write_id() -> str:
    """Make a write id, which never repeats.

    It is random: a forked process, such as Spark's workers, would go on with its parent's counter.

    Every control record carries one. On most stores an ETag is a digest of the content, so two
    equal bodies would look like one write (ABA).
    """
    return new_ulid()


#: Ending of the name of a file that ``hadoop fs -put`` still copies, or never finished.
COPYING = "._COPYING_"


def is_hidden(name: str) -> bool:
    """Return whether Spark skips a file or directory of this name, so nothing in it is data.

    Spark does not skip the partition directory of a column such as ``_x``
    (``org.apache.spark.util.HadoopFSUtils.shouldFilterOutPathName``).
    """
    return (
        name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(COPYING)
    )


@dataclass(frozen=True)
class TableRoot:
    """A table's location: a bucket and a prefix without slashes at its ends."""

    bucket: str
    prefix: str

    @staticmethod
    def parse(url: str) -> TableRoot:
        """Parse ``s3://bucket/prefix`` (``s3a://`` and ``s3n://`` mean the same, in any case).

        :raises InvalidInputError: the URL has another form or no prefix, or readers skip the
            prefix.
        """
        text = url if isinstance(url, str) else ""  # A path has lost a slash of the URL.
        check_bucket_part(text)
        match = re.fullmatch(rf"{SCHEME}([^/]+)/(.+?)/*", text)
        remedy = "Name a table as s3://bucket/prefix."
        if match is None:
            shown = without_secrets(str(url))
            raise InvalidInputError(
                f"A table root is s3://bucket/prefix, not {shown!r}; nothing was read or written.",
                remedy=remedy,
            )
        bucket, prefix = match.groups()
        if not _BUCKET.fullmatch(bucket):
            raise InvalidInputError(f"{bucket!r} cannot be a bucket's name.", remedy=remedy)
        parts = prefix.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise InvalidInputError(
                f"The table root {url!r} has an empty, '.' or '..' component.", remedy=remedy
            )
        if any(is_hidden(part) for part in parts):
            raise InvalidInputError(
                f"The table root {url!r} has a component that begins with '_' or '.' or ends with "
                f"{COPYING}, which Spark, Hive and Trino skip.",
                remedy=remedy,
            )
        if any(not character.isprintable() for character in prefix):
            raise InvalidInputError("A table root with control characters.", remedy=remedy)
        return TableRoot(bucket, prefix)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def around(self) -> list[TableRoot]:
        """Folders that the table lies in, innermost first."""
        parts = self.prefix.split("/")[:-1]
        return [TableRoot(self.bucket, "/".join(parts[:n])) for n in range(len(parts), 0, -1)]

    def _control(self, *path: str) -> str:
        return "/".join((self.prefix, CONTROL, *path))

    @property
    def control_prefix(self) -> str:
        return self._control("")

    @property
    def table_key(self) -> str:
        return self._control("table.json")

    @property
    def open_prefix(self) -> str:
        return self._control("open", "")

    def open_key(self, job: str) -> str:
        return self._control("open", f"{job}.json")

    @property
    def decisions_prefix(self) -> str:
        return self._control("jobs", "")

    def decision_key(self, job: str) -> str:
        return self._control("jobs", f"{job}.json")

    def decision_part_key(self, job: str, write_id: str, number: int) -> str:
        return self._control("jobs", f"{job}.{write_id}.{number}")

    @property
    def heads_prefix(self) -> str:
        return self._control("heads", "")

    def head_key(self, partition: str) -> str:
        return self._control("heads", f"{partition}.json")

    def partition_of_head_key(self, key: str) -> str | None:
        """Return the partition of a head's key: the inverse of :meth:`head_key`.

        ``None`` for a key that does not lie with the heads.
        """
        if key.startswith(self.heads_prefix) and key.endswith(".json"):
            return key[len(self.heads_prefix) : -len(".json")]
        return None

    @property
    def index_key(self) -> str:
        """Key of the index's record. It lies with the heads, so any listing of heads shows it."""
        return self._control("heads", "_index.json")

    @property
    def index_parts_prefix(self) -> str:
        return self._control("index", "")

    def index_part_key(self, write_id: str) -> str:
        """Return the key of an object of the index.

        The object is Parquet. Its name does not end in ``.parquet``, since its rows are not data of
        the table.
        """
        return self._control("index", f"{write_id}.index")

    @property
    def manifests_prefix(self) -> str:
        return self._control("manifests", "")

    def manifest_key(self, write_id: str) -> str:
        return self._control("manifests", f"{write_id}.json")

    @property
    def runs_prefix(self) -> str:
        return self._control("runs", "")

    def run_key(self, idempotency_key: str) -> str:
        """Return the key of a run's head: readable, and unique by a digest."""
        return self._control("runs", file_of_run(idempotency_key))

    @property
    def failures_prefix(self) -> str:
        return self._control("failures", "")

    def failure_key(self, idempotency_key: str) -> str:
        """Return the key of the record of a run's last failure."""
        return self._control("failures", file_of_run(idempotency_key))

    @property
    def inputs_prefix(self) -> str:
        """Prefix of the records in which former versions kept the inputs of a run's last job."""
        return self._control("inputs", "")

    @property
    def gc_key(self) -> str:
        """Key of the record of the decisions that gc need not read again."""
        return self._control("gc.json")

    @property
    def conflicts_key(self) -> str:
        """Key of the record of the conflicts of runs that were found."""
        return self._control("conflicts.json")

    def probe_key(self, name: str) -> str:
        return self._control("probe", name)

    def partition_prefix(self, partition: str) -> str:
        """Return the prefix of a partition's files.

        It ends with a slash: ``flights/day=1`` would also list ``flights/day=10``.
        """
        if partition == UNPARTITIONED:
            return f"{self.prefix}/"
        return f"{self.prefix}/{partition}/"

    def data_key(self, partition: str, task: int, job: str, number: int) -> str:
        """Return a data file's key: ``part-<task>-<job>-<number>.parquet`` in its partition.

        :raises InvalidInputError: the key is longer than S3's 1,024 bytes.
        """
        name = f"part-{task:05d}-{job}-{number:04d}.parquet"
        return self._checked(f"{self.partition_prefix(partition)}{name}", partition, job)

    def _checked(self, key: str, partition: str, job: str) -> str:
        # A data file's key is a partition's longest: if it fits, those of head and marker fit, too.
        length = len(key.encode())
        if length > _MAX_KEY_BYTES:
            raise InvalidInputError(
                f"The partition {partition[:200]!r} makes keys of {length} bytes; S3 takes "
                f"{_MAX_KEY_BYTES}.",
                table=self.url,
                job=job,
                remedy="Choose a shorter table root or a partition column with shorter values.",
            )
        return key

    def fast_data_prefix(self, fast: FastRoot) -> str:
        """Return the prefix of the keys by which the protocol names files in a data root.

        In the table's own bucket no objects lie below it.
        """
        return self._control("fast", fast.name, "")

    def is_apart(self, fast: FastRoot) -> bool:
        """Return whether a data root lies outside the table."""
        if fast.bucket != self.bucket or fast.endpoint is not None:
            return True
        return not f"{fast.prefix}/".startswith(f"{self.prefix}/")

    def partition_of_data_key(self, key: str) -> str | None:
        """Return the partition of a data file's key; ``None``: it is outside the table's data."""
        inside = key.removeprefix(f"{self.prefix}/")
        if inside == key or not inside:
            return None
        folder, slash, name = inside.rpartition("/")
        if is_hidden(name) or not name:
            return None
        return _partition_in(folder) if slash else UNPARTITIONED

    def is_data(self, item: ListedObject) -> bool:
        """Return whether a listed object is a data file, in a directory of any name."""
        return self.partition_of_data_key(item.key) is not None

    def marker_key(self, partition: str) -> str:
        """Return the key of a partition's ``_SUCCESS``; for :data:`UNPARTITIONED`, the table's."""
        return f"{self.partition_prefix(partition)}_SUCCESS"


@lru_cache(maxsize=1024)
def _partition_in(folder: str) -> str | None:
    """Return the partition of a folder of the table; ``None``: the folder is hidden from readers.

    The result is cached, since a listing asks for one folder many times.
    """
    names = folder.split("/")
    return None if any(is_hidden(name) or not name for name in names) else folder
