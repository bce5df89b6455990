"""Where a real Dagster runs: the environment of its page and daemon, and this package as a user
has it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torture.servers import Store, serving

from demo.dataset import Flights
from support.waiting import STUCK
from support.wheel import build_wheel, unpack
from tools.environments import DAGSTER_WEB

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BUCKET = "dagster-life"


@dataclass(frozen=True)
class Place:
    """A folder with all that the processes need.

    :param variables: of every process.
    :param flights: the year's flights, which the example loads.
    """

    folder: Path
    variables: Mapping[str, str]
    flights: Flights
    store: Store

    @property
    def home(self) -> Path:
        """``DAGSTER_HOME``."""
        return Path(self.variables["DAGSTER_HOME"])

    @property
    def source(self) -> Path:
        """What the example reads its flights from."""
        return Path(self.variables["FLIGHTS_CSV"])

    @property
    def root(self) -> str:
        return self.variables["FLIGHTS_ROOT"]

    def command(self, name: str) -> str:
        """A program of the environment."""
        return str(DAGSTER_WEB.python.with_name(name))

    def dg(self, project: Path, *words: str) -> tuple[int, str]:
        """Run ``dg`` in a project: its exit code, and what it said."""
        found = os.pathsep.join((self.variables["PYTHONPATH"], str(project / "src")))
        done = subprocess.run(
            [self.command("dg"), *words],
            cwd=project,
            env={**self.variables, "PYTHONPATH": found},
            capture_output=True,
            text=True,
            timeout=STUCK,
        )
        return done.returncode, done.stdout + done.stderr


@contextmanager
def place(layout: str) -> Iterator[Place]:
    """Make the environment where it is not there, start a store, and unpack package and flights.

    :param layout: of the tables.
    :raises SetupError: a package cannot be had.
    :raises ServerError: the store does not start.
    """
    DAGSTER_WEB.ensure()
    with (
        tempfile.TemporaryDirectory(prefix="dagster-life-") as made,
        serving(os.environ.get("SERVER") or "ceph") as store,
    ):
        folder = Path(made)
        for name in ("home", "wheel", "flights"):
            (folder / name).mkdir()
        unpack(build_wheel(folder / "wheel"), folder / "packages")
        store.client().create_bucket(Bucket=BUCKET)
        # This process looks at the tables.
        os.environ.update(store.environment())
        variables = {
            "PATH": f"{DAGSTER_WEB.python.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(folder / "packages"),
            "DAGSTER_HOME": str(folder / "home"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "FLIGHTS_CSV": str(folder / "source.csv"),
            "FLIGHTS_ROOT": f"s3://{BUCKET}/lake",
            "FLIGHTS_LAYOUT": layout,
            **store.environment(),
        }
        flights = Flights.unpack(folder / "flights")
        found = Place(folder, variables, flights, store)
        found.source.symlink_to(flights.path)
        yield found
