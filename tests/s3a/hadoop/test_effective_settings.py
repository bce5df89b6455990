"""Which of several settings is in force, what Spark and Hadoop do with their names, and the
cluster's own files, where the driver will read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.s3a.hadoop.effective_settings import (
    CORE_SITE,
    DAG_CONF,
    DEFAULT,
    SESSION,
    SPARK_DEFAULTS,
    Setting,
    effective,
    hadoop_layer,
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


def site(folder: Path, name: str, **given: str) -> None:
    entries = "".join(
        f"<property><name>{key.replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in given.items()
    )
    (folder / name).write_text(f"<?xml version='1.0'?><configuration>{entries}</configuration>")


def test_both_files_in_hadoops_order(tmp_path: Path) -> None:
    site(tmp_path, "core-site.xml", fs_defaultFS=" hdfs://name ", fs_s3a_committer_name="magic")
    site(tmp_path, "mapred-site.xml", fs_s3a_committer_name="directory")
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        layer = hadoop_layer({variable: str(tmp_path)})
        found = effective([(DAG_CONF, {}), layer])
        assert found["fs.defaultFS"] == Setting("hdfs://name", CORE_SITE)
        assert found["fs.s3a.committer.name"].value == "directory"


def test_no_secret_is_read(tmp_path: Path) -> None:
    site(
        tmp_path, "core-site.xml", fs_s3a_secret_key="s", fs_s3a_access_key="a", fs_s3a_endpoint="e"
    )
    assert hadoop_layer({"HADOOP_CONF_DIR": str(tmp_path)}) == (CORE_SITE, {"fs.s3a.endpoint": "e"})


def test_nothing_there(tmp_path: Path) -> None:
    assert hadoop_layer({}) == (CORE_SITE, {})
    assert hadoop_layer({"HADOOP_CONF_DIR": str(tmp_path)}) == (CORE_SITE, {})


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration><property>")
    with pytest.raises(InvalidInputError, match=r"core-site\.xml"):
        hadoop_layer({"HADOOP_CONF_DIR": str(tmp_path)})
