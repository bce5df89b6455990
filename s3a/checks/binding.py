"""Binding of the committer: the one that was asked for is the one that will run."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.settings import (
    COMMIT_PROTOCOL_KEY,
    MAGIC_KEY,
    PATH_PROTOCOL,
)
from .check import COMMITTERS, S3A, Severity, check
from .job_facts import JobFacts

#: Formats that commit by themselves: the file committers have no part in them.
_OWN_COMMIT = ("delta", "iceberg", "hudi")


@check(
    "hadoop-keys-dropped",
    Severity.WARNING,
    "settings that Spark drops",
    reason="spark-submit passes on only names that begin with 'spark.': a Hadoop key without "
    "'spark.hadoop.' is left out with a line in the log.",
    source="SparkSubmitArguments.ignoreNonSparkProperties",
    remedy="Put spark.hadoop. before them.",
)
def hadoop_keys_dropped(c: JobFacts) -> Iterator[str]:
    prefixes = ("fs.", "hadoop.", "mapreduce.", "pathoutputcommit.", "parquet.")
    names = sorted(key for key in c.dropped if key.startswith(prefixes))
    if names:
        where = ", ".join(sorted({c.dropped[name].origin for name in names}))
        yield f"{', '.join(names)} ({where})"


@check(
    "bucket-option-ignored",
    Severity.WARNING,
    "a committer option for one bucket, which committers do not read",
    reason="Committers ask the job's settings first, which are not resolved by bucket, and "
    "core-default.xml has a value for most of these keys: the one for the bucket is never met.",
    source="S3ACommitterFactory.chooseCommitterFactory; CommitUtilsWithMR.getConfigurationOption; "
    "core-default.xml",
    remedy="Give the plain key, for this job.",
)
def bucket_option_ignored(c: JobFacts) -> Iterator[str]:
    bucket = c.destination.partition("://")[2].partition("/")[0]
    prefix = f"fs.s3a.bucket.{bucket}.committer."
    for key in sorted(k for k in c.settings if k.startswith(prefix)):
        plain = f"fs.s3a.committer.{key.removeprefix(prefix)}"
        differs = plain in c.settings and c.value(plain) != c.value(key)
        if plain != MAGIC_KEY and differs:
            yield f"{c.describe(key)}, in force is {c.describe(plain)}"


@check(
    "destination-scheme",
    Severity.ERROR,
    "the destination is not s3a://",
    reason="The factory is chosen by the URL's scheme. For s3:// and s3n:// none is set, so a "
    "renaming committer comes in, whatever fs.s3.impl says; on EMR s3:// is another file system.",
    source="PathOutputCommitterFactory (factory.scheme.<scheme>)",
    remedy="Let Spark write to s3a://….",
    committers=S3A,
)
def destination_scheme(c: JobFacts) -> Iterator[str]:
    scheme = c.destination.partition("://")[0]
    if "://" in c.destination and scheme != "s3a":
        yield f"the destination begins with {scheme}://"


@check(
    "rdd-api",
    Severity.ERROR,
    "the RDD API, which goes round the committer",
    reason="saveAsTextFile, saveAsHadoopFile and their like use the old MapReduce API, which makes "
    "a FileOutputCommitter whatever the factory says: files are renamed and _SUCCESS is empty.",
    source="SparkHadoopWriter, HadoopMapRedWriteConfigUtil; mapred.FileOutputCommitter; tried "
    "with Spark 4.3.0 and Hadoop 3.5.0",
    remedy="Write a DataFrame: spark.createDataFrame(rdd, schema).write….",
    committers=COMMITTERS,
)
def rdd_api(c: JobFacts) -> Iterator[str]:
    if "rdd" in c.formats:
        yield "the application saves an RDD"


@check(
    "format-falls-back",
    Severity.ERROR,
    "a format that does not commit by this committer",
    reason="Tables of Hive's own formats are written to a staging folder and renamed by Hive; "
    "Delta, Iceberg and Hudi commit by a log of their own, with files written in place. The "
    "settings have no part in either, and _SUCCESS does not come.",
    source="InsertIntoHiveTable, Hive.loadTable; the table formats' own commit protocols",
    remedy="Write Parquet or ORC by DataFrameWriter (USING parquet, not STORED AS), or leave "
    "committer out for a table format.",
    committers=COMMITTERS,
)
def format_falls_back(c: JobFacts) -> Iterator[str]:
    for name in c.formats:
        if name == "hive":
            yield "the application inserts into a table of Hive's own format"
        elif name in _OWN_COMMIT:
            yield f"the application writes {name}"
    key = "spark.sql.sources.outputCommitterClass"
    if c.value(key) and c.value(COMMIT_PROTOCOL_KEY) != PATH_PROTOCOL:
        yield c.describe(key)
