"""The torture, Hadoop's committers and a whole Airflow, as programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from proof.outcome import Outcome, Verdict

REPOSITORY = Path(__file__).resolve().parents[2]
_KILLS = "200"
#: Lines of a program's output that the page shows.
_SHOWN = 60


#: What the kills at each request are.
_EACH = (
    "A process is killed (-9) at each of its requests: in one round before the store has it, in",
    "another one after the store did it, its answer lost; on a table of its own each time. In the",
    "second round somebody reads before it is recovered. Then come `zero-rename recover`, `jobs`,",
    "`history`, `purge` (twice), `show`; looked at are rows by heads and by listing, what `verify`",
    "finds, uploads, claims and open records. *Changed it*: who was killed had decided.",
    "",
    "Not killed so: updates, adoption, resolutions, copies, repair, what writes the index by",
    "itself, files of several parts, Spark drivers.",
)


def torture(processes: int) -> Outcome:
    """Writers killed at random moments; ``KILLS`` and ``SERVER`` as for ``make torture``."""
    kills = os.environ.get("KILLS") or _KILLS
    command, status, lines = _tortured("kills", kills)
    shown = _block(lines[-_SHOWN:])
    if not status and not any("races with a kill" in line for line in lines):
        why = "no races: this server does not carry out conditional writes in one step"
        return Outcome(Verdict.PARTLY, command, shown, why)
    return _ended(command, status, shown)


def each_request(processes: int) -> Outcome:
    """Kills at each request; ``EACH`` and ``SERVER`` as for ``make torture``."""
    named = os.environ.get("EACH") or "all"
    command, status, lines = _tortured("each", named)
    shown = (*_EACH, "", *_block(lines))
    if not status and named != "all":
        return Outcome(Verdict.PARTLY, command, shown, f"{named} only")
    return _ended(command, status, shown)


def crowds(processes: int) -> Outcome:
    """Many processes that change one Delta table at once; ``CROWDS`` and ``SERVER`` as for
    ``make torture``."""
    command, status, lines = _tortured("crowds", os.environ.get("CROWDS") or "all")
    return _ended(command, status, _block(lines))


def each_delta(processes: int) -> Outcome:
    """Kills at each request of what is done to a Delta table; ``EACH_DELTA`` and ``SERVER`` as for
    ``make torture``."""
    named = os.environ.get("EACH_DELTA") or "all"
    command, status, lines = _tortured("each-delta", named)
    if not status and named != "all":
        return Outcome(Verdict.PARTLY, command, _block(lines), f"{named} only")
    return _ended(command, status, _block(lines))


def faults(processes: int) -> Outcome:
    """Jobs in faults of the store; ``FAULTS`` and ``SERVER`` as for ``make torture``."""
    command, status, lines = _tortured("faults", os.environ.get("FAULTS") or "all")
    return _ended(command, status, _block(lines[-_SHOWN:]))


def _tortured(option: str, value: str) -> tuple[str, int, list[str]]:
    """Run the torture: the command that repeats it, its exit status and what it says."""
    server = os.environ.get("SERVER")
    told = f'"{value}"' if option.startswith("each") else value
    command = f"make torture {option.upper().replace('-', '_')}={told}" + (
        f" SERVER={server}" if server else ""
    )
    variables = {"PYTHONPATH": str(REPOSITORY / "tests")}
    return command, *_run(["-m", "torture", f"--{option}", value], variables)


def _ended(command: str, status: int, shown: tuple[str, ...]) -> Outcome:
    if status:
        return Outcome(Verdict.FAILED, command, shown, f"exit status {status}")
    return Outcome(Verdict.PASSED, command, shown)


def airflow(processes: int) -> Outcome:
    """The examples in a whole Airflow, while runs are killed, cleared and collide; and what is
    stale there, run again or refused."""
    command = "make airflow-life"
    if (missing := _without_jars(command)) is not None:
        return missing
    status, lines = _run(["-m", "airflow_life"], {"PYTHONPATH": str(REPOSITORY / "tests")})
    told = [line for line in lines if line.startswith(("Airflow ", "right ", "WRONG "))]
    if not status:
        tests = ["-m", "pytest", "-q", "tests/operators/test_recomputing.py"]
        status, lines = _run(tests, {"AIRFLOW_WHOLE": "1"})
        told.append(f"{tests[-1]}: {lines[-1]}")
    shown = _block([*told, *(lines[-_SHOWN:] if status else [])])
    return _ended(command, status, shown)


def s3a(processes: int) -> Outcome:
    """Hadoop's committers on a real S3 server: all of ``tests/s3a/real``."""
    command = "make test-s3a"
    if (missing := _without_jars(command)) is not None:
        return missing
    return _tested(command, ["tests/s3a/real", "--numprocesses", str(processes)], "S3A_WHOLE")


def engines(processes: int) -> Outcome:
    """Delta tables beside Delta on Spark, delta-rs, Polars and DuckDB: what ``make delta-spark``
    runs."""
    command = "make delta-spark"
    for program in (["environments.py", "lake-readers", "spark-4.1"], ["fetch_lake_jars.py"]):
        if (missing := _not_fetched(command, program, "Delta Lake's jars or engines")) is not None:
            return missing
    names = (
        *("tables/test_delta_spark", "tables/test_stock_spark", "tables/test_engines"),
        *("tables/test_conditional_log_store", "torture/test_beside_engines"),
        "torture/test_beside_log_store",
    )
    return _tested(command, [f"tests/{name}.py" for name in names], "DELTA_SPARK")


def _without_jars(command: str) -> Outcome | None:
    """Fetch Hadoop's jars. Returns the outcome of a part that lacks them, else ``None``."""
    return _not_fetched(command, ["fetch_s3a_jars.py"], "the S3A jars")


def _not_fetched(command: str, program: Sequence[str], what: str) -> Outcome | None:
    """Fetch what a part needs by a program of ``tools``. Returns the outcome of a part that lacks
    it, else ``None``."""
    status, lines = _run([f"tools/{program[0]}", *program[1:]], {})
    if not status:
        return None
    why = f"{what} could not be fetched"
    return Outcome(Verdict.NOT_RUN, command, _block(lines[-10:]), why)


def _tested(command: str, tests: Sequence[str], whole: str) -> Outcome:
    """Run tests, of which each counts.

    :param whole: the variable by which all of them run.
    """
    with tempfile.TemporaryDirectory(prefix="zero-rename-proof-") as folder:
        report = Path(folder) / "report.xml"
        how = ["--dist", "loadfile", "--no-loadscope-reorder", f"--junitxml={report}"]
        status, lines = _run(["-m", "pytest", *tests, *how], {whole: "1"})
        if not report.exists():
            return Outcome(Verdict.FAILED, command, _block(lines[-_SHOWN:]), f"status {status}")
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return _judged(command, status, [(case, _result(case)) for case in cases], lines)


def _result(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return child.tag
    return "passed"


def _judged(
    command: str,
    status: int,
    cases: Sequence[tuple[ElementTree.Element, str]],
    lines: Sequence[str],
) -> Outcome:
    by_file = Counter((case.get("classname", "").split(".")[-1], how) for case, how in cases)
    files = sorted({name for name, _ in by_file})
    kinds = ("passed", "failure", "error", "skipped")
    table = ["| tests | passed | failed | errors | skipped |", "|---|---:|---:|---:|---:|"]
    for name in files:
        counts = " | ".join(str(by_file[name, kind]) for kind in kinds)
        table.append(f"| {name} | {counts} |")
    reasons = Counter(
        (case.find("skipped").get("message") or "").strip()  # type: ignore[union-attr]
        for case, how in cases
        if how == "skipped"
    )
    table += [f"* skipped {count}: {reason}" for reason, count in sorted(reasons.items())]
    passed = sum(how == "passed" for _, how in cases)
    why = f"{sum(reasons.values())} of {len(cases)} tests were skipped"
    if status:
        return Outcome(Verdict.FAILED, command, (*table, "", *_block(lines[-_SHOWN:])), "see below")
    if not passed:
        return Outcome(Verdict.NOT_RUN, command, tuple(table), f"{why}: {next(iter(reasons), '')}")
    if reasons:
        return Outcome(Verdict.PARTLY, command, tuple(table), why)
    return Outcome(Verdict.PASSED, command, tuple(table))


def _run(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run Python in the repository; what it prints is passed on."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip())
    return process.wait(), lines


def _block(lines: Sequence[str]) -> tuple[str, ...]:
    return ("```", *lines, "```")
