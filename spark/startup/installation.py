"""Java and Spark on this machine: their folders, their versions, and the oldest ones accepted.

Imports no PySpark: operators that submit Spark applications use this module, too.
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

#: The oldest Java for Spark 4, and the oldest for Spark 3.5.
MIN_JAVA = 17
_MIN_JAVA_OF_SPARK_3 = 8
#: The oldest Spark for ``save()``: job tags came with Spark 3.5.
MIN_SPARK = (3, 5)
#: The oldest Spark for ``format("zero_rename")``: Python data sources came with Spark 4.0, and the
#: features of them that this package uses with 4.1.
MIN_DATA_SOURCE = (4, 1)
MIN_PYARROW = 18
_SPARK = ".".join(map(str, MIN_SPARK))
JAVA_REMEDY = (
    f"Install a Java {MIN_JAVA} or later (Debian: apt-get install openjdk-{MIN_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{MIN_JAVA}) or point JAVA_HOME at one."
)
SPARK_REMEDY = f"Use Spark {_SPARK} or later: pip install 'pyspark>={_SPARK}'."


def min_java(spark: str | None) -> int:
    """Return the oldest Java that a Spark runs on.

    :param spark: its version; ``None``: not known, which counts as Spark 4.
    """
    old = spark is not None and numbers(spark)[0] < 4
    return _MIN_JAVA_OF_SPARK_3 if old else MIN_JAVA


def numbers(version: str) -> tuple[int, ...]:
    """Return the first numbers of a version, three at most; ``(0,)`` if it has none."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3]) or (0,)


def java_command(environ: Mapping[str, str] = os.environ) -> Path:
    """Find the ``java`` that Spark's scripts start: ``$JAVA_HOME/bin/java``, else that on PATH.

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
    """Return the version of a ``java``, such as ``17.0.15``.

    It is read from the ``release`` file of the installation, since starting a JVM takes a tenth of
    a second. Only without such a file is ``java -version`` run.

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
    """Return the folder of this interpreter's installed ``pyspark``; ``None`` if it has none."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return Spark's folder: ``$SPARK_HOME``, else that of the installed ``pyspark``.

    :raises InvalidInputError: neither exists.
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
    """Return the versions of the Python files and of the jars in the folder of a ``pyspark``.

    ``None`` if it has no jars, as in Spark's own archive and in pyspark-client alone.
    """
    jars = [path.name for path in home.glob("jars/spark-core_*.jar")]
    python = home / "version.py"
    if not jars or not python.is_file():
        return None
    said = re.search(r"__version__.*?(\d[^\s'\"]*)", python.read_text("utf-8"))
    return (said[1], jars[0].split("-")[2].removesuffix(".jar")) if said else None


def hadoop_version(home: Path) -> str:
    """Return the version of the Hadoop among a Spark's jars.

    ``""`` if they do not show it, as in a build without Hadoop.
    """
    found = [path.stem for path in home.glob("jars/hadoop-client-api-*.jar")]
    return found[0].removeprefix("hadoop-client-api-") if found else ""


def spark_version(home: Path) -> str | None:
    """Return the version of the Spark in a folder; ``None`` if nothing there shows it.

    A Spark that pip installed has no RELEASE file, and a distribution no metadata.
    """
    release = home / "RELEASE"
    if release.is_file():
        named = re.search(r"Spark (\d+\.\d+\S*)", release.read_text("utf-8", "replace"))
        return named[1] if named else None
    return metadata.version("pyspark") if home == pyspark_home() else None
