"""Commands of Airflow that the docs and the examples show, each run as it stands there."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.airflow import migrate, partitions_of
from support.airflow_runs import forget_runs

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "example_dags" / "flights_daily.py"
RANGE = EXAMPLE.with_name("flights_backfill.py")


def commands(text: str) -> list[list[str]]:
    """The words of each line that begins with ``airflow``, without comments."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"^\s*(airflow (?!standalone).*)$", joined, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in found]


#: Tests of their own follow these pages with all of their commands.
TUTORIALS = {ROOT / "docs" / "tutorials" / name for name in ("airflow.md", "hadoop.md")}
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("**/*.md")} - TUTORIALS)]
#: ``airflow roles`` comes with FAB's provider, which is not here.
CONNECTIONS = [
    words for page in PAGES for words in commands(page.read_text("utf-8")) if words[0] != "roles"
]


def carry_out(words: list[str]) -> None:
    from airflow.cli.cli_parser import get_parser

    asked = get_parser().parse_args(words)
    asked.func(asked)


def shown_by(example: Path) -> list[list[str]]:
    """The commands in an example's docstring."""
    return commands(ast.get_docstring(ast.parse(example.read_text("utf-8"))) or "")


BACKFILLS, TRIGGERS = shown_by(EXAMPLE), shown_by(RANGE)


def test_what_the_docs_show() -> None:
    assert {tuple(words[:2]) for words in CONNECTIONS} == {("connections", "add")}
    assert [words[:2] for words in BACKFILLS] == [["backfill", "create"]] * 2
    examples = EXAMPLE.parent.glob("*.py")
    shown = [words for path in examples for words in shown_by(path)]
    assert sorted(shown) == sorted([*BACKFILLS, *TRIGGERS])


@pytest.fixture
def known_dags() -> Iterator[None]:
    """The example in the database, as the scheduler's DAG processor puts it there, without runs."""
    home = migrate()
    forget_runs()
    copies = [Path(shutil.copy(path, home / "dags" / path.name)) for path in (EXAMPLE, RANGE)]
    carry_out(["dags", "reserialize"])
    yield
    for copy in copies:
        copy.unlink()


def test_the_connections_are_added() -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    migrate()
    added = set()
    try:
        for words in CONNECTIONS:
            if words[2] not in added:
                added.add(words[2])
                carry_out(words)
        with create_session() as session:
            types = {c.conn_id: c.conn_type for c in session.query(Connection)}
        expected = {"zero_rename_default": "zero_rename", "aws_default": "aws"}
        assert types == expected | {"spark_default": "spark"}
    finally:
        for conn_id in added:
            carry_out(["connections", "delete", conn_id])


def test_the_backfills_load_the_days_they_name(known_dags: None) -> None:
    from airflow.dag_processing.dagbag import DagBag

    load: Any = DagBag(str(EXAMPLE)).dags["flights_daily"].get_task("load")
    seen = []
    for words in BACKFILLS:
        carry_out(words)
        for run in finished_runs():
            context = {
                "data_interval_start": run.data_interval_start,
                "data_interval_end": run.data_interval_end,
                "logical_date": run.logical_date,
                "dag_run": run,
            }
            (partition,) = partitions_of(load, context)
            seen.append((partition.rsplit("=")[-1], (run.conf or {}).get("csv", "")))
    assert sorted(seen) == [("1", ""), ("2", ""), ("2", "/data/mended.csv"), ("3", "")]


def test_a_range_is_loaded_by_a_trigger(known_dags: None) -> None:
    for words in TRIGGERS:
        carry_out(words)
    (run,) = finished_runs()
    assert (run.dag_id, run.conf["first"], run.conf["last"]) == (
        "flights_backfill",
        "2013-02-01",
        "2013-02-07",
    )


def finished_runs() -> list[Any]:
    """The runs that wait, which have ended well now, and so has their backfill."""
    from airflow.models.backfill import Backfill
    from airflow.models.dagrun import DagRun
    from airflow.sdk.timezone import utcnow
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState

    with create_session() as session:
        found = session.query(DagRun).filter_by(state=DagRunState.QUEUED).all()
        for run in found:
            run.set_state(DagRunState.SUCCESS)
        for backfill in session.query(Backfill).filter_by(completed_at=None):
            backfill.completed_at = utcnow()
        session.flush()
        session.expunge_all()
    return found
