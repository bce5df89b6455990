"""Quick start of Spark for small jobs: JVM flags, a class archive, and a quick Python.

A cold PySpark process with one small write spends its time on the start, not on the write:

* The JVM loads and verifies Spark's classes and compiles them with optimisation. Neither pays off
  in a job of a few seconds. ``-XX:TieredStopAtLevel=1`` stops at the quick compiler,
  ``-XX:+UseSerialGC`` saves the collector's threads, and a class data archive (JEP 350,
  ``-XX:SharedArchiveFile``) holds the classes parsed and verified.
  ``python -m zero_rename.spark.startup.class_archive`` makes it; :func:`jvm_options` uses it.
* About sixteen Python processes, for one write and one read, compile PySpark: Spark puts
  ``pyspark.zip`` first on their path, and Python keeps no compiled modules of a zip. If PySpark
  is installed for the workers' Python, they do not need the zip: :func:`worker_python`.

The archive fits only the JVM, Spark and class path that it was made with: its file name contains
all three. The JVM ignores an archive that does not fit, without an error.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from .installation import java_command, java_version, pyspark_home, spark_home

logger = logging.getLogger("zero_rename.spark.startup.launch")
#: Flags for jobs of seconds. Long jobs are faster with the JVM's own choice.
SMALL_JOB_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache folder for this package, without creating it."""
    if environ.get("XDG_CACHE_HOME"):
        base = Path(environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "zero-rename"


def archive_path() -> Path:
    """Return the path of the class archive for this Java and this Spark. It may not exist yet."""
    import pyspark

    java, home = java_command(), spark_home()
    names = sorted(jar.name for jar in (home / "jars").glob("*.jar"))
    place = "\n".join((str(java.resolve()), str(home.resolve()), *SMALL_JOB_FLAGS, *names))
    digest = hashlib.sha256(place.encode()).hexdigest()[:12]
    name = f"java-{java_version(java)}-spark-{pyspark.__version__}-{digest}.jsa"
    return cache_dir() / "class-archives" / name


def jvm_options(archive: bool = True) -> str:
    """Return JVM flags for small jobs, for ``spark.driver.extraJavaOptions``.

    That setting is read when the JVM starts: give it to the session's builder before the first
    session of the process, to ``spark-submit --conf``, or in a properties file.

    :param archive: use the class archive if it has been made.
    :raises InvalidInputError: there is no Java.
    """
    flags = archive_flags(archive_path()) if archive else ()
    return " ".join((*SMALL_JOB_FLAGS, *flags))


def archive_flags(path: Path) -> tuple[str, ...]:
    """Return the JVM flags that use a class archive; empty if the archive does not exist."""
    try:
        is_there = path.is_file()
    except OSError:  # A folder of another user.
        is_there = False
    if not is_there:
        return ()
    return (java_option(f"-XX:SharedArchiveFile={path}"), "-Xshare:auto", *_QUIET.split())


def java_option(option: str) -> str:
    """Write an option of the JVM as a part of Spark's settings, which splits them at blanks."""
    return f'"{option}"' if re.search(r"\s", option) else option


_WRAPPER = """#!/bin/sh
# Starts Spark's Python workers without pyspark.zip on their path: PySpark is installed.
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        {lib}/pyspark.zip | {lib}/py4j-*.zip) ;;
        *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def worker_python() -> str:
    """Return a Python for ``PYSPARK_PYTHON`` whose workers start quickly.

    It is a small script in the user's cache folder that removes ``pyspark.zip`` from the workers'
    path and starts this interpreter. It is the interpreter itself if that folder cannot be written,
    or if Spark is not this interpreter's own installed PySpark. Workers start faster only if
    PySpark's modules are compiled: pip does that when it installs, ``uv pip install`` with
    ``--compile-bytecode``, and Python when it first imports them.
    """
    script = _worker_script()
    if script is None:
        return sys.executable
    text, path = script
    try:
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{os.getpid()}")
            part.write_text(text, "utf-8")
            part.chmod(0o755)
            part.replace(path)
    except OSError as error:
        logger.info("workers start without the script %s, and slower: %s", path, error)
        return sys.executable
    return str(path)


def is_worker_python(path: str) -> bool:
    """Return whether a path is that of :func:`worker_python`, without writing the script."""
    script = _worker_script()
    return path == (sys.executable if script is None else str(script[1]))


def _worker_script() -> tuple[str, Path] | None:
    """Return the script of :func:`worker_python` and its path; ``None``: it is not needed."""
    home = pyspark_home()
    if os.name != "posix" or home is None or spark_home().resolve() != home.resolve():
        return None
    lib = shlex.quote(str(spark_home() / "python" / "lib"))
    text = _WRAPPER.format(lib=lib, python=shlex.quote(sys.executable))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return text, cache_dir() / "workers" / f"python-{digest}"
