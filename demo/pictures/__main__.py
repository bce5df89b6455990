"""``make screenshots``."""

from __future__ import annotations

import os
import sys

from zero_rename import Table, ZeroRenameError

from ..dataset import Flights
from ..environment import airflow_variables, variables
from ..processes import sweep
from ..report import RunReport
from ..scenario import TABLE, tell
from ..store import Store, store
from ..workspace import CHECKOUT, DemoError, Workspace, workspace
from .browser import browser
from .night import tell_night
from .server import api_server
from .walk import Walk


def main() -> int:
    """Load what the demonstration loads and a bad night after it, and take the pictures."""
    report = RunReport()
    try:
        with workspace() as folders, store(folders.logs) as s3:
            _load(folders, s3, report)
            root = f"s3://{s3.name}"
            environment = variables(folders, s3) | airflow_variables(folders, s3, root)
            with (
                report.step("start Airflow's API server"),
                api_server(folders, environment) as server,
                browser(CHECKOUT / "docs" / "images") as window,
            ):
                Walk(window, server, report.say).all()
        return 0
    except (DemoError, ZeroRenameError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    finally:
        sweep()


def _load(folders: Workspace, s3: Store, report: RunReport) -> None:
    if wrong := tell(folders, s3, report):
        raise DemoError(f"The demonstration's rows are not the CSV's: {wrong}")
    # Failures are put on record by boto3's own chain, as an application would.
    os.environ.update(s3.environment)
    with report.step("the rest of the year, and a bad night"):
        table = Table(f"s3://{s3.name}/{TABLE}", client=s3.client)
        tell_night(table, Flights(folders.data / "flights.csv"))


if __name__ == "__main__":
    sys.exit(main())
