"""``python -m dagster_life.pictures``: the pictures of docs/dagster.md, from a real webserver."""

from __future__ import annotations

import sys

from demo.dataset import RowDigest, content
from demo.pictures.browser import Browser, browser
from demo.workspace import CHECKOUT, DemoError
from support.waiting import until
from zero_rename.committer import Table

from .deployment import Deployment, deployment
from .place import place
from .scenes import ended


def main() -> int:
    """Load December, and walk through the asset's pages: what is seen is asserted."""
    try:
        with (
            place("directory") as made,
            deployment(made) as dagster,
            browser(CHECKOUT / "docs" / "images") as window,
        ):
            _load(dagster)
            stored = content(Table(f"{made.root}/flights").to_arrow().to_pylist())
            assert stored == sum(made.flights.contents([12]).values(), RowDigest())
            _walk(window, dagster.address)
        return 0
    except DemoError as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1


def _load(dagster: Deployment) -> None:
    """December by one run with its check."""
    ends = {"start": "2013-12-01", "end": "2013-12-31"}
    tags = {f"asset_partition_range_{name}": key for name, key in ends.items()}
    run = dagster.launch(**tags)
    until("December", lambda: ended(dagster.run(run)))
    assert dagster.run(run).status == "SUCCESS"


def _walk(window: Browser, address: str) -> None:
    window.resize(1360, 900)
    _asset(window, address)
    _plot(window, address)
    _check(window, address)


def _asset(window: Browser, address: str) -> None:
    """What a day's event says."""
    window.open(f"{address}/assets/flights?view=events")
    window.click("button", "Skip")
    window.expect("body", "Partition 2013-12-31 materialized", "zero_rename/version", "776")
    window.picture("dagster-asset")


def _plot(window: Browser, address: str) -> None:
    """Rows by day: Dagster 1.13 plots no partitions of a definition that has an end."""
    window.open(f"{address}/assets/flights?view=overview")
    window.click("button", "Plots")
    window.click("button", "Events")
    window.element("canvas")
    window.expect("body", "dagster/partition_row_count", "zero_rename/bytes")
    window.picture("dagster-plot")


def _check(window: Browser, address: str) -> None:
    """What a run of many days is told of each."""
    window.open(f"{address}/assets/flights?view=checks")
    window.expect("body", "Passed", "year=2013/month=12/day=2")
    window.picture("dagster-check")


if __name__ == "__main__":
    sys.exit(main())
