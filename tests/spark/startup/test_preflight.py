"""Checks of Java, Spark and the workers' Python; flags and the class archive."""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyspark
import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.spark import check_environment, jvm_options, worker, worker_python
from zero_rename.spark.startup import installation, launch
from zero_rename.spark.startup import preflight as environment


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def paragraph(caught):
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.remedy
    return text


@pytest.mark.spark
def test_this_environment_is_fit():
    check_environment({**os.environ, "PYSPARK_PYTHON": sys.executable})


def test_no_java(tmp_path):
    with pytest.raises(InvalidInputError, match="no java on PATH") as caught:
        environment.check_java({"PATH": str(tmp_path)})
    assert "apt-get install openjdk-17" in paragraph(caught)
    with pytest.raises(InvalidInputError, match="holds no bin/java"):
        environment.check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


@pytest.mark.parametrize(
    ("java", "spark", "needs"),
    [("1.8.0_402", None, 17), ("1.8.0_402", "3.5.9", None), ("1.7.0", "3.5.9", 8)],
)
def test_the_java_that_a_spark_runs_on(tmp_path, java, spark, needs):
    home = tmp_path / "jdk"
    script(home / "bin" / "java", f"echo 'openjdk version \"{java}\"' >&2")
    if needs is None:
        assert environment.check_java({"JAVA_HOME": str(home)}, spark) == java
        return
    said = f"is Java {java}, and Spark {spark or 4} needs {needs}"
    with pytest.raises(InvalidInputError, match=re.escape(said)) as caught:
        environment.check_java({"JAVA_HOME": str(home)}, spark)
    assert "JAVA_HOME" in paragraph(caught)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    installation.java_version.cache_clear()
    assert environment.check_java({"JAVA_HOME": str(home)}) == "21.0.2"


def test_a_java_that_does_not_run(tmp_path):
    script(tmp_path / "bin" / "java", "exit 1")
    with pytest.raises(InvalidInputError, match="-version failed"):
        environment.check_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(("package", "found"), [("pyspark", "3.4.4"), ("pyarrow", "15.0.0")])
def test_old_packages(monkeypatch, package, found):
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: found if n == package else real(n))
    with pytest.raises(InvalidInputError, match=f"(?i){package} {found} is too old") as caught:
        environment.check_versions()
    assert "pip install" in paragraph(caught)


@pytest.mark.parametrize(("python", "fits"), [("4.2.0", False), ("4.3.0", True)])
def test_pyspark_client_over_pyspark(tmp_path, monkeypatch, python, fits):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    (tmp_path / "version.py").write_text(f"__version__: str = {python!r}\n")
    monkeypatch.setattr(environment, "pyspark_home", lambda: tmp_path)
    if fits:
        return environment.check_versions()
    mixed = r"files of version 4\.2\.0 and jars of 4\.3\.0"
    with pytest.raises(InvalidInputError, match=mixed) as caught:
        environment.check_versions()
    assert "spark-submit" in paragraph(caught)


def test_the_versions_of_the_installed_pyspark():
    home = installation.pyspark_home()
    assert home is not None
    assert installation.versions_in(home) == (pyspark.__version__, pyspark.__version__)


def test_a_spark_that_has_no_python_data_sources(monkeypatch):
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "3.5.9" if n == "pyspark" else real(n))
    environment.check_versions()
    with pytest.raises(InvalidInputError, match=r"PySpark 3.5.9 is too old for format") as caught:
        environment.check_data_source_versions()
    assert "save(frame, table)" in paragraph(caught)


def test_the_oldest_versions_are_those_of_the_package():
    wanted = (Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8")
    assert f'"pyspark[sql]>={".".join(map(str, installation.MIN_SPARK))}' in wanted
    assert f'"pyarrow>={installation.MIN_PYARROW}' in wanted


@pytest.mark.parametrize(("version", "fits"), [("3.4.4", False), ("3.5.0", True), ("4.10.0", True)])
def test_a_distribution_of_spark(tmp_path, version, fits):
    (tmp_path / "RELEASE").write_text(f"Spark {version} built for Hadoop 3.4.1\n", "utf-8")
    if fits:
        environment.check_spark(tmp_path)
        return
    with pytest.raises(InvalidInputError, match=f"Spark {version} in .* is too old") as caught:
        environment.check_spark(tmp_path)
    assert "3.5" in paragraph(caught)


def test_a_folder_that_does_not_say_its_version_is_let_pass(tmp_path):
    assert installation.spark_version(tmp_path) is None
    environment.check_spark(tmp_path)


def test_workers_without_the_package(tmp_path):
    path = script(
        tmp_path / "python3",
        "echo \"ModuleNotFoundError: No module named 'zero_rename'\" >&2; exit 1",
    )
    with pytest.raises(InvalidInputError, match="lacks what this package needs") as caught:
        environment.check_worker_python({"PATH": str(tmp_path)})
    text = paragraph(caught)
    assert "No module named 'zero_rename'" in text
    assert f"PYSPARK_PYTHON={sys.executable}" in text
    with pytest.raises(InvalidInputError, match="lacks"):
        environment.check_worker_python({"PATH": "/", "PYSPARK_PYTHON": str(path)})


@pytest.mark.parametrize(
    ("python", "message"),
    [("", r"Python 3.9 and PySpark 4.0.0, other versions"), ("/no/python", "which does not exist")],
)
def test_workers_of_another_python(tmp_path, python, message):
    script(tmp_path / "python3", "echo '[[3, 9], \"4.0.0\"]'")
    with pytest.raises(InvalidInputError, match=message):
        environment.check_worker_python({"PATH": str(tmp_path), "PYSPARK_PYTHON": python})


def test_flags(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jvm_options() == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    archive = launch.archive_path()
    assert archive.is_relative_to(tmp_path / "zero-rename" / "class-archives")
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in jvm_options()
    assert "SharedArchiveFile" not in jvm_options(archive=False)


def test_the_archive_belongs_to_one_java(monkeypatch, tmp_path):
    before = launch.archive_path()
    script(tmp_path / "bin" / "java", "exit 1")
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert launch.archive_path().name.startswith("java-21.0.2-spark-")
    assert launch.archive_path() != before


CLOUD = "org.apache.spark:spark-hadoop-cloud_2.13"
AWS = "org.apache.hadoop:hadoop-aws:3.5.0"


@pytest.mark.parametrize(
    ("spark", "jars", "conf", "warned"),
    [
        ("4.3.0", ["spark-hadoop-cloud_2.13-4.1.1.jar", "hadoop-aws-3.5.0.jar"], {}, True),
        ("4.3.0", ["spark-hadoop-cloud_2.13-4.1.1.jar"], {}, False),
        ("4.3.0", ["spark-hadoop-cloud_2.13-4.3.0.jar", "hadoop-aws-3.5.0.jar"], {}, False),
        ("4.0.1", ["spark-hadoop-cloud_2.13-4.0.1.jar", "hadoop-aws-3.4.1.jar"], {}, False),
        ("4.3.0", [], {"spark.jars.packages": f"{CLOUD}:4.1.1,{AWS}"}, True),
        ("4.3.0", [], {"spark.jars.packages": AWS}, False),
        (
            "4.3.0",
            ["hadoop-aws-3.5.0.jar"],
            {"spark.jars": "/j/spark-hadoop-cloud_2.13-4.1.1.jar"},
            True,
        ),
        (
            "4.3.0",
            [],
            {
                "spark.jars.packages": f"{CLOUD}:4.1.1,{AWS}",
                "spark.hadoop.fs.s3a.committer.magic.enabled": "false",
            },
            False,
        ),
    ],
)
def test_jars_that_make_overwrites_append(tmp_path, caplog, spark, jars, conf, warned):
    (tmp_path / "jars").mkdir()
    (tmp_path / "RELEASE").write_text(f"Spark {spark} built for Hadoop 3")
    for jar in jars:
        (tmp_path / "jars" / jar).touch()
    environment.warn_of_jars(tmp_path, conf)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == int(warned)
    assert all("fs.s3a.committer.magic.enabled=false" in text for text in said)


def test_the_workers_python_takes_the_zip_off_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = worker_python()
    assert Path(python).is_relative_to(tmp_path)
    assert python == worker_python()
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    path = [f"{lib}/pyspark.zip", "/with space/a", f"{lib}/py4j-0.10.9.9-src.zip", "/b"]
    found = subprocess.run(
        [python, "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{sys.executable} /with space/a:/b\n"
    environment.check_worker_python({"PATH": "/", "PYSPARK_PYTHON": python})


def test_spark_from_elsewhere_keeps_its_zip(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python() == sys.executable


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads Linux's /proc")
def test_class_archive_in_a_folder_with_a_blank_is_one_option_of_java(tmp_path):
    """Spark splits the options of its setting at blanks, unless they are in quotes."""
    archive = tmp_path / "a b" / "archive.jsa"
    archive.parent.mkdir()
    archive.touch()
    options = shlex.split(" ".join(launch.archive_flags(archive)))
    assert f"-XX:SharedArchiveFile={archive}" in options
    plain = tmp_path / "archive.jsa"
    plain.touch()
    assert f"-XX:SharedArchiveFile={plain}" in launch.archive_flags(plain)


def test_cache_folder_that_cannot_be_written_leaves_the_interpreter_itself(monkeypatch, tmp_path):
    """As in a container whose user has no home, or with another user's home."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    environment.check_worker_python({"PATH": "/", "PYSPARK_PYTHON": sys.executable})
    assert worker_python() == sys.executable


def test_check_of_the_workers_python_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment.check_worker_python({"PATH": "/", "PYSPARK_PYTHON": sys.executable})
    assert [*tmp_path.iterdir()] == []


def test_class_archive_in_a_folder_of_another_user_is_not_used(monkeypatch):
    def refused(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)
    assert launch.archive_flags(Path("/srv/theirs/archive.jsa")) == ()


def test_ancestors():
    parent = worker._parent(os.getpid())
    assert parent is not None
    assert parent[0] == os.getppid()
    assert worker._parent(1 << 30) is None


@pytest.mark.parametrize(("given", "level"), [("", "INFO"), ("debug", "DEBUG"), ("loud", "INFO")])
def test_level_of_a_workers_log_is_info_unless_a_known_one_is_given(monkeypatch, given, level):
    package, root = logging.getLogger("zero_rename"), logging.getLogger()
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.setenv("ZERO_RENAME_LOG_LEVEL", given)
    monkeypatch.setattr(package, "handlers", [])
    monkeypatch.setattr(root, "handlers", [])
    before = package.level
    try:
        worker.set_up_logging()
        assert logging.getLevelName(package.level) == level
    finally:
        package.setLevel(before)


def test_outside_of_workers_nothing_is_set_up(monkeypatch):
    monkeypatch.delenv("SPARK_PYTHON_RUNTIME", raising=False)
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(InvalidInputError), worker.readable_errors():
        raise InvalidInputError("no")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
