"""Jars: all there, and of releases that belong together."""

from __future__ import annotations

from collections.abc import Iterator

from ..hadoop.class_path import (
    ACCELERATOR,
    CLOUD,
    HADOOP_AWS,
    HADOOP_CLIENT,
    SDK_BUNDLE,
    SDK_OF_HADOOP,
    SDK_S3,
    SDK_V1,
    SPARK_CORE,
    Jars,
)
from ..hadoop.effective_settings import version_of
from .check import COMMITTERS, Severity, check
from .job_facts import JobFacts

#: Spark and spark-hadoop-cloud of different minor versions that this project's tests run
#: together: there is no release of the module for Spark 4.3.
TESTED_TOGETHER = {((4, 3), (4, 1))}
#: The first Hadoop whose file system is not made without it.
_NEEDS_ACCELERATOR = (3, 5)


def _absent(jars: Jars | None, *artifacts: str) -> str | None:
    """What is wrong with these jars' presence, ``None`` if nothing or not known."""
    if jars is None:
        return None
    found = jars.of(*artifacts)
    if found and not jars.has(*artifacts):
        return f"only the {', '.join(sorted(found[0].seen_by))} sees {found[0]}"
    if not found and jars.complete:
        return f"no {' or '.join(artifacts)} among Spark's jars, jars, packages and class paths"
    return None


@check(
    "hadoop-aws-missing",
    Severity.ERROR,
    "no S3A file system",
    reason="The PySpark package holds no hadoop-aws: the first look at s3a:// fails with "
    "ClassNotFoundException for S3AFileSystem, in the driver or, if only that has it, in tasks.",
    source="Hadoop's hadoop-aws module; seen in the PySpark 4.3.0 package",
    remedy="Give packages='org.apache.hadoop:hadoop-aws:<version of hadoop-client-api>', or put "
    "the jars into the image.",
)
def hadoop_aws_missing(c: JobFacts) -> Iterator[str]:
    absent = _absent(c.jars, HADOOP_AWS)
    if absent:
        yield absent


@check(
    "hadoop-aws-version",
    Severity.ERROR,
    "hadoop-aws is of another version than Hadoop",
    reason="The module uses Hadoop's internals: with another version classes or methods are "
    "missing, at once or in the middle of a commit. spark-hadoop-cloud, taken with what it "
    "depends on, brings the hadoop-aws of the Spark it was built with.",
    source="Hadoop's documentation of hadoop-aws (troubleshooting: all versions the same)",
    remedy="Name hadoop-aws in the version of Spark's hadoop-client-api, and only that one.",
)
def hadoop_aws_version(c: JobFacts) -> Iterator[str]:
    if c.jars is None:
        return
    hadoop = c.jars.hadoop_version
    for jar in c.jars.of(HADOOP_AWS):
        if hadoop and jar.version and version_of(jar.version) != version_of(hadoop):
            yield f"{jar}, Hadoop's client {hadoop}"


@check(
    "jars-twice",
    Severity.ERROR,
    "two versions of one jar",
    reason="Which of them a class comes from depends on the order of a listing, and may differ "
    "between driver and executors.",
    source="the JVM's class path",
    remedy="Keep one of them.",
)
def jars_twice(c: JobFacts) -> Iterator[str]:
    for name in (HADOOP_AWS, CLOUD, SDK_BUNDLE, SDK_V1, ACCELERATOR, SPARK_CORE, *HADOOP_CLIENT):
        found = c.jars.of(name) if c.jars else ()
        if len({jar.version for jar in found if jar.version}) > 1:
            yield " and ".join(str(jar) for jar in found)


@check(
    "sdk-missing",
    Severity.ERROR,
    "no AWS SDK",
    reason="Hadoop 3.4 and later need version 2 of the SDK (software.amazon.awssdk:bundle), older "
    "ones version 1; neither is a part of Spark. Without it the file system cannot be made.",
    source="HADOOP-18073 (Hadoop 3.4.0 moved to version 2); hadoop-aws's POM",
    remedy="Give the bundle that hadoop-aws names: packages brings it by itself, jars does not.",
)
def sdk_missing(c: JobFacts) -> Iterator[str]:
    version = (c.jars.version(HADOOP_AWS) or c.jars.hadoop_version) if c.jars else None
    if version is None:
        return
    wanted = (SDK_BUNDLE, SDK_S3) if version_of(version) >= (3, 4) else (SDK_V1,)
    absent = _absent(c.jars, *wanted)
    if absent:
        yield f"{absent}; hadoop-aws {version} needs one"


@check(
    "sdk-version",
    Severity.WARNING,
    "another AWS SDK than hadoop-aws was built with",
    reason="The SDK changes what it sends between minor versions: checksums, for one, which other "
    "stores than AWS may refuse.",
    source="HADOOP-19082 (3.4.1), HADOOP-19485 (3.4.2), HADOOP-19654 (3.4.3, 3.5.0)",
    remedy="Take the version that hadoop-aws names.",
)
def sdk_version(c: JobFacts) -> Iterator[str]:
    hadoop = c.jars.version(HADOOP_AWS) if c.jars else None
    wanted = SDK_OF_HADOOP.get(version_of(hadoop)) if hadoop else None
    for jar in c.jars.of(SDK_BUNDLE) if c.jars and wanted else ():
        if jar.version and version_of(jar.version) != wanted:
            named = ".".join(map(str, wanted or ()))
            yield f"{jar}; hadoop-aws {hadoop} was built with {named}"


@check(
    "accelerator-missing",
    Severity.ERROR,
    "no analyticsaccelerator-s3",
    reason="Since Hadoop 3.5 S3A's default input stream is the accelerator's, and the file system "
    "cannot even be made without it, whichever stream is chosen: NoClassDefFoundError.",
    source="StreamIntegration.DEFAULT_STREAM_TYPE; tried with hadoop-aws 3.5.0",
    remedy="Give software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1.",
)
def accelerator_missing(c: JobFacts) -> Iterator[str]:
    hadoop = c.jars.version(HADOOP_AWS) if c.jars else None
    if hadoop is None or version_of(hadoop) < _NEEDS_ACCELERATOR:
        return
    absent = _absent(c.jars, ACCELERATOR)
    if absent:
        yield absent


@check(
    "cloud-jar-missing",
    Severity.ERROR,
    "no spark-hadoop-cloud",
    reason="Spark's two binding classes are in this module, and not in its usual packages. "
    "Configured without them, Spark refuses the classes; not configured, it renames, "
    "and its own choice of magic since 4.1 does not happen, without a word.",
    source="SparkContext.enableMagicCommitterIfNeeded (SPARK-47618); seen in the PySpark 4.3.0 "
    "package",
    remedy="Give org.apache.spark:spark-hadoop-cloud_2.13:<Spark's version, or 4.1.1 for 4.3> "
    "alone, with --jars: as a package it brings a hadoop-aws of its own.",
    committers=COMMITTERS,
)
def cloud_jar_missing(c: JobFacts) -> Iterator[str]:
    absent = _absent(c.jars, CLOUD)
    if absent:
        yield absent


@check(
    "cloud-jar-version",
    Severity.WARNING,
    "spark-hadoop-cloud is of another version than Spark",
    reason="Its classes extend Spark's internal ones, which change between minor versions.",
    source="PathOutputCommitProtocol extends HadoopMapReduceCommitProtocol (internal)",
    remedy="Take the module of Spark's own version where there is one; 4.1.1 with Spark 4.3 is "
    "what this project tests.",
    committers=COMMITTERS,
)
def cloud_jar_version(c: JobFacts) -> Iterator[str]:
    spark = c.spark_version or (c.jars.spark_version if c.jars else None)
    for jar in c.jars.of(CLOUD) if c.jars and spark else ():
        pair = (version_of(spark or "")[:2], version_of(jar.version)[:2])
        if jar.version and pair[0] != pair[1] and pair not in TESTED_TOGETHER:
            yield f"{jar}, Spark {spark}"


@check(
    "cloud-jar-scala",
    Severity.ERROR,
    "spark-hadoop-cloud is built for another Scala",
    reason="Scala's minor versions do not mix: the class cannot be linked.",
    source="Scala's binary compatibility",
    remedy="Take the artifact with the suffix of Spark's own jars, _2.13 for Spark 4.",
    committers=COMMITTERS,
)
def cloud_jar_scala(c: JobFacts) -> Iterator[str]:
    for jar in c.jars.of(CLOUD) if c.jars else ():
        for core in c.jars.of(SPARK_CORE) if c.jars else ():
            if jar.scala and core.scala and jar.scala != core.scala:
                yield f"{jar}, {core}"


@check(
    "in-memory-unknown",
    Severity.WARNING,
    "an option that this Hadoop does not have",
    reason="Pending files in memory came with Hadoop 3.4.1; before it the option changes nothing.",
    source="HADOOP-19047",
    remedy="Leave track_commits_in_memory out, or use Hadoop 3.4.1 or newer.",
    committers=("magic",),
)
def in_memory_unknown(c: JobFacts) -> Iterator[str]:
    key = "fs.s3a.committer.magic.track.commits.in.memory.enabled"
    hadoop = c.jars.hadoop_version if c.jars else None
    if hadoop and version_of(hadoop) < (3, 4, 1) and c.is_on(key):
        yield f"{c.describe(key)}, Hadoop {hadoop}"
