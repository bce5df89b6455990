"""Environments of their own for tests, in the user's cache folder, with what lock files pin.

``python tools/environments.py older-spark`` makes one, once for each Python and each set of
versions (``tools/locks``); what is not finished leaves none. ``--python`` prints which its Python
is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import SetupError, cache_dir, install_entries, lock_entries, run, take_entry

_TOOLS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class PinnedEnvironment:
    """An environment, made or not yet.

    :param title: the first word of its folder, ``spark``.
    :param package: the pinned package whose version is in the folder's name.
    :param lock: a requirements file in which every package has its version and hashes.
    :param finish: called with the folder of a new environment, before it gets its place.
    """

    title: str
    package: str
    lock: Path
    finish: Callable[[Path], None] | None = None

    @property
    def python(self) -> Path:
        """Its Python, or where that would be."""
        digest = hashlib.sha256(sys.version.encode() + self.lock.read_bytes()).hexdigest()[:8]
        return cache_dir() / f"{self.title}-{self.version}-{digest}" / "bin" / "python"

    @property
    def site(self) -> Path:
        """The folder with its packages."""
        folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.python.parents[1] / "lib" / folder / "site-packages"

    @property
    def version(self) -> str:
        """Of the package, ``3.5.9``."""
        pinned = take_entry(lock_entries(self.lock), self.package).split()[0]
        return pinned.removeprefix(f"{self.package}==")

    def ensure(self) -> None:
        """Install what the lock file pins, where that has not been done.

        :raises SetupError: a package cannot be had, or not be installed.
        """
        if self.python.exists():
            return
        folder = self.python.parents[1]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{self.title}-") as made:
            uv = [sys.executable, "-m", "uv"]
            new = Path(made, "env")
            run([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(new)])
            install = [*uv, "pip", "install", "--quiet", "--python", str(new / "bin" / "python")]
            install_entries(install, lock_entries(self.lock), Path(sys.executable))
            if self.finish is not None:
                self.finish(new)
            shutil.move(new, folder)


def _lock(name: str) -> Path:
    return _TOOLS / "locks" / f"{name}.lock"


def _compile_pyspark(folder: Path) -> None:
    run([str(folder / "bin" / "python"), str(_TOOLS / "compile_pyspark.py")])


def _migrate(folder: Path) -> None:
    ours = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "PYTHON"))}
    ours |= {"AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run([str(folder / "bin" / "python"), "-m", "airflow", "db", "migrate"], env=ours)


#: The oldest Spark that ``save()`` runs on, 700 MB.
OLDER_SPARK = PinnedEnvironment("spark", "pyspark", _lock("older-spark"), _compile_pyspark)
#: The Sparks between the oldest and the newest, 700 MB each.
SPARK_4_0 = PinnedEnvironment("spark", "pyspark", _lock("spark-4.0"), _compile_pyspark)
SPARK_4_1 = PinnedEnvironment("spark", "pyspark", _lock("spark-4.1"), _compile_pyspark)
#: The oldest Airflow that the provider runs on, with a migrated database to copy, 600 MB.
OLDER_AIRFLOW = PinnedEnvironment("airflow", "apache-airflow", _lock("older-airflow"), _migrate)
#: Packages of the extras kubernetes, databricks and openlineage, 93 MB, which tests of them put on
#: their path beside the environment of the checkout. They are not in that one: the apache-spark and
#: amazon providers import what is there of them, more than a second in each process that loads a
#: DAG.
OPTIONAL_PROVIDERS = PinnedEnvironment(
    "providers", "apache-airflow-providers-cncf-kubernetes", _lock("optional-providers")
)
#: Dagster's page, daemon and ``dg``, 140 MB. They pin protobuf and graphql-core to older versions
#: than Airflow has.
DAGSTER_WEB = PinnedEnvironment("dagster-web", "dagster-webserver", _lock("dagster-web"))
#: Whom ``make bench`` measures beside this package, without Spark, 700 MB: they want an older
#: pyarrow than it.
BENCH_PEERS = PinnedEnvironment("bench-peers", "deltalake", _lock("bench-peers"))
#: Engines that read and write Delta tables, 600 MB: DuckDB's extension for Delta is for an older
#: DuckDB than the tests have.
LAKE_READERS = PinnedEnvironment("lake-readers", "deltalake", _lock("lake-readers"))

ENVIRONMENTS = {
    it.lock.stem: it
    for it in (
        *(OLDER_SPARK, SPARK_4_0, SPARK_4_1, OLDER_AIRFLOW, OPTIONAL_PROVIDERS, DAGSTER_WEB),
        *(BENCH_PEERS, LAKE_READERS),
    )
}


def migrated_database() -> Path:
    """An SQLite database as the oldest Airflow makes it: made once, since it takes ten seconds."""
    return OLDER_AIRFLOW.python.parents[1] / "home" / "airflow.db"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(ENVIRONMENTS), metavar="NAME")
    parser.add_argument("--python", action="store_true", help="print its Python, and no more")
    options = parser.parse_args(arguments)
    for name in options.names:
        environment = ENVIRONMENTS[name]
        if options.python:
            print(environment.python)
            continue
        try:
            environment.ensure()
        except (SetupError, subprocess.SubprocessError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
