"""Repeated tasks, jobs and drivers; and what classic risks."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.effective_settings import CONNECTION, CORE_SITE, DAG_CONF, SPARK_DEFAULTS
from ..hadoop.settings import ALGORITHM_KEY, APP_ATTEMPTS_KEY, UUID_KEY
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
    "uuid-optional",
    Severity.WARNING,
    "a write may do without a UUID of Spark's",
    reason="Before 3.0.2 and 3.1.1 Spark named jobs by the second in which they began: two of one "
    "second shared a staging folder. A UUID that a task makes up for itself is refused when the "
    "task is set up.",
    source="SPARK-33230, SPARK-33402; HADOOP-17318; AbstractS3ACommitter.buildJobUUID, setupTask",
    remedy="Set spark.hadoop.fs.s3a.committer.require.uuid=true and leave generate.uuid off.",
    committers=COMMITTERS,
)
def uuid_optional(c: JobFacts) -> Iterator[str]:
    require, generate = "fs.s3a.committer.require.uuid", "fs.s3a.committer.generate.uuid"
    if c.is_on(generate):
        yield c.describe(generate)
    elif not c.is_on(require):
        yield c.describe(require)


@check(
    "speculation",
    Severity.ERROR,
    "speculation with a committer that cannot take it",
    reason="Two attempts of one task commit by copying the same names: the later removes what the "
    "earlier is still copying, and what a killed attempt has copied stays. Table V has the "
    "committers' answers (zero-rename committers).",
    source="zero-rename committer paper, Table V; FileOutputCommitter.commitTask on S3; "
    "MAPREDUCE-7282",
    remedy="Set spark.speculation=false, or use another committer.",
)
def speculation(c: JobFacts) -> Iterator[str]:
    if c.is_on("spark.speculation") and not c.attributes.speculative_tasks:
        yield c.describe("spark.speculation")


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
    "driver-restarts",
    Severity.WARNING,
    "YARN may start the driver again",
    reason="A second driver does the whole job again, on top of what the first had committed: "
    "none of these committers goes on with another's job.",
    source="OutputCommitter.isRecoverySupported; zero-rename committer paper, Table V "
    "(recoverable job)",
    remedy=f"Set {APP_ATTEMPTS_KEY}=1, and let Airflow repeat the task.",
)
def driver_restarts(c: JobFacts) -> Iterator[str]:
    attempts = c.number(APP_ATTEMPTS_KEY)
    if attempts is not None and attempts > 1 and not c.attributes.recoverable_job:
        yield c.describe(APP_ATTEMPTS_KEY)


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


@check(
    "classic-algorithm-2",
    Severity.WARNING,
    "tasks whose files are visible before their job commits",
    reason="Algorithm 2 moves a task's files into the destination at once: readers see a job that "
    "is still running, and a job that fails leaves the rows of every task that had ended.",
    source="MAPREDUCE-7282; FileOutputCommitter (algorithm 2 is Hadoop's default, 1 Spark's)",
    remedy=f"Set spark.hadoop.{ALGORITHM_KEY}=1.",
    committers=("classic",),
)
def classic_algorithm_2(c: JobFacts) -> Iterator[str]:
    if c.value(ALGORITHM_KEY) == "2":
        yield c.describe(ALGORITHM_KEY)


@check(
    "classic-tripped",
    Severity.ERROR,
    "classic with the tripwires of the other committers",
    reason="FileOutputCommitter takes the algorithms 1 and 2 only, and refuses to be made.",
    source="FileOutputCommitter's constructor",
    remedy=f"Set spark.hadoop.{ALGORITHM_KEY}=1, or choose another committer.",
    committers=("classic",),
)
def classic_tripped(c: JobFacts) -> Iterator[str]:
    if c.value(ALGORITHM_KEY) not in ("1", "2"):
        yield c.describe(ALGORITHM_KEY)
