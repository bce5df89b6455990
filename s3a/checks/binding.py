"""Binding of the committer: the one that was asked for is the one that will run."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.settings import (
    ALGORITHM_KEY,
    BINDING_PARQUET,
    COMMIT_PROTOCOL_KEY,
    FACTORY_CLASS_KEY,
    FACTORY_KEY,
    MAGIC_KEY,
    NAME_KEY,
    PARQUET_COMMITTER_KEY,
    PATH_PROTOCOL,
    REJECT_KEY,
    S3A_FACTORY,
    Committer,
)
from .check import COMMITTERS, S3A, Severity, check
from .job_facts import JobFacts

_NAMES = ("file", "directory", "partitioned", "magic", "")
_BY_WORD = "Take the settings of committer=… as they are: they name all five keys."
_PACKAGE = "org.apache.hadoop.fs.s3a.commit"
#: The factory that makes one committer and no other.
_FACTORIES = {
    "magic": f"{_PACKAGE}.magic.MagicS3GuardCommitterFactory",
    "directory": f"{_PACKAGE}.staging.DirectoryStagingCommitterFactory",
    "partitioned": f"{_PACKAGE}.staging.PartitionedStagingCommitterFactory",
}
#: Formats that commit by themselves: the file committers have no part in them.
_OWN_COMMIT = ("delta", "iceberg", "hudi")


@check(
    "committer-name",
    Severity.ERROR,
    "another committer is named than was asked for",
    reason="The operator waits for, verifies and recovers the committer it was told; the job would "
    "run another one. EMR's magicv2 makes files visible when tasks commit, and is none of these.",
    source="S3ACommitterFactory.chooseCommitterFactory: an unknown name is refused, 'file' renames",
    remedy="Choose by committer=…, and take fs.s3a.committer.name out of the other settings.",
)
def committer_name(c: JobFacts) -> Iterator[str]:
    committer, name = c.s3a, c.value(NAME_KEY)
    if committer is None or name == committer.hadoop_name:
        return
    if committer is Committer.CLASSIC and not name:
        return
    known = "" if name in _NAMES else ", which Hadoop does not know"
    yield f"committer={c.committer!r}, but {c.describe(NAME_KEY)}{known}"


@check(
    "commit-protocol-missing",
    Severity.ERROR,
    "half-configured: Spark's commit protocol does not know the committer's working folder",
    reason="Spark's own protocol asks only a FileOutputCommitter where tasks shall write; with any "
    "other committer ORC, CSV and JSON tasks write straight into the destination, a failed job "
    "leaves their files there, and _SUCCESS names none. Parquet's own committer renames, silently, "
    "unless it has its binding class; BindingPathOutputCommitter in its place cannot even be "
    "made. The binding protocol passes both over, so there they do no harm.",
    source="HadoopMapReduceCommitProtocol.newTaskTempFile; tried with Spark 4.3.0 and Hadoop 3.5.0",
    remedy=f"Set {COMMIT_PROTOCOL_KEY}={PATH_PROTOCOL}, from the module spark-hadoop-cloud.",
    committers=COMMITTERS,
)
def commit_protocol_missing(c: JobFacts) -> Iterator[str]:
    if c.value(COMMIT_PROTOCOL_KEY) != PATH_PROTOCOL:
        yield c.describe(NAME_KEY, COMMIT_PROTOCOL_KEY, PARQUET_COMMITTER_KEY)


@check(
    "classic-half-bound",
    Severity.ERROR,
    "classic with one of the binding classes of the other committers",
    reason="With Spark's binding protocol a FileOutputCommitter gets no staging folder for dynamic "
    "overwrites: the old rows stay, and every load adds its own to them. Without it the class "
    "BindingPathOutputCommitter cannot be made, and BindingParquetOutputCommitter asks a factory "
    "for what Spark has already.",
    source="PathOutputCommitProtocol.setupCommitter, newTaskTempFile (SPARK-56588, mended in "
    "4.2.0); BindingParquetOutputCommitter; tried with Spark 4.3.0 and Hadoop 3.5.0",
    remedy=_BY_WORD,
    committers=("classic",),
)
def classic_half_bound(c: JobFacts) -> Iterator[str]:
    parquet = c.value(PARQUET_COMMITTER_KEY)
    bound = parquet == BINDING_PARQUET or parquet.endswith(".BindingPathOutputCommitter")
    if bound or c.value(COMMIT_PROTOCOL_KEY) == PATH_PROTOCOL:
        yield c.describe(COMMIT_PROTOCOL_KEY, PARQUET_COMMITTER_KEY)


@check(
    "factory-overridden",
    Severity.ERROR,
    "another factory makes the committer",
    reason="mapreduce.outputcommitter.factory.class wins over the factories by scheme, and a named "
    "or manifest committer in it ignores fs.s3a.committer.name; the manifest committer needs "
    "renames and refuses s3a. S3A's own factory, and the one of the committer that was chosen, "
    "are right in either place.",
    source="PathOutputCommitterFactory.getCommitterFactory; ManifestCommitter (refuses s3a)",
    remedy=f"Leave {FACTORY_CLASS_KEY} empty and {FACTORY_KEY} at {S3A_FACTORY}.",
    committers=COMMITTERS,
)
def factory_overridden(c: JobFacts) -> Iterator[str]:
    # The first wins where it is set. Spark's own protocol asks neither for Parquet.
    key = FACTORY_CLASS_KEY if c.value(FACTORY_CLASS_KEY) else FACTORY_KEY
    if c.value(key) not in (S3A_FACTORY, _FACTORIES[c.committer]):
        yield c.describe(key)


@check(
    "magic-disabled",
    Severity.ERROR,
    "magic without its paths",
    reason="The file system treats __magic… as an ordinary folder unless it is told: the committer "
    "refuses to start, or files would be written where nobody completes them.",
    source="MagicS3GuardCommitter; MagicCommitIntegration; HADOOP-17483 (on since 3.3.1)",
    remedy=f"Set {MAGIC_KEY}=true, for the bucket too.",
    committers=("magic",),
)
def magic_disabled(c: JobFacts) -> Iterator[str]:
    if not c.is_on(MAGIC_KEY):
        yield c.describe(MAGIC_KEY)


@check(
    "multipart-disabled",
    Severity.ERROR,
    "multipart uploads are off",
    reason="The three committers hold a file back by not completing its multipart upload: without "
    "them magic cannot write at all, and the staging committers cannot commit.",
    source="S3AFileSystem (fs.s3a.multipart.uploads.enabled); S3ABlockOutputStream",
    remedy="Set fs.s3a.multipart.uploads.enabled=true, or use classic.",
    committers=COMMITTERS,
)
def multipart_disabled(c: JobFacts) -> Iterator[str]:
    key = "fs.s3a.multipart.uploads.enabled"
    if not c.is_on(key):
        yield c.describe(key)


@check(
    "tripwire-off",
    Severity.WARNING,
    "a committer that renames would not be noticed",
    reason="A format or an API that goes round the binding falls back to FileOutputCommitter "
    "without a word. Two settings make that an error: the protocol's own refusal, and an algorithm "
    "number that does not exist, which also stops the RDD API.",
    source="PathOutputCommitProtocol (pathoutputcommit.reject.fileoutput); FileOutputCommitter "
    "(takes 1 and 2 only); StagingCommitter sets its own inner committer to 1",
    remedy=f"Set spark.hadoop.{REJECT_KEY}=true and spark.hadoop.{ALGORITHM_KEY}=10, unless the "
    "application also writes to another file system.",
    committers=COMMITTERS,
)
def tripwire_off(c: JobFacts) -> Iterator[str]:
    if not c.is_on(REJECT_KEY) or c.value(ALGORITHM_KEY) in ("1", "2"):
        yield c.describe(REJECT_KEY, ALGORITHM_KEY)


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
