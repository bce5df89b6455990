"""A picture of each table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.goals import seconds
from bench.results import Comparison
from bench.workloads import slug


def draw(tables: Sequence[Comparison], folder: Path) -> None:
    """Write ``<workload>.svg`` into a folder; pictures of other runs go."""
    import pygal
    from pygal.style import CleanStyle

    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    style = CleanStyle(
        background="white", plot_background="white", opacity=1, opacity_hover=1, value_font_size=11
    )
    for table in tables:
        measured = [row for row in table.rows if row.counted]
        if table.workload.verb == "cold" or len(measured) < 2:
            continue
        chart = pygal.HorizontalBar(
            style=style,
            js=(),
            no_prefix=True,  # Ids by chance would make each picture another one.
            show_x_guides=False,
            show_y_guides=False,
            title=f"{table.workload.title}: seconds",
            height=90 + 26 * len(measured),
            width=760,
            show_legend=False,
            print_values=True,
            value_formatter=lambda value: f"{value:.2f}",
        )
        slowest_first = sorted(measured, key=lambda it: -(it.median(seconds) or 0))
        chart.x_labels = [row.peer for row in slowest_first]
        ours = [row.peer.startswith(("zero-rename", "load()")) for row in slowest_first]
        chart.add(
            "",
            [
                {"value": row.median(seconds), "color": "#5fa8d3" if own else "#adb5bd"}
                for row, own in zip(slowest_first, ours, strict=True)
            ],
        )
        chart.render_to_file(str(folder / f"{slug(table.workload.name)}.svg"))
