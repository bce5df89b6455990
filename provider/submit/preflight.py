"""How spark-submit is started: its environment, and what can be known to be missing before.

Spark itself reports these late and badly: a missing Java as a shell error, an interpreter
without the package as ``DATA_SOURCE_NOT_FOUND``, ``venv/bin/spark-submit`` started by path as
``Could not find valid SPARK_HOME``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ...committer.errors import InvalidInputError

_MIN_SPARK = (4, 0)
_MIN_JAVA = 17


def find_spark(environ: Mapping[str, str], binary: str = "spark-submit") -> dict[str, str]:
    """The variables that make ``binary`` be found, on top of ``environ``.

    A Spark that the environment names (``SPARK_HOME``, or another spark-submit on PATH) is
    left alone. Else it is that of this interpreter's ``pyspark``: its folder of scripts comes
    first on PATH, and SPARK_HOME is set, without which the script does not find its Spark.

    :raises InvalidInputError: there is no Spark, no Java for it, or one of the two is too old.
    """
    scripts = Path(sys.executable).parent
    found = shutil.which(binary, path=environ.get("PATH", os.defpath))
    if environ.get("SPARK_HOME"):
        home = Path(environ["SPARK_HOME"])
        added = {} if found else {"PATH": _first(home / "bin", environ)}
    elif found and Path(found).parent != scripts:
        return {}
    else:
        home = _pyspark_home()
        added = {"SPARK_HOME": str(home), "PATH": _first(scripts, environ)}
    path = {**environ, **added}.get("PATH", os.defpath)
    if shutil.which(binary, path=path) is None:
        raise InvalidInputError(
            f"There is no {binary}: neither on PATH nor in SPARK_HOME; nothing was submitted.",
            remedy="Install Spark 4 (pip install 'pyspark>=4') into the worker's environment, or "
            "put its bin folder on PATH.",
        )
    _check_spark(home)
    _check_java(environ)
    return added


def choose_python(environ: Mapping[str, str], conf: Mapping[str, object]) -> dict[str, str]:
    """The variables that make Spark's Python workers run this interpreter.

    Spark looks data sources up under ``PYSPARK_PYTHON``, else ``python3`` on PATH, which in a
    virtual environment that is not activated is another one. A choice made in the environment
    or by ``spark.pyspark.python`` is left alone.
    """
    if environ.get("PYSPARK_PYTHON") or "spark.pyspark.python" in conf:
        return {}
    return {"PYSPARK_PYTHON": sys.executable}


def check_python(interpreter: str, shipped: bool) -> None:
    """See that a Python worker on this host can import what the writer needs.

    :param shipped: the package itself comes by ``--py-files``.
    :raises InvalidInputError: the interpreter does not run, or lacks a package.
    """
    if interpreter == sys.executable:
        return
    needed = ["boto3", "pyarrow", "pyspark"] + ([] if shipped else ["zero_rename"])
    program = (
        "import importlib.util as u, sys; "
        "print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
    )
    try:
        answer = subprocess.run(
            [interpreter, "-c", program, *needed],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidInputError(
            f"PYSPARK_PYTHON={interpreter} does not run ({type(error).__name__}); nothing was "
            "submitted.",
            remedy=f"Unset it to use {sys.executable}, or name a Python that exists.",
        ) from error
    # Under spark-submit pyspark comes from SPARK_HOME, installed or not.
    missing = [name for name in answer.stdout.split() if name != "pyspark"]
    if missing:
        raise InvalidInputError(
            f"PYSPARK_PYTHON={interpreter} lacks {', '.join(missing)}; Spark would only say "
            "DATA_SOURCE_NOT_FOUND. Nothing was submitted.",
            remedy=f"Install there: {interpreter} -m pip install boto3 pyarrow"
            + ("." if shipped else " airflow-provider-zero-rename."),
        )


def _pyspark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InvalidInputError(
            "There is no spark-submit on PATH, and pyspark is not installed; nothing was "
            "submitted.",
            remedy="Install Spark 4 into the worker's environment: pip install 'pyspark>=4'.",
        )
    return Path(spec.origin).parent


def _first(folder: Path, environ: Mapping[str, str]) -> str:
    rest = environ.get("PATH", os.defpath)
    return str(folder) if not rest else f"{folder}{os.pathsep}{rest}"


def _check_spark(home: Path) -> None:
    """A pip-installed Spark has no RELEASE file, and a distribution no metadata."""
    release = home / "RELEASE"
    if release.is_file():
        named = re.search(r"Spark (\d+)\.(\d+)", release.read_text("utf-8", "replace"))
        version = (int(named[1]), int(named[2])) if named else None
    elif home == _spec_home():
        parts = importlib.metadata.version("pyspark").split(".")
        version = (int(parts[0]), int(re.sub(r"\D.*", "", parts[1]) or 0))
    else:
        version = None
    if version is not None and version < _MIN_SPARK:
        raise InvalidInputError(
            f"Spark {version[0]}.{version[1]} in {home} has no Python data sources that write "
            "Arrow; nothing was submitted.",
            remedy="Use Spark 4.0 or later: pip install 'pyspark>=4'.",
        )


def _spec_home() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _check_java(environ: Mapping[str, str]) -> None:
    remedy = (
        "Install a Java 17 or later on the worker (Debian: apt-get install "
        "openjdk-17-jre-headless), or point JAVA_HOME at one."
    )
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH", os.defpath))
    if java is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on PATH"
        raise InvalidInputError(
            f"Spark needs Java, and {where}; nothing was submitted.", remedy=remedy
        )
    release = Path(java).resolve().parent.parent / "release"
    if not release.is_file():
        return
    named = re.search(r'^JAVA_VERSION="(\d+)', release.read_text("utf-8"), re.MULTILINE)
    if named and int(named[1]) < _MIN_JAVA:
        raise InvalidInputError(
            f"Spark 4 needs Java {_MIN_JAVA}, and {java} is Java {named[1]}; nothing was "
            "submitted.",
            remedy=remedy,
        )
