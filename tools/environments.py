"""Environments of their own for tests, in the user's cache folder.

``python tools/environments.py older-spark`` makes one, once for each Python and each set of
versions (``tools/locks``); ``--python`` prints which its Python is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import SetupError, run
from tools.pinned_environment import PinnedEnvironment

_TOOLS = Path(__file__).resolve().parent


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

ENVIRONMENTS = {
    it.lock.stem: it
    for it in (
        *(OLDER_SPARK, SPARK_4_0, SPARK_4_1, OLDER_AIRFLOW, OPTIONAL_PROVIDERS, DAGSTER_WEB),
        BENCH_PEERS,
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
