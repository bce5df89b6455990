"""The cluster's own files, where the driver will read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.s3a.hadoop.effective_settings import (
    CORE_SITE,
    DAG_CONF,
    Setting,
    effective,
    hadoop_layer,
)


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
