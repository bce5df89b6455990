"""Table of all known S3A settings that lose rows, double them or show them half-written.

``docs/s3a.md`` has the reason and the source of each check. Most checks can fire only if ``conf``,
or a file of the cluster, contradicts what a committer's word sets. The checks run before
submission, with the settings that will be in force, and again in the job, before its first write.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..committer.errors import InvalidInputError, SettingsRefusedError, counted
from ..committer.format.job_spec import Mode
from .hadoop import settings as keys
from .hadoop.effective_settings import (
    COMMAND_LINE,
    CORE_SITE,
    DAG_CONF,
    DEFAULT,
    SPARK_DEFAULTS,
    Setting,
)
from .hadoop.settings import STAGING, Committer, S3ASettings

S3A, ALL = tuple(Committer), keys.COMMITTERS
_log = logging.getLogger("zero_rename.s3a.checks")


class Severity(StrEnum):
    """Severity of a finding: an error refuses the job, a warning is only logged."""

    #: Rows would be lost, doubled or seen half-written, or the job cannot work. It is refused.
    ERROR = "error"
    #: The job works, but the setting will do harm. A warning is logged.
    WARNING = "warning"


@dataclass(frozen=True)
class JobFacts:
    """A job with its settings and its surroundings. ``None`` always means: not known from here.

    A check stays silent if it would have to guess, unless the guess costs rows.

    :param committer: the word that was chosen: ``zero_rename`` or a :class:`Committer`.
    :param settings: from :func:`~.hadoop.effective_settings.effective`, defaults included.
    :param destination: the path as Spark is given it, ``s3a://bucket/table``.
    :param is_cluster: whether tasks run on other machines than the driver; ``False`` for
        ``local[…]``.
    :param save_mode: the mode that ``DataFrameWriter.mode`` gets. Replace, which Spark calls
        overwrite, removes the whole destination first.
    :param overwrites_alone: the task names partitions, and its application overwrites by Spark's
        own writer.
    :param missing_classes: classes that the committer needs and Spark cannot load.
    :param hadoop: the version of Spark's Hadoop; ``""`` if it cannot be seen from here.
    """

    committer: str
    settings: Mapping[str, Setting]
    destination: str = ""
    is_cluster: bool | None = None
    save_mode: Mode | None = None
    overwrites_alone: bool = False
    missing_classes: tuple[str, ...] = ()
    hadoop: str = ""

    @property
    def s3a(self) -> Committer | None:
        """The chosen S3A committer; ``None`` for this project's own committer."""
        return Committer(self.committer) if self.committer in list(Committer) else None

    def value(self, key: str) -> str:
        """Return the value in force; ``""`` if it is not set."""
        setting = self.settings.get(key)
        return "" if setting is None else setting.value

    def is_on(self, key: str) -> bool:
        """Return whether an option is true, as Hadoop's ``Configuration.getBoolean`` reads it."""
        return self.value(key).strip().lower() == "true"

    def describe(self, *keys: str) -> str:
        """Return keys with their values and origins, for a finding."""
        return ", ".join(
            f"{key}={self.settings[key].value!r} ({self.settings[key].origin})"
            if key in self.settings
            else f"{key} is not set"
            for key in keys
        )


@dataclass(frozen=True)
class Check:
    """A check for one known harmful setting.

    :param id: in kebab case; it does not change between versions.
    :param committers: the committers that the check is about.
    :param title: what is wrong, and what it causes.
    :param keys: settings that a finding shows, with their values and origins.
    :param wrong: returns whether the check fires; or, if it fires, one more detail to show.
    :param remedy: what to do.
    """

    id: str
    severity: Severity
    committers: tuple[str, ...]
    title: str
    keys: tuple[str, ...] = field(repr=False)
    wrong: Callable[[JobFacts], object] = field(repr=False)
    remedy: str = "Leave these settings to committer=…: zero-rename committers --conf prints them."

    def detail(self, facts: JobFacts) -> str | None:
        """Return the settings and details of a finding; ``None`` if nothing is wrong."""
        found = self.wrong(facts)
        if not found:
            return None
        said = [key for key in self.keys if key in facts.settings] or self.keys
        shown = [facts.describe(*said)] if said else []
        return "; ".join([*shown, *([found] if isinstance(found, str) else [])])


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_PACKAGE = "org.apache.hadoop.fs.s3a.commit"
#: For each committer, the factory that makes only this one.
_FACTORIES = {
    "magic": f"{_PACKAGE}.magic.MagicS3GuardCommitterFactory",
    "directory": f"{_PACKAGE}.staging.DirectoryStagingCommitterFactory",
    "partitioned": f"{_PACKAGE}.staging.PartitionedStagingCommitterFactory",
}
_OLD_ABORT = "fs.s3a.committer.staging.abort.pending.uploads"
_DEFAULT_FS = "fs.defaultFS"
#: Folders that machines do not share.
_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")


def _contradicts(*names: str) -> Callable[[JobFacts], object]:
    """Make a test of whether a setting in force differs from the one of the committer's word."""

    def wrong(c: JobFacts) -> bool:
        word = S3ASettings(c.s3a or Committer.MAGIC).spark_conf()
        meant = {name.removeprefix("spark.hadoop."): value for name, value in word.items()}
        said = {name: c.value(name) for name in names if name in c.settings}
        if said.get(keys.NAME_KEY) == "":
            said[keys.NAME_KEY] = "file"  # S3ACommitterFactory
        return any(value.lower() != meant[name].lower() for name, value in said.items())

    return wrong


def _other_factory(c: JobFacts) -> bool:
    # The class for every scheme wins if it is set.
    made_by = c.value(keys.FACTORY_CLASS_KEY) or c.value(keys.FACTORY_KEY)
    return made_by not in (keys.S3A_FACTORY, _FACTORIES[c.committer])


def _overwrites_dynamically(c: JobFacts) -> bool:
    # Spark asks for the mode only when it overwrites (InsertIntoHadoopFsRelationCommand).
    dynamic = c.value(keys.PARTITION_OVERWRITE_KEY).upper() == "DYNAMIC"
    return dynamic and c.save_mode in (None, Mode.REPLACE)


def _fixed_uuid(c: JobFacts) -> bool:
    origin = c.settings[keys.UUID_KEY].origin if c.value(keys.UUID_KEY) else ""
    return origin.partition(",")[0] in (COMMAND_LINE, DAG_CONF, SPARK_DEFAULTS, CORE_SITE)


def _shares_one_tree(c: JobFacts) -> str:
    """Describe a Hadoop before 3.4, whose magic jobs share one folder; ``""`` for others."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", c.hadoop)[:2])
    return f"this Spark has Hadoop {c.hadoop}" if numbers and numbers < (3, 4) else ""


def is_placed(c: JobFacts) -> bool:
    """Return whether a setting names a staging folder on disk that machines may share.

    The name must not be a default, nor a folder such as ``/tmp`` that machines do not share, or in
    one.
    """
    setting = c.settings.get(keys.STAGING_KEY)
    path = re.sub(r"^file:(//[^/]*)?", "", setting.value if setting else "")
    named = setting is not None and setting.origin != DEFAULT
    own = f"{posixpath.normpath(path)}/".startswith(_OWN)
    return named and path.startswith("/") and not own


def _has_own_disks(c: JobFacts) -> bool | None:
    """Return whether the default file system is each machine's own disk; ``None``: not known.

    If no layer sets it, it is not known: Hadoop's default does not count for a cluster whose own
    files were not read.
    """
    setting = c.settings.get(_DEFAULT_FS)
    unsaid = setting is None or setting.origin == DEFAULT
    return None if unsaid else c.value(_DEFAULT_FS).startswith("file:")


def _staging_unknown(c: JobFacts) -> bool:
    own = _has_own_disks(c)
    return bool(c.is_cluster) and (own is None or (own and is_placed(c)))


CHECKS: tuple[Check, ...] = (
    Check(
        *("committer-name", _ERROR, S3A, "the settings name another committer than the chosen one"),
        *((keys.NAME_KEY,), _contradicts(keys.NAME_KEY)),
        "Choose by committer=…, and take fs.s3a.committer.name out of the other settings.",
    ),
    Check(
        *("commit-protocol-missing", _ERROR, S3A),
        "the committer is half-configured: another commit protocol renames Parquet, and writes "
        "other formats straight into the table",
        (keys.NAME_KEY, keys.COMMIT_PROTOCOL_KEY, keys.PARQUET_COMMITTER_KEY),
        _contradicts(keys.COMMIT_PROTOCOL_KEY),
        f"Set {keys.COMMIT_PROTOCOL_KEY}={keys.PATH_PROTOCOL}, from the module spark-hadoop-cloud.",
    ),
    Check(
        *("factory-overridden", _ERROR, S3A, "the settings name a factory of another committer"),
        *((keys.FACTORY_CLASS_KEY, keys.FACTORY_KEY), _other_factory),
    ),
    Check(
        *("magic-disabled", _ERROR, ("magic",)),
        "magic paths are off, so nothing completes the magic committer's files",
        *((keys.MAGIC_KEY,), _contradicts(keys.MAGIC_KEY)),
        f"Set {keys.MAGIC_KEY}=true, for the bucket too.",
    ),
    Check(
        *("magic-before-3.4", _ERROR, ("magic",)),
        "all magic jobs of a destination share one folder, __magic, which the first to end deletes",
        (),
        _shares_one_tree,
        "Use a Spark with Hadoop 3.4 or newer: PySpark 4.0, or a build of Spark 3.5 without Hadoop "
        "beside Hadoop's own 3.4. Or use committer='zero_rename', which needs no jar.",
    ),
    Check(
        *("tripwire-off", _WARNING, S3A, "a committer that renames would go unnoticed"),
        (keys.REJECT_KEY, keys.ALGORITHM_KEY),
        _contradicts(keys.REJECT_KEY, keys.ALGORITHM_KEY),
        f"Set spark.hadoop.{keys.REJECT_KEY}=true and spark.hadoop.{keys.ALGORITHM_KEY}=10, unless "
        "the application also writes to another file system.",
    ),
    Check(
        *("marker-off", _ERROR, S3A, "no _SUCCESS: the job cannot be verified or waited for"),
        *((keys.MARKER_KEY,), _contradicts(keys.MARKER_KEY)),
    ),
    Check(
        *("classes-missing", _ERROR, S3A, "classes that this committer needs cannot be loaded"),
        *((), lambda c: ", ".join(c.missing_classes)),
        "Put hadoop-aws of the version of Spark's hadoop-client-api, the SDK that it names and "
        "spark-hadoop-cloud (Spark's version, or 4.1.1 for 4.3) on the class path: "
        "docs/airflow/services.md says how.",
    ),
    Check(
        *("dynamic-partition-overwrite", _ERROR, S3A),
        "dynamic partition overwrite renames: the committer's protocol refuses it",
        *((keys.PARTITION_OVERWRITE_KEY,), _overwrites_dynamically),
        "Write by zero_rename.spark.save, which replaces only the named partitions. To replace the "
        f"whole destination, set {keys.PARTITION_OVERWRITE_KEY} to static by an option of this one "
        "write: set for the whole application, static lets each of its overwrites delete its whole "
        "table.",
    ),
    Check(
        *("overwrite-removes-table", _ERROR, S3A),
        "an overwrite by Spark's own writer would also delete the partitions that the task does "
        "not name",
        (),
        lambda c: c.overwrites_alone and "the application overwrites without save()",
        "Let the application write with zero_rename.spark.save.",
    ),
    Check(
        *("overwrite-removes-first", _WARNING, S3A),
        "the overwrite deletes the old rows when it begins, before it has new ones",
        (),
        lambda c: (
            c.save_mode is Mode.REPLACE
            and not _overwrites_dynamically(c)
            and f"mode overwrite on {c.destination or 'the destination'}"
        ),
        "Use committer='partitioned' or 'directory', which delete when they commit, or "
        "'zero_rename'.",
    ),
    Check(
        *("uuid-shared", _ERROR, S3A),
        "several writes share one UUID, and would take each other's pending files",
        *((keys.UUID_KEY,), _fixed_uuid),
        "Leave it out of every file and of conf: the operator passes one of its own.",
    ),
    Check(
        *(
            "driver-restarts",
            _WARNING,
            S3A,
            "YARN may start the driver, and with it the job, again",
        ),
        *((keys.APP_ATTEMPTS_KEY,), _contradicts(keys.APP_ATTEMPTS_KEY)),
        f"Set {keys.APP_ATTEMPTS_KEY}=1, and let Airflow retry the task.",
    ),
    Check(
        *("abort-uploads-on", _WARNING, S3A),
        "a job that ends aborts every upload below its destination, also those of other jobs",
        (keys.ABORT_UPLOADS_KEY, _OLD_ABORT),
        lambda c: c.is_on(keys.ABORT_UPLOADS_KEY) or c.is_on(_OLD_ABORT),
        f"Set spark.hadoop.{keys.ABORT_UPLOADS_KEY}=false, as committer=… does, and let "
        "zero-rename s3a-recover and a lifecycle rule clean up; or let jobs on one destination "
        "run one after the other.",
    ),
    Check(
        *(
            "directory-purge",
            _WARNING,
            ALL,
            "deleting or renaming a folder aborts the uploads below it",
        ),
        *((keys.DIRECTORY_PURGE_KEY,), _contradicts(keys.DIRECTORY_PURGE_KEY)),
    ),
    Check(
        *(
            "multipart-purge",
            _ERROR,
            ALL,
            "old uploads in the whole bucket are aborted, also those of live jobs",
        ),
        *((keys.PURGE_KEY, "fs.s3a.multipart.purge.age"), _contradicts(keys.PURGE_KEY)),
        f"Set spark.hadoop.{keys.PURGE_KEY}=false and use a lifecycle rule.",
    ),
    Check(
        *("in-memory-tracking", _WARNING, ("magic",), "only one process knows the pending files"),
        *((keys.IN_MEMORY_KEY,), _contradicts(keys.IN_MEMORY_KEY)),
        "Leave it off, or have a lifecycle rule that aborts old uploads.",
    ),
    Check(
        *("staging-not-shared", _ERROR, STAGING),
        "pending files would stay on each machine's own disk: the driver finds none of them, and "
        "every row is lost",
        (_DEFAULT_FS, keys.STAGING_KEY),
        lambda c: c.is_cluster and _has_own_disks(c) and not is_placed(c),
        "Set fs.defaultFS to HDFS or another file system that all machines share; or "
        f"{keys.STAGING_KEY} to a folder that all machines mount, such as "
        "file:///mnt/shared/staging; or use magic, which needs neither.",
    ),
    Check(
        *("staging-unknown", _WARNING, STAGING),
        "it is unknown whether all machines share the folder of pending files",
        *((_DEFAULT_FS, keys.STAGING_KEY), _staging_unknown),
        "Set spark.hadoop.fs.defaultFS, or make sure that all machines mount the staging folder; "
        "or use magic, which needs no shared file system.",
    ),
    Check(
        *("staging-on-s3", _WARNING, STAGING, "pending files are kept on S3 and renamed there"),
        *((_DEFAULT_FS,), lambda c: re.match(r"s3[an]?://", c.value(_DEFAULT_FS))),
        "Keep the default file system on HDFS, or use magic.",
    ),
)


#: Spark setting with the ids of checks to skip, separated by commas. It counts in the same layers
#: as other settings, so before submission and in the job.
ACCEPT_KEY = "spark.zero_rename.s3a.accept"


@dataclass(frozen=True)
class CheckFinding:
    """A check that fired.

    :param detail: the keys concerned, with their values and origins.
    """

    check: Check
    detail: str

    def __str__(self) -> str:
        return f"[{self.check.id}] {self.check.title}: {self.detail}. {self.check.remedy}"


def accepted_in(facts: JobFacts) -> set[str]:
    """Return the ids of the checks that a job skips."""
    return set(re.findall(r"[^\s,]+", facts.value(ACCEPT_KEY)))


def inspect(facts: JobFacts) -> tuple[CheckFinding, ...]:
    """Return a finding for each check that fires and is not accepted, errors first.

    Sends no request.

    :raises InvalidInputError: an accepted id is not the id of a check.
    """
    accepted = accepted_in(facts)
    if unknown := sorted(accepted - {check.id for check in CHECKS}):
        raise InvalidInputError(
            f"{facts.describe(ACCEPT_KEY)} names unknown checks: {', '.join(unknown)}.",
            remedy="zero-rename checks lists them.",
        )
    found = [
        CheckFinding(check, detail)
        for check in CHECKS
        if facts.committer in check.committers and check.id not in accepted
        if (detail := check.detail(facts)) is not None
    ]
    return tuple(sorted(found, key=lambda finding: finding.check.severity is not Severity.ERROR))


def refuse(findings: Sequence[CheckFinding]) -> None:
    """Refuse a job if a finding is an error; log the warnings.

    :raises SettingsRefusedError: names every error with its id, settings and remedy.
    """
    errors = [f for f in findings if f.check.severity is Severity.ERROR]
    for finding in findings[len(errors) :]:
        _log.warning("%s", finding)
    if not errors:
        return
    raise SettingsRefusedError(
        f"{counted(len(errors), 'setting')} would lose or double rows, or "
        "cannot work; nothing was submitted or written.\n"
        + "\n".join(f"* {finding}" for finding in errors),
        remedy="docs/s3a.md has the reason and the source of each check. To skip a check that does "
        f"not apply to your set-up, set {ACCEPT_KEY}=<its id>.",
    )
