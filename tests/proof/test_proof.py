"""The page keeps what was not run again, and says of each part how it ended."""

from __future__ import annotations

import pickle
import sys
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
from proof import __main__ as command
from proof import programs, simulated
from proof.outcome import Outcome, Verdict
from proof.page import Page
from simulation import catalogue
from walk.plan import make_plan
from walk.walking import WalkFailure

PARTS = ["simulation", "torture", "s3a"]
DAY = date(2026, 1, 2)


def _entered(page: Path, part: str, commit: str, *details: str, why: str = "") -> str:
    verdict = Verdict.FAILED if why else Verdict.PASSED
    written = Page.read(page, PARTS)
    written.enter(part, Outcome(verdict, f"make {part}", details, why), commit, DAY, 120)
    written.write(page)
    return page.read_text()


class TestPage:
    def test_parts_that_never_ran_are_named(self, tmp_path: Path) -> None:
        text = _entered(tmp_path / "proof.md", "torture", "abc")
        assert "| torture | passed | abc | 2026-01-02 | 2 |  |" in text
        assert text.count("DID NOT RUN") == 2

    def test_a_part_keeps_its_last_result(self, tmp_path: Path) -> None:
        page = tmp_path / "proof.md"
        _entered(page, "s3a", "old", "| a | table |")
        text = _entered(page, "simulation", "new", "```", "## not a part", "```", why="a|b")
        assert "| s3a | passed | old |" in text
        assert "## s3a\n`make s3a`\n\n| a | table |\n" in text
        assert "| simulation | FAILED | new | 2026-01-02 | 2 | a\\|b |" in text
        assert text.index("## simulation") < text.index("## s3a")
        assert text == _entered(page, "s3a", "old", "| a | table |")


def test_parts_that_run_beside_each_other_keep_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "proof.md"

    def short(processes: int) -> Outcome:
        return Outcome(Verdict.PASSED, "make short")

    def long(processes: int) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["proof", "short", "--page", str(page)])
        assert command.main() == 0
        return Outcome(Verdict.PASSED, "make long")

    monkeypatch.setattr(command, "PARTS", {"long": long, "short": short})
    monkeypatch.setattr(sys, "argv", ["proof", "long", "--page", str(page)])
    assert command.main() == 0
    assert "DID NOT RUN" not in page.read_text()


def _cases(*results: str) -> list[tuple[ElementTree.Element, str]]:
    cases = []
    for result in results:
        case = ElementTree.Element("testcase", classname="tests.s3a.real.test_x")
        if result != "passed":
            ElementTree.SubElement(case, result, message="no server")
        cases.append((case, programs._result(case)))
    return cases


@pytest.mark.parametrize(
    ("status", "results", "verdict"),
    [
        (0, ["passed", "passed"], Verdict.PASSED),
        (1, ["passed", "failure"], Verdict.FAILED),
        (1, ["passed"], Verdict.FAILED),
        (0, ["passed", "skipped"], Verdict.PARTLY),
        (0, ["skipped", "skipped"], Verdict.NOT_RUN),
    ],
)
def test_skipped_tests_are_no_proof(status: int, results: list[str], verdict: Verdict) -> None:
    outcome = programs._judged("make test-s3a", status, _cases(*results), ["output"])
    assert outcome.verdict is verdict
    assert ("no server" in "\n".join(outcome.details)) == ("skipped" in results)


@pytest.mark.parametrize(
    ("status", "named", "verdict"),
    [(0, "", Verdict.PASSED), (0, "append", Verdict.PARTLY), (1, "", Verdict.FAILED)],
)
def test_kills_at_some_requests_are_not_all(
    status: int, named: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EACH", named)
    monkeypatch.setattr(programs, "_run", lambda *_: (status, ["append, heads  46 kills"]))
    outcome = programs.each_request(1)
    assert outcome.verdict is verdict
    assert "append, heads  46 kills" in outcome.details
    assert "Not killed so" in "\n".join(outcome.details)


class TestSimulation:
    def test_too_few_states_are_no_proof(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SIMULATION_SEEDS", "2")
        name = "one append, two faults"
        monkeypatch.setattr(simulated, "EXHAUSTIVE", {name: catalogue.EXHAUSTIVE[name]})
        monkeypatch.setattr(simulated, "BOUNDED", {})
        monkeypatch.setattr(simulated, "WIDER", {})
        monkeypatch.setattr(simulated, "RANDOM", {})
        outcome = simulated.prove(1)
        assert outcome.verdict is Verdict.FAILED
        assert "states" in outcome.why
        assert any(name in line for line in outcome.details)


class TestWalk:
    def test_a_walk_that_fails_is_told_with_its_plan(self) -> None:
        failure = WalkFailure(make_plan(7), "the end", ValueError("no rows"), ["  1 append: done"])
        again = pickle.loads(pickle.dumps(failure))
        assert "ValueError: no rows" in str(again)
        assert "seed 7:" in str(again)
        assert "1 append: done" in str(again)
