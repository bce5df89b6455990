"""The hosts of a run: with which Python, on which path, with which variables; and their ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torture.servers import Store

from bench import lake_peers
from bench.processes import Host, HostError
from bench.store import MODULES
from support.hadoop_committers import environment, static_settings
from support.spark import SETTINGS
from tools import fetch_lake_jars, fetch_s3a_jars
from tools.bootstrap import SetupError
from tools.environments import BENCH_PEERS, OLDER_SPARK, SPARK_4_1, PinnedEnvironment
from tools.maven_jars import FetchError

#: Seconds for a JVM on a busy machine.
_START = 180.0
#: Hosts with another Spark than the checkout's, and what their peers need besides.
OTHER_SPARKS: dict[str, tuple[PinnedEnvironment, Callable[[], tuple[Path, ...]] | None]] = {
    "spark-4.1": (SPARK_4_1, fetch_lake_jars.fetch_both),
    "spark-3.5": (OLDER_SPARK, None),
}


class HostProcesses:
    """One warm host of each kind, started when it is first asked for; entered, ends them.

    :param store: as the hosts reach it.
    :param folder: for their logs.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._catalog = tempfile.TemporaryDirectory(prefix="zero-rename-bench-")
        self._warm: dict[str, Host] = {}
        self._broken: dict[str, HostError] = {}

    def __enter__(self) -> HostProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._warm.values():
            host.end()
        self._catalog.cleanup()

    def get(self, kind: str) -> Host:
        """The warm host; a new one where the last one ended.

        :raises HostError: it does not start; tried once.
        """
        if kind in self._broken:
            raise self._broken[kind]
        if kind not in self._warm or not self._warm[kind].alive:
            try:
                self._warm[kind] = self.start(kind)
            except HostError as error:
                self._broken[kind] = error
                raise
        return self._warm[kind]

    def warm(self, kinds: Iterable[str]) -> None:
        """Start hosts before the clock runs; one that does not start is told by its peers."""
        for kind in kinds:
            with contextlib.suppress(HostError):
                self.get(kind)

    def start(self, kind: str) -> Host:
        """A host of its own.

        :raises HostError: it does not start, or its packages are not to be had.
        """
        python, variables = self._variables(kind)
        command = [python, "-m", "bench.host", kind]
        return Host(command, variables, self._folder / f"{kind}.log", _START)

    def _variables(self, kind: str) -> tuple[str, Mapping[str, str]]:
        variables = {**environment(self._store), "ZERO_RENAME_LOG_LEVEL": "WARNING"}
        # rclone comes with the peers, where it is not there.
        variables["PATH"] += f":{BENCH_PEERS.python.parent}"
        if kind == "arrow":
            try:
                BENCH_PEERS.ensure()
            except (SetupError, subprocess.SubprocessError, OSError) as error:
                raise HostError(f"not installed: {error}") from error
            catalog = f"sqlite:///{self._catalog.name}/catalog.db"
            given = {"PYTHONPATH": MODULES, "CATALOG": catalog}
            return str(BENCH_PEERS.python), variables | given
        if kind in OTHER_SPARKS:
            return self._other_spark(kind, variables)
        if kind == "spark":
            variables["SPARK_SETTINGS"] = json.dumps(self._s3a())
        return sys.executable, variables | {"PYTHONPATH": MODULES}

    def _other_spark(
        self, kind: str, variables: Mapping[str, str]
    ) -> tuple[str, Mapping[str, str]]:
        """:raises HostError: that Spark, or what its peers need, is not to be had."""
        import zero_rename

        spark, fetch = OTHER_SPARKS[kind]
        settings: Mapping[str, str] = {}
        try:
            spark.ensure()
            if fetch is not None:
                folder = Path(self._catalog.name)
                settings = lake_peers.settings(self._store, fetch(), folder)
        except (SetupError, FetchError, subprocess.SubprocessError, OSError) as error:
            raise HostError(f"not installed: {error}") from error
        python = str(spark.python)
        package = str(Path(str(zero_rename.__file__)).parents[1])
        own = {
            "PYTHONPATH": os.pathsep.join((MODULES, package)),
            "PYSPARK_PYTHON": python,
            "SPARK_SETTINGS": json.dumps({**SETTINGS, **settings}),
        }
        return python, {**variables, **own}

    def _s3a(self) -> Mapping[str, str]:
        """Settings with Hadoop's jars; where they are not to be had, their peers' rows say so."""
        try:
            jars = fetch_s3a_jars.jar_folder().fetch()
        except FetchError as error:
            print(f"bench: without Hadoop's committers: {error}", file=sys.stderr)
            jars = ()
        return static_settings(self._store, jars, self._folder)
