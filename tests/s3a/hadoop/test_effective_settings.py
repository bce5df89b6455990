"""Which of several settings is in force, and what Spark and Hadoop do with their names."""

from __future__ import annotations

import pytest

from zero_rename.s3a.hadoop.effective_settings import (
    CORE_SITE,
    DAG_CONF,
    DEFAULT,
    SESSION,
    SPARK_CHOICE,
    SPARK_DEFAULTS,
    Setting,
    dropped,
    effective,
    version_of,
)

NAME = "fs.s3a.committer.name"
MAGIC = "fs.s3a.committer.magic.enabled"
PROTOCOL = "spark.sql.sources.commitProtocolClass"


def test_the_first_layer_wins_and_is_named() -> None:
    found = effective(
        [
            (DAG_CONF, {f"spark.hadoop.{NAME}": "directory"}),
            (SPARK_DEFAULTS, {f"spark.hadoop.{NAME}": "magic", "spark.speculation": "true"}),
        ]
    )
    assert found[NAME] == Setting("directory", DAG_CONF)
    assert found["spark.speculation"] == Setting("true", SPARK_DEFAULTS)
    assert found["fs.s3a.committer.threads"] == Setting("8", DEFAULT)


def test_bare_hadoop_keys_count_only_where_hadoop_reads_them() -> None:
    for origin in (SESSION, CORE_SITE):
        assert effective([(origin, {NAME: "magic"})])[NAME] == Setting("magic", origin)
        assert dropped([(origin, {NAME: "magic"})]) == {}
    for origin in (DAG_CONF, SPARK_DEFAULTS, "connection"):
        layers = [(origin, {NAME: "magic", "spark.app.name": "x"})]
        assert effective(layers)[NAME] == Setting("file", DEFAULT)
        assert dropped(layers) == {NAME: Setting("magic", origin)}


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


@pytest.mark.parametrize(
    ("version", "classes", "conf", "name"),
    [
        ("4.3.0", True, {}, "magic"),
        ("4.1.0", True, {f"spark.hadoop.{MAGIC}": "true"}, "magic"),
        ("4.0.2", True, {}, "file"),
        ("4.3.0", False, {}, "file"),
        ("4.3.0", None, {}, "file"),
        (None, True, {}, "file"),
        ("4.3.0", True, {f"spark.hadoop.{MAGIC}": "false"}, "file"),
        ("4.3.0", True, {f"spark.hadoop.{NAME}": "directory"}, "directory"),
    ],
)
def test_sparks_silent_choice(
    version: str | None, classes: bool | None, conf: dict[str, str], name: str
) -> None:
    found = effective([(DAG_CONF, conf)], None, version, classes)
    assert found[NAME].value == name
    chosen = found[PROTOCOL].origin == SPARK_CHOICE
    assert chosen == (name != "file")


def test_the_silent_choice_goes_over_core_site() -> None:
    layers = [(CORE_SITE, {NAME: "directory"})]
    assert effective(layers, None, "4.3.0", True)[NAME] == Setting("magic", SPARK_CHOICE)
    assert effective(layers, None, "3.5.0", True)[NAME] == Setting("directory", CORE_SITE)


def test_values_are_trimmed_as_hadoop_does() -> None:
    assert effective([(DAG_CONF, {f"spark.hadoop.{NAME}": " magic\n"})])[NAME].value == "magic"


def test_versions() -> None:
    assert version_of("4.3.0") == (4, 3, 0)
    assert version_of("3.4.1-amzn-0") == (3, 4, 1)
    assert version_of("") == (0,)
