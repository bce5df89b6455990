"""Reports that operators and sensors hand on by XCom: dictionaries that JSON can hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...committer.errors import counted, escaped

if TYPE_CHECKING:
    from ...committer import Committed, UnpublishedJob


#: Partitions in a text for a log.
_SHOWN = 20
#: What is said of each.
_COLUMNS = ("partition", "version", "rows", "files", "bytes", "removed")


def commit_report(committed: Committed, partitions: Collection[str] = ()) -> dict[str, Any]:
    """A committed job as a dictionary.

    :param partitions: leave out all others; none leaves out nothing.
    :return: ``job``, ``table``, ``files``, ``rows``, ``bytes``, ``decided_at`` (seconds, the
        store's clock), ``repeated``, ``partitions`` (each with ``partition``, ``version``,
        ``files``, ``rows``, ``bytes``, ``removed``), and where it is just one partition its
        ``partition`` and ``version``. Of a merge ``row_changes``: ``inserted``, ``updated``,
        ``deleted``, ``unchanged``, of all partitions that it read; ``partitions_left``, which it
        left as they were; ``bytes_read``. Of a job that wrote only some partitions of its run
        again, as a plan asked or since newer runs have the others, ``narrows``, the run's job
        before, and ``rows_left_out``. Of one that left out rows of partitions which newer runs have
        loaded ``superseded``, these with the jobs that wrote them last, and ``rows_left_out``.
    """
    kept = [p for p in committed.partitions if not partitions or p.partition in partitions]
    report: dict[str, Any] = {
        "job": committed.job,
        "table": committed.table,
        "decided_at": committed.decided_at,
        "repeated": committed.repeated,
        **of_partitions([{name: getattr(p, name) for name in _COLUMNS} for p in kept]),
    }
    if committed.row_changes is not None:
        report["row_changes"] = asdict(committed.row_changes)
    if committed.narrows is not None:
        report["narrows"] = committed.narrows
    if committed.narrows is not None or committed.superseded:
        report["rows_left_out"] = committed.left_out
    if committed.superseded:
        report["superseded"] = dict(committed.superseded)
    if committed.change_reads is not None:
        report["partitions_left"] = committed.change_reads.partitions_left
        report["bytes_read"] = committed.change_reads.bytes_read
    return report


def unpublished_report(waiting: UnpublishedJob) -> dict[str, Any]:
    """A job that waits to be published as a dictionary.

    :return: as :func:`commit_report`, without ``decided_at``, partitions at version 0; and
        ``unpublished``, which is true, and ``kept_until`` (seconds, the store's clock).
    """
    entries = [{name: getattr(it, name) for name in _COLUMNS} for it in waiting.partitions]
    return {
        "job": waiting.job,
        "table": waiting.table,
        "repeated": waiting.repeated,
        "unpublished": True,
        "kept_until": waiting.kept_until,
        **of_partitions(entries),
    }


def of_partitions(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a report says of its partitions: each, and of all as :func:`totals`; ``partition`` and
    ``version`` of a single one."""
    alone = entries[0] if len(entries) == 1 else {"partition": None, "version": None}
    single = {name: alone[name] for name in ("partition", "version")}
    return {**totals(entries), "partitions": list(entries), **single}


def totals(entries: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Their ``files``, ``rows`` and ``bytes``, ``None`` where those of one are not known."""
    counts = {name: [entry[name] for entry in entries] for name in ("files", "rows", "bytes")}
    return {name: None if None in known else sum(known) for name, known in counts.items()}


def one_line(report: dict[str, Any]) -> str:
    """A commit report in one line of a log."""
    where = report["partition"] or counted(len(report["partitions"]), "partition")
    rows = "" if report["rows"] is None else f"{counted(report['rows'], 'row')} in "
    return (
        f"{report['job']}: {rows}{_number(report['files'], 'file')}, "
        f"{_number(report['bytes'], 'byte')}, in {where} of {report['table']}{_changed(report)}"
    )


def _changed(report: dict[str, Any]) -> str:
    counts = report.get("row_changes") or {}
    told = [f"{count:,} {kind}" for kind, count in counts.items()]
    if report.get("superseded") or report.get("rows_left_out"):
        why = "which newer runs have loaded" if "superseded" in report else "as a plan asked"
        told.append(f"{report['rows_left_out']:,} of other partitions left out, {why}")
    return f"; rows {', '.join(told)}" if told else ""


def summary(report: dict[str, Any]) -> str:
    """A commit report for a log: one line, and one for each partition, as far as they are few."""
    entries = report["partitions"]
    rows = [[entry[name] for name in _COLUMNS] for entry in entries[:_SHOWN]]
    if not rows:
        return one_line(report)
    more = len(entries) - len(rows)
    left_off = f"\n… and {more} more" if more else ""
    return f"{one_line(report)}\n{text_table(_COLUMNS, rows)}{left_off}"


def opening(**given: object) -> str:
    """What is about to be loaded, a line each."""
    return "\n".join(f"{name:<13}{escaped(str(value))}" for name, value in given.items())


def partitions_line(partitions: Sequence[str]) -> str:
    """The partitions that a load may write, in one line of a log."""
    more = len(partitions) - _SHOWN
    shown = ", ".join(partitions[:_SHOWN]) or "whatever its rows have"
    return f"{shown}, and {more} more" if more > 0 else shown


def _number(value: int | None, of: str) -> str:
    return f"an unknown number of {of}s" if value is None else counted(value, of)


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned text, for logs."""
    shown = [["" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    cells = [list(map(str, header)), *shown]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
