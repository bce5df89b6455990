"""Overwrites, appends and refusals that do what they say, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from ...committer.job_spec import Mode
from ..hadoop.settings import (
    CONFLICT_KEY,
    CONFLICT_MODE_OF,
    PARTITION_OVERWRITE_KEY,
)
from .check import COMMITTERS, Severity, check
from .job_facts import JobFacts

_ONE_PARTITION = (
    "Let the job write into the one partition's folder, or use partitioned with "
    "conflict_mode='replace' and Spark's mode append."
)


def _overwrites_dynamically(c: JobFacts) -> bool:
    # Spark asks for the mode only when it overwrites (InsertIntoHadoopFsRelationCommand).
    dynamic = c.value(PARTITION_OVERWRITE_KEY).upper() == "DYNAMIC"
    return dynamic and c.save_mode in (None, Mode.REPLACE)


def _conflict_mode(c: JobFacts) -> str:
    return c.value(CONFLICT_KEY, "append").lower()


@check(
    "dynamic-partition-overwrite",
    Severity.ERROR,
    "dynamic partition overwrite",
    reason="Spark replaces the partitions that a job wrote by renaming them out of a staging "
    "folder. A committer that completes uploads in place cannot take part, and says so: the "
    "protocol refuses when the job is set up (3.4 and later) or made (before).",
    source="PathOutputCommitProtocol.setupCommitter (SPARK-40034); MAPREDUCE-7403",
    remedy="Write it by zero_rename.spark.save, which replaces the partitions named; or, where "
    f"all of the destination is to be replaced, say so on that one write, by the writer's option "
    f"for {PARTITION_OVERWRITE_KEY}: set for the whole application, static lets each of its "
    "overwrites delete its whole table.",
    committers=COMMITTERS,
)
def dynamic_partition_overwrite(c: JobFacts) -> Iterator[str]:
    if _overwrites_dynamically(c):
        yield c.describe(PARTITION_OVERWRITE_KEY)


@check(
    "dynamic-overwrite-marker",
    Severity.ERROR,
    "no _SUCCESS from a dynamic partition overwrite",
    reason="Only partition folders are moved out of the staging folder: the marker that was "
    "written there never arrives, and the one of an earlier job stays where it was.",
    source="SPARK-35279; tried with Spark 4.3.0 and Hadoop 3.5.0",
    remedy="Write into the partition's folder by zero_rename.spark.save, or wait for something "
    "else.",
    committers=("classic",),
)
def dynamic_overwrite_marker(c: JobFacts) -> Iterator[str]:
    if _overwrites_dynamically(c) and c.sensor_waits:
        yield f"{c.describe(PARTITION_OVERWRITE_KEY)}, and somebody waits for _SUCCESS"


@check(
    "overwrite-removes-table",
    Severity.ERROR,
    "an overwrite that removes the partitions this job does not write",
    reason="Spark's static overwrite deletes the whole destination before the first task runs: "
    "every other day of the table, and what another writer has below it.",
    source="InsertIntoHadoopFsRelationCommand.deleteMatchingPartitions",
    remedy=_ONE_PARTITION,
)
def overwrite_removes_table(c: JobFacts) -> Iterator[str]:
    if c.save_mode is Mode.REPLACE and c.has_other_partitions and not _overwrites_dynamically(c):
        yield f"mode overwrite on {c.destination or 'the table'}, which has other partitions"


@check(
    "overwrite-removes-first",
    Severity.WARNING,
    "an overwrite that removes the old rows before it has new ones",
    reason="Spark deletes the destination when the job begins. Readers see nothing until it "
    "commits, and nothing afterwards if it fails.",
    source="InsertIntoHadoopFsRelationCommand.deleteMatchingPartitions",
    remedy="Use partitioned or directory with conflict_mode='replace' and Spark's mode append, "
    "which remove when the job commits; or the committer zero_rename.",
)
def overwrite_removes_first(c: JobFacts) -> Iterator[str]:
    static = c.save_mode is Mode.REPLACE and not _overwrites_dynamically(c)
    if static and not c.has_other_partitions:
        yield f"mode overwrite on {c.destination or 'the destination'}"


@check(
    "mode-not-kept",
    Severity.ERROR,
    "the job would not do what its mode says",
    reason="Spark's mode append is carried out by the committer's conflict mode: with replace it "
    "removes rows that were to stay; without it an overwrite adds to the rows that it was to "
    "replace. magic and classic only ever add.",
    source="DirectoryStagingCommitter, PartitionedStagingCommitter (preCommitJob); "
    "fs.s3a.committer.staging.conflict-mode",
    remedy="Give conflict_mode='append' for append, 'replace' for overwrite, 'fail' for "
    "fail-if-exists, or leave conflict_mode to the operator.",
)
def mode_not_kept(c: JobFacts) -> Iterator[str]:
    staging = c.s3a is not None and c.s3a.is_staging
    kept = _conflict_mode(c) if staging else "append"
    if c.mode is None or kept == CONFLICT_MODE_OF[c.mode]:
        return
    if kept == "replace" or c.save_mode is Mode.APPEND:
        how = c.describe(CONFLICT_KEY) if staging else f"{c.committer} adds to what is there"
        yield f"mode {c.mode}, but {how}"


@check(
    "replace-removes-table",
    Severity.ERROR,
    "a replace that removes the partitions this job does not write",
    reason="The directory committer deletes its whole destination when the job commits; only "
    "partitioned deletes no more than the partitions that received files.",
    source="DirectoryStagingCommitter.preCommitJob",
    remedy="Use committer='partitioned', or write into the one partition's folder.",
    committers=("directory",),
)
def replace_removes_table(c: JobFacts) -> Iterator[str]:
    if _conflict_mode(c) == "replace" and c.has_other_partitions:
        yield f"{c.describe(CONFLICT_KEY)}, and the table has other partitions"


@check(
    "fail-refuses-table",
    Severity.WARNING,
    "conflict mode fail on a table that is there",
    reason="The directory committer refuses as soon as its destination exists, whichever "
    "partitions the job writes: no load after the first can run.",
    source="DirectoryStagingCommitter.setupJob",
    remedy="Use committer='partitioned', which looks at the partitions that are written.",
    committers=("directory",),
)
def fail_refuses_table(c: JobFacts) -> Iterator[str]:
    if _conflict_mode(c) == "fail" and c.has_other_partitions:
        yield f"{c.describe(CONFLICT_KEY)}, and the table has partitions"
