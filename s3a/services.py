"""Hadoop's committers on services that run Spark: a table of the settings for each service.

Services of AWS have committers of their own, which are on by default and are not Hadoop's: MagicV2
of EMR shows the rows of a static insert when a task commits. Each row here says which committers a
service can run, by which settings, and which of its own committers are switched off. The table in
docs/airflow/services.md is made from it. It follows AWS's documentation (the release guide of EMR,
the developer guide of Glue) and the source of the operator for Spark; none of it was run on AWS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, SettingsRefusedError
from ..committer.format.layout import TableRoot
from ..committer.upkeep.access_policy import Service
from .checks import ACCEPT_KEY, JobFacts, accepted_in, inspect, refuse
from .hadoop import effective_settings as layers
from .hadoop import settings as keys
from .hadoop.effective_settings import Layer
from .hadoop.settings import STAGING, Committer

if TYPE_CHECKING:
    # It needs pyarrow, and processes that parse DAG files need only the committers' names.
    from .write_plan import PlannedWrite

#: The factory of committers for paths that begin with ``s3://``. From EMR 7.10 and Glue 5.1 on,
#: such paths are S3A's. Before, they are EMRFS', which Hadoop's factory refuses: the job fails, and
#: no other committer runs.
S3_FACTORY_KEY = "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3"
#: Switches of EMR's own two committers, for S3A and for EMRFS.
EMR_MAGIC_KEY = (
    "spark.sql.execution.datasources.SQLEmrOptimizedCommitProtocol.leverageMagicCommitProtocol"
)
EMR_PARQUET_KEY = "spark.sql.parquet.fs.optimized.committer.optimization-enabled"
_DEFAULT_FS = "fs.defaultFS"
#: The check that fires if machines share no file system.
_SHARED = "staging-not-shared"
_OFF_ON_AWS = {EMR_MAGIC_KEY: "false", EMR_PARQUET_KEY: "false"}
_S3_TOO = {S3_FACTORY_KEY: keys.S3A_FACTORY}
_EMR_OWN = (
    "MagicV2 for s3a://, and from 7.10 on for s3://; before, for s3://, the S3-optimised committer "
    "of EMRFS"
)
_ALL = tuple(Committer)
_NO_VOLUME = "a shared volume, whose folder s3a_options={'staging_dir': 'file:///…'} names"


@dataclass(frozen=True)
class ServiceRules:
    """Settings and limits of Hadoop's committers on one service.

    :param words: the committers that the service can run.
    :param own: its own committer by default, for ``s3://`` and ``s3a://``.
    :param shared: where the directory and partitioned committers keep their pending sets; ``""``:
        machines share nothing.
    :param selects: settings that select the committer, besides those of its word.
    :param switched_off: settings that switch the service's own committers off.
    :param arguments: arguments of its jobs that switch them off.
    :param retries: how the service's own repetition of a driver is switched off or refused.
    :param asked: what is read before a submission.
    :param default_fs: the file system that its machines share by default.
    """

    service: Service
    words: tuple[Committer, ...]
    own: str
    shared: str
    retries: str
    asked: str
    selects: Mapping[str, str] = field(default_factory=dict)
    switched_off: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    default_fs: str = ""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that a job gets besides those of its committer's word."""
        return {**self.selects, **self.switched_off}

    @property
    def needs_volume(self) -> bool:
        """True if the staging committers need a volume that the user has to name."""
        return bool(self.shared) and not self.default_fs


def _row(service: Service, words: tuple[Committer, ...], **members: Any) -> ServiceRules:
    return ServiceRules(service, words, **members)


_ROWS = (
    _row(
        Service.KUBERNETES,
        _ALL,
        own="the image's: Spark's own",
        shared=_NO_VOLUME,
        retries="`restartPolicy` is set to `Never`; another one is refused",
        asked="`sparkConf`, `hadoopConf`, `volumes`, and the config maps that the object names",
    ),
    _row(
        Service.EMR_SERVERLESS,
        (Committer.MAGIC,),
        own=_EMR_OWN,
        shared="",
        retries="a `retryPolicy` of more than one attempt, and streaming jobs, are refused",
        asked="`GetApplication`: the release and the `runtimeConfiguration`; the job's "
        "`configuration_overrides`",
        selects=_S3_TOO,
        switched_off=_OFF_ON_AWS,
    ),
    _row(
        Service.EMR_STEPS,
        _ALL,
        own=_EMR_OWN,
        shared="HDFS of the cluster",
        retries="`spark.yarn.maxAppAttempts=1`",
        asked="`DescribeCluster`: the release and the configurations",
        selects=_S3_TOO,
        switched_off=_OFF_ON_AWS,
        default_fs="hdfs:///",
    ),
    _row(
        Service.EMR_CONTAINERS,
        _ALL,
        own=_EMR_OWN,
        shared=_NO_VOLUME,
        retries="`job_retry_max_attempts` of more than one is refused",
        asked="`release_label` and `configuration_overrides`",
        selects=_S3_TOO,
        switched_off=_OFF_ON_AWS,
    ),
    _row(
        Service.GLUE,
        (Committer.MAGIC,),
        own="before 5.1 the S3-optimised committer of EMRFS; of 5.1 AWS says that S3A has taken "
        "EMRFS' place, and names no committer",
        shared="",
        retries="a job with `MaxRetries` is refused: a run cannot switch it off",
        asked="`GetJob`: the version, the default arguments and the retries",
        selects=_S3_TOO,
        switched_off=_OFF_ON_AWS,
        arguments={"--enable-s3-parquet-optimized-committer": "false"},
    ),
    _row(Service.DATABRICKS, (), own="DBIO's commit service", shared="", retries="", asked=""),
)
#: By service.
RULES: Mapping[Service, ServiceRules] = {row.service: row for row in _ROWS}


@dataclass(frozen=True)
class ServiceJob:
    """Facts about a service's job that can be seen before its submission.

    :param said: the settings of the request itself, by Spark's names; Hadoop's with their prefix.
    :param behind: layers that count if the request does not have a setting, the strongest first.
    :param hadoop: the version of Hadoop; ``""`` if it is not known.
    :param mounts: folders that all machines of the job mount from one volume.
    :param unseen: what could not be read, a sentence each.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[Layer, ...] = ()
    hadoop: str = ""
    mounts: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def check_word(service: Service, committer: str) -> None:
    """Refuse one of Hadoop's committers that a service cannot run.

    :raises InvalidInputError: the service cannot run it; the error has the reason.
    """
    row = RULES[service]
    if committer in row.words:
        return
    if not row.words:
        why = f"{service} commits by {row.own}, which no setting of a job replaces"
        remedy = "Give committer='zero_rename'."
    else:
        why = (
            f"the {committer} committer keeps what is pending on a file system that all machines "
            f"share, and machines of {service} share none"
        )
        known = ", ".join(f"'{it}'" for it in row.words)
        remedy = f"Give committer={known}, which needs none, or 'zero_rename'."
    raise InvalidInputError(
        f"committer={committer!r}: {why}. Nothing was submitted.", remedy=remedy
    )


def refuse_repeats(where: str, said: object, repeats: bool) -> None:
    """Refuse a service's own repetition of a driver, which would append its rows again.

    :param where: the setting of the request.
    :param said: its value.
    :param repeats: whether that lets the service start the driver more than once.
    :raises SettingsRefusedError: it does.
    """
    if not repeats:
        return
    raise SettingsRefusedError(
        f"[driver-restarts] {where} is {said!r}: the service would start the driver again, and "
        "nothing in Hadoop's committers keeps it from adding its rows twice. Nothing was "
        "submitted.",
        remedy="Switch it off, and let Airflow repeat the task (retries).",
    )


def check_job(
    row: ServiceRules,
    seen: ServiceJob,
    conf: Mapping[str, str],
    committer: Committer,
    root: TableRoot,
    write: PlannedWrite | None,
) -> dict[str, str]:
    """Check the settings that a service's job would have, before it is submitted.

    :param conf: the settings of the committer's word.
    :param write: the first write of ``save()``, if that is known.
    :returns: the settings to add to the request: those that it does not have itself.
    :raises SettingsRefusedError: the job would lose or double rows, or cannot work.
    """
    given = {**conf, **row.settings}
    for name in row.settings:
        if (value := seen.said.get(name)) is not None and value.lower() != given[name].lower():
            raise SettingsRefusedError(
                f"[service-committer] {name}={value!r} ({layers.DAG_CONF}) lets a committer of "
                f"{row.service} write in place of {committer}. Nothing was submitted.",
                remedy=f"Leave it out: committer={str(committer)!r} sets it to {given[name]}.",
            )
    # What save() sets for each write: always how it overwrites.
    by_write = {keys.PARTITION_OVERWRITE_KEY: "static", **(write.settings if write else {})}
    default = {f"spark.hadoop.{_DEFAULT_FS}": row.default_fs} if row.default_fs else {}
    in_force: list[Layer] = [
        ("save()", {_named(name): value for name, value in by_write.items()}),
        (layers.DAG_CONF, seen.said),
        (f"settings of committer={committer}", given),
        *seen.behind,
        (f"default of {row.service}", default),
    ]
    job = JobFacts(
        committer=committer,
        settings=layers.effective(in_force, root.bucket),
        destination=write.path if write else f"s3a://{root.bucket}/{root.prefix}",
        is_cluster=True,
        save_mode=write.save_mode if write else None,
        hadoop=seen.hadoop,
    )
    if committer in STAGING and row.needs_volume:
        check_shared_staging(row, job, seen.mounts)
    refuse(inspect(job))
    return {name: value for name, value in given.items() if name not in seen.said}


def _named(name: str) -> str:
    """Return Spark's name of a setting. Hadoop's settings get the prefix ``spark.hadoop.``."""
    return name if name.startswith("spark.") else f"spark.hadoop.{name}"


def check_shared_staging(row: ServiceRules, job: JobFacts, mounts: Sequence[str]) -> None:
    """Refuse a staging committer unless a setting shows that pods share its pending sets.

    :param mounts: folders that driver and executors mount from one volume.
    :raises SettingsRefusedError: no volume is named, or the pods do not all mount it.
    """
    said = job.settings[_DEFAULT_FS]
    if _SHARED in accepted_in(job):
        return  # A template of pods may mount the volume, which cannot be seen from here.
    if said.origin != layers.DEFAULT and not said.value.startswith("file:"):
        return
    staging = job.settings.get(keys.STAGING_KEY)
    path = re.sub(r"^file:(//[^/]*)?", "", staging.value if staging else "")
    if any(f"{path}/".startswith(f"{mount.rstrip('/')}/") for mount in mounts):
        return
    named = ", ".join(mounts) or "none"
    raise SettingsRefusedError(
        f"[{_SHARED}] The {job.committer} committer keeps what is pending in "
        f"{job.describe(keys.STAGING_KEY)}, and pods share no folder unless they mount one "
        f"volume; mounted by driver and executors: {named}. Nothing was submitted.",
        remedy=f"Give {row.shared}, by driver and executors; or committer='magic', which needs "
        f"none. Where a template of pods mounts it: {ACCEPT_KEY}={_SHARED}.",
    )


_RELEASE = re.compile(r"emr-(\d+)\.(\d+)\.\d+(?:-[\w.-]+)?")
#: The first EMR release with each Hadoop ("Hadoop version history" of the release guide), newest
#: first, and the last release that this table knows.
_HADOOP_OF_EMR = ((7, 8, "3.4.1"), (7, 4, "3.4.0"), (7, 0, "3.3.6"))
_LAST_RELEASE = (7, 10)


def emr_release(label: str) -> tuple[int, int]:
    """Return the first two numbers of a release of EMR.

    :raises InvalidInputError: the label is not that of a release.
    """
    found = _RELEASE.fullmatch(label)
    if found is None:
        raise InvalidInputError(
            f"{label!r} is not a release of EMR. Nothing was submitted.",
            remedy="Give one as emr-7.10.0, or as emr-7.10.0-latest for EMR on EKS.",
        )
    return int(found[1]), int(found[2])


def hadoop_of_emr(label: str) -> str:
    """Return the version of Hadoop in a release of EMR; ``""`` for one newer than this package.

    :raises InvalidInputError: the label is not that of a release, or its Spark is too old.
    """
    release = emr_release(label)
    if release[0] < 7:
        raise InvalidInputError(
            f"{label} has a Spark before 3.5, which this package does not run on. Nothing was "
            "submitted.",
            remedy="Use emr-7.4.0 or newer, whose Hadoop 3.4 has a magic committer that jobs can "
            "share a table by.",
        )
    if release > _LAST_RELEASE:
        return ""
    return next(version for *since, version in _HADOOP_OF_EMR if release >= tuple(since))


def classified(
    configurations: Sequence[Mapping[str, object]] | None, origin: str
) -> tuple[Layer, ...]:
    """Convert a list of EMR's configurations to layers of settings.

    :param configurations: each with a classification and properties, by the names of either API.
    """
    found = {"spark-defaults": dict[str, str](), "core-site": {}, "mapred-site": {}}
    for it in configurations or ():
        name = str(it.get("classification") or it.get("Classification") or "")
        properties = it.get("properties") or it.get("Properties") or {}
        if name in found and isinstance(properties, Mapping):
            prefix = "" if name == "spark-defaults" else "spark.hadoop."
            found[name] |= {f"{prefix}{key}": str(value) for key, value in properties.items()}
    return tuple((f"{origin}, {name}", settings) for name, settings in found.items() if settings)


#: Versions of Glue with their Spark, by Glue's guides for migration. ``save()`` sees in the job
#: which Hadoop they have.
_SPARK_OF_GLUE = {"5.0": "3.5.4", "5.1": "3.5.6"}
_OLDER_GLUE = ("0.9", "1.0", "2.0", "3.0", "4.0")


def glue_version(version: str) -> tuple[int, int]:
    """Return the numbers of a version of Glue.

    :raises InvalidInputError: the text is not a version.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)", version)
    if found is None:
        raise InvalidInputError(
            f"{version!r} is not a version of Glue.", remedy="Give one as 5.0 or 5.1."
        )
    return int(found[1]), int(found[2])


def check_glue_version(version: str, unseen: list[str]) -> None:
    """Refuse a version of Glue that cannot run a job.

    :param version: ``""`` if the job does not have one.
    :param unseen: gets a sentence if the version is not known, or not given.
    :raises InvalidInputError: its Spark is too old.
    """
    if version in _OLDER_GLUE:
        raise InvalidInputError(
            f"Glue {version} has a Spark before 3.5, which this package does not run on. Nothing "
            "was submitted.",
            remedy="Let the job have Glue 5.0 or newer.",
        )
    if version not in _SPARK_OF_GLUE:
        unseen.append(
            f"Glue {version} is newer than this package, which knows nothing of it."
            if version
            else "The job does not say its version of Glue."
        )


def settings_of(argument: str) -> dict[str, str]:
    """Return the settings in Glue's argument ``--conf``.

    It holds several settings as ``a=b --conf c=d``.
    """
    parts = (part.strip().strip("\"'") for part in re.split(r"(?:^|\s)--conf[\s=]+", argument))
    found = (part.partition("=") for part in parts if part)
    return {name: value.strip("\"'") for name, _, value in found}
