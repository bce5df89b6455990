"""Finding Spark, Java and Python before Spark fails to."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.preflight import check_python, choose_python, find_spark

SCRIPTS = Path(sys.executable).parent


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program(tmp_path / "java/bin/java")
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.9"\n')
    return tmp_path / "java"


class TestSpark:
    def test_of_this_interpreter(self, java: Path) -> None:
        """Started by path alone, the script does not find its Spark (rc 127)."""
        added = find_spark({"PATH": "/nowhere", "JAVA_HOME": str(java)})
        assert added["PATH"] == f"{SCRIPTS}{os.pathsep}/nowhere"
        assert (Path(added["SPARK_HOME"]) / "bin" / "spark-submit").is_file()

    def test_of_this_interpreter_on_path_already(self, java: Path) -> None:
        assert "SPARK_HOME" in find_spark({"PATH": str(SCRIPTS), "JAVA_HOME": str(java)})

    def test_another_on_path_is_left_alone(self, tmp_path: Path) -> None:
        program(tmp_path / "bin/spark-submit")
        assert find_spark({"PATH": f"{tmp_path / 'bin'}{os.pathsep}{SCRIPTS}"}) == {}

    def test_of_spark_home(self, tmp_path: Path, java: Path) -> None:
        program(tmp_path / "spark/bin/spark-submit")
        environ = {"SPARK_HOME": str(tmp_path / "spark"), "JAVA_HOME": str(java), "PATH": "/x"}
        assert find_spark(environ) == {"PATH": f"{tmp_path}/spark/bin{os.pathsep}/x"}

    def test_too_old(self, tmp_path: Path, java: Path) -> None:
        program(tmp_path / "spark/bin/spark-submit")
        (tmp_path / "spark/RELEASE").write_text("Spark 3.3.1 built for Hadoop 3.3.4\n")
        environ = {"SPARK_HOME": str(tmp_path / "spark"), "JAVA_HOME": str(java)}
        with pytest.raises(InvalidInputError, match=r"Spark 3\.3\.1 in .* Use Spark 3\.5 or later"):
            find_spark(environ)

    def test_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
        environ = {"PATH": "/x", "JAVA_HOME": str(java)}
        with pytest.raises(InvalidInputError, match="There is no spark3-submit"):
            find_spark(environ, "spark3-submit")
        with pytest.raises(InvalidInputError, match="holds no bin/spark-submit"):
            find_spark({**environ, "SPARK_HOME": str(tmp_path)})
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(InvalidInputError, match="pyspark is not installed"):
            find_spark({"PATH": "/x"})


def test_java_is_looked_for() -> None:
    with pytest.raises(InvalidInputError, match=r"no java on PATH.*openjdk-17"):
        find_spark({"PATH": "/nowhere"})


class TestPython:
    def test_this_one_unless_another_is_chosen(self) -> None:
        assert choose_python({}, {}) == {"PYSPARK_PYTHON": sys.executable}
        assert choose_python({"PYSPARK_PYTHON": "/other"}, {}) == {}
        assert choose_python({}, {"spark.pyspark.python": "/other"}) == {}

    def test_one_that_lacks_packages(self, tmp_path: Path) -> None:
        """``-S`` and ``-I`` make an interpreter without any."""
        other = program(tmp_path / "python", f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
        with pytest.raises(InvalidInputError, match=r"lacks boto3, pyarrow; .*DATA_SOURCE"):
            check_python(str(other), shipped=True)
        with pytest.raises(InvalidInputError, match="lacks boto3, pyarrow, zero_rename"):
            check_python(str(other), shipped=False)

    def test_one_that_has_them(self, tmp_path: Path) -> None:
        other = program(tmp_path / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        check_python(str(other), shipped=False)

    def test_one_that_does_not_run(self) -> None:
        with pytest.raises(InvalidInputError, match="/no/python does not run"):
            check_python("/no/python", shipped=True)
