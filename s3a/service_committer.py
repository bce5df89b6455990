"""The committer that a service's job would use, by its settings and AWS's documentation.

For users who have not chosen a committer by this package yet, or who want to know what the choice
changes. If the documentation does not say which committer it is, it is reported as not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..committer.upkeep.access_policy import Service
from .hadoop import settings as keys
from .hadoop.effective_settings import DEFAULT, Setting
from .hadoop.settings import Committer
from .services import (
    EMR_MAGIC_KEY,
    EMR_PARQUET_KEY,
    RULES,
    S3_FACTORY_KEY,
    emr_release,
    glue_version,
)

#: Reported for a committer that neither the settings nor the documentation name.
UNKNOWN = "not known"
_RENAMING = "FileOutputCommitter"
_EMRFS_KEY = "fs.s3.impl"
_EMR = (Service.EMR_SERVERLESS, Service.EMR_STEPS, Service.EMR_CONTAINERS)


@dataclass(frozen=True)
class CommitterInForce:
    """The committer of all paths that begin with one scheme.

    :param paths: ``s3a://`` or ``s3://``.
    :param why: the reason, a sentence.
    """

    paths: str
    committer: str
    why: str

    @property
    def is_hadoops(self) -> bool:
        """True for Hadoop's committers that commit by uploads."""
        return self.committer in list(Committer)


@dataclass(frozen=True)
class _AskedJob:
    """A job of a service, with paths of one scheme.

    :param release: of EMR, or the version of Glue; ``""``: not known.
    """

    service: Service
    release: str
    settings: Mapping[str, Setting]
    scheme: str

    def said(self, key: str) -> str:
        """Return the value of a setting; ``""`` if only a default is known.

        Defaults of Spark and Hadoop do not count: a service may have others.
        """
        found = self.settings.get(key.removeprefix("spark.hadoop."))
        return "" if found is None or found.origin == DEFAULT else found.value

    @property
    def is_s3a(self) -> bool | None:
        """True if the paths are S3A's; ``None`` if that depends on a release that is not known."""
        if self.scheme == "s3a":
            return True
        if named := self.said(_EMRFS_KEY):
            return named.endswith("S3AFileSystem")
        if self.service not in (*_EMR, Service.GLUE):
            return False
        if not self.release:
            return None
        if self.service is Service.GLUE:
            return glue_version(self.release) >= (5, 1)
        return emr_release(self.release) >= (7, 10)


def committers_in_force(
    service: Service, release: str, settings: Mapping[str, Setting]
) -> tuple[CommitterInForce, ...]:
    """Find the committers of a job, one for each scheme of its paths.

    :param release: of EMR, such as ``emr-7.10.0``, or the version of Glue; ``""``: not known.
    :param settings: as :func:`~.hadoop.effective_settings.effective` makes them.
    :raises InvalidInputError: a release that does not exist.
    """
    return tuple(_of(_AskedJob(service, release, settings, scheme)) for scheme in ("s3a", "s3"))


def _of(job: _AskedJob) -> CommitterInForce:
    committer, why = _found(job)
    return CommitterInForce(f"{job.scheme}://", committer, why)


def _found(job: _AskedJob) -> tuple[str, str]:
    if job.service is Service.DATABRICKS:
        return RULES[job.service].own, "Databricks commits by itself."
    is_s3a, protocol = job.is_s3a, job.said(keys.COMMIT_PROTOCOL_KEY)
    if is_s3a is None:
        return UNKNOWN, "Whether these paths are S3A's or EMRFS' depends on the release: give it."
    if is_s3a is False and job.service is Service.KUBERNETES:
        return "none", f"Hadoop has no file system for them, unless {_EMRFS_KEY} names one."
    if protocol == keys.PATH_PROTOCOL:
        return _bound(job) if is_s3a else _bound_to_emrfs(job)
    if protocol:
        return _short(protocol), f"{keys.COMMIT_PROTOCOL_KEY} names this protocol."
    return _by_default(job, is_s3a)


def _bound(job: _AskedJob) -> tuple[str, str]:
    """Find the committer of S3A paths if the commit protocol asks Hadoop's factory for it."""
    by_scheme = S3_FACTORY_KEY if job.scheme == "s3" else keys.FACTORY_KEY
    default = keys.S3A_FACTORY if job.scheme == "s3a" else ""
    factory = job.said(keys.FACTORY_CLASS_KEY) or job.said(by_scheme) or default
    if not factory:
        return _RENAMING, f"{by_scheme} is not set: without a factory Hadoop renames."
    if factory != keys.S3A_FACTORY:
        return _short(factory), "This factory is set, and makes a committer of its own."
    if job.said(keys.PARQUET_COMMITTER_KEY) != keys.BINDING_PARQUET:
        why = (
            f"{keys.PARQUET_COMMITTER_KEY} is not {_short(keys.BINDING_PARQUET)}: Parquet renames."
        )
        return _RENAMING, why
    name = job.said(keys.NAME_KEY)
    if not name and job.service is not Service.KUBERNETES:
        return UNKNOWN, f"{keys.NAME_KEY} is not set, and the service may set one of its own."
    if name in ("", "file"):
        return _RENAMING, f"{keys.NAME_KEY} is 'file', which renames."
    return name, f"{keys.NAME_KEY} names it, and protocol, factory and Parquet are bound to it."


def _bound_to_emrfs(job: _AskedJob) -> tuple[str, str]:
    if job.said(S3_FACTORY_KEY) == keys.S3A_FACTORY:
        return "none", "These paths are EMRFS', which S3A's factory refuses: the job fails."
    return _RENAMING, "These paths are EMRFS', for which Hadoop has no factory: it renames."


def _by_default(job: _AskedJob, is_s3a: bool) -> tuple[str, str]:
    """Find the committer if no setting names a commit protocol."""
    if job.service is Service.KUBERNETES:
        why = (
            "Before 4.1 Spark renames; since then it chooses magic where the classes of "
            "spark-hadoop-cloud are there (SPARK-47618)."
        )
        return UNKNOWN, why
    if job.service is Service.GLUE and is_s3a:
        if job.release and glue_version(job.release) < (5, 1):
            return UNKNOWN, "Before 5.1 AWS names no committer for S3A."
        return UNKNOWN, "AWS says that S3A has taken EMRFS' place, and names no committer."
    switch = EMR_MAGIC_KEY if is_s3a else EMR_PARQUET_KEY
    if job.said(switch).lower() == "false":
        return UNKNOWN, f"{switch} is false, and AWS does not say what takes its place."
    if not is_s3a:
        return "S3-optimised committer of EMRFS", f"It is the default, and {switch} is not false."
    if job.release and emr_release(job.release) < (6, 15):
        return UNKNOWN, "Before 6.15 AWS names no committer for S3A."
    why = (
        f"It is the default from 6.15 on, and {switch} is not false. With a static insert it shows "
        "a file when its task commits, so that a job that is killed leaves rows."
    )
    return "MagicV2 of EMR", why


def _short(name: str) -> str:
    return name.rpartition(".")[2]
