"""Stocator's tables beside what is measured here, for docs/papers.md; see ``make bench-papers``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.goals import seconds
from bench.results import Comparison, Measurement
from bench.workloads import BY_SPARK, BY_SPARK_DELTA, OURS, OURS_DELTA, PARQUET

#: Of an operation that a proxy names, the kind that the paper counts.
_KINDS = {
    "HEAD": ("HeadObject", "HEAD bucket"),
    "GET": ("GetObject", "GET bucket"),
    "PUT": ("PutObject", "UploadPart"),
    "POST": ("CreateMultipartUpload", "CompleteMultipartUpload"),
    "COPY": ("CopyObject",),
    "DELETE": ("DeleteObject", "DeleteObjects", "AbortMultipartUpload"),
    "LIST": ("ListObjects", "ListMultipartUploads", "ListParts"),
}
_WRITERS = ("rename v1", "rename v2", "directory", "magic", OURS, OURS_DELTA)
_READERS = {OURS: BY_SPARK, OURS_DELTA: BY_SPARK_DELTA}
#: The paper's workloads, by those that stand for them.
_WORKLOADS = {
    "read all columns": "Read-only",
    "write": "Teragen",
    "copy": "Copy",
    "word count": "Wordcount",
    "sort": "Terasort",
    "read a few rows": "TPC-DS",
}
#: Table I: of a job that writes one file. It counts no GET and no POST.
_ONE_FILE = {
    "Hadoop-Swift": {"HEAD": 25, "PUT": 7, "COPY": 3, "DELETE": 8, "LIST": 5},
    "S3a": {"HEAD": 71, "PUT": 5, "COPY": 2, "DELETE": 4, "LIST": 35},
    "Stocator": {"HEAD": 4, "PUT": 3, "COPY": 0, "DELETE": 0, "LIST": 1},
}
#: Tables III (as ratios to Stocator's seconds), V and VI, by the workloads above.
_RATIOS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "III": {
        "S3a": (0.96, 18.03, 10.34, 1.82, 8.86, 0.94),
        "S3a, commit v2": (1.02, 4.37, 2.72, 1.05, 2.64, 0.93),
    },
    "V": {
        "S3a": (1.71, 33.74, 24.93, 25.35, 24.23, 2.40),
        "S3a, commit v2": (1.71, 21.15, 16.18, 16.44, 15.41, 2.40),
    },
    "VI": {
        "S3a": (1.63, 27.82, 26.74, 26.84, 25.88, 2.25),
        "S3a, commit v2": (1.63, 17.59, 17.29, 17.36, 16.40, 2.25),
    },
}
#: Bytes written for a byte of data.
_WRITTEN = {"S3a": 3.0, "S3a, commit v2": 2.0, "Stocator": 1.0}


def tables_of_papers(tables: Sequence[Comparison], header: str) -> str:
    """The page's part.

    :param header: of what run, on which machine.
    """
    by_name = {table.workload.name: table for table in tables}
    lines = [header, "", "### Table I: requests of a job that writes one file", ""]
    lines += [*_one_file(by_name["one file"]), ""]
    for number, title, of in (
        ("III", "seconds", seconds),
        ("V", "requests", lambda run: sum(run.requests.values())),
        ("VI", "price of requests", lambda run: run.dollars),
    ):
        lines += [f"### Table {number}: {title}, as ratios", "", *_ratios(by_name, number, of), ""]
    lines += ["### Bytes written for a byte of data", "", *_written(by_name["write"]), ""]
    return "\n".join(lines)


def _one_file(table: Comparison) -> Iterator[str]:
    yield f"| | {' | '.join(_KINDS)} | all |"
    yield f"|---|{'---:|' * (len(_KINDS) + 1)}"
    for name, counts in _ONE_FILE.items():
        cells = [str(counts.get(kind, "")) for kind in _KINDS]
        yield f"| paper: {name} | {' | '.join(cells)} | {sum(counts.values())} |"
    for name in _WRITERS:
        if row := table.row(name):
            counts = by_kind(row.counted[-1].requests)
            cells = [str(counts[kind]) for kind in _KINDS]
            yield f"| {name} | {' | '.join(cells)} | {sum(counts.values())} |"


def by_kind(requests: Mapping[str, int]) -> Counter[str]:
    """Requests by kind.

    :raises KeyError: one is of none.
    """
    kinds = {name: kind for kind, names in _KINDS.items() for name in names}
    counts: Counter[str] = Counter()
    for name, number in requests.items():
        counts[kinds[name]] += number
    return counts


def _ratios(
    tables: Mapping[str, Comparison], number: str, of: Callable[[Measurement], float]
) -> Iterator[str]:
    yield f"| | {' | '.join(_WORKLOADS.values())} |"
    yield f"|---|{'---:|' * len(_WORKLOADS)}"
    for name, values in _RATIOS[number].items():
        yield f"| paper: {name} over Stocator | {' | '.join(f'{it:.2f}' for it in values)} |"
    for name in _WRITERS[:-1]:
        cells = [_ratio(tables.get(workload), name, of) for workload in _WORKLOADS]
        yield f"| {name}: over {OURS_DELTA} | {' | '.join(cells)} |"


def _ratio(table: Comparison | None, name: str, of: Callable[[Measurement], float]) -> str:
    """A peer's over that of this project's Delta tables."""
    if table is None:
        return ""
    names = (name, OURS_DELTA)
    if table.workload.verb == "read":
        names = tuple(_READERS.get(it, PARQUET) for it in names)
    above, below = (table.row(it) for it in names)
    value = above.ratio(below, of) if above and below else None
    return "" if value is None else f"{value:.2f}"


def _written(table: Comparison) -> Iterator[str]:
    yield "| | bytes written for one |"
    yield "|---|---:|"
    for name, value in _WRITTEN.items():
        yield f"| paper: {name} | {value:.2f} |"
    for name in _WRITERS:
        if row := table.row(name):
            # Each run has added the same files.
            value = sum(run.written for run in row.runs) / row.bytes
            yield f"| {name} | {value:.2f} |"
