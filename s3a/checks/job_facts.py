"""What is known of a job before it runs, for the checks to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ...committer.job_spec import Mode
from ..hadoop.attributes import ATTRIBUTES, Attributes
from ..hadoop.effective_settings import Setting, version_of
from ..hadoop.settings import Committer

if TYPE_CHECKING:
    from ..hadoop.class_path import Jars


@dataclass(frozen=True)
class Circumstances:
    """A job, its settings and its surroundings. ``None`` always means: not known from here.

    A check stays silent where it would have to guess, unless the guess costs rows.

    :param committer: the word that was chosen: ``zero_rename`` or a :class:`Committer`.
    :param settings: from :func:`~..hadoop.effective_settings.effective`, defaults included.
    :param destination: the path as Spark is given it, ``s3a://bucket/table``.
    :param dropped: from :func:`~..hadoop.effective_settings.dropped`.
    :param spark_version: such as ``4.3.0``.
    :param jars: what is on the class path.
    :param is_cluster: whether tasks run on other machines than the driver; ``False`` for
        ``local[…]``.
    :param mode: what the load is for.
    :param save_mode: what ``DataFrameWriter.mode`` is asked for. Replace, which it calls
        overwrite, removes the whole destination first.
    :param partition_by: the partition columns, ``()`` for none.
    :param has_other_partitions: whether the destination is a table with partitions that this job
        does not write, as in a daily load. ``False`` for a destination that is one partition.
    :param native_table: whether the destination is below a table of ``zero_rename``.
    :param formats: what the application writes: ``parquet``, ``orc``, ``rdd``, ``hive``,
        ``delta``….
    :param writes: how many writes the application makes.
    :param hive_table: whether it writes a table of the Hive metastore.
    :param partitions_elsewhere: whether that table has partitions outside its own folder.
    :param other_jobs: whether other jobs may write below the destination meanwhile.
    :param sensor_waits: whether somebody waits for ``_SUCCESS``: a sensor, or the operator,
        which verifies the job by it.
    :param retries: how often the scheduler repeats a failed job.
    :param lifecycle_days: days after which the bucket aborts uploads below the destination, the
        least of its rules; infinite where there is none.
    :param longest_job_seconds: how long the longest job may take.
    :param buffer_free_bytes: free bytes where ``fs.s3a.buffer.dir`` is.
    :param expected_bytes: bytes that one machine's tasks stage at once.
    :param shared_dirs: buffer folders that other users may write to, or own.
    :param conditional_writes: whether the store keeps ``If-None-Match``.
    """

    committer: str
    settings: Mapping[str, Setting]
    destination: str = ""
    dropped: Mapping[str, Setting] = field(default_factory=dict)
    spark_version: str | None = None
    jars: Jars | None = None
    is_cluster: bool | None = None
    mode: Mode | None = None
    save_mode: Mode | None = None
    partition_by: tuple[str, ...] | None = None
    has_other_partitions: bool | None = None
    native_table: bool | None = None
    formats: tuple[str, ...] = ()
    writes: int | None = None
    hive_table: bool | None = None
    partitions_elsewhere: bool | None = None
    other_jobs: bool | None = None
    sensor_waits: bool | None = None
    retries: int | None = None
    lifecycle_days: float | None = None
    longest_job_seconds: float | None = None
    buffer_free_bytes: int | None = None
    expected_bytes: int | None = None
    shared_dirs: tuple[str, ...] = ()
    conditional_writes: bool | None = None

    @property
    def s3a(self) -> Committer | None:
        """The S3A committer that was asked for, ``None`` for this project's own."""
        return Committer(self.committer) if self.committer in list(Committer) else None

    @cached_property
    def attributes(self) -> Attributes:
        """What the committer can and cannot do."""
        return ATTRIBUTES[self.committer]

    @property
    def spark(self) -> tuple[int, ...] | None:
        """Spark's version in numbers."""
        return version_of(self.spark_version) if self.spark_version else None

    def value(self, key: str, default: str = "") -> str:
        """The value in force."""
        setting = self.settings.get(key)
        return default if setting is None else setting.value

    def is_on(self, key: str) -> bool:
        """Whether an option is true, as Hadoop's ``Configuration.getBoolean`` reads it."""
        return self.value(key).strip().lower() == "true"

    def number(self, key: str) -> int | None:
        """An option as a whole number, ``None`` where it is none."""
        try:
            return int(self.value(key))
        except ValueError:
            return None

    def said(self, *keys: str) -> str:
        """Keys with their values and where each came from, for a finding."""
        return ", ".join(
            f"{key}={self.settings[key].value!r} ({self.settings[key].origin})"
            if key in self.settings
            else f"{key} is not set"
            for key in keys
        )
