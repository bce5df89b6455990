"""``python -m airflow_life``: the example DAGs in a whole Airflow, while what can happen to runs
happens to them; the rows are compared after each."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import airflow
from torture.servers import serving

from airflow_life.conflicts import SCENES as OF_CONFLICTS
from airflow_life.delta import SCENES as OF_DELTA
from airflow_life.deployment import deployment
from airflow_life.hadoop_conflicts import SCENES as BY_HADOOP
from airflow_life.hadoop_store import hadoop_store
from airflow_life.postgres import postgres
from airflow_life.rows import Flights, first_days
from airflow_life.scenes import SCENES as OF_RUNS
from airflow_life.scenes import World
from airflow_life.waves import SCENES as OF_WAVES
from support.scenes import play
from zero_rename.committer import Table
from zero_rename.tables import DeltaTable

_BUCKET = "airflow-life"
#: The maintenance of all tables comes last.
SCENES = (*OF_WAVES, *OF_CONFLICTS, *BY_HADOOP, *OF_DELTA, *OF_RUNS)


@contextmanager
def world() -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix="airflow-life-") as folder,
        serving(os.environ.get("SERVER") or "ceph") as s3,
        serving("s3mock") as s3mock,
        hadoop_store(s3mock, _BUCKET) as hadoop,
        postgres() as database,
    ):
        s3.client().create_bucket(Bucket=_BUCKET)
        os.environ.update(s3.environment())
        home, root = Path(folder, "airflow"), f"s3://{_BUCKET}/warehouse"
        home.mkdir()
        flights = Flights(first_days(2, 20, Path(folder, "flights.csv")))
        january = Flights(first_days(1, 31, Path(folder, "january.csv")))
        mended = flights.without(7, Path(folder, "mended.csv"))
        with deployment(home, database, s3, root, more=hadoop.variables()) as made:
            stores = f"{s3.ran_on}; for Hadoop's committers {s3mock.ran_on}"
            print(f"Airflow {airflow.__version__}, LocalExecutor, PostgreSQL; {stores}", flush=True)
            yield World(
                made,
                s3,
                lambda name: Table(f"{root}/{name}"),
                lambda name: DeltaTable(f"{root}/{name}"),
                flights,
                mended,
                january,
                hadoop,
            )


if __name__ == "__main__":
    sys.exit(play("airflow_life", __doc__, SCENES, world))
