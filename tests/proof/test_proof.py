"""The page keeps what was not run again, and says of each part how it ended."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
from proof import programs, simulated
from proof.outcome import Outcome, Verdict
from proof.page import Page
from simulation import catalogue

PARTS = ["simulation", "torture", "s3a"]
DAY = date(2026, 1, 2)


def _entered(page: Path, part: str, commit: str, *details: str, why: str = "") -> str:
    verdict = Verdict.FAILED if why else Verdict.PASSED
    written = Page.read(page, PARTS)
    written.enter(part, Outcome(verdict, f"make {part}", details, why), commit, DAY, 120)
    written.write(page)
    return page.read_text()


class TestPage:
    def test_a_part_keeps_its_last_result(self, tmp_path: Path) -> None:
        page = tmp_path / "proof.md"
        _entered(page, "s3a", "old", "| a | table |")
        text = _entered(page, "simulation", "new", "```", "## not a part", "```", why="a|b")
        assert "| s3a | passed | old |" in text
        assert "## s3a\n`make s3a`\n\n| a | table |\n" in text
        assert "| simulation | FAILED | new | 2026-01-02 | 2 | a\\|b |" in text
        assert text.index("## simulation") < text.index("## s3a")
        assert "| torture | DID NOT RUN |" in text
        assert text == _entered(page, "s3a", "old", "| a | table |")


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
    monkeypatch.setattr(programs, "_run", lambda *_: (status, ["append  60 kills"]))
    outcome = programs.each_request(1)
    assert outcome.verdict is verdict
    assert "append  60 kills" in outcome.details
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
