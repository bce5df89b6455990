"""Java and Spark as this machine has them: where, of which versions, and the oldest that will do.

Imports no PySpark: operators that submit Spark applications ask here too.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from ...committer.errors import InvalidInputError

#: What Spark 4 runs on, and what Spark 3.5 does.
MIN_JAVA = 17
_MIN_JAVA_OF_SPARK_3 = 8
#: For ``save()``: job tags came with Spark 3.5.
MIN_SPARK = (3, 5)
#: For ``format("zero_rename")``: Python data sources came with Spark 4.0, and what this package
#: uses of them with 4.1.
MIN_DATA_SOURCE = (4, 1)
MIN_PYARROW = 18
_SPARK = ".".join(map(str, MIN_SPARK))
JAVA_REMEDY = (
    f"Install a Java {MIN_JAVA} or later (Debian: apt-get install openjdk-{MIN_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{MIN_JAVA}) or point JAVA_HOME at one."
)
SPARK_REMEDY = f"Use Spark {_SPARK} or later: pip install 'pyspark>={_SPARK}'."


def min_java(spark: str | None) -> int:
    """The oldest Java that a Spark runs on; ``None``: Spark 4, or not known."""
    old = spark is not None and numbers(spark)[0] < 4
    return _MIN_JAVA_OF_SPARK_3 if old else MIN_JAVA


def numbers(version: str) -> tuple[int, ...]:
    """The first numbers of a version, up to three; ``(0,)`` where it has none."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3]) or (0,)


def java_command(environ: Mapping[str, str] = os.environ) -> Path:
    """The ``java`` that Spark's scripts start: ``$JAVA_HOME/bin/java``, else the one on PATH.

    :raises InvalidInputError: there is none.
    """
    home = environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH", os.defpath))
    if found is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on PATH"
        raise InvalidInputError(
            f"Spark needs Java, and {where}; nothing was started.", remedy=JAVA_REMEDY
        )
    return Path(found)


@lru_cache(maxsize=8)
def java_version(java: Path) -> str:
    """The version of that ``java``, such as ``17.0.15``.

    Read from the ``release`` file of its installation, since starting a JVM takes a tenth of a
    second; asked for where there is no such file.

    :raises InvalidInputError: it does not run.
    """
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        named = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text("utf-8"), re.MULTILINE)
        if named:
            return named.group(1)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidInputError(
            f"{java} -version failed ({type(error).__name__}); nothing was started.",
            remedy=JAVA_REMEDY,
        ) from error
    named = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return named.group(1) if named else "unknown"


def pyspark_home() -> Path | None:
    """The folder of this interpreter's installed ``pyspark``; ``None`` where it has none."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Spark's jars are: ``$SPARK_HOME``, else inside the installed ``pyspark``.

    :raises InvalidInputError: there is neither.
    """
    home = Path(environ["SPARK_HOME"]) if environ.get("SPARK_HOME") else pyspark_home()
    if home is None:
        raise InvalidInputError(
            "There is no Spark: no spark-submit on PATH, SPARK_HOME is not set, and pyspark is not "
            "installed; nothing was started.",
            remedy=SPARK_REMEDY,
        )
    return home


def versions_in(home: Path) -> tuple[str, str] | None:
    """The versions of the Python files and of the jars in the folder of a ``pyspark``; ``None``
    where it has no jars, as in Spark's own archive and in pyspark-client alone."""
    jars = [path.name for path in home.glob("jars/spark-core_*.jar")]
    python = home / "version.py"
    if not jars or not python.is_file():
        return None
    said = re.search(r"__version__.*?(\d[^\s'\"]*)", python.read_text("utf-8"))
    return (said[1], jars[0].split("-")[2].removesuffix(".jar")) if said else None


def hadoop_version(home: Path) -> str:
    """The version of the Hadoop among a Spark's jars; ``""`` where they do not say it, as in a
    build without Hadoop."""
    found = [path.stem for path in home.glob("jars/hadoop-client-api-*.jar")]
    return found[0].removeprefix("hadoop-client-api-") if found else ""


def spark_version(home: Path) -> str | None:
    """The version of the Spark in a folder; ``None`` where nothing there says it.

    A Spark that pip installed has no RELEASE file, and a distribution no metadata.
    """
    release = home / "RELEASE"
    if release.is_file():
        named = re.search(r"Spark (\d+\.\d+\S*)", release.read_text("utf-8", "replace"))
        return named[1] if named else None
    return metadata.version("pyspark") if home == pyspark_home() else None
