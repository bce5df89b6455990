"""Reports that operators and sensors hand on by XCom: dictionaries that JSON can hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...committer.errors import escaped

if TYPE_CHECKING:
    from ...committer import Committed


def commit_report(committed: Committed, partitions: Collection[str] = ()) -> dict[str, Any]:
    """A committed job as a dictionary.

    :param partitions: leave out all others; none leaves out nothing.
    :return: ``job``, ``table``, ``files``, ``rows``, ``bytes``, ``decided_at`` (seconds, the
        store's clock), ``repeated``, ``partitions`` (each with ``partition``, ``epoch``,
        ``files``, ``rows``, ``bytes``, ``removed``), and where it is just one partition its
        ``partition`` and ``epoch``.
    """
    kept = [p for p in committed.partitions if not partitions or p.partition in partitions]
    report: dict[str, Any] = {
        "job": committed.job,
        "table": committed.table,
        "files": sum(p.files for p in kept),
        "rows": sum(p.rows for p in kept),
        "bytes": sum(p.bytes for p in kept),
        "decided_at": committed.decided_at,
        "repeated": committed.repeated,
        "partitions": [
            {
                "partition": p.partition,
                "epoch": p.epoch,
                "files": p.files,
                "rows": p.rows,
                "bytes": p.bytes,
                "removed": p.removed,
            }
            for p in kept
        ],
    }
    only = kept[0] if len(kept) == 1 else None
    report["partition"] = only.partition if only else None
    report["epoch"] = only.epoch if only else None
    return report


def one_line(report: dict[str, Any]) -> str:
    """A commit report in one line of a log."""
    where = report["partition"] or f"{len(report['partitions'])} partitions"
    rows = "" if report["rows"] is None else f"{report['rows']:,} rows in "
    return (
        f"{report['job']}: {rows}{_number(report['files'])} files, "
        f"{_number(report['bytes'])} bytes, in {where} of {report['table']}"
    )


def _number(value: int | None) -> str:
    return "an unknown number of" if value is None else f"{value:,}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned text, for logs."""
    shown = [["" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    cells = [list(map(str, header)), *shown]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
