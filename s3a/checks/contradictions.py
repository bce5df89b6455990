"""Settings that contradict the committer's word, each with what comes of it: one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..hadoop.effective_settings import DEFAULT
from ..hadoop.settings import (
    ABORT_UPLOADS_KEY,
    ALGORITHM_KEY,
    APP_ATTEMPTS_KEY,
    BINDING_PARQUET,
    COMMIT_PROTOCOL_KEY,
    CONFLICT_KEY,
    CONFLICT_MODES,
    FACTORY_CLASS_KEY,
    FACTORY_KEY,
    IN_MEMORY_KEY,
    MAGIC_KEY,
    MARKER_KEY,
    NAME_KEY,
    PARQUET_COMMITTER_KEY,
    PATH_PROTOCOL,
    REJECT_KEY,
    S3A_FACTORY,
    UNIQUE_KEY,
)
from .check import ALL, COMMITTERS, REGISTRY, S3A, STAGING, Check, Probe, Severity
from .job_facts import JobFacts

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_MAGIC, _CLASSIC = ("magic",), ("classic",)
_MULTIPART = "fs.s3a.multipart.uploads.enabled"
_OLD_ABORT = "fs.s3a.committer.staging.abort.pending.uploads"
_DIRECTORY_PURGE = "fs.s3a.directory.operations.purge.uploads"
_CLEANUP = "fs.s3a.committer.magic.cleanup.enabled"
_REQUIRE, _GENERATE = "fs.s3a.committer.require.uuid", "fs.s3a.committer.generate.uuid"
_PACKAGE = "org.apache.hadoop.fs.s3a.commit"
#: The factory that makes one committer and no other.
_FACTORIES = {
    "magic": f"{_PACKAGE}.magic.MagicS3GuardCommitterFactory",
    "directory": f"{_PACKAGE}.staging.DirectoryStagingCommitterFactory",
    "partitioned": f"{_PACKAGE}.staging.PartitionedStagingCommitterFactory",
}


def _conflict_mode(c: JobFacts) -> str:
    return c.value(CONFLICT_KEY, "append").lower()


def _names_another(c: JobFacts) -> bool:
    name = c.value(NAME_KEY)
    unsaid = c.committer == "classic" and not name
    return c.s3a is not None and name != c.s3a.hadoop_name and not unsaid


def _half_bound(c: JobFacts) -> bool:
    parquet = c.value(PARQUET_COMMITTER_KEY)
    bound = parquet == BINDING_PARQUET or parquet.endswith(".BindingPathOutputCommitter")
    return bound or c.value(COMMIT_PROTOCOL_KEY) == PATH_PROTOCOL


def _other_factory(c: JobFacts) -> bool:
    # The class for every scheme wins where it is set.
    made_by = c.value(FACTORY_CLASS_KEY) or c.value(FACTORY_KEY)
    return made_by not in (S3A_FACTORY, _FACTORIES[c.committer])


def _ignored_conflict_mode(c: JobFacts) -> bool:
    setting = c.settings.get(CONFLICT_KEY)
    said = setting is not None and setting.origin != DEFAULT
    return said and _conflict_mode(c) != "append"


class _Row(NamedTuple):
    """One check: ``keys`` are shown with their values and origins where ``wrong`` holds."""

    id: str
    severity: Severity
    committers: tuple[str, ...]
    title: str
    keys: tuple[str, ...]
    wrong: Callable[[JobFacts], object]
    reason: str
    source: str
    remedy: str


_TABLE = (
    _Row(
        *("committer-name", _ERROR, S3A, "another committer is named than was asked for"),
        keys=(NAME_KEY,),
        wrong=_names_another,
        reason="The job would run a committer that nobody waits for, verifies or recovers; an "
        "unknown name is refused, 'file' renames. EMR's magicv2 makes files visible when tasks "
        "commit.",
        source="S3ACommitterFactory.chooseCommitterFactory",
        remedy="Choose by committer=…, and take fs.s3a.committer.name out of the other settings.",
    ),
    _Row(
        *("commit-protocol-missing", _ERROR, COMMITTERS, "half-configured: another protocol"),
        keys=(NAME_KEY, COMMIT_PROTOCOL_KEY, PARQUET_COMMITTER_KEY),
        wrong=lambda c: c.value(COMMIT_PROTOCOL_KEY) != PATH_PROTOCOL,
        reason="Spark's own protocol asks only a FileOutputCommitter where tasks shall write: ORC, "
        "CSV and JSON go straight into the destination, stay there when the job fails, and "
        "_SUCCESS names none. Parquet's own committer renames, silently, unless it has its binding "
        "class; BindingPathOutputCommitter in its place cannot be made. The binding protocol "
        "passes both over, so there they do no harm.",
        source="HadoopMapReduceCommitProtocol.newTaskTempFile; ParquetUtils.prepareWrite; tried "
        "with Spark 4.3.0 and Hadoop 3.5.0",
        remedy=f"Set {COMMIT_PROTOCOL_KEY}={PATH_PROTOCOL}, from the module spark-hadoop-cloud.",
    ),
    _Row(
        *("classic-half-bound", _ERROR, _CLASSIC, "classic with the others' binding classes"),
        keys=(COMMIT_PROTOCOL_KEY, PARQUET_COMMITTER_KEY),
        wrong=_half_bound,
        reason="With the binding protocol a FileOutputCommitter gets no staging folder for dynamic "
        "overwrites: the old rows stay, and every load adds its own. Without it "
        "BindingPathOutputCommitter cannot be made, and BindingParquetOutputCommitter asks a "
        "factory for what Spark has already.",
        source="PathOutputCommitProtocol.newTaskTempFile (SPARK-56588, mended in 4.2.0); "
        "BindingParquetOutputCommitter; tried with Spark 4.3.0 and Hadoop 3.5.0",
        remedy="Take the settings of committer=… as they are: they name all five keys.",
    ),
    _Row(
        *("factory-overridden", _ERROR, COMMITTERS, "another factory makes the committer"),
        keys=(FACTORY_CLASS_KEY, FACTORY_KEY),
        wrong=_other_factory,
        reason="The factory class wins over those by scheme, and a named or manifest committer in "
        "it ignores fs.s3a.committer.name; the manifest committer needs renames and refuses s3a. "
        "S3A's own factory, and that of the committer that was chosen, are right in either place.",
        source="PathOutputCommitterFactory.getCommitterFactory; ManifestCommitter (refuses s3a)",
        remedy=f"Leave {FACTORY_CLASS_KEY} empty and {FACTORY_KEY} at {S3A_FACTORY}.",
    ),
    _Row(
        *("magic-disabled", _ERROR, _MAGIC, "magic without its paths"),
        keys=(MAGIC_KEY,),
        wrong=lambda c: not c.is_on(MAGIC_KEY),
        reason="The file system treats __magic… as an ordinary folder unless it is told: the "
        "committer refuses to start, or files would be written where nobody completes them.",
        source="MagicS3GuardCommitter; MagicCommitIntegration; HADOOP-17483 (on since 3.3.1)",
        remedy=f"Set {MAGIC_KEY}=true, for the bucket too.",
    ),
    _Row(
        *("multipart-disabled", _ERROR, COMMITTERS, "multipart uploads are off"),
        keys=(_MULTIPART,),
        wrong=lambda c: not c.is_on(_MULTIPART),
        reason="The three committers hold a file back by not completing its multipart upload: "
        "without them magic cannot write at all, and the staging committers cannot commit.",
        source="S3AFileSystem (fs.s3a.multipart.uploads.enabled); S3ABlockOutputStream",
        remedy=f"Set {_MULTIPART}=true, or use classic.",
    ),
    _Row(
        *("tripwire-off", _WARNING, COMMITTERS, "a committer that renames would not be noticed"),
        keys=(REJECT_KEY, ALGORITHM_KEY),
        wrong=lambda c: not c.is_on(REJECT_KEY) or c.value(ALGORITHM_KEY) in ("1", "2"),
        reason="A format or an API that goes round the binding falls back to FileOutputCommitter "
        "without a word. The protocol's own refusal makes that an error, and so does an algorithm "
        "number that does not exist, which also stops the RDD API.",
        source="PathOutputCommitProtocol (pathoutputcommit.reject.fileoutput); FileOutputCommitter "
        "(takes 1 and 2 only); StagingCommitter sets its own inner committer to 1",
        remedy=f"Set spark.hadoop.{REJECT_KEY}=true and spark.hadoop.{ALGORITHM_KEY}=10, unless "
        "the application also writes to another file system.",
    ),
    _Row(
        *("conflict-mode-unknown", _ERROR, STAGING, "a conflict mode that does not exist"),
        keys=(CONFLICT_KEY,),
        wrong=lambda c: _conflict_mode(c) not in CONFLICT_MODES,
        reason="The committer refuses to be made, in every task.",
        source="ConflictResolution; StagingCommitter.getConflictResolutionMode",
        remedy=f"Choose one of {', '.join(CONFLICT_MODES)}.",
    ),
    _Row(
        *("conflict-mode-ignored", _WARNING, ("magic", "classic")),
        title="a conflict mode that this committer does not read",
        keys=(CONFLICT_KEY,),
        wrong=_ignored_conflict_mode,
        reason="Only directory and partitioned look at it; the others add files to what is there.",
        source="StagingCommitter.getConflictResolutionMode",
        remedy="Use directory or partitioned, or take it out.",
    ),
    _Row(
        *("unique-filenames-off", _WARNING, STAGING, "files without the job's UUID"),
        keys=(UNIQUE_KEY,),
        wrong=lambda c: (
            not c.is_on(UNIQUE_KEY) and c.value(CONFLICT_KEY, "append").lower() == "append"
        ),
        reason="Names that repeat overwrite each other: an append then replaces files of an "
        "earlier job. Spark's own names carry a UUID, those of other writers may not.",
        source="StagingCommitter.getFinalKey; Paths.addUUID",
        remedy=f"Set spark.hadoop.{UNIQUE_KEY}=true.",
    ),
    _Row(
        *("uuid-optional", _WARNING, COMMITTERS, "a write may do without a UUID of Spark's"),
        keys=(_REQUIRE, _GENERATE),
        wrong=lambda c: c.is_on(_GENERATE) or not c.is_on(_REQUIRE),
        reason="Before 3.0.2 and 3.1.1 Spark named jobs by the second in which they began: two of "
        "one second shared a staging folder. A UUID that a task makes up is refused at its set-up.",
        source="SPARK-33230, SPARK-33402; HADOOP-17318; AbstractS3ACommitter.buildJobUUID, "
        "setupTask",
        remedy=f"Set spark.hadoop.{_REQUIRE}=true and leave generate.uuid off.",
    ),
    _Row(
        *("speculation", _ERROR, S3A, "speculation with a committer that cannot take it"),
        keys=("spark.speculation",),
        wrong=lambda c: c.is_on("spark.speculation") and not c.attributes.speculative_tasks,
        reason="Two attempts of one task commit by copying the same names: the later removes what "
        "the earlier is still copying, and what a killed attempt has copied stays. Table V has the "
        "committers' answers (zero-rename committers).",
        source="zero-rename committer paper, Table V; FileOutputCommitter.commitTask on S3; "
        "MAPREDUCE-7282",
        remedy="Set spark.speculation=false, or use another committer.",
    ),
    _Row(
        *("driver-restarts", _WARNING, S3A, "YARN may start the driver again"),
        keys=(APP_ATTEMPTS_KEY,),
        wrong=lambda c: (c.number(APP_ATTEMPTS_KEY) or 0) > 1 and not c.attributes.recoverable_job,
        reason="A second driver does the whole job again, on top of what the first had committed: "
        "none of these committers goes on with another's job.",
        source="OutputCommitter.isRecoverySupported; zero-rename committer paper, Table V "
        "(recoverable job)",
        remedy=f"Set {APP_ATTEMPTS_KEY}=1, and let Airflow repeat the task.",
    ),
    _Row(
        *("classic-algorithm-2", _WARNING, _CLASSIC, "task files visible before the job commits"),
        keys=(ALGORITHM_KEY,),
        wrong=lambda c: c.value(ALGORITHM_KEY) == "2",
        reason="Algorithm 2 moves a task's files into the destination at once: readers see a job "
        "that is still running, and a job that fails leaves the rows of every task that had ended.",
        source="MAPREDUCE-7282; FileOutputCommitter (algorithm 2 is Hadoop's default, 1 Spark's)",
        remedy=f"Set spark.hadoop.{ALGORITHM_KEY}=1.",
    ),
    _Row(
        *("classic-tripped", _ERROR, _CLASSIC, "classic with the others' tripwires"),
        keys=(ALGORITHM_KEY,),
        wrong=lambda c: c.value(ALGORITHM_KEY) not in ("1", "2"),
        reason="FileOutputCommitter takes the algorithms 1 and 2 only, and refuses to be made.",
        source="FileOutputCommitter's constructor",
        remedy=f"Set spark.hadoop.{ALGORITHM_KEY}=1, or choose another committer.",
    ),
    _Row(
        *("abort-uploads-on", _WARNING, COMMITTERS, "a job that would abort others' uploads"),
        keys=(ABORT_UPLOADS_KEY, _OLD_ABORT),
        wrong=lambda c: c.is_on(ABORT_UPLOADS_KEY) or c.is_on(_OLD_ABORT),
        reason="When the job ends, well or not, it aborts every upload below its destination, "
        "whoever began it: another day's load that has written and not committed loses its files.",
        source="AbstractS3ACommitter.abortPendingUploadsInCleanup; core-default.xml has it on",
        remedy=f"Set spark.hadoop.{ABORT_UPLOADS_KEY}=false, as committer=… does, and let "
        "zero-rename s3a-recover and a lifecycle rule clean up; or let jobs on one destination "
        "follow each other.",
    ),
    _Row(
        *("directory-purge", _WARNING, ALL, "deleting or renaming a folder aborts its uploads"),
        keys=(_DIRECTORY_PURGE,),
        wrong=lambda c: c.is_on(_DIRECTORY_PURGE),
        reason="Of any age and of any job: a task that removes a folder it thinks its own takes "
        "the files of another job that has not committed.",
        source="S3AFileSystem (fs.s3a.directory.operations.purge.uploads); Hadoop's page on "
        "third-party stores",
        remedy=f"Set spark.hadoop.{_DIRECTORY_PURGE}=false.",
    ),
    _Row(
        *("marker-off", _ERROR, S3A, "no _SUCCESS"),
        keys=(MARKER_KEY,),
        wrong=lambda c: not c.is_on(MARKER_KEY) and c.sensor_waits is not False,
        reason="With marksuccessfuljobs=false no marker is written and the old one stays: a sensor "
        "waits for ever or takes the last job's for this one's, and the job cannot be verified.",
        source="AbstractS3ACommitter.maybeCreateSuccessMarker, setupJob; FileOutputCommitter",
        remedy=f"Set spark.hadoop.{MARKER_KEY}=true.",
    ),
    _Row(
        *("in-memory-tracking", _WARNING, _MAGIC, "pending files known to one process only"),
        keys=(IN_MEMORY_KEY,),
        wrong=lambda c: c.is_on(IN_MEMORY_KEY),
        reason="What an executor began and did not commit is in its memory: when it is killed, "
        "nobody can abort those uploads, and recovery finds no list of them.",
        source="HADOOP-19047 (InMemoryMagicCommitTracker, 3.4.1); AWS warns of it for EMR's "
        "MagicV2",
        remedy="Leave it off, or have a lifecycle rule for uploads.",
    ),
    _Row(
        *("magic-cleanup-off", _WARNING, _MAGIC, "jobs leave their __magic_job-… folders"),
        keys=(_CLEANUP,),
        wrong=lambda c: c.settings and not c.is_on(_CLEANUP),
        reason="The folders of committed jobs look like those of dead ones: verification warns of "
        "them, and recovery has to look into each.",
        source="HADOOP-18568 (fs.s3a.committer.magic.cleanup.enabled)",
        remedy=f"Set spark.hadoop.{_CLEANUP}=true, or run zero-rename s3a-recover regularly.",
    ),
    _Row(
        *("staging-on-s3", _WARNING, STAGING, "what is pending is kept on S3 and renamed there"),
        keys=("fs.defaultFS",),
        wrong=lambda c: re.match(r"s3[an]?://", c.value("fs.defaultFS")),
        reason="The lists of uploads go through a FileOutputCommitter: on S3 its renames are "
        "copies, and a task's commit is not atomic.",
        source="StagingCommitter.createWrappedCommitter",
        remedy="Keep the default file system on HDFS, or use magic.",
    ),
)


def _probe(row: _Row) -> Probe:
    def probe(c: JobFacts) -> Iterator[str]:
        if row.wrong(c):
            said = [key for key in row.keys if key in c.settings]
            yield c.describe(*said or row.keys)

    return probe


for _row in _TABLE:
    _made = Check(
        *(_row.id, _row.severity, _row.title, _row.reason, _row.source, _row.remedy),
        committers=_row.committers,
    )
    REGISTRY.append((_made, _probe(_row)))
