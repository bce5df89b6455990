"""Environment of spark-submit, and checks of what can be known to be missing before it starts.

Which Java, Spark and packages will do is Spark's side to say (:mod:`~.spark.startup`); what a
submitter adds is which spark-submit is started and which Python its workers run. Spark itself
reports these late and badly: a missing Java as a shell error, an interpreter without the package
as ``DATA_SOURCE_NOT_FOUND``, ``venv/bin/spark-submit`` started by path as ``Could not find valid
SPARK_HOME``.
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
    """The variables that make ``binary`` be found, on top of ``environ``.

    A Spark that the environment names (``SPARK_HOME``, or another spark-submit on PATH) is
    left alone. Else it is that of this interpreter's ``pyspark``: its folder of scripts comes
    first on PATH, and SPARK_HOME is set, without which the script does not find its Spark.

    :raises InvalidInputError: there is no Spark, no Java for it, or one of the two is too old.
    """
    scripts = Path(sys.executable).parent
    found = shutil.which(binary, path=environ.get("PATH", os.defpath))
    named = bool(environ.get("SPARK_HOME"))
    if not named and found and Path(found).parent != scripts:
        return {}
    home = spark_home(environ)
    if named and not (home / "bin" / "spark-submit").is_file():
        # Every spark-submit would start this one, and end with the shell's 127.
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
    """The folder of the Spark whose ``binary`` is started in an environment: ``$SPARK_HOME``, which
    its script prefers, else the folder that holds the script's own.

    :raises InvalidInputError: there is no Spark.
    """
    found = shutil.which(binary, path=environ.get("PATH", os.defpath))
    if found and not environ.get("SPARK_HOME"):
        return Path(found).resolve().parent.parent
    return spark_home(environ)


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
    # Under spark-submit pyspark comes from SPARK_HOME, installed or not.
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
    """See that the files of spark-submit's arguments exist, as far as this machine can know.

    A path without a scheme is one of the machine that submits
    (``org.apache.spark.util.Utils.resolveURI``), whatever the master and the deploy mode.

    :param given: by the operator's argument, paths separated by commas, each perhaps with a
        ``#name`` or a wildcard.
    :raises InvalidInputError: names the first that is missing.
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
    """A path's file on this machine; ``None`` where it is elsewhere, or no path at all."""
    if not named:
        return None
    if _SCHEME.match(named) is None:
        return named if Path(named).exists() else named.partition("#")[0]
    parts = urlsplit(named)
    return unquote(parts.path) if parts.scheme == "file" else None
