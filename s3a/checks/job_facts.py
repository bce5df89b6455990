"""Facts known of a job before it runs, for the checks to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...committer.job_spec import Mode
from ..hadoop.attributes import ATTRIBUTES, Attributes
from ..hadoop.effective_settings import Setting
from ..hadoop.settings import Committer


@dataclass(frozen=True)
class JobFacts:
    """A job, its settings and its surroundings. ``None`` always means: not known from here.

    A check stays silent where it would have to guess, unless the guess costs rows.
    :param committer: the word that was chosen: ``zero_rename`` or a :class:`Committer`.
    :param settings: from :func:`~..hadoop.effective_settings.effective`, defaults included.
    :param destination: the path as Spark is given it, ``s3a://bucket/table``.
    :param dropped: from :func:`~..hadoop.effective_settings.dropped`.
    :param is_cluster: whether tasks run on other machines than the driver; ``False`` for
        ``local[…]``.
    :param mode: what the load is for.
    :param save_mode: what ``DataFrameWriter.mode`` is asked for. Replace, which it calls
        overwrite, removes the whole destination first.
    :param has_other_partitions: whether the destination is a table with partitions that this job
        does not write, as in a daily load. ``False`` for a destination that is one partition.
    :param formats: what the application writes: ``parquet``, ``orc``, ``rdd``, ``hive``,
        ``delta``….
    :param missing_classes: those the committer needs that Spark cannot load.
    :param writes: how many writes the application makes.
    :param sensor_waits: whether somebody waits for ``_SUCCESS``: a sensor, or the operator,
        which verifies the job by it.
    :param lifecycle_days: days after which the bucket aborts uploads below the destination, the
        least of its rules; infinite where there is none.
    :param longest_job_seconds: how long the longest job may take.
    """

    committer: str
    settings: Mapping[str, Setting]
    destination: str = ""
    dropped: Mapping[str, Setting] = field(default_factory=dict)
    is_cluster: bool | None = None
    mode: Mode | None = None
    save_mode: Mode | None = None
    has_other_partitions: bool | None = None
    formats: tuple[str, ...] = ()
    missing_classes: tuple[str, ...] = ()
    writes: int | None = None
    sensor_waits: bool | None = None
    lifecycle_days: float | None = None
    longest_job_seconds: float | None = None

    @property
    def s3a(self) -> Committer | None:
        """The S3A committer that was asked for, ``None`` for this project's own."""
        return Committer(self.committer) if self.committer in list(Committer) else None

    @cached_property
    def attributes(self) -> Attributes:
        """What the committer can and cannot do."""
        return ATTRIBUTES[self.committer]

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

    def describe(self, *keys: str) -> str:
        """Keys with their values and where each came from, for a finding."""
        return ", ".join(
            f"{key}={self.settings[key].value!r} ({self.settings[key].origin})"
            if key in self.settings
            else f"{key} is not set"
            for key in keys
        )
