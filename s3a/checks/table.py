"""Every known way in which S3A settings lose, double or half show rows: one table.

``docs/s3a.md`` has the reason and the source of each. Most can fire only where ``conf``, or a file
of the cluster's, contradicts what a committer's word sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from ...committer.doctor import DAY, RECOVERY
from ...committer.job_spec import JobSpec, Mode
from ..hadoop import settings as keys
from ..hadoop.effective_settings import CONNECTION, CORE_SITE, DAG_CONF, DEFAULT, SPARK_DEFAULTS
from .job_facts import JobFacts

ALL = ("zero_rename", "magic", "directory", "partitioned", "classic")
S3A = ("magic", "directory", "partitioned", "classic")
#: The three that complete uploads, rather than rename.
COMMITTERS = ("magic", "directory", "partitioned")
STAGING = ("directory", "partitioned")
_MAGIC, _CLASSIC = ("magic",), ("classic",)


class Severity(StrEnum):
    """What a finding means for the job."""

    #: Rows would be lost, doubled or seen half-written, or the job cannot work: it is refused.
    ERROR = "error"
    #: It works, and something about it will hurt: it is logged.
    WARNING = "warning"


@dataclass(frozen=True)
class Check:
    """One known trap.

    :param id: in kebab case; it does not change between versions.
    :param title: what is wrong, and what comes of it.
    :param remedy: what to do.
    :param committers: those it is about.
    :param keys: settings that a finding shows, with their values and origins.
    :param wrong: whether it fires, or one more detail to show.
    """

    id: str
    severity: Severity
    committers: tuple[str, ...]
    title: str
    remedy: str
    keys: tuple[str, ...] = field(repr=False)
    wrong: Callable[[JobFacts], object] = field(repr=False)

    def details(self, facts: JobFacts) -> Iterator[str]:
        """One for each finding."""
        found = self.wrong(facts)
        if found:
            said = [key for key in self.keys if key in facts.settings] or self.keys
            shown = [facts.describe(*said)] if said else []
            yield "; ".join([*shown, *([found] if isinstance(found, str) else [])])


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_PACKAGE = "org.apache.hadoop.fs.s3a.commit"
#: The factory that makes one committer and no other.
_FACTORIES = {
    "magic": f"{_PACKAGE}.magic.MagicS3GuardCommitterFactory",
    "directory": f"{_PACKAGE}.staging.DirectoryStagingCommitterFactory",
    "partitioned": f"{_PACKAGE}.staging.PartitionedStagingCommitterFactory",
}
_OLD_ABORT = "fs.s3a.committer.staging.abort.pending.uploads"
_DIRECTORY_PURGE = "fs.s3a.directory.operations.purge.uploads"
_PURGE, _PURGE_AGE = "fs.s3a.multipart.purge", "fs.s3a.multipart.purge.age"
_DEFAULT_FS = "fs.defaultFS"
#: Folders that each machine has of its own.
_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def _names_another(c: JobFacts) -> bool:
    name = c.value(keys.NAME_KEY)
    unsaid = c.committer == "classic" and not name
    return c.s3a is not None and name != c.s3a.hadoop_name and not unsaid


def _other_factory(c: JobFacts) -> bool:
    # The class for every scheme wins where it is set.
    made_by = c.value(keys.FACTORY_CLASS_KEY) or c.value(keys.FACTORY_KEY)
    return made_by not in (keys.S3A_FACTORY, _FACTORIES[c.committer])


def _dropped(c: JobFacts) -> str:
    prefixes = ("fs.", "hadoop.", "mapreduce.", "pathoutputcommit.", "parquet.")
    names = sorted(key for key in c.dropped if key.startswith(prefixes))
    where = ", ".join(sorted({c.dropped[name].origin for name in names}))
    return f"{', '.join(names)} ({where})" if names else ""


def _overwrites_dynamically(c: JobFacts) -> bool:
    # Spark asks for the mode only when it overwrites (InsertIntoHadoopFsRelationCommand).
    dynamic = c.value(keys.PARTITION_OVERWRITE_KEY).upper() == "DYNAMIC"
    return dynamic and c.save_mode in (None, Mode.REPLACE)


def _fixed_uuid(c: JobFacts) -> bool:
    setting = c.settings.get(keys.UUID_KEY)
    if setting is None or not setting.value:
        return False
    return setting.origin.partition(",")[0] in (DAG_CONF, CONNECTION, SPARK_DEFAULTS, CORE_SITE)


def _longest(c: JobFacts) -> float:
    return c.longest_job_seconds or JobSpec.max_duration


def _needed(c: JobFacts) -> str:
    return f"a job may take {_longest(c) / 3600:.0f} h, its recovery {RECOVERY / 3600:.0f} h more"


def _purges(c: JobFacts) -> str:
    """By an age within which a job may need its uploads: ``24h``; seconds without a unit."""
    age = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d|)", c.value(_PURGE_AGE).lower())
    enough = age and int(age[1]) * _UNITS[age[2]] >= _longest(c) + RECOVERY
    return _needed(c) if c.is_on(_PURGE) and not enough else ""


def _too_short(c: JobFacts) -> str:
    short = c.lifecycle_days is not None and c.lifecycle_days * DAY < _longest(c)
    return f"{c.lifecycle_days} days; {_needed(c)}" if short else ""


def _no_rule(c: JobFacts) -> bool:
    return c.lifecycle_days == inf and not c.is_on(keys.ABORT_UPLOADS_KEY)


def _is_placed(c: JobFacts) -> bool:
    """Whether somebody has named a folder of a disk for staging: on purpose, and outside those
    that each machine has of its own."""
    setting = c.settings.get(keys.STAGING_KEY)
    if setting is None or setting.origin == DEFAULT:
        return False
    path = re.sub(r"^file:(//[^/]*)?", "", setting.value)
    return path.startswith("/") and not path.startswith(_OWN)


def _has_own_disks(c: JobFacts) -> bool | None:
    """Whether the default file system is each machine's own disk; ``None``: nobody said, and
    Hadoop's default says nothing of a cluster whose own files were not read."""
    setting = c.settings.get(_DEFAULT_FS)
    unsaid = setting is None or setting.origin == DEFAULT
    return None if unsaid else c.value(_DEFAULT_FS).startswith("file:")


def _staging_unknown(c: JobFacts) -> bool:
    own = _has_own_disks(c)
    return bool(c.is_cluster) and (own is None or (own and _is_placed(c)))


def _reports_in_table(c: JobFacts) -> bool:
    table, report = c.destination.rstrip("/"), c.value(keys.REPORT_KEY).rstrip("/")
    inside = report.removeprefix(table).split("/")[1:]
    is_in = bool(table) and f"{report}/".startswith(f"{table}/")
    return is_in and not any(part.startswith(("_", ".")) for part in inside)


CHECKS: tuple[Check, ...] = (
    Check(
        *("committer-name", _ERROR, S3A, "another committer is named than was asked for"),
        "Choose by committer=…, and take fs.s3a.committer.name out of the other settings.",
        (keys.NAME_KEY,),
        _names_another,
    ),
    Check(
        *("commit-protocol-missing", _ERROR, COMMITTERS),
        "half-configured: by another protocol Parquet is renamed, and other formats go straight "
        "into the table",
        f"Set {keys.COMMIT_PROTOCOL_KEY}={keys.PATH_PROTOCOL}, from the module spark-hadoop-cloud.",
        (keys.NAME_KEY, keys.COMMIT_PROTOCOL_KEY, keys.PARQUET_COMMITTER_KEY),
        lambda c: c.value(keys.COMMIT_PROTOCOL_KEY) != keys.PATH_PROTOCOL,
    ),
    Check(
        *("classic-half-bound", _ERROR, _CLASSIC),
        "classic with the others' protocol, which leaves old rows where it should replace them",
        "Take the settings of committer=… as they are: they name all five keys.",
        (keys.COMMIT_PROTOCOL_KEY,),
        lambda c: c.value(keys.COMMIT_PROTOCOL_KEY) == keys.PATH_PROTOCOL,
    ),
    Check(
        *("factory-overridden", _ERROR, COMMITTERS, "another factory makes the committer"),
        f"Leave {keys.FACTORY_CLASS_KEY} empty and {keys.FACTORY_KEY} at {keys.S3A_FACTORY}.",
        (keys.FACTORY_CLASS_KEY, keys.FACTORY_KEY),
        _other_factory,
    ),
    Check(
        *("magic-disabled", _ERROR, _MAGIC, "magic without its paths: nobody completes its files"),
        f"Set {keys.MAGIC_KEY}=true, for the bucket too.",
        (keys.MAGIC_KEY,),
        lambda c: not c.is_on(keys.MAGIC_KEY),
    ),
    Check(
        *("tripwire-off", _WARNING, COMMITTERS, "a committer that renames would not be noticed"),
        f"Set spark.hadoop.{keys.REJECT_KEY}=true and spark.hadoop.{keys.ALGORITHM_KEY}=10, unless "
        "the application also writes to another file system.",
        (keys.REJECT_KEY, keys.ALGORITHM_KEY),
        lambda c: not c.is_on(keys.REJECT_KEY) or c.value(keys.ALGORITHM_KEY) in ("1", "2"),
    ),
    Check(
        *("marker-off", _ERROR, S3A, "no _SUCCESS: the job cannot be verified or waited for"),
        f"Set spark.hadoop.{keys.MARKER_KEY}=true.",
        (keys.MARKER_KEY,),
        lambda c: not c.is_on(keys.MARKER_KEY),
    ),
    Check(
        *("hadoop-keys-dropped", _WARNING, S3A),
        "settings that Spark drops, since their names do not begin with 'spark.'",
        "Put spark.hadoop. before them.",
        (),
        _dropped,
    ),
    Check(
        *("classes-missing", _ERROR, S3A, "classes that this committer needs cannot be loaded"),
        "Put hadoop-aws of the version of Spark's hadoop-client-api, the SDK that it names and "
        "spark-hadoop-cloud (Spark's version, or 4.1.1 for 4.3) on the class path; docs/airflow.md "
        "says how.",
        (),
        lambda c: ", ".join(c.missing_classes),
    ),
    Check(
        *("dynamic-partition-overwrite", _ERROR, COMMITTERS),
        "dynamic partition overwrite, which renames: the committer's protocol refuses it",
        "Write it by zero_rename.spark.save, which replaces the partitions named; or, where all of "
        "the destination is to be replaced, say so on that one write, by the writer's option for "
        f"{keys.PARTITION_OVERWRITE_KEY}: set for the whole application, static lets each of its "
        "overwrites delete its whole table.",
        (keys.PARTITION_OVERWRITE_KEY,),
        _overwrites_dynamically,
    ),
    Check(
        *("overwrite-removes-table", _ERROR, S3A),
        "an overwrite of Spark's own, which would delete the partitions that the task does not "
        "name, too",
        "Let the application write with zero_rename.spark.save.",
        (),
        lambda c: c.overwrites_alone and "the application overwrites, and does not use save()",
    ),
    Check(
        *("overwrite-removes-first", _WARNING, S3A),
        "an overwrite that deletes the old rows when it begins, before it has new ones",
        "Use committer='partitioned' or 'directory', which delete when they commit, or "
        "'zero_rename'.",
        (),
        lambda c: (
            c.save_mode is Mode.REPLACE
            and not _overwrites_dynamically(c)
            and f"mode overwrite on {c.destination or 'the destination'}"
        ),
    ),
    Check(
        *("uuid-shared", _ERROR, COMMITTERS),
        "one UUID for more than one write, which would take each other's pending files",
        "Leave it out of every file and of conf; the operator hands in one of its own.",
        (keys.UUID_KEY,),
        _fixed_uuid,
    ),
    Check(
        *("speculation", _ERROR, _CLASSIC, "speculation with a committer that cannot take it"),
        "Set spark.speculation=false, or use another committer.",
        ("spark.speculation",),
        lambda c: c.is_on("spark.speculation"),
    ),
    Check(
        *("driver-restarts", _WARNING, S3A, "YARN may start the driver, and so the job, again"),
        f"Set {keys.APP_ATTEMPTS_KEY}=1, and let Airflow repeat the task.",
        (keys.APP_ATTEMPTS_KEY,),
        lambda c: (c.number(keys.APP_ATTEMPTS_KEY) or 0) > 1,
    ),
    Check(
        *("classic-renames", _WARNING, _CLASSIC),
        "classic renames, which S3 does by copying: it is for comparisons, a failure leaves a part "
        "of the files, and nothing can verify or recover its jobs",
        "Use magic, directory or partitioned.",
        (keys.ALGORITHM_KEY,),
        lambda c: True,
    ),
    Check(
        *("abort-uploads-on", _WARNING, COMMITTERS),
        "a job that, when it ends, aborts every upload below its destination, whoever's it is",
        f"Set spark.hadoop.{keys.ABORT_UPLOADS_KEY}=false, as committer=… does, and let "
        "zero-rename s3a-recover and a lifecycle rule clean up; or let jobs on one destination "
        "follow each other.",
        (keys.ABORT_UPLOADS_KEY, _OLD_ABORT),
        lambda c: c.is_on(keys.ABORT_UPLOADS_KEY) or c.is_on(_OLD_ABORT),
    ),
    Check(
        *("directory-purge", _WARNING, ALL, "deleting or renaming a folder aborts its uploads"),
        f"Set spark.hadoop.{_DIRECTORY_PURGE}=false.",
        (_DIRECTORY_PURGE,),
        lambda c: c.is_on(_DIRECTORY_PURGE),
    ),
    Check(
        *("multipart-purge", _ERROR, ALL, "uploads of the whole bucket are aborted by age"),
        f"Set spark.hadoop.{_PURGE}=false and use a lifecycle rule.",
        (_PURGE, _PURGE_AGE),
        _purges,
    ),
    Check(
        *("lifecycle-too-short", _ERROR, COMMITTERS),
        "a lifecycle rule that aborts the uploads of running jobs",
        "Set DaysAfterInitiation to the longest job and a day for its recovery.",
        (),
        _too_short,
    ),
    Check(
        *("lifecycle-missing", _WARNING, COMMITTERS),
        "no lifecycle rule for uploads that nobody completes, which are stored and paid for",
        "Add a rule with AbortIncompleteMultipartUpload, of the longest job's days and one more "
        "for recovery; zero-rename s3a-recover removes them sooner.",
        (keys.ABORT_UPLOADS_KEY,),
        _no_rule,
    ),
    Check(
        *("in-memory-tracking", _WARNING, _MAGIC, "pending files known to one process only"),
        "Leave it off, or have a lifecycle rule for uploads.",
        (keys.IN_MEMORY_KEY,),
        lambda c: c.is_on(keys.IN_MEMORY_KEY),
    ),
    Check(
        *("staging-not-shared", _ERROR, STAGING),
        "what is pending would stay on each machine's own disk: the driver finds none of it, and "
        "every row is lost",
        "Set fs.defaultFS to HDFS or another file system that all machines share; or "
        f"{keys.STAGING_KEY} to a folder that all machines mount, such as "
        "file:///mnt/shared/staging; or use magic, which needs neither.",
        (_DEFAULT_FS, keys.STAGING_KEY),
        lambda c: c.is_cluster and _has_own_disks(c) and not _is_placed(c),
    ),
    Check(
        *("staging-unknown", _WARNING, STAGING),
        "whether all machines share what is pending is not known from here",
        "Say spark.hadoop.fs.defaultFS, or see that all machines mount the staging folder; or use "
        "magic, which needs no shared file system.",
        (_DEFAULT_FS, keys.STAGING_KEY),
        _staging_unknown,
    ),
    Check(
        *("staging-on-s3", _WARNING, STAGING, "what is pending is kept on S3 and renamed there"),
        "Keep the default file system on HDFS, or use magic.",
        (_DEFAULT_FS,),
        lambda c: re.match(r"s3[an]?://", c.value(_DEFAULT_FS)),
    ),
    Check(
        *("report-in-table", _ERROR, COMMITTERS, "job reports among the table's files"),
        "Give summary_report_dir another place: readers take them for data.",
        (keys.REPORT_KEY,),
        _reports_in_table,
    ),
)
