"""Parse time of a DAG file with this package's operators, beside one of stock operators.

Each file is parsed by Airflow's ``DagBag`` in processes of its own, in turns, after a warm-up;
what is printed are medians and their ratio::

    .venv/bin/python benchmarks/dag_parse_time.py
    .venv/bin/python benchmarks/dag_parse_time.py --rounds 31
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_HEAD = """
from airflow.sdk import DAG, chain
from datetime import datetime
"""
STOCK = (
    _HEAD
    + """
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

with DAG("stock", schedule="@daily", start_date=datetime(2026, 1, 1)):
    load = SparkSubmitOperator(task_id="load", application="job.py")
    chain(load, S3KeySensor(task_id="wait", bucket_key="s3://bucket/flights/_SUCCESS"))
"""
)
OURS = (
    _HEAD
    + """
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

with DAG("ours", schedule="@daily", start_date=datetime(2026, 1, 1)):
    load = ZeroRenameSparkSubmitOperator(task_id="load", application="job.py", table="flights",
        partition_format="day=%Y-%m-%d", mode="overwrite")
    chain(load, SuccessManifestSensor(task_id="wait", table="flights", upstream_task_id="load"))
"""
)
#: Airflow itself is imported before the clock starts, as in a DAG processor's worker.
_PARSE = """
import sys, time
from airflow.dag_processing.dagbag import DagBag
import airflow.sdk
begun = time.perf_counter()
bag = DagBag(sys.argv[1])
took = time.perf_counter() - begun
assert not bag.import_errors and len(bag.dags) == 1, bag.import_errors
print("seconds", took)
"""


def seconds(file: Path, home: Path) -> float:
    """What one process took to parse a file."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }
    command = [sys.executable, "-c", _PARSE, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{file.name} could not be parsed:\n{done.stderr[-2000:]}")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("seconds ")]
    return float(line.split()[1])


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=11, help="processes for each file")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        files = {"stock": home / "stock.py", "ours": home / "ours.py"}
        files["stock"].write_text(STOCK)
        files["ours"].write_text(OURS)
        for file in files.values():
            seconds(file, home)
        took: dict[str, list[float]] = {name: [] for name in files}
        for number in range(rounds):
            order = list(files) if number % 2 else list(reversed(files))
            for name in order:
                took[name].append(seconds(files[name], home))
    medians = {name: statistics.median(values) for name, values in took.items()}
    for name, median in medians.items():
        spread = f"{min(took[name]):.2f} to {max(took[name]):.2f}"
        print(f"{name:6} {median:6.2f} s  ({spread}, {rounds} processes)")
    print(f"ratio  {medians['ours'] / medians['stock']:6.2f}")


if __name__ == "__main__":
    main()
