"""Reports of operators and sensors in XCom: dictionaries that JSON can represent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...committer.errors import counted, escaped

if TYPE_CHECKING:
    from ...committer import Committed, UnpublishedJob


#: The most partitions in a text for a log.
_SHOWN = 20
#: Fields of each partition in a report.
_COLUMNS = ("partition", "version", "rows", "files", "bytes", "removed")


def commit_report(committed: Committed, partitions: Collection[str] = ()) -> dict[str, Any]:
    """Return a committed job as a dictionary.

    :param partitions: report only these; empty: report all.
    :return: ``job``, ``table``, ``files``, ``rows``, ``bytes``, ``decided_at`` (Unix seconds, store
        clock), ``repeated``, and ``partitions`` (each with ``partition``, ``version``, ``files``,
        ``rows``, ``bytes``, ``removed``). ``partition`` and ``version`` are those of the partition
        if there is only one, else ``None``.

        Some jobs have more:

        * a merge: ``row_changes`` (``inserted``, ``updated``, ``deleted``, ``unchanged``, in all
          partitions that it read), ``partitions_left`` (the number of partitions that it read and
          did not change), and ``bytes_read``
        * a job that wrote only some partitions of its run again, since a plan asked for these or
          newer runs have loaded the others: ``narrows`` (the run's job before) and
          ``rows_left_out``
        * a job that left out partitions which newer runs have loaded: ``superseded`` (these
          partitions, each with the job that wrote it last) and ``rows_left_out``
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
    """Return a job that waits to be published as a dictionary.

    :return: as :func:`commit_report`, but without ``decided_at`` and with partitions at version 0.
        It also has ``unpublished``, which is true, and ``kept_until`` (Unix seconds, store clock).
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


def unknown_report(table: str) -> dict[str, Any]:
    """Return the report of a run that has committed by a job which is no longer known.

    :param table: the table's root.
    :return: as :func:`commit_report`. ``job`` is empty, there are no partitions, and all numbers
        are ``None``.
    """
    numbers = dict.fromkeys(("decided_at", "files", "rows", "bytes"))
    return {"job": "", "table": table, "repeated": True, **of_partitions([]), **numbers}


def of_partitions(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a report about its partitions.

    :return: :func:`totals`, ``partitions``, and ``partition`` and ``version`` of a single one.
    """
    alone = entries[0] if len(entries) == 1 else {"partition": None, "version": None}
    single = {name: alone[name] for name in ("partition", "version")}
    return {**totals(entries), "partitions": list(entries), **single}


def totals(entries: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Sum the ``files``, ``rows`` and ``bytes`` of partitions.

    A sum is ``None`` if the number of one partition is not known.
    """
    counts = {name: [entry[name] for entry in entries] for name in ("files", "rows", "bytes")}
    return {name: None if None in known else sum(known) for name, known in counts.items()}


def one_line(report: dict[str, Any]) -> str:
    """Return a commit report as one line for a log."""
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
    """Return a commit report for a log: one line, and a table of up to 20 partitions."""
    entries = report["partitions"]
    rows = [[entry[name] for name in _COLUMNS] for entry in entries[:_SHOWN]]
    if not rows:
        return one_line(report)
    more = len(entries) - len(rows)
    left_off = f"\n… and {more} more" if more else ""
    return f"{one_line(report)}\n{text_table(_COLUMNS, rows)}{left_off}"


def opening(**given: object) -> str:
    """Return the facts of a load that begins, one line for each."""
    return "\n".join(f"{name:<13}{escaped(str(value))}" for name, value in given.items())


def partitions_line(partitions: Sequence[str]) -> str:
    """Return the partitions that a load may write, as one line for a log."""
    more = len(partitions) - _SHOWN
    shown = ", ".join(partitions[:_SHOWN]) or "whatever its rows have"
    return f"{shown}, and {more} more" if more > 0 else shown


def _number(value: int | None, of: str) -> str:
    return f"an unknown number of {of}s" if value is None else counted(value, of)


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as a table of aligned text, for logs."""
    shown = [["" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    cells = [list(map(str, header)), *shown]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
