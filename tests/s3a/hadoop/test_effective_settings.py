"""Which of several settings is in force, and what Spark and Hadoop do with their names."""

from __future__ import annotations

from zero_rename.s3a.hadoop.effective_settings import (
    CORE_SITE,
    DAG_CONF,
    DEFAULT,
    SESSION,
    SPARK_DEFAULTS,
    Setting,
    effective,
)

NAME = "fs.s3a.committer.name"
MAGIC = "fs.s3a.committer.magic.enabled"


def test_the_first_layer_wins_and_is_named() -> None:
    found = effective(
        [
            (DAG_CONF, {f"spark.hadoop.{NAME}": "directory"}),
            (SPARK_DEFAULTS, {f"spark.hadoop.{NAME}": "magic", "spark.speculation": "true"}),
        ]
    )
    assert found[NAME] == Setting("directory", DAG_CONF)
    assert found["spark.speculation"] == Setting("true", SPARK_DEFAULTS)
    assert found["fs.s3a.committer.magic.enabled"] == Setting("true", DEFAULT)


def test_bare_hadoop_keys_count_only_where_hadoop_reads_them() -> None:
    for origin in (SESSION, CORE_SITE):
        assert effective([(origin, {NAME: "magic"})])[NAME] == Setting("magic", origin)
    for origin in (DAG_CONF, SPARK_DEFAULTS, "connection"):
        layers = [(origin, {NAME: "magic", "spark.app.name": "x"})]
        assert effective(layers)[NAME] == Setting("file", DEFAULT)


def test_a_bucket_has_its_own() -> None:
    layers = [
        (DAG_CONF, {"spark.hadoop.fs.s3a.endpoint": "http://one"}),
        (CORE_SITE, {"fs.s3a.bucket.lake.endpoint": "http://two"}),
    ]
    assert effective(layers)["fs.s3a.endpoint"].value == "http://one"
    assert effective(layers, "other")["fs.s3a.endpoint"].value == "http://one"
    found = effective(layers, "lake")["fs.s3a.endpoint"]
    assert found == Setting("http://two", f"{CORE_SITE}, for the bucket lake")


def test_committer_options_of_a_bucket_are_passed_over() -> None:
    layers = [
        (
            DAG_CONF,
            {
                "spark.hadoop.fs.s3a.bucket.lake.committer.name": "magic",
                "spark.hadoop.fs.s3a.bucket.lake.committer.magic.enabled": "false",
                "spark.hadoop.fs.s3a.bucket.lake.committer.summary.report.directory": "s3a://r/",
            },
        )
    ]
    found = effective(layers, "lake")
    assert found[NAME] == Setting("file", DEFAULT)
    # The file system itself reads this one, and this one is set nowhere else.
    assert found[MAGIC].value == "false"
    assert found["fs.s3a.committer.summary.report.directory"].value == "s3a://r/"


def test_values_are_trimmed_as_hadoop_does() -> None:
    assert effective([(DAG_CONF, {f"spark.hadoop.{NAME}": " magic\n"})])[NAME].value == "magic"
