"""Repeated tasks, jobs and drivers; and what classic risks."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.effective_settings import CONNECTION, CORE_SITE, DAG_CONF, SPARK_DEFAULTS
from ..hadoop.settings import ALGORITHM_KEY, UUID_KEY
from .check import COMMITTERS, Severity, check
from .job_facts import JobFacts

_FIXED = (DAG_CONF, CONNECTION, SPARK_DEFAULTS, CORE_SITE)


@check(
    "uuid-shared",
    Severity.ERROR,
    "one UUID for more than one write",
    reason="fs.s3a.committer.uuid comes before the UUID that Spark gives each write. Writes that "
    "share it share their __magic_job-… and staging folders: one cleans up what the other still "
    "needs, and their markers cannot be told apart.",
    source="AbstractS3ACommitter.buildJobUUID (read in hadoop-aws 3.5.0)",
    remedy="Leave it out of every file and of conf; the operator hands in one for a run that "
    "writes once.",
    committers=COMMITTERS,
)
def uuid_shared(c: JobFacts) -> Iterator[str]:
    setting = c.settings.get(UUID_KEY)
    if setting is None or not setting.value:
        return
    if setting.origin.partition(",")[0] in _FIXED:
        yield f"{c.describe(UUID_KEY)}, the same for every run"
    elif c.writes is not None and c.writes > 1:
        yield f"{c.describe(UUID_KEY)}, and the application writes {c.writes} times"


@check(
    "task-retries",
    Severity.WARNING,
    "Spark repeats tasks whose commit is not atomic",
    reason="An attempt that dies while it commits leaves the files it has copied; the next attempt "
    "adds its own under other names where algorithm 2 is used.",
    source="zero-rename committer paper, Table V (atomic task commit); MAPREDUCE-7282",
    remedy="Use another committer; spark.task.maxFailures=1 at the price of a failed job.",
)
def task_retries(c: JobFacts) -> Iterator[str]:
    failures = c.number("spark.task.maxFailures")
    many = failures is not None and failures > 1
    # local[N] runs every task once, whatever is set.
    if many and c.is_cluster and not c.attributes.atomic_task_commit:
        yield c.describe("spark.task.maxFailures", ALGORITHM_KEY)


@check(
    "classic-renames",
    Severity.WARNING,
    "classic renames, and S3 has no renames",
    reason="Each file is copied when its task and again when its job commits, at the speed of a "
    "copy. A failure in between leaves a part of the files visible, a repeated task may leave "
    "rows twice, and a failed append leaves yesterday's _SUCCESS for whoever waits for one.",
    source="FileOutputCommitter; zero-rename committer paper, Table V; tried "
    "with Spark 4.3.0 and Hadoop 3.5.0",
    remedy="Use magic, directory or partitioned; keep classic for comparisons and for stores "
    "whose renames are real.",
    committers=("classic",),
)
def classic_renames(c: JobFacts) -> Iterator[str]:
    yield c.describe(ALGORITHM_KEY)
