"""Folders for what is no row: staging on the cluster, reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..hadoop.effective_settings import DEFAULT
from ..hadoop.settings import REPORT_KEY, STAGING_KEY
from .check import COMMITTERS, STAGING, Severity, check
from .job_facts import JobFacts

_DEFAULT_FS = "fs.defaultFS"
#: Folders that each machine has of its own.
_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")


def _is_placed(c: JobFacts) -> bool:
    """Whether somebody has named a folder of a disk for staging: on purpose, and outside those
    that each machine has of its own."""
    setting = c.settings.get(STAGING_KEY)
    if setting is None or setting.origin == DEFAULT:
        return False
    path = re.sub(r"^file:(//[^/]*)?", "", setting.value)
    return path.startswith("/") and not path.startswith(_OWN)


@check(
    "staging-not-shared",
    Severity.ERROR,
    "what is pending would stay on each machine's own disk",
    reason="Tasks leave the list of their uploads on the cluster's default file system, and the "
    "driver commits what it finds there. Where that is each machine's own disk, it finds none of "
    "what executors left: the job ends well, _SUCCESS names no file, and every row is lost.",
    source="Paths.getMultipartUploadCommitsDirectory; StagingCommitter.createWrappedCommitter; "
    "tried with Spark 4.3.0 and Hadoop 3.5.0",
    remedy="Set fs.defaultFS to HDFS or another file system that all machines share; or "
    f"{STAGING_KEY} to a folder that all machines mount, such as file:///mnt/shared/staging; or "
    "use magic, which needs neither.",
    committers=STAGING,
)
def staging_not_shared(c: JobFacts) -> Iterator[str]:
    setting = c.settings.get(_DEFAULT_FS)
    # Hadoop's default says nothing of a cluster whose own files were not read.
    said = setting is not None and setting.origin != DEFAULT
    if c.is_cluster and said and c.value(_DEFAULT_FS).startswith("file:") and not _is_placed(c):
        yield c.describe(_DEFAULT_FS, STAGING_KEY)


@check(
    "staging-unknown",
    Severity.WARNING,
    "the cluster's shared file system is not known",
    reason="As staging-not-shared; fs.defaultFS is in the cluster's own core-site.xml, if "
    "anywhere, and is looked at in the job. Whether a folder that is named is on a disk that all "
    "machines mount, only its owner knows.",
    source="Paths.getMultipartUploadCommitsDirectory",
    remedy="Say spark.hadoop.fs.defaultFS, or see that all machines mount the staging folder; or "
    "use magic, which needs no shared file system.",
    committers=STAGING,
)
def staging_unknown(c: JobFacts) -> Iterator[str]:
    setting = c.settings.get(_DEFAULT_FS)
    unsaid = setting is None or setting.origin == DEFAULT
    mounted = c.value(_DEFAULT_FS).startswith("file:") and _is_placed(c)
    if c.is_cluster and (unsaid or mounted):
        yield c.describe(_DEFAULT_FS, STAGING_KEY)


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
