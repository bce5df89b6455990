"""The wheel with its extras as a user installs it, in an environment of its own: nothing is mended
there, and the daily example loads by real Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow_life.rows import first_days

from support.airflow import Tables, connection_variable, migrate
from support.moto_server import SECRET_KEY
from support.newcomer import pins
from support.waiting import STUCK
from support.wheel import borrow_bytecode
from tools.bootstrap import LOCK, cache_dir

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
DAY = "year=2013/month=2/day=1"
_PROGRAM = """
import json, shutil, sys
from datetime import UTC, datetime
from pathlib import Path

import zero_rename
from airflow.dag_processing.dagbag import DagBag

shutil.copytree(Path(zero_rename.__file__).parent / "example_dags", sys.argv[1], dirs_exist_ok=True)
dags = DagBag(str(Path(sys.argv[1], "flights_daily.py"))).dags
# A run at midnight covers the day that is over.
midnight = datetime(2013, 2, 2, tzinfo=UTC)

def ran(dag_id, conf):
    run = dags[dag_id].test(logical_date=midnight, run_conf=conf)
    found = {ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in run.get_task_instances()}
    return {"state": str(run.state), "run_id": run.run_id, "xcom": found}

load, purge = ran("flights_daily", {"csv": sys.argv[2]}), ran("flights_maintenance", {})
said = {"load": load, "purge": purge, "package": zero_rename.__file__}
Path(sys.argv[3]).write_text(json.dumps(said))
"""


@dataclass(frozen=True)
class PlainInstall:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    @property
    def pyspark(self) -> Path:
        return self.site / "pyspark"

    def uv(self, command: str, *arguments: str) -> str:
        """``uv pip``: as pip, without compiling what it installs."""
        words = [sys.executable, "-m", "uv", "pip", command, "--python", str(self.python)]
        done = subprocess.run([*words, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> PlainInstall:
    """What pip makes of the wheel and of what it asks for. The versions are those of the lock
    file, so that they lie in the cache; ``pyspark-client`` is not in it. Its hashes are left out:
    none is that of a wheel of PySpark, which uv would make anew."""
    folder = tmp_path_factory.mktemp("plain")
    made = PlainInstall(folder / "venv")
    constraints = folder / "pins.txt"
    constraints.write_text(pins(ROOT / LOCK))
    venv = [sys.executable, "-m", "uv", "venv", "-q", "--python", sys.executable, str(made.folder)]
    subprocess.run(venv, check=True)
    found = ["--find-links", str(cache_dir() / "wheels")]
    made.uv(
        "install", *found, f"--constraint={constraints}", "--no-config", f"{wheel}[airflow,spark]"
    )
    borrow_bytecode(made.folder)
    return made


def test_what_is_installed_fits_together(plain: PlainInstall) -> None:
    assert "All installed packages are compatible" in plain.uv("check")
    assert "pyspark-client==" in plain.uv("freeze")


def test_the_example_with_real_spark(plain: PlainInstall, tables: Tables, tmp_path: Path) -> None:
    """The DAG, its Spark application and the maintenance as a user copies them. The files of
    pyspark-client lie over those of pyspark: spark-submit takes Spark's own, from a zip."""
    older = ("--reinstall-package", "pyspark-client", "pyspark-client==4.2.0")
    plain.uv("install", "--no-config", "--no-deps", *older)
    versions = {version_of(plain.pyspark / "version.py"), *map(version_of, jars(plain.pyspark))}
    assert len(versions) == 2
    home, said = tmp_path / "airflow", tmp_path / "said.json"
    home.mkdir()
    shutil.copy(migrate() / "airflow.db", home)
    dags, csv = home / "dags", first_days(2, 2, tmp_path / "flights.csv")
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run(
        [plain.python, tmp_path / "program.py", dags, csv, said],
        cwd=tmp_path,
        env=variables(home, tables),
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(said.read_text())
    assert Path(found["package"]).is_relative_to(plain.folder)
    load, purge = found["load"], found["purge"]
    assert (load["state"], purge["state"]) == ("success", "success")
    report = load["xcom"]["load"]
    assert (report["partition"], report["rows"]) == (DAY, 926)
    assert load["xcom"]["committed"]["job"] == report["job"]
    marker = tables.table().marker(DAY)
    assert marker is not None
    assert marker.manifest is not None
    assert marker.manifest.idempotency_key == f"flights_daily/{load['run_id']}/load"
    assert marker.manifest.owner.task_id == "load"
    frame = tables.table().to_arrow()
    assert frame.num_rows == 926
    assert set(frame.column("day").to_pylist()) == {1}
    shown = done.stdout + done.stderr
    assert "Spark-Submit cmd: spark-submit" in shown
    assert SECRET_KEY not in shown
    # Of register(), which makes known again what Spark has found by itself.
    assert "replaced a statically registered" not in shown
    # What PySpark says of a pandas that it does not know.
    assert "does not yet fully support pandas" not in shown
    assert purge["xcom"]["purge"]["tables"][0]["uploads"] == []


def jars(pyspark: Path) -> list[Path]:
    return list(pyspark.glob("jars/spark-core_*.jar"))


def version_of(path: Path) -> str:
    text = path.read_text() if path.suffix == ".py" else path.name
    (found,) = re.findall(r"(\d+\.\d+\.\d+)", text.split("__version__")[-1])
    return found


def variables(home: Path, tables: Tables) -> dict[str, str]:
    ours = ("AIRFLOW__", "PYTHON", "SPARK_", "PYSPARK_")
    extra = {"table_root": tables.url("")}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **dict(
            (
                connection_variable("spark_default", conn_type="spark", host="local[2]"),
                connection_variable("zero_rename_default", conn_type="zero_rename", extra=extra),
            )
        ),
    }
