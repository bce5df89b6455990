"""Environment of spark-submit, and checks for missing parts before it starts.

:mod:`~.spark.startup` checks Java, Spark and packages. This module chooses which spark-submit is
started and which Python its workers run. Spark itself reports what is missing late and badly: a
missing Java as a shell error, an interpreter without the package as ``DATA_SOURCE_NOT_FOUND``, and
``venv/bin/spark-submit`` started by path as ``Could not find valid SPARK_HOME``.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...committer.errors import InvalidInputError
from ...spark.startup.installation import SPARK_REMEDY, spark_home
from ...spark.startup.preflight import check_java, check_spark, missing_packages

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def find_spark(environ: Mapping[str, str], binary: str = "spark-submit") -> dict[str, str]:
    """Return the variables, on top of ``environ``, with which ``binary`` is found.

    A Spark that the environment names (``SPARK_HOME``, or another spark-submit on PATH) is used as
    it is. Otherwise Spark is that of this interpreter's ``pyspark``: its folder of scripts comes
    first on PATH, and SPARK_HOME is set, since the script does not find its Spark without it.

    :raises InvalidInputError: there is no Spark, no Java for it, or one of the two is too old.
    """
    scripts = Path(sys.executable).parent
    found = shutil.which(binary, path=environ.get("PATH", os.defpath))
    named = bool(environ.get("SPARK_HOME"))
    if not named and found and Path(found).parent != scripts:
        return {}
    home = spark_home(environ)
    if named and not (home / "bin" / "spark-submit").is_file():
        # Every spark-submit would start the one in SPARK_HOME, and end with the shell's 127.
        raise InvalidInputError(
            f"SPARK_HOME={home} holds no bin/spark-submit; nothing was submitted.",
            remedy=f"Unset it, or point it at a Spark's folder. {SPARK_REMEDY}",
        )
    if named:
        added = {} if found else {"PATH": _first(home / "bin", environ)}
    else:
        added = {"SPARK_HOME": str(home), "PATH": _first(scripts, environ)}
    path = {**environ, **added}.get("PATH", os.defpath)
    if shutil.which(binary, path=path) is None:
        raise InvalidInputError(
            f"There is no {binary}: neither on PATH nor in SPARK_HOME; nothing was submitted.",
            remedy=f"{SPARK_REMEDY} Or put the bin folder of one on PATH.",
        )
    check_java(environ, check_spark(home))
    return added


def submitting_home(environ: Mapping[str, str], binary: str = "spark-submit") -> Path:
    """Return the folder of the Spark that ``binary`` starts in an environment.

    It is ``$SPARK_HOME``, which the script prefers, or else the folder above the script's own.

    :raises InvalidInputError: there is no Spark.
    """
    found = shutil.which(binary, path=environ.get("PATH", os.defpath))
    if found and not environ.get("SPARK_HOME"):
        return Path(found).resolve().parent.parent
    return spark_home(environ)


def choose_python(environ: Mapping[str, str], conf: Mapping[str, object]) -> dict[str, str]:
    """Return the variables with which Spark's Python workers run this interpreter.

    Spark searches data sources with ``PYSPARK_PYTHON``, or else with ``python3`` on PATH. If a
    virtual environment is not activated, the latter is another interpreter. A choice in the
    environment or in ``spark.pyspark.python`` stays as it is.
    """
    if environ.get("PYSPARK_PYTHON") or "spark.pyspark.python" in conf:
        return {}
    return {"PYSPARK_PYTHON": sys.executable}


def check_python(interpreter: str, shipped: bool) -> None:
    """Check that a Python worker on this host can import the packages of the writer.

    :param shipped: this package itself comes by ``--py-files``.
    :raises InvalidInputError: the interpreter does not run, or lacks a package.
    """
    if interpreter == sys.executable:
        return
    # Under spark-submit, pyspark comes from SPARK_HOME, even if it is not installed.
    needed = ["boto3", "pyarrow"] + ([] if shipped else ["zero_rename"])
    remedy = f"Unset PYSPARK_PYTHON to use {sys.executable}, or name a Python that exists."
    missing = missing_packages(interpreter, needed, remedy)
    if missing:
        raise InvalidInputError(
            f"PYSPARK_PYTHON={interpreter} lacks {', '.join(missing)}; Spark would only say "
            "DATA_SOURCE_NOT_FOUND. Nothing was submitted.",
            remedy=f"Install there: {interpreter} -m pip install boto3 pyarrow"
            + ("." if shipped else " airflow-provider-zero-rename."),
        )


def _first(folder: Path, environ: Mapping[str, str]) -> str:
    rest = environ.get("PATH", os.defpath)
    return str(folder) if not rest else f"{folder}{os.pathsep}{rest}"


def check_files(**given: str | None) -> None:
    """Check that the files of spark-submit's arguments exist, if they are on this machine.

    A path without a scheme is on the machine that submits
    (``org.apache.spark.util.Utils.resolveURI``), for any master and deploy mode.

    :param given: by the operator's argument, paths separated by commas; a path may have a ``#name``
        or a wildcard.
    :raises InvalidInputError: a file is missing; the error names the first.
    """
    for argument, paths in given.items():
        for named in (paths or "").split(","):
            here = _on_this_machine(named.strip())
            if here is not None and not glob.glob(here) and not Path(here).exists():
                raise InvalidInputError(
                    f"The file {here} of {argument} does not exist on this worker; nothing was "
                    "submitted.",
                    remedy="Give a path that every worker has (relative ones begin at the "
                    "worker's own folder), or a URL such as s3a://bucket/job.py.",
                )


def _on_this_machine(named: str) -> str | None:
    """Return the file of a path on this machine; ``None`` for another place or an empty path."""
    if not named:
        return None
    if _SCHEME.match(named) is None:
        return named if Path(named).exists() else named.partition("#")[0]
    parts = urlsplit(named)
    return unquote(parts.path) if parts.scheme == "file" else None
