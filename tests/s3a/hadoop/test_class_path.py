"""Which jars a job has, from folders, settings and arguments alone."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from zero_rename.s3a.checks.run import JobFacts, inspect
from zero_rename.s3a.hadoop.class_path import class_path, look_for_jars
from zero_rename.s3a.hadoop.effective_settings import effective
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

SPARK = ("spark-core_2.13-4.3.0.jar", "hadoop-client-api-3.5.0.jar", "scala-library-2.13.17.jar")
S3A = (
    "hadoop-aws-3.5.0.jar",
    "bundle-2.35.4.jar",
    "analyticsaccelerator-s3-1.3.1.jar",
    "spark-hadoop-cloud_2.13-4.1.1.jar",
)


def folder(path: Path, *names: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).touch()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder(tmp_path / "spark" / "jars", *SPARK)
    return tmp_path / "spark"


def errors(jars: object, committer: str = "magic") -> set[str]:
    conf = S3ASettings(Committer(committer)).spark_conf()
    made = JobFacts(committer, effective([("settings", conf)]), jars=jars)  # pyright: ignore
    return {finding.check.id for finding in inspect(made)} - {"classic-renames"}


def test_sparks_own_jars_lack_what_s3a_needs(home: Path) -> None:
    jars = look_for_jars(home, {}, environ={})
    assert jars.complete
    assert (jars.spark_version, jars.hadoop_version) == ("4.3.0", "3.5.0")
    assert not jars.has_cloud_classes
    assert errors(jars) == {"hadoop-aws-missing", "cloud-jar-missing", "sdk-missing"}
    assert errors(jars, "classic") == {"hadoop-aws-missing", "sdk-missing"}


@pytest.mark.parametrize("way", ["jars", "conf", "class-path", "dist", "home"])
def test_every_way_to_add_jars(home: Path, tmp_path: Path, way: str) -> None:
    there = folder(tmp_path / "extra", *S3A)
    listed = ",".join(str(there / name) for name in S3A)
    conf, argument, environ = {}, None, {}
    if way == "jars":
        argument = listed
    elif way == "conf":
        conf = {"spark.jars": listed}
    elif way == "class-path":
        conf = {
            "spark.driver.extraClassPath": f"/etc/hadoop:{there}/*",
            "spark.executor.extraClassPath": f"{there}/*",
        }
    elif way == "dist":
        environ = {"SPARK_DIST_CLASSPATH": f"/etc/hadoop:{there}/*"}
    else:
        folder(home / "jars", *S3A)
    jars = look_for_jars(home, conf, argument, environ=environ)
    assert jars.has_cloud_classes
    assert errors(jars) == set()
    assert jars.summary()["hadoop-aws"] == ["3.5.0"]
    assert "scala-library" not in jars.summary()


def test_jars_of_the_driver_alone(home: Path, tmp_path: Path) -> None:
    there = folder(tmp_path / "extra", *S3A)
    jars = look_for_jars(home, {"spark.driver.extraClassPath": f"{there}/*"}, environ={})
    assert jars.has_cloud_classes
    assert {"hadoop-aws-missing", "cloud-jar-missing", "sdk-missing"} <= errors(jars)


def test_an_argument_takes_the_place_of_the_setting(home: Path, tmp_path: Path) -> None:
    there = folder(tmp_path / "extra", *S3A)
    listed = ",".join(str(there / name) for name in S3A)
    jars = look_for_jars(home, {"spark.jars": listed}, "/elsewhere/app.jar", environ={})
    assert not jars.has_cloud_classes


def test_packages_bring_what_they_depend_on(home: Path) -> None:
    jars = look_for_jars(home, {}, packages="org.apache.hadoop:hadoop-aws:3.5.0", environ={})
    assert errors(jars) == {"cloud-jar-missing"}
    assert jars.version("bundle") == "2.35.4"
    conf = {"spark.jars.packages": "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"}
    # It brings the hadoop-aws of Spark 4.1.1, which is not that of Spark 4.3.0.
    found = errors(look_for_jars(home, conf, environ={}))
    assert found == {"hadoop-aws-version"}
    both = f"{conf['spark.jars.packages']}, org.apache.hadoop:hadoop-aws:3.5.0"
    assert errors(look_for_jars(home, {}, packages=both, environ={})) == set()


def test_old_hadoop_needs_the_old_sdk(tmp_path: Path) -> None:
    names = ("spark-core_2.12-3.5.6.jar", "hadoop-client-api-3.3.4.jar", "hadoop-aws-3.3.4.jar")
    cloud = ("spark-hadoop-cloud_2.12-3.5.6.jar",)
    folder(tmp_path / "jars", *names, *cloud, "bundle-2.35.4.jar")
    assert errors(look_for_jars(tmp_path, {}, environ={})) == {"sdk-missing"}
    folder(tmp_path / "jars", "aws-java-sdk-bundle-1.12.262.jar")
    assert errors(look_for_jars(tmp_path, {}, environ={})) == set()


def test_a_jar_with_everything_in_it_is_opened(home: Path, tmp_path: Path) -> None:
    fat = tmp_path / "etl-assembly.jar"
    with zipfile.ZipFile(fat, "w") as archive:
        for name in (
            "org/apache/hadoop/fs/s3a/S3AFileSystem.class",
            "org/apache/spark/internal/io/cloud/PathOutputCommitProtocol.class",
            "software/amazon/awssdk/services/s3/S3Client.class",
            "software/amazon/s3/analyticsaccelerator/S3SeekableInputStream.class",
        ):
            archive.writestr(name, b"")
    for where in (str(fat), f"file:{fat}", f"file://{fat}"):
        jars = look_for_jars(home, {}, where, environ={})
        assert jars.has_cloud_classes, where
        assert errors(jars) == set(), where
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no jar")
    assert "hadoop-aws-missing" in errors(look_for_jars(home, {}, str(broken), environ={}))


def test_where_spark_cannot_be_seen_nothing_is_missing(tmp_path: Path) -> None:
    for place in (None, tmp_path / "nowhere"):
        jars = look_for_jars(place, {}, environ={})
        assert not jars.complete
        assert errors(jars) == set()
    jars = look_for_jars(None, {}, packages="org.apache.hadoop:hadoop-aws:3.3.4", environ={})
    assert jars.version("aws-java-sdk-bundle") is None
    assert jars.of("aws-java-sdk-bundle")


def test_a_class_path_with_a_star_names_every_jar_of_a_folder(tmp_path: Path) -> None:
    there = folder(tmp_path / "jars", *SPARK, *S3A)
    assert [path.name for path in class_path(f"{there}/*")] == sorted((*SPARK, *S3A))
