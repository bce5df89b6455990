"""One Spark session for all tests that need one, and short programs with a session of their own.

A plugin of ``tests/conftest.py``: a fixture that two folders import is two fixtures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.moto_server import S3Server
from support.preloaded_daemon import preloading_python
from support.waiting import STUCK
from zero_rename.spark.startup.launch import jvm_options, worker_python
from zero_rename.spark.worker import application_of

#: Settings of every session in tests: nothing but loopback, nothing to clean up.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.log.level": "ERROR",
    # PySpark would ask the JVM ten times for each function of a column, to name its line in errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark takes the host of a lost shuffle file for lost. A local executor is its driver's only
    # one and cannot come back: it would end the JVM after 60 heartbeats, ten minutes later.
    "spark.executor.heartbeat.maxFailures": "1000000",
}

#: Java code made for each plan is for many rows, and to compile it took a sixth of the CPU of tests
#: in shared sessions. Programs with sessions of their own mostly have it.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Of a JVM with many tests: room for what each of them leaves to be collected, a tenth of its CPU.
ROOMY = "-Xmn600m -XX:MetaspaceSize=256m"
#: As users have it.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def settings(folder: Path) -> dict[str, str]:
    """:data:`SETTINGS`, and those that depend on the machine.

    :param folder: for whatever Spark writes.
    """
    return SETTINGS | {
        _JAVA_OPTIONS: jvm_options() + f" -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }


def shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a session that many tests share."""
    return {**given, **INTERPRETED, _JAVA_OPTIONS: f"{given[_JAVA_OPTIONS]} {ROOMY}"}


@cache
def remember_names() -> None:
    """Ask the JVM once for each package and class by its name.

    It looks for a package's name as a class in some 300 jars, behind each package that PySpark
    imports: a thirteenth of what tests of merges take in the JVM.
    """
    from py4j.java_gateway import JavaPackage, JVMView

    kinds: tuple[Any, ...] = (JVMView, JavaPackage)
    for kind in kinds:
        kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def getattr_once(self: Any, name: str) -> Any:
        found = self.__dict__[name] = ask(self, name)
        return found

    return getattr_once


def end_of_sessions() -> None:
    """End the process's Spark and its JVM, where it has one, so that another can be started.

    Not a matter of settings: the jars and the variables of a JVM are those that it began with.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    if SparkContext._active_spark_context is not None:
        SparkSession.builder.getOrCreate().stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # what the JVM waits for
    gateway.proc.wait(STUCK)
    SparkContext._gateway = SparkContext._jvm = None


def environment(server: S3Server) -> dict[str, str]:
    """Variables for a process that starts Spark against the server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return (
        kept
        | server.environment
        | {
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "PYSPARK_PYTHON": worker_python(),
            # Compiled modules are what makes the many short Python processes quick.
            "PYTHONDONTWRITEBYTECODE": "",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    )


@pytest.fixture(scope="session")
def spark(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on ``local[2,3]`` (two tasks at once, three attempts each), registered.

    What ran on Hadoop's own committers in this process comes before: see :mod:`.shares`.
    """
    from pyspark.sql import SparkSession

    from zero_rename.spark import register

    end_of_sessions()
    remember_names()
    folder = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    os.environ.update(environment(s3_server))
    os.environ["PYSPARK_PYTHON"] = preloading_python(os.environ["PYSPARK_PYTHON"], folder)
    try:
        # The JVM and all its workers keep the environment of this moment.
        builder = SparkSession.builder.master("local[2,3]").appName("tests")
        session = builder.config(map=shared(settings(folder))).getOrCreate()
    finally:
        os.environ.clear()
        os.environ.update(before)
    register(session)
    yield session
    end_of_sessions()


@pytest.fixture
def planned_once(spark: Any) -> Iterator[None]:
    """The shared session without adaptive execution, which plans and runs each shuffle of a few
    rows by itself: a fifth of a merge's CPU."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.fixture
def nothing_loaded(spark: Any) -> None:
    """The shared session as if it had loaded nothing: after a hundred tables it tells no inputs."""
    name = application_of(spark)
    assert name is not None
    notes = Path(tempfile.gettempdir(), f"zero-rename-reads-{os.getuid()}", name)
    shutil.rmtree(notes, ignore_errors=True)


def run_program(
    program: str,
    variables: Mapping[str, str],
    *arguments: str,
    python: str = sys.executable,
    folder: Path,
    timeout: float = STUCK,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with its folder as the working directory.

    The program finds ``session()`` in its builtins' place: a function that starts a session.
    """
    script = folder / "program.py"
    script.write_text(_PRELUDE.format(settings=settings(folder)) + program, "utf-8")
    return subprocess.run(
        [python, str(script), *arguments],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


_PRELUDE = """
from pyspark.sql import SparkSession

def session(master="local[2]"):
    return SparkSession.builder.master(master).config(map={settings!r}).getOrCreate()

"""
