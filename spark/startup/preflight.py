"""Checks of Java, Spark and the workers' Python, each with the remedy Spark does not name.

Spark itself says ``JAVA_GATEWAY_EXITED`` where there is no Java, and ``DATA_SOURCE_NOT_FOUND``
where the Python of its workers lacks this package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata

from ...committer.errors import InvalidInputError
from .launch import java_command, java_version
from .launch import worker_python as worker_python_script

_MIN_JAVA = 17
#: Python data sources came with Spark 4.0, filter push-down for them with 4.1.
_MIN_SPARK = (4, 1)
_MIN_PYARROW = 18
_PROBE = (
    "import json, sys; import pyspark; import boto3, pyarrow; import zero_rename.spark.data_source;"
    "print(json.dumps([list(sys.version_info[:2]), pyspark.__version__]))"
)


def check_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Check what a Spark application with this package needs, before it is started.

    For scripts, and for operators that submit them: takes about two seconds, most of it for
    starting the workers' Python.

    :param environ: the environment Spark will be started with.
    :raises InvalidInputError: one paragraph with the remedy.
    """
    check_versions()
    check_java(environ)
    check_worker_python(environ)


def check_versions() -> None:
    """Check the versions of PySpark and pyarrow in this interpreter.

    :raises InvalidInputError: one is missing or too old.
    """
    spark = _version("pyspark", "4.3")
    if _numbers(spark)[:2] < _MIN_SPARK:
        wanted = ".".join(map(str, _MIN_SPARK))
        raise InvalidInputError(
            f"PySpark {spark} is too old: Python data sources as this package uses them came with "
            f"{wanted} (tested: 4.3); nothing was read or written.",
            remedy=f"pip install 'pyspark>={wanted}'. On an older cluster, use the S3A committers.",
        )
    arrow = _version("pyarrow", str(_MIN_PYARROW))
    if _numbers(arrow)[0] < _MIN_PYARROW:
        raise InvalidInputError(
            f"pyarrow {arrow} is too old; nothing was read or written.",
            remedy=f"pip install 'pyarrow>={_MIN_PYARROW}'.",
        )


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


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3]) or (0,)


def check_java(environ: Mapping[str, str] = os.environ) -> str:
    """Check that there is a Java that Spark runs on. Returns its version.

    :raises InvalidInputError: none, or too old.
    """
    java = java_command(environ)
    found = java_version(java)
    if _numbers(found)[0] < _MIN_JAVA:
        raise InvalidInputError(
            f"{java} is Java {found}, and Spark 4 needs {_MIN_JAVA} or later; nothing was started.",
            remedy=f"Install Java {_MIN_JAVA} or point JAVA_HOME at one.",
        )
    return found


def _is_this_python(path: str) -> bool:
    """Whether a path is this interpreter under any of its names, or starts it."""
    if path == worker_python_script():
        return True
    here = os.path.abspath(sys.executable)
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(here)
    return same_folder and os.path.realpath(path) == os.path.realpath(here)


def check_worker_python(environ: Mapping[str, str] = os.environ) -> None:
    """Check that Spark's workers on this machine have this package and this Python version.

    :raises InvalidInputError: not found, another version, or something is missing there.
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
    try:
        answer = subprocess.run(
            [found, "-c", _PROBE], capture_output=True, text=True, timeout=60, env=dict(environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInputError(
            f"The workers' Python {found} does not run ({type(error).__name__}).", remedy=remedy
        ) from error
    if answer.returncode != 0:
        said = (answer.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise InvalidInputError(
            f"Spark's workers would run {found} ({source} {named}), which lacks what this package "
            f"needs: {said}.",
            remedy=remedy,
        )
    python, spark = json.loads(answer.stdout.strip().splitlines()[-1])
    if tuple(python) != sys.version_info[:2] or spark != _version("pyspark", "4.3"):
        raise InvalidInputError(
            f"Spark's workers would run {found} with Python {'.'.join(map(str, python))} and "
            f"PySpark {spark}, other versions than this process's.",
            remedy=remedy,
        )
