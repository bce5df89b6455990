"""``python -m airflow_life``: the example DAGs in a whole Airflow, while what can happen to runs
happens to them; the rows are compared after each."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import airflow
from torture.servers import serving

from airflow_life.deployment import deployment
from airflow_life.postgres import postgres
from airflow_life.rows import Flights, first_days
from airflow_life.scenes import SCENES as OF_RUNS
from airflow_life.scenes import World
from airflow_life.waves import SCENES as OF_WAVES
from zero_rename.committer import Table

_BUCKET = "airflow-life"
#: The maintenance of all tables comes last.
SCENES = (*OF_WAVES, *OF_RUNS)


def main() -> int:
    """Returns 0 only if the rows were right after every scene."""
    names = [scene.__name__ for scene in SCENES]
    parser = argparse.ArgumentParser(prog="airflow_life", description=__doc__)
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help=f"of: {', '.join(names)}; or all"
    )
    options = parser.parse_args()
    unknown = set(options.scenes) - set(names)
    if unknown:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    chosen = [it for it in SCENES if not options.scenes or it.__name__ in options.scenes]
    with (
        tempfile.TemporaryDirectory(prefix="airflow-life-") as folder,
        serving(os.environ.get("SERVER") or "ceph") as s3,
        postgres() as database,
    ):
        s3.client().create_bucket(Bucket=_BUCKET)
        os.environ.update(s3.environment())
        home, root = Path(folder, "airflow"), f"s3://{_BUCKET}/warehouse"
        home.mkdir()
        flights = Flights(first_days(2, 10, Path(folder, "flights.csv")))
        january = Flights(first_days(1, 31, Path(folder, "january.csv")))
        mended = flights.without(7, Path(folder, "mended.csv"))
        with deployment(home, database, s3, root) as made:
            print(
                f"Airflow {airflow.__version__}, LocalExecutor, PostgreSQL; {s3.ran_on}", flush=True
            )
            world = World(made, s3, lambda name: Table(f"{root}/{name}"), flights, mended, january)
            good = [_shown(scene, world) for scene in chosen]
        print(f"{sum(good)} of {len(good)} scenes: the rows are right", flush=True)
    return 0 if all(good) else 1


def _shown(scene: object, world: World) -> bool:
    """Play a scene, and say what came of it in one line."""
    begun = time.monotonic()
    try:
        came, good = scene(world), True  # type: ignore[operator]
    except Exception as error:
        traceback.print_exc()
        came, good = f"{type(error).__name__}: {error}", False
    what = (scene.__doc__ or "").strip()
    seconds = time.monotonic() - begun
    print(f"{'right' if good else 'WRONG':5} {seconds:4.0f} s  {what}: {came}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
