"""Markers, reports, threads and what else a job does at the store and leaves there."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.settings import IN_MEMORY_KEY, MARKER_KEY, REPORT_KEY, THREADS_KEY
from .check import COMMITTERS, Severity, check
from .job_facts import JobFacts

_CLEANUP = "fs.s3a.committer.magic.cleanup.enabled"
_CONNECTIONS = "fs.s3a.connection.maximum"


@check(
    "marker-off",
    Severity.ERROR,
    "no _SUCCESS, and somebody waits for it",
    reason="With marksuccessfuljobs=false no marker is written and the old one stays: a sensor "
    "waits for ever or takes the last job's for this one's, and the job cannot be verified.",
    source="AbstractS3ACommitter.maybeCreateSuccessMarker, setupJob; FileOutputCommitter",
    remedy=f"Set spark.hadoop.{MARKER_KEY}=true.",
)
def marker_off(c: JobFacts) -> Iterator[str]:
    if not c.is_on(MARKER_KEY) and c.sensor_waits:
        yield c.describe(MARKER_KEY)


@check(
    "marker-off-unwatched",
    Severity.WARNING,
    "no _SUCCESS",
    reason="Nobody can tell afterwards which job committed, or whether one did.",
    source="AbstractS3ACommitter.maybeCreateSuccessMarker",
    remedy=f"Set spark.hadoop.{MARKER_KEY}=true.",
)
def marker_off_unwatched(c: JobFacts) -> Iterator[str]:
    if not c.is_on(MARKER_KEY) and not c.sensor_waits:
        yield c.describe(MARKER_KEY)


@check(
    "threads-above-connections",
    Severity.WARNING,
    "more committer threads than connections",
    reason="The threads of a commit wait for each other's connections, and may time out.",
    source="CommitContext; fs.s3a.connection.maximum",
    remedy=f"Set spark.hadoop.{_CONNECTIONS} above {THREADS_KEY}.",
    committers=COMMITTERS,
)
def threads_above_connections(c: JobFacts) -> Iterator[str]:
    threads, connections = c.number(THREADS_KEY), c.number(_CONNECTIONS)
    if threads is not None and connections is not None and threads > connections:
        yield c.describe(THREADS_KEY, _CONNECTIONS)


@check(
    "threads-negative",
    Severity.WARNING,
    "a negative number of committer threads",
    reason="It is meant as a multiple of the cores, but no inner pool is made for it: the files of "
    "one task are committed one after the other.",
    source="CommitContext (pools); core-default.xml says 8",
    remedy=f"Set spark.hadoop.{THREADS_KEY} to a number above 0.",
    committers=COMMITTERS,
)
def threads_negative(c: JobFacts) -> Iterator[str]:
    threads = c.number(THREADS_KEY)
    if threads is not None and threads <= 0:
        yield c.describe(THREADS_KEY)


@check(
    "in-memory-tracking",
    Severity.WARNING,
    "pending files known to one process only",
    reason="What an executor began and did not commit is in its memory: when it is killed, nobody "
    "can abort those uploads, and recovery finds no list of them.",
    source="HADOOP-19047 (InMemoryMagicCommitTracker); AWS warns of it for EMR's MagicV2",
    remedy="Leave it off, or have a lifecycle rule for uploads.",
    committers=("magic",),
)
def in_memory_tracking(c: JobFacts) -> Iterator[str]:
    if c.is_on(IN_MEMORY_KEY):
        yield c.describe(IN_MEMORY_KEY)


@check(
    "magic-cleanup-off",
    Severity.WARNING,
    "jobs leave their __magic_job-… folders",
    reason="The folders of committed jobs look like those of dead ones: verification warns of "
    "them, and recovery has to look into each.",
    source="HADOOP-18568 (fs.s3a.committer.magic.cleanup.enabled)",
    remedy=f"Set spark.hadoop.{_CLEANUP}=true, or run zero-rename s3a-recover regularly.",
    committers=("magic",),
)
def magic_cleanup_off(c: JobFacts) -> Iterator[str]:
    if c.settings and not c.is_on(_CLEANUP):
        yield c.describe(_CLEANUP)


@check(
    "parquet-summary",
    Severity.WARNING,
    "Parquet summary files",
    reason="They are made from the footers of every file of the table when a job commits: slow, "
    "stale after the next job, and not at all by the three committers, which warn and go on.",
    source="ParquetOutputCommitter.writeMetaDataFile; ParquetUtils.prepareWrite",
    remedy="Set spark.hadoop.parquet.summary.metadata.level=NONE.",
)
def parquet_summary(c: JobFacts) -> Iterator[str]:
    level, flag = "parquet.summary.metadata.level", "parquet.enable.summary-metadata"
    if level in c.settings:
        if c.value(level).upper() != "NONE":
            yield c.describe(level)
    elif c.is_on(flag):
        yield c.describe(flag)


@check(
    "report-in-table",
    Severity.ERROR,
    "job reports among the table's files",
    reason="Readers take summary-….json below the table for a data file, and fail on it.",
    source="AbstractS3ACommitter.maybeSaveSummary; createJobSummaryFilename",
    remedy="Give summary_report_dir another place.",
    committers=COMMITTERS,
)
def report_in_table(c: JobFacts) -> Iterator[str]:
    table, report = c.destination.rstrip("/"), c.value(REPORT_KEY).rstrip("/")
    if table and (report == table or report.startswith(f"{table}/")):
        inside = report.removeprefix(table).split("/")[1:]
        if not any(part.startswith(("_", ".")) for part in inside):
            yield c.describe(REPORT_KEY)
