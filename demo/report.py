"""What the user sees: progress, one table of runs, a partition before and after."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from .compare import Difference
from .dataset import RowDigest


@dataclass
class RunRow:
    """One row of the table of runs. ``None`` is shown as a dash."""

    name: str
    partitions: int | None = None
    csv_rows: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    requests: int | None = None
    seconds: float = 0.0


class RunReport:
    """Prints to the user's terminal; plain lines where there is none.

    :param console: where to.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.begun = time.monotonic()
        self.runs: list[RunRow] = []

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        passed = time.monotonic() - self.begun
        self.console.print(f"[dim]{passed:6.1f} s[/]  {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show that something is under way, and how long it took."""
        begun = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(text):
                yield
        else:
            self.say(f"{text} …")
            yield
        self.say(f"{text}: {time.monotonic() - begun:.1f} s")

    def table_of_runs(self) -> None:
        """The one table."""
        grid = Grid(box=box.SIMPLE_HEAD)
        grid.add_column("run", no_wrap=True)
        names = ("partitions", "rows\nin CSV", "rows\ncommitted", "files", "bytes")
        for name in (*names, "requests\nto S3", "seconds"):
            grid.add_column(name, justify="right", no_wrap=True)
        for run in self.runs:
            numbers = (run.partitions, run.csv_rows, run.rows, run.files, run.bytes, run.requests)
            cells = ["-" if number is None else f"{number:,}" for number in numbers]
            grid.add_row(run.name, *cells, f"{run.seconds:.1f}")
        self._print("Runs", grid)

    def before_and_after(self, partition: str, seen: Mapping[str, RowDigest]) -> None:
        """One partition as a reader saw it at several moments."""
        grid = Grid(box=box.SIMPLE_HEAD)
        grid.add_column("when")
        grid.add_column("rows", justify="right")
        grid.add_column("content")
        for when, what in seen.items():
            grid.add_row(when, f"{what.rows:,}", what.short)
        self._print(f"What a reader of {partition} sees", grid)

    def verdict(self, wrong: Sequence[Difference]) -> int:
        """Say how it ended. Returns the exit code."""
        self.table_of_runs()
        self.console.print()
        for difference in wrong:
            self.console.print(f"[red]{difference.partition}: {difference.what}[/]")
        seconds = time.monotonic() - self.begun
        if wrong:
            self.console.print(f"[red]{len(wrong)} differences[/], after {seconds:.0f} s")
            return 1
        self.console.print(f"[green]Every committed row is the CSV's[/], {seconds:.0f} s in all")
        return 0

    def _print(self, title: str, grid: Grid) -> None:
        # In its own width: squeezed into a narrow terminal, or none, it would lose digits.
        options = self.console.options.update_width(1000)
        width = Measurement.get(self.console, options, grid).maximum
        lines = self.console.render_lines(grid, options.update_width(width))
        self.console.print(f"\n[bold]{title}[/]")
        for line in lines:
            self.console.print(Text.assemble(*((s.text, s.style or "") for s in line)))
