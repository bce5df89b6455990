"""Checks of Java, Spark and the workers' Python, each with the remedy that Spark does not name.

Spark itself says ``JAVA_GATEWAY_EXITED`` if there is no Java, and ``DATA_SOURCE_NOT_FOUND``
if the Python of its workers does not have this package. Imports no PySpark: operators that submit
applications use these checks, too.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...committer.errors import InvalidInputError
from ...s3a.hadoop.settings import COMMIT_PROTOCOL_KEY, MAGIC_KEY, PATH_PROTOCOL, REJECT_KEY
from ..java_classes import java_class
from .installation import (
    JAVA_REMEDY,
    MIN_DATA_SOURCE,
    MIN_PYARROW,
    MIN_SPARK,
    SPARK_REMEDY,
    java_command,
    java_version,
    min_java,
    numbers,
    pyspark_home,
    spark_version,
    versions_in,
)
from .launch import is_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark.startup.preflight")
#: Spark's module for Hadoop's committers, as a jar or by its coordinates, with its version.
_CLOUD_MODULE = re.compile(r"spark-hadoop-cloud_[0-9.]+[-:]([0-9]+(?:\.[0-9]+)*)")
#: The first version of it that replaces partitions dynamically (SPARK-56588), and the first Spark
#: that uses its protocol without a setting (SPARK-47618).
_REPLACES, _CHOOSES = (4, 2), (4, 1)
#: Settings that put jars on the driver's class path.
_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
#: Ids of the applications that were warned.
_warned: set[str | None] = set()
#: The newest Spark that the tests run on.
_TESTED = "4.3"
_PROBE = (
    "import json, sys; import pyspark; import boto3, pyarrow; import zero_rename.committer.table;"
    "print(json.dumps([list(sys.version_info[:2]), pyspark.__version__]))"
)
_MISSING = (
    "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
)


def check_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Check this machine's Java, Spark and Python before a Spark application is started.

    For scripts, and for operators that submit them. It takes about two seconds, mostly to start the
    workers' Python.

    :param environ: the environment that Spark will be started with.
    :raises InvalidInputError: something is missing or too old; one paragraph with the remedy.
    """
    check_versions()
    check_java(environ, _version("pyspark", _TESTED))
    check_worker_python(environ)
    named = environ.get("SPARK_HOME")
    warn_of_jars(Path(named) if named else pyspark_home(), {})


def check_versions() -> None:
    """Check the versions of PySpark and pyarrow in this interpreter, for ``save()``.

    :raises InvalidInputError: one is missing or too old.
    """
    spark = _version("pyspark", _TESTED)
    _refuse_old_spark(f"PySpark {spark}", spark)
    _refuse_two_versions(pyspark_home())
    arrow = _version("pyarrow", str(MIN_PYARROW))
    if numbers(arrow)[0] < MIN_PYARROW:
        raise InvalidInputError(
            f"pyarrow {arrow} is too old; nothing was read or written.",
            remedy=f"pip install 'pyarrow>={MIN_PYARROW}'.",
        )


def check_data_source_versions() -> None:
    """Check the versions for ``format("zero_rename")``, which needs a newer Spark than ``save()``.

    :raises InvalidInputError: one is missing or too old.
    """
    check_versions()
    spark = _version("pyspark", _TESTED)
    if numbers(spark)[:2] < MIN_DATA_SOURCE:
        raise InvalidInputError(
            f'PySpark {spark} is too old for format("zero_rename"): Python data sources as this '
            f"package uses them came with {_text(MIN_DATA_SOURCE)}; nothing was read or written.",
            remedy="Write by zero_rename.spark.save(frame, table), which needs "
            f"{_text(MIN_SPARK)}.",
        )


def check_spark(home: Path) -> str | None:
    """Check the Spark in a folder. Returns its version; ``None`` if nothing there shows it.

    :raises InvalidInputError: it is too old.
    """
    found = spark_version(home)
    if found is not None:
        _refuse_old_spark(f"Spark {found} in {home}", found)
    return found


def warn_of_overwrites(session: SparkSession) -> None:
    """Warn, once for each application, if Spark's own dynamic overwrites append.

    With Hadoop's jars on the class path, Spark uses their protocol for every file system. On file
    systems without one of their committers, an overwrite then adds the new rows and leaves the old
    ones.
    """
    protocol = session.conf.get(COMMIT_PROTOCOL_KEY, None)
    application = session.conf.get("spark.app.id", None)
    at_start = session.conf.get(f"spark.hadoop.{REJECT_KEY}", None)
    rejects = (session.conf.get(REJECT_KEY, at_start) or "").lower() == "true"
    if protocol != PATH_PROTOCOL or rejects or application in _warned:
        return
    _warned.add(application)
    jar = _jar_of(session, PATH_PROTOCOL)
    if jar is None or _appends(jar):
        _warn(f"This session's {COMMIT_PROTOCOL_KEY} is {PATH_PROTOCOL} ({jar or 'of some jar'})")


def warn_of_jars(home: Path | None, conf: Mapping[str, Any]) -> None:
    """Warn of overwrites that append before an application is submitted, if its jars show this.

    :param home: the folder of the Spark that is started; ``None``: not known.
    :param conf: its settings, including those of jars and packages.
    """
    version = None if home is None else spark_version(home)
    magic = f"spark.hadoop.{MAGIC_KEY}"
    told = (COMMIT_PROTOCOL_KEY, f"spark.hadoop.{REJECT_KEY}", magic)
    if any(key in conf for key in told) or (version and numbers(version)[:2] < _CHOOSES):
        return
    there = [] if home is None else [jar.name for jar in home.glob("jars/*.jar")]
    named = " ".join([*there, *(str(conf.get(key) or "") for key in _JARS)])
    cloud = _CLOUD_MODULE.search(named)
    if cloud is not None and "hadoop-aws" in named and _appends(named):
        _warn(f"With {cloud[0]} on its class path Spark makes {PATH_PROTOCOL} its protocol")


def _appends(jars: str) -> bool:
    """Return whether some jars contain a version of Spark's module whose overwrites append."""
    found = _CLOUD_MODULE.search(jars)
    return found is not None and numbers(found[1])[:2] < _REPLACES


def _warn(found: str) -> None:
    logger.warning(
        "%s. A dynamic partition overwrite of Spark's own (spark.sql.sources.partitionOverwriteMode"
        "=dynamic), to a local disk or HDFS too, then keeps the old rows beside the new ones "
        "(SPARK-56588). save() is not concerned. Start Spark with spark.hadoop.%s=false where it "
        "writes by none of Hadoop's committers; with spark.hadoop.%s=true such an overwrite fails.",
        found,
        MAGIC_KEY,
        REJECT_KEY,
    )


def _jar_of(session: SparkSession, name: str) -> str | None:
    """Return the jar that a class comes from; ``None`` if that cannot be seen."""
    java: Any = session
    if getattr(java, "_jsparkSession", None) is None:
        return None
    try:
        classes = java_class(java._jvm, "org.apache.spark.util.Utils")
        found = classes.classForName(name, False, False)
        place = found.getProtectionDomain().getCodeSource().getLocation().toString()
    except Exception as error:  # By py4j: a platform may let Python call few Java classes.
        logger.debug("where %s comes from cannot be seen: %s", name, error)
        return None
    return place.rpartition("/")[2]


def _refuse_old_spark(name: str, version: str) -> None:
    if numbers(version)[:2] < MIN_SPARK:
        raise InvalidInputError(
            f"{name} is too old: this package needs {_text(MIN_SPARK)} (tested: {_TESTED}); "
            "nothing was started, read or written.",
            remedy=SPARK_REMEDY,
        )


def _refuse_two_versions(home: Path | None) -> None:
    """Refuse a folder with pyspark's jars and the Python files of another pyspark-client version.

    pip installs both to the same folder. Under spark-submit, the Python files are those of Spark's
    own archive.
    """
    found = versions_in(home) if home is not None else None
    if found is not None and numbers(found[0]) != numbers(found[1]):
        python, jars = found
        raise InvalidInputError(
            f"The PySpark in {home} has Python files of version {python} and jars of {jars}: "
            "pyspark and pyspark-client, which Airflow's apache-spark provider asks for, share "
            "that folder. Nothing was read or written.",
            remedy="Run the script by spark-submit, which takes the files that belong to the "
            f"jars; or pip install 'pyspark[sql]=={python}' 'pyspark-client=={python}'.",
        )


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _version(package: str, wanted: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
    try:
        # On a cluster PySpark comes by PYTHONPATH, without a distribution.
        return __import__(package).__version__
    except ImportError as error:
        raise InvalidInputError(
            f"{sys.executable} has no {package}; nothing was read or written.",
            remedy=f"pip install '{package}>={wanted}' there, or set PYSPARK_PYTHON to a Python "
            "that has it.",
        ) from error


def check_java(environ: Mapping[str, str] = os.environ, spark: str | None = None) -> str:
    """Check that there is a Java that Spark runs on. Returns its version.

    :param spark: the version of that Spark; ``None`` for the newest.
    :raises InvalidInputError: none, or too old.
    """
    java = java_command(environ)
    found = java_version(java)
    oldest = min_java(spark)
    # Java 8 calls itself 1.8.
    if numbers(found.removeprefix("1."))[0] < oldest:
        raise InvalidInputError(
            f"{java} is Java {found}, and Spark {spark or 4} needs {oldest} or later; nothing was "
            "started.",
            remedy=JAVA_REMEDY,
        )
    return found


def _is_this_python(path: str) -> bool:
    """Return whether a path is this interpreter, under any of its names, or a script for it."""
    if is_worker_python(path):
        return True
    here = os.path.abspath(sys.executable)
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(here)
    return same_folder and os.path.realpath(path) == os.path.realpath(here)


def missing_packages(python: str, packages: Sequence[str], remedy: str) -> list[str]:
    """Return the packages that an interpreter cannot import.

    :param remedy: for the error.
    :raises InvalidInputError: the interpreter does not run.
    """
    answer = _run_python(python, _MISSING, *packages, environ=os.environ, remedy=remedy)
    if answer.returncode != 0:
        raise _does_not_run(python, f"exit {answer.returncode}", remedy)
    return answer.stdout.split()


def _run_python(
    python: str, program: str, *words: str, environ: Mapping[str, str], remedy: str
) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", program, *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=dict(environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _does_not_run(python, type(error).__name__, remedy) from error


def _does_not_run(python: str, cause: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(
        f"The workers' Python {python} does not run ({cause}); nothing was started.", remedy=remedy
    )


def check_worker_python(environ: Mapping[str, str] = os.environ) -> None:
    """Check that Spark's workers on this machine have this package and this Python version.

    :raises InvalidInputError: their Python is not found, has another version, or lacks a package.
    """
    named = environ.get("PYSPARK_PYTHON") or "python3"
    found = shutil.which(named, path=environ.get("PATH"))
    source = "PYSPARK_PYTHON" if environ.get("PYSPARK_PYTHON") else "PYSPARK_PYTHON is not set, so"
    remedy = f"Set PYSPARK_PYTHON={sys.executable} before Spark starts (spark.pyspark.python does "
    remedy += "not reach data sources), and install this package for the executors' Python too."
    if found is None:
        raise InvalidInputError(
            f"{source} names the workers' Python {named!r}, which does not exist.", remedy=remedy
        )
    if _is_this_python(found):
        return
    answer = _run_python(found, _PROBE, environ=environ, remedy=remedy)
    if answer.returncode != 0:
        said = (answer.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise InvalidInputError(
            f"Spark's workers would run {found} ({source} {named}), which lacks what this package "
            f"needs: {said}.",
            remedy=remedy,
        )
    python, spark = json.loads(answer.stdout.strip().splitlines()[-1])
    if tuple(python) != sys.version_info[:2] or spark != _version("pyspark", _TESTED):
        raise InvalidInputError(
            f"Spark's workers would run {found} with Python {'.'.join(map(str, python))} and "
            f"PySpark {spark}, other versions than this process's.",
            remedy=remedy,
        )
