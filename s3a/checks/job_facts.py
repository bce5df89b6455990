"""Facts known of a job before it runs, for the checks to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...committer.job_spec import Mode
from ..hadoop.effective_settings import Setting
from ..hadoop.settings import Committer


@dataclass(frozen=True)
class JobFacts:
    """A job, its settings and its surroundings. ``None`` always means: not known from here.

    A check stays silent where it would have to guess, unless the guess costs rows.
    :param committer: the word that was chosen: ``zero_rename`` or a :class:`Committer`.
    :param settings: from :func:`~..hadoop.effective_settings.effective`, defaults included.
    :param destination: the path as Spark is given it, ``s3a://bucket/table``.
    :param is_cluster: whether tasks run on other machines than the driver; ``False`` for
        ``local[…]``.
    :param save_mode: what ``DataFrameWriter.mode`` is asked for. Replace, which it calls
        overwrite, removes the whole destination first.
    :param overwrites_alone: the task names partitions, and its application overwrites by Spark's
        own writer.
    :param missing_classes: those the committer needs that Spark cannot load.
    """

    committer: str
    settings: Mapping[str, Setting]
    destination: str = ""
    is_cluster: bool | None = None
    save_mode: Mode | None = None
    overwrites_alone: bool = False
    missing_classes: tuple[str, ...] = ()

    @property
    def s3a(self) -> Committer | None:
        """The S3A committer that was asked for, ``None`` for this project's own."""
        return Committer(self.committer) if self.committer in list(Committer) else None

    def value(self, key: str) -> str:
        """The value in force, ``""`` for none."""
        setting = self.settings.get(key)
        return "" if setting is None else setting.value

    def is_on(self, key: str) -> bool:
        """Whether an option is true, as Hadoop's ``Configuration.getBoolean`` reads it."""
        return self.value(key).strip().lower() == "true"

    def describe(self, *keys: str) -> str:
        """Keys with their values and where each came from, for a finding."""
        return ", ".join(
            f"{key}={self.settings[key].value!r} ({self.settings[key].origin})"
            if key in self.settings
            else f"{key} is not set"
            for key in keys
        )
