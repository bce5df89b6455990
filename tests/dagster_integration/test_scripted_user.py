"""A user of Dagster who has the wheel, what its extra ``dagster`` needs, and nothing else."""

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.dagster_flights import EXAMPLE
from support.flights import flights_csv, rows_of
from support.moto_server import S3Server
from support.waiting import STUCK
from support.wheel import environment

__all__ = ["flights_csv"]

_PROGRAM = """
import importlib.util, json
import dagster as dg
import definitions, zero_rename
from dagster.components.core.package_entry import discover_entry_point_package_objects
done = dg.materialize(
    [definitions.flights, definitions.weekly_delays],
    selection=[definitions.flights],
    tags={
        "dagster/asset_partition_range_start": "2013-01-01",
        "dagster/asset_partition_range_end": "2013-01-31",
    },
    resources=definitions.defs.resources,
)
days = definitions.defs.resources["zero_rename"].process_config_and_initialize()
print("RESULT" + json.dumps({
    "success": done.success,
    "package": zero_rename.__file__,
    "components": [
        key.to_typename()
        for key, found in discover_entry_point_package_objects().items()
        if isinstance(found, type) and issubclass(found, dg.Component)
    ],
    "others": [name for name in ("airflow", "pyspark", "pytest") if importlib.util.find_spec(name)],
    "days": days.table("flights").to_arrow()["day"].to_pylist(),
}))
"""


@pytest.mark.slow
def test_the_example_runs_without_airflow(
    wheel: Path, tmp_path: Path, flights_csv: Path, bucket: str, s3_server: S3Server
) -> None:
    python = environment(tmp_path, wheel, ["dagster"])
    shutil.copy(EXAMPLE, tmp_path)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "PYTHON", "DAGSTER", "AWS_"))
    }
    variables = {"FLIGHTS_CSV": str(flights_csv), "FLIGHTS_ROOT": f"s3://{bucket}/lake"}
    done = subprocess.run(
        [str(python), "-c", _PROGRAM],
        cwd=tmp_path,
        env=kept | s3_server.environment | variables,
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen = json.loads(done.stdout.split("RESULT")[1].splitlines()[0])
    assert seen["success"]
    assert Path(seen["package"]).is_relative_to(tmp_path)
    assert seen["others"] == []
    # What `dg list components` shows; `make dagster-life` asks dg itself.
    assert "dagster_zero_rename.SparkTableComponent" in seen["components"]
    assert Counter(seen["days"]) == Counter(row["day"] for row in rows_of(flights_csv))
