"""The log store's jar: the package's build makes it, and Hadoop's own classes fit it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.delta_spark import delta_jars
from support.log_store import jar_of, java_compiler
from support.older_python import older_python
from support.wheel import build, build_wheel, checkout_copy, unpack
from tools.environments import OLDER_SPARK, SPARK_4_1, PinnedEnvironment
from tools.log_store_jar import JAR, pack
from zero_rename.spark.startup.installation import java_command, spark_home

#: Writes an entry by the log store, with a file system that has no conditional create.
_WRITE = """
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class Write {
  public static void main(String[] names) throws Exception {
    Configuration configuration = new Configuration();
    configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    var store = new zero_rename.ConditionalLogStore(configuration);
    store.write(new Path(names[0]), List.of("{}").iterator(), false, configuration);
  }
}
"""


def hadoop_of(environment: PinnedEnvironment | None) -> Path:
    """The folder of a Spark's jars, Hadoop's among them; ``None``: of the tests' own Spark."""
    if environment is None:
        return spark_home() / "jars"
    older_python(environment)
    return environment.site / "pyspark" / "jars"


@pytest.mark.parametrize(
    "spark",
    [
        pytest.param(OLDER_SPARK, id="Spark 3.5"),
        pytest.param(SPARK_4_1, id="Spark 4.1"),
        pytest.param(None, id="newest Spark"),
    ],
)
def test_jar_compiled_against_stubs_is_the_one_compiled_against_delta_and_hadoop(
    spark: PinnedEnvironment | None, wheel: Path, tmp_path: Path
) -> None:
    # A stub with another signature than the real class would fail where Spark calls it, or not be
    # found by it.
    real = tmp_path / "real.jar"
    hadoop = hadoop_of(spark).glob("hadoop-client-api-*.jar")
    path = ":".join(map(str, (*delta_jars(), *hadoop)))
    pack(java_compiler(), ["-cp", path], real)
    assert jar_of(wheel, tmp_path).read_bytes() == real.read_bytes()


def test_jar_holds_no_class_of_delta_or_hadoop(wheel: Path, tmp_path: Path) -> None:
    names = ZipFile(jar_of(wheel, tmp_path)).namelist()
    assert names == ["META-INF/MANIFEST.MF", "zero_rename/ConditionalLogStore.class"]


@pytest.mark.slow
def test_wheel_of_the_sources_has_the_same_jar(wheel: Path, tmp_path: Path) -> None:
    jar = jar_of(wheel, tmp_path).read_bytes()
    with checkout_copy() as checkout:
        made = build(checkout, "sdist", tmp_path / "sdist")
    shutil.unpack_archive(made, tmp_path / "sources")
    [sources] = (tmp_path / "sources").iterdir()
    again = build(sources, "wheel", tmp_path / "wheel")
    assert jar_of(again, tmp_path / "again").read_bytes() == jar


@pytest.mark.slow
def test_wheel_built_without_a_jdk_has_no_jar_and_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    wheel = build_wheel(tmp_path / "wheel", path=str(tmp_path / "bin"))
    assert JAR.as_posix() not in ZipFile(wheel).namelist()
    unpack(wheel, tmp_path / "packages")
    done = subprocess.run(
        [sys.executable, "-c", "from zero_rename.cli import main; main()", "log-store"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"no {JAR.name}" in done.stderr
    assert "openjdk-17-jdk-headless" in done.stderr


@pytest.mark.spark
def test_entry_is_refused_and_not_written_by_the_hadoop_of_spark_3_5(
    wheel: Path, tmp_path: Path
) -> None:
    # Its S3A opens files by the same builder as its local file system, Hadoop's common one.
    program, entry = tmp_path / "Write.java", tmp_path / "00000000000000000000.json"
    program.write_text(_WRITE)
    jars = (jar_of(wheel, tmp_path), *delta_jars(), hadoop_of(OLDER_SPARK) / "*")
    java_compiler()  # Java runs a source file where it has a compiler.
    path = ":".join(map(str, jars))
    done = subprocess.run(
        [str(java_command()), "-cp", path, str(program), entry.as_uri()],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "has no conditional create" in done.stderr
    assert "Nothing was written. Use hadoop-aws 3.4.2 or later" in done.stderr
    assert list(tmp_path.glob("*.json*")) == []
