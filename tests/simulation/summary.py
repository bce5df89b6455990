"""The table of explored scenarios at the end of a test run, whichever workers explored them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _rows(reports: list[Any]) -> Iterator[tuple[str, str, int, int, float]]:
    for report in (r for r in reports if getattr(r, "when", "") == "call"):
        for name, value in report.user_properties:
            if name == "explored":
                yield tuple(value)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [row for reports in terminalreporter.stats.values() for row in _rows(reports)]
    if rows:
        from simulation.exploration import table  # Not for runs that simulate nothing.

        terminalreporter.section("simulation")
        for line in table(rows):
            terminalreporter.write_line(line)
