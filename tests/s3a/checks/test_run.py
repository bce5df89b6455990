"""Every check fires on what it is about, and stays silent on what is right."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from zero_rename.committer import Mode, SettingsRefusedError
from zero_rename.s3a.checks.run import (
    CHECKS,
    Circumstances,
    Finding,
    Severity,
    inspect,
    refuse,
    warnings,
)
from zero_rename.s3a.hadoop.class_path import Jar, Jars
from zero_rename.s3a.hadoop.effective_settings import (
    CORE_SITE,
    DAG_CONF,
    HADOOP_KEYS,
    dropped,
    effective,
)
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

HADOOP = "spark.hadoop."
COMMITTER = f"{HADOOP}fs.s3a.committer."
PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET = "spark.sql.parquet.output.committer.class"
CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
ABORT = f"{COMMITTER}abort.pending.uploads"
CONFLICT = f"{COMMITTER}staging.conflict-mode"
PURGE = f"{HADOOP}fs.s3a.multipart.purge"
DIRECTORY_PURGE = f"{HADOOP}fs.s3a.directory.operations.purge.uploads"
ALGORITHM = f"{HADOOP}mapreduce.fileoutputcommitter.algorithm.version"
MARKER = f"{HADOOP}mapreduce.fileoutputcommitter.marksuccessfuljobs"
BUFFER = f"{HADOOP}fs.s3a.buffer.dir"
DEFAULT_FS = f"{HADOOP}fs.defaultFS"
IN_MEMORY = f"{COMMITTER}magic.track.commits.in.memory.enabled"
#: Options of one bucket are found by their prefix.
BUCKET = "fs.s3a.bucket."
HOUR = 3600.0


def jar(artifact: str, version: str = "3.5.0", scala: str = "", *only: str) -> Jar:
    return Jar(artifact, version, "a test", frozenset(only or ("driver", "executor")), scala)


SPARK_JARS = (jar("spark-core", "4.3.0", "2.13"), jar("hadoop-client-api"))
S3A_JARS = (
    jar("hadoop-aws"),
    jar("bundle", "2.35.4"),
    jar("analyticsaccelerator-s3", "1.3.1"),
    jar("spark-hadoop-cloud", "4.1.1", "2.13"),
)
GOOD_JARS = Jars(SPARK_JARS + S3A_JARS)


def jars_but(artifact: str, *instead: Jar) -> Jars:
    return Jars(tuple(j for j in GOOD_JARS.found if j.artifact != artifact) + instead)


def with_cloud(version: str, scala: str = "") -> Jars:
    return jars_but("spark-hadoop-cloud", jar("spark-hadoop-cloud", version, scala))


def of_hadoop(version: str, *others: Jar) -> Jars:
    return Jars((jar("hadoop-client-api", version), jar("hadoop-aws", version), *others))


def job(
    committer: str = "magic",
    conf: dict[str, str] | None = None,
    core_site: dict[str, str] | None = None,
    **known: object,
) -> Circumstances:
    """A job with the rendered settings of its committer, overridden by the DAG's ``conf``."""
    layers = [(DAG_CONF, conf or {})]
    if committer in list(Committer):
        layers.append(("settings", S3ASettings(Committer(committer)).spark_conf()))
    layers.append((CORE_SITE, core_site or {}))
    made = Circumstances(
        committer,
        effective(layers, "bucket", "4.3.0", cloud_classes=True),
        "s3a://bucket/table",
        dropped(layers),
        spark_version="4.3.0",
        jars=GOOD_JARS,
    )
    return replace(made, **known)  # pyright: ignore[reportArgumentType]


def bare(committer: str, *layers: tuple[str, dict[str, str]], cloud: bool = True) -> Circumstances:
    """A job without the rendered settings: only these layers."""
    settings = effective(layers, "bucket", "4.3.0", cloud_classes=cloud)
    return Circumstances(committer, settings, "s3a://bucket/table")


# For each check: circumstances in which it must fire, and such close by in which it must not.
CASES: dict[str, tuple[list[Circumstances], list[Circumstances]]] = {
    "committer-name": (
        [
            job("magic", {f"{COMMITTER}name": "magicv2"}),
            job("directory", {f"{COMMITTER}name": "partitioned"}),
            job("magic", {f"{COMMITTER}name": "file"}),
            bare("magic", cloud=False),
            bare("classic"),
        ],
        [job("magic", {f"{COMMITTER}name": "magic"}), job("classic"), bare("magic")],
    ),
    "commit-protocol-missing": (
        [job("magic", {PROTOCOL: SQL_PROTOCOL}), bare("directory", cloud=False)],
        [job("directory"), job("classic")],
    ),
    "parquet-binding-missing": (
        [job("magic", {PARQUET: "org.apache.parquet.hadoop.ParquetOutputCommitter"})],
        [job("magic"), job("classic")],
    ),
    "parquet-binding-wrong": (
        [job("magic", {PARQUET: "org.apache.hadoop.mapreduce.lib.BindingPathOutputCommitter"})],
        [job("magic"), job("classic")],
    ),
    "classic-half-bound": (
        [job("classic", {PROTOCOL: CLOUD_PROTOCOL})],
        [job("classic"), job("magic")],
    ),
    "factory-overridden": (
        [
            job(conf={f"{HADOOP}mapreduce.outputcommitter.factory.class": "x.ManifestFactory"}),
            job(core_site={"mapreduce.outputcommitter.factory.class": "x.NamedCommitterFactory"}),
            job(conf={f"{HADOOP}mapreduce.outputcommitter.factory.scheme.s3a": "x.Other"}),
        ],
        [job(core_site={"mapreduce.outputcommitter.factory.scheme.s3a": "x.Other"})],
    ),
    "magic-disabled": (
        [
            job("magic", {f"{COMMITTER}magic.enabled": "false"}),
            job("magic", {f"{HADOOP}fs.s3a.bucket.bucket.committer.magic.enabled": "false"}),
        ],
        [
            job("magic"),
            job("magic", {f"{HADOOP}fs.s3a.bucket.another.committer.magic.enabled": "false"}),
            job("directory", {f"{COMMITTER}magic.enabled": "false"}),
        ],
    ),
    "multipart-disabled": (
        [
            job("magic", {f"{HADOOP}fs.s3a.multipart.uploads.enabled": "false"}),
            job("directory", {f"{HADOOP}fs.s3a.bucket.bucket.multipart.uploads.enabled": "false"}),
        ],
        [job("magic"), job("classic", {f"{HADOOP}fs.s3a.multipart.uploads.enabled": "false"})],
    ),
    "silent-default": (
        [bare("magic"), bare("directory", (DAG_CONF, {f"{COMMITTER}name": "directory"}))],
        [
            job("magic"),
            job("classic"),
            bare("magic", cloud=False),
            bare("classic", (DAG_CONF, {f"{COMMITTER}magic.enabled": "false"})),
        ],
    ),
    "core-site-passed-over": (
        [bare("zero_rename", (CORE_SITE, {"fs.s3a.committer.name": "directory"}))],
        [
            bare("zero_rename", (CORE_SITE, {"fs.s3a.committer.name": "magic"})),
            bare("directory", (CORE_SITE, {"fs.s3a.committer.name": "directory"}), cloud=False),
        ],
    ),
    "tripwire-off": (
        [
            job("magic", {f"{HADOOP}pathoutputcommit.reject.fileoutput": "false"}),
            job("magic", {ALGORITHM: "2"}),
        ],
        [job("magic"), job("classic")],
    ),
    "hadoop-keys-dropped": (
        [job(conf={"fs.s3a.committer.name": "directory"})],
        [job(core_site={"fs.s3a.committer.name": "directory"}), job(conf={"spark.app.name": "x"})],
    ),
    "bucket-option-ignored": (
        [job("directory", {f"{HADOOP}fs.s3a.bucket.bucket.committer.name": "partitioned"})],
        [
            job("directory", {f"{HADOOP}fs.s3a.bucket.bucket.committer.name": "directory"}),
            job("directory", {f"{HADOOP}fs.s3a.bucket.other.committer.name": "partitioned"}),
        ],
    ),
    "destination-scheme": (
        [job(destination="s3://bucket/table"), job("classic", destination="s3n://bucket/table")],
        [job(destination="s3a://bucket/table"), job("zero_rename", destination="s3://b/t")],
    ),
    "rdd-api": ([job(formats=("parquet", "rdd"))], [job(formats=("parquet",)), job("classic")]),
    "format-falls-back": (
        [
            job(formats=("hive",)),
            job(formats=("parquet", "delta")),
            job(conf={"spark.sql.hive.convertMetastoreParquet": "false"}, hive_table=True),
        ],
        [
            job(formats=("parquet", "orc", "csv", "json", "avro")),
            job(conf={"spark.sql.hive.convertMetastoreParquet": "false"}, hive_table=False),
        ],
    ),
    "hadoop-aws-missing": (
        [
            job(jars=jars_but("hadoop-aws")),
            job(jars=jars_but("hadoop-aws", jar("hadoop-aws", "3.5.0", "", "driver"))),
        ],
        [job(jars=None), job(jars=Jars((), complete=False)), job("zero_rename", jars=Jars())],
    ),
    "hadoop-aws-version": (
        [job(jars=jars_but("hadoop-aws", jar("hadoop-aws", "3.4.2")))],
        [job(jars=jars_but("hadoop-aws", jar("hadoop-aws", "3.5.0-amzn-1"))), job(jars=None)],
    ),
    "jars-twice": (
        [job(jars=Jars((*GOOD_JARS.found, jar("hadoop-aws", "3.4.2"))))],
        [job(jars=Jars((*GOOD_JARS.found, jar("hadoop-aws")))), job(jars=None)],
    ),
    "sdk-missing": (
        [
            job(jars=jars_but("bundle")),
            job(jars=of_hadoop("3.3.4")),
            # The first that needs version 2.
            job(jars=of_hadoop("3.4.0", jar("aws-java-sdk-bundle", "1.12.262"))),
        ],
        [
            job(jars=jars_but("bundle", jar("s3", "2.35.4"))),
            job(jars=of_hadoop("3.4.0", jar("bundle", "2.23.5"))),
            job(jars=of_hadoop("3.3.4", jar("aws-java-sdk-bundle", "1.12.262"))),
            job(jars=None),
            job(jars=Jars((), complete=False)),
        ],
    ),
    "sdk-version": (
        [job(jars=jars_but("bundle", jar("bundle", "2.24.6")))],
        [job(jars=jars_but("bundle", jar("bundle", ""))), job(jars=None)],
    ),
    "accelerator-missing": (
        [
            job(jars=jars_but("analyticsaccelerator-s3")),
            job(
                conf={f"{HADOOP}fs.s3a.input.stream.type": "classic"},
                jars=jars_but("analyticsaccelerator-s3"),
            ),
        ],
        [
            job(jars=of_hadoop("3.4.1")),
            job(jars=None),
        ],
    ),
    "cloud-jar-missing": (
        [job(jars=jars_but("spark-hadoop-cloud"))],
        [job("classic", jars=jars_but("spark-hadoop-cloud")), job(jars=None)],
    ),
    "cloud-jar-version": (
        [job(jars=with_cloud("3.5.6", "2.13"))],
        [job(), job(jars=with_cloud("4.3.1"))],
    ),
    "cloud-jar-scala": (
        [job(jars=with_cloud("4.1.1", "2.12"))],
        [job(), job(jars=with_cloud(""))],
    ),
    "in-memory-unknown": (
        [job(conf={IN_MEMORY: "true"}, jars=Jars((jar("hadoop-client-api", "3.3.4"),)))],
        [job(conf={IN_MEMORY: "true"}), job(jars=Jars((jar("hadoop-client-api", "3.3.4"),)))],
    ),
    "dynamic-partition-overwrite": (
        [job(conf=DYNAMIC), job(conf=DYNAMIC, save_mode=Mode.REPLACE)],
        [job(conf=DYNAMIC, save_mode=Mode.APPEND), job("classic", DYNAMIC)],
    ),
    "dynamic-overwrite-appends": (
        [
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}),
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}, jars=None),
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}, jars=with_cloud("4.1.99")),
        ],
        [
            job("classic", DYNAMIC),
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}, save_mode=Mode.APPEND),
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}, jars=with_cloud("4.2.0")),
            job("classic", {**DYNAMIC, PROTOCOL: CLOUD_PROTOCOL}, jars=with_cloud("4.2")),
        ],
    ),
    "dynamic-overwrite-marker": (
        [job("classic", DYNAMIC, sensor_waits=True)],
        [job("classic", DYNAMIC), job("classic", sensor_waits=True)],
    ),
    "overwrite-removes-table": (
        [job(save_mode=Mode.REPLACE, has_other_partitions=True)],
        [
            job(save_mode=Mode.REPLACE, has_other_partitions=False),
            job(save_mode=Mode.APPEND, has_other_partitions=True),
            job("classic", DYNAMIC, save_mode=Mode.REPLACE, has_other_partitions=True),
        ],
    ),
    "overwrite-removes-first": (
        [job(save_mode=Mode.REPLACE), job(save_mode=Mode.REPLACE, has_other_partitions=False)],
        [job(save_mode=Mode.APPEND), job("classic", DYNAMIC, save_mode=Mode.REPLACE)],
    ),
    "native-table-removed": (
        [
            job(native_table=True, save_mode=Mode.REPLACE),
            job("directory", {CONFLICT: "replace"}, native_table=True),
        ],
        [
            job(native_table=True, save_mode=Mode.APPEND),
            job("partitioned", {CONFLICT: "replace"}, native_table=True),
            job(native_table=False, save_mode=Mode.REPLACE),
        ],
    ),
    "mode-not-kept": (
        [
            job("partitioned", {CONFLICT: "replace"}, mode=Mode.APPEND, save_mode=Mode.APPEND),
            # Whatever the application says to Spark, or where that is not known.
            job("partitioned", {CONFLICT: "replace"}, mode=Mode.APPEND),
            job(
                "partitioned",
                {CONFLICT: "replace"},
                mode=Mode.APPEND,
                save_mode=Mode.FAIL_IF_EXISTS,
            ),
            job("directory", {CONFLICT: "append"}, mode=Mode.REPLACE, save_mode=Mode.APPEND),
            job("magic", mode=Mode.REPLACE, save_mode=Mode.APPEND),
            job("magic", mode=Mode.FAIL_IF_EXISTS, save_mode=Mode.APPEND),
        ],
        [
            job("partitioned", {CONFLICT: "replace"}, mode=Mode.REPLACE, save_mode=Mode.APPEND),
            job("partitioned", {CONFLICT: "fail"}, mode=Mode.FAIL_IF_EXISTS, save_mode=Mode.APPEND),
            job("magic", mode=Mode.APPEND, save_mode=Mode.APPEND),
            job("magic", mode=Mode.REPLACE, save_mode=Mode.REPLACE),
            job("magic", mode=Mode.FAIL_IF_EXISTS, save_mode=Mode.FAIL_IF_EXISTS),
            job("directory"),
        ],
    ),
    "conflict-mode-unknown": (
        [job("directory", {CONFLICT: "overwrite"})],
        [job("directory", {CONFLICT: "REPLACE"}), job("magic", {CONFLICT: "overwrite"})],
    ),
    "conflict-mode-ignored": (
        [job("magic", {CONFLICT: "replace"}), job("classic", {CONFLICT: "fail"})],
        [job("magic", {CONFLICT: "append"}), job("magic"), job("directory", {CONFLICT: "replace"})],
    ),
    "replace-removes-table": (
        [job("directory", {CONFLICT: "replace"}, has_other_partitions=True)],
        [
            job("partitioned", {CONFLICT: "replace"}, has_other_partitions=True),
            job("directory", {CONFLICT: "replace"}, has_other_partitions=False),
            job("directory", {CONFLICT: "append"}, has_other_partitions=True),
        ],
    ),
    "fail-refuses-table": (
        [job("directory", {CONFLICT: "fail"}, has_other_partitions=True)],
        [
            job("partitioned", {CONFLICT: "fail"}, has_other_partitions=True),
            job("directory", {CONFLICT: "fail"}),
        ],
    ),
    "unique-filenames-off": (
        [job("directory", {f"{COMMITTER}staging.unique-filenames": "false"})],
        [
            job("directory"),
            job(
                "directory",
                {f"{COMMITTER}staging.unique-filenames": "false", CONFLICT: "replace"},
            ),
            job("magic", {f"{COMMITTER}staging.unique-filenames": "false"}),
        ],
    ),
    "partitions-elsewhere": (
        [job(partitions_elsewhere=True)],
        [job(partitions_elsewhere=False), job("classic", partitions_elsewhere=True)],
    ),
    "partitions-unknown": (
        [job(hive_table=True)],
        [job(hive_table=True, partitions_elsewhere=False), job(hive_table=False), job()],
    ),
    "uuid-shared": (
        [
            job(conf={f"{COMMITTER}uuid": "7e0c"}),
            job(core_site={"fs.s3a.committer.uuid": "7e0c"}),
            replace(
                job(),
                settings=effective(
                    [("operator", S3ASettings(Committer.MAGIC, uuid="u").spark_conf())]
                ),
                writes=2,
            ),
        ],
        [
            job(),
            replace(
                job(),
                settings=effective(
                    [("operator", S3ASettings(Committer.MAGIC, uuid="u").spark_conf())]
                ),
                writes=1,
            ),
        ],
    ),
    "uuid-optional": (
        [
            job(conf={f"{COMMITTER}require.uuid": "false"}),
            job(conf={f"{COMMITTER}generate.uuid": "true"}),
        ],
        [job(), job("classic")],
    ),
    "speculation": (
        [job("classic", {"spark.speculation": "true"})],
        [job("magic", {"spark.speculation": "true"}), job("classic")],
    ),
    "task-retries": (
        [job("classic", is_cluster=True)],
        [
            job("classic", is_cluster=False),
            job("classic", {"spark.task.maxFailures": "1"}, is_cluster=True),
            job("magic", is_cluster=True),
        ],
    ),
    "retry-after-part-commit": (
        [job(mode=Mode.APPEND, retries=2), job("classic", mode=Mode.APPEND, retries=1)],
        [
            job(mode=Mode.APPEND, retries=0),
            job(mode=Mode.REPLACE, retries=2),
            job(mode=Mode.APPEND),
        ],
    ),
    "driver-restarts": (
        [job(conf={"spark.yarn.maxAppAttempts": "2"})],
        [job(), job(conf={"spark.yarn.maxAppAttempts": "1"})],
    ),
    "classic-renames": ([job("classic")], [job("magic"), job("directory")]),
    "classic-algorithm-2": (
        [job("classic", {ALGORITHM: "2"})],
        [job("classic"), job("magic", {ALGORITHM: "2"})],
    ),
    "classic-tripped": ([job("classic", {ALGORITHM: "10"})], [job("classic"), job("magic")]),
    "abort-uploads-shared": (
        [
            job(conf={ABORT: "true"}, other_jobs=True),
            job("directory", {ABORT: "true"}, native_table=True),
            job(conf={f"{COMMITTER}staging.abort.pending.uploads": "true"}, other_jobs=True),
        ],
        [job(other_jobs=True, native_table=True), job(conf={ABORT: "true"}, other_jobs=False)],
    ),
    "abort-uploads-on": (
        [job(conf={ABORT: "true"})],
        [
            job(),
            job(conf={ABORT: "true"}, other_jobs=True),
            job(conf={ABORT: "true"}, other_jobs=False),
        ],
    ),
    "abort-uploads-old-key": (
        [job(conf={f"{COMMITTER}staging.abort.pending.uploads": "true"})],
        [job()],
    ),
    "multipart-purge": (
        [
            job(conf={PURGE: "true"}),
            job("zero_rename", {PURGE: "true"}),
            job(conf={PURGE: "true", f"{PURGE}.age": "3600"}, longest_job_seconds=HOUR),
            job(conf={PURGE: "true", f"{PURGE}.age": "soon"}),
        ],
        [job(), job(conf={PURGE: "true", f"{PURGE}.age": "3d"})],
    ),
    "multipart-purge-on": (
        [job(conf={PURGE: "true", f"{PURGE}.age": "3d"})],
        [job(), job(conf={PURGE: "true"})],
    ),
    "directory-purge": (
        [job(conf={DIRECTORY_PURGE: "true"}), job("zero_rename", {DIRECTORY_PURGE: "true"})],
        [job(), job(conf={DIRECTORY_PURGE: "true"}, other_jobs=True)],
    ),
    "directory-purge-shared": (
        [
            job(conf={DIRECTORY_PURGE: "true"}, other_jobs=True),
            job("zero_rename", {DIRECTORY_PURGE: "true"}, native_table=True),
        ],
        [job(other_jobs=True), job(conf={DIRECTORY_PURGE: "true"})],
    ),
    "lifecycle-too-short": (
        [job(lifecycle_days=1, longest_job_seconds=30 * HOUR)],
        [
            job(lifecycle_days=1, longest_job_seconds=HOUR),
            job(lifecycle_days=1, longest_job_seconds=24 * HOUR),
            job(lifecycle_days=None),
        ],
    ),
    "lifecycle-tight": (
        [
            job(lifecycle_days=1, longest_job_seconds=2 * HOUR),
            job(lifecycle_days=1, longest_job_seconds=24 * HOUR),
            job(lifecycle_days=2, longest_job_seconds=24 * HOUR + 1),
        ],
        [
            job(lifecycle_days=7),
            job(lifecycle_days=2, longest_job_seconds=2 * HOUR),
            job(lifecycle_days=2, longest_job_seconds=24 * HOUR),
            job(lifecycle_days=1, longest_job_seconds=30 * HOUR),
        ],
    ),
    "lifecycle-missing": (
        [job(lifecycle_days=inf), job("directory", lifecycle_days=inf)],
        [job(), job(lifecycle_days=7), job(conf={ABORT: "true"}, lifecycle_days=inf)],
    ),
    "marker-off": (
        [job(conf={MARKER: "false"}, sensor_waits=True)],
        [job(conf={MARKER: "false"}), job(sensor_waits=True)],
    ),
    "marker-off-unwatched": (
        [job(conf={MARKER: "false"})],
        [job(), job(conf={MARKER: "false"}, sensor_waits=True)],
    ),
    "threads-above-connections": (
        [job(conf={f"{COMMITTER}threads": "64", f"{HADOOP}fs.s3a.connection.maximum": "50"})],
        [job(), job(conf={f"{COMMITTER}threads": "500"})],
    ),
    "threads-negative": (
        [job(conf={f"{COMMITTER}threads": "-4"})],
        [job(), job(conf={f"{COMMITTER}threads": "16"})],
    ),
    "in-memory-tracking": (
        [job(conf={IN_MEMORY: "true"})],
        [job(), job("directory", {IN_MEMORY: "true"})],
    ),
    "magic-cleanup-off": ([job(conf={f"{COMMITTER}magic.cleanup.enabled": "false"})], [job()]),
    "parquet-summary": (
        [
            job(conf={f"{HADOOP}parquet.summary.metadata.level": "ALL"}),
            bare("magic", (DAG_CONF, {f"{HADOOP}parquet.enable.summary-metadata": "true"})),
        ],
        # The level comes before the old flag.
        [job(), job(conf={f"{HADOOP}parquet.enable.summary-metadata": "true"})],
    ),
    "report-in-table": (
        [job(conf={f"{COMMITTER}summary.report.directory": "s3a://bucket/table/reports"})],
        [
            job(conf={f"{COMMITTER}summary.report.directory": "s3a://bucket/table/_reports"}),
            job(conf={f"{COMMITTER}summary.report.directory": "s3a://bucket/table-reports"}),
            job(),
        ],
    ),
    "conditional-create": (
        [job(conditional_writes=False)],
        [
            job(conditional_writes=True),
            job(),
            job(
                conf={f"{HADOOP}fs.s3a.create.conditional.enabled": "false"},
                conditional_writes=False,
            ),
        ],
    ),
    "staging-not-shared": (
        [
            job("directory", core_site={"fs.defaultFS": "file:///"}, is_cluster=True),
            job("partitioned", {DEFAULT_FS: "file:///"}, is_cluster=True),
        ],
        [
            job("directory", core_site={"fs.defaultFS": "hdfs://namenode"}, is_cluster=True),
            job("directory", {DEFAULT_FS: "file:///"}, is_cluster=False),
            job("directory", is_cluster=True),
            job("magic", {DEFAULT_FS: "file:///"}, is_cluster=True),
        ],
    ),
    "staging-unknown": (
        [job("directory", is_cluster=True)],
        [
            job("directory", {DEFAULT_FS: "hdfs://namenode"}, is_cluster=True),
            job("directory", is_cluster=False),
            job("magic", is_cluster=True),
        ],
    ),
    "staging-on-s3": (
        [job("directory", {DEFAULT_FS: "s3a://bucket"})],
        [job("directory", {DEFAULT_FS: "hdfs://namenode"}), job("magic", {DEFAULT_FS: "s3a://b"})],
    ),
    "staging-dir-shared": (
        [
            job("directory", {f"{COMMITTER}staging.tmp.path": "/tmp/staging"}),
            job("directory", {f"{COMMITTER}staging.tmp.path": "hdfs://namenode/tmp"}),
        ],
        [
            job("directory"),
            job("directory", {f"{COMMITTER}staging.tmp.path": "/tmp/${user.name}/staging"}),
            job("directory", {f"{COMMITTER}staging.tmp.path": "/user/etl/staging"}),
        ],
    ),
    "buffer-dir-shared": (
        [
            job(conf={BUFFER: "/tmp"}),
            job(conf={BUFFER: "/data/s3a,/tmp/s3a"}),
            job(conf={BUFFER: "/data/s3a"}, shared_dirs=("/data/s3a",)),
        ],
        [job(), job(conf={BUFFER: "/data/s3a"}), job(conf={BUFFER: "/tmp/${user.name}/s3a"})],
    ),
    "buffer-too-small": (
        [job("directory", buffer_free_bytes=10**9, expected_bytes=10**10)],
        [
            job("directory", buffer_free_bytes=10**11, expected_bytes=10**10),
            job("directory", buffer_free_bytes=10**9),
            job("magic", buffer_free_bytes=10**9, expected_bytes=10**10),
        ],
    ),
    "buffer-nearly-full": (
        [job("magic", buffer_free_bytes=10**9), job("directory", buffer_free_bytes=10**9)],
        [
            job("magic", buffer_free_bytes=10**11),
            job("magic"),
            job("directory", buffer_free_bytes=10**9, expected_bytes=10**10),
        ],
    ),
}


def ids(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.check.id for finding in findings}


def test_every_check_has_its_cases() -> None:
    assert set(CASES) == {check.id for check in CHECKS}
    for check in CHECKS:
        bad, good = CASES[check.id]
        assert bad, check.id
        # At least one of them is about a committer that the check looks at; the warning of
        # what classic risks is for every use of it.
        looked_at = any(c.committer in check.committers for c in good)
        assert looked_at or check.id == "classic-renames", check.id


@pytest.mark.parametrize("check", CASES)
def test_fires_on_what_it_is_about(check: str) -> None:
    for number, circumstances in enumerate(CASES[check][0]):
        assert check in ids(inspect(circumstances)), number


@pytest.mark.parametrize("check", CASES)
def test_stays_silent_on_what_is_right(check: str) -> None:
    for number, circumstances in enumerate(CASES[check][1]):
        assert check not in ids(inspect(circumstances)), number


@pytest.mark.parametrize("committer", ["zero_rename", "magic", "directory", "partitioned"])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
def test_the_settings_of_a_committer_raise_nothing(committer: str, mode: Mode) -> None:
    conf = {CONFLICT: "replace"} if committer == "partitioned" and mode is Mode.REPLACE else {}
    circumstances = job(
        committer,
        conf,
        {"fs.defaultFS": "hdfs://namenode"},
        mode=mode,
        save_mode=Mode.APPEND if mode is Mode.APPEND or conf else Mode.REPLACE,
        is_cluster=True,
        other_jobs=True,
        sensor_waits=True,
        writes=1,
        lifecycle_days=7,
        has_other_partitions=mode is Mode.APPEND or bool(conf),
        formats=("parquet",),
    )
    left = {"overwrite-removes-first"} if mode is Mode.REPLACE and not conf else set()
    left &= {check.id for check in CHECKS if committer in check.committers}
    assert ids(inspect(circumstances)) == left


def test_classic_is_allowed_with_a_warning_that_names_its_risk() -> None:
    found = inspect(job("classic", is_cluster=False, sensor_waits=True))
    assert ids(found) == {"classic-renames"}
    assert found[0].check.severity is Severity.WARNING
    assert "_SUCCESS" in found[0].check.reason
    refuse(found)


class Asked(dict):
    """Settings that note which of them somebody asks for."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        self.keys_asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_asked.add(str(key))
        return super().__contains__(key)


def test_the_options_that_are_read_are_those_a_session_looks_up() -> None:
    asked: set[str] = set()
    for bad, good in CASES.values():
        for circumstances in (*bad, *good):
            settings = Asked(circumstances.settings)
            inspect(replace(circumstances, settings=settings))
            asked |= settings.keys_asked
    hadoop = {key for key in asked if not key.startswith(("spark.", CORE_SITE, BUCKET))}
    assert hadoop <= set(HADOOP_KEYS)
    assert set(HADOOP_KEYS) - hadoop <= {
        "fs.s3a.endpoint",
        "hadoop.tmp.dir",
        "fs.s3a.retry.http.5xx.errors",
    }


def test_errors_are_refused_by_name_and_warnings_are_not() -> None:
    found = inspect(job(conf={ABORT: "true", f"{COMMITTER}threads": "-1"}, other_jobs=True))
    assert [finding.check.id for finding in found] == ["abort-uploads-shared", "threads-negative"]
    assert [finding.check.id for finding in warnings(found)] == ["threads-negative"]
    with pytest.raises(SettingsRefusedError) as refused:
        refuse(found)
    text = str(refused.value)
    assert "abort-uploads-shared" in text
    assert "'true' (DAG conf)" in text
    assert "Set spark.hadoop.fs.s3a.committer.abort.pending.uploads=false" in text
    assert "threads-negative" not in text
    assert "nothing was submitted" in text


def test_each_check_says_reason_source_and_remedy() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.id == check.id.lower().replace("_", "-").strip("-")
        assert len(check.reason) > 40, check.id
        assert check.source, check.id
        assert check.remedy.rstrip().endswith((".", "….")), check.id
        assert (
            check.title[0].islower()
            or check.title.split()[0].isupper()
            or (check.title.split()[0].rstrip(",") in ("Spark", "Parquet", "YARN", "Parquet's"))
        ), check.id


def test_no_finding_shows_a_secret() -> None:
    secrets = {
        f"{HADOOP}fs.s3a.access.key": "AKIAIOSFODNN7EXAMPLE",
        f"{HADOOP}fs.s3a.secret.key": "wJalrXUtnFEMI",
        "fs.s3a.session.token": "a-dropped-token",
        f"{HADOOP}fs.s3a.bucket.bucket.secret.key": "another-secret",
    }
    for bad, _ in CASES.values():
        for circumstances in bad:
            layers = [(DAG_CONF, secrets)]
            added = {k: v for k, v in effective(layers).items() if v.value in secrets.values()}
            assert len(added) == 3
            changed = replace(
                circumstances,
                settings={**circumstances.settings, **added},
                dropped={**circumstances.dropped, **dropped(layers)},
            )
            text = " ".join(map(str, inspect(changed)))
            assert text
            assert not any(secret in text for secret in secrets.values())
