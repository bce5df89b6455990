"""What walks come to, and how one fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from walk.oracle import Violation


@dataclass
class Walks:
    """What walks came to.

    :param outcomes: of their operations, by verb and outcome: *committed*, *refused*, *done*, or an
        error's name.
    :param left: removed files that a second Complete brought back for good.
    """

    walks: int = 0
    commits: int = 0
    requests: int = 0
    left: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, other: Walks) -> None:
        self.walks += other.walks
        self.commits += other.commits
        self.requests += other.requests
        self.left += other.left
        self.outcomes += other.outcomes

    @property
    def table(self) -> list[str]:
        """Verbs and what became of them, as lines of Markdown."""
        ended = ("committed", "done", "refused")
        head = ["| verb | committed | done | reported as done before | errors |"]
        lines = [*head, "|---|---:|---:|---:|---:|"]
        for verb in sorted({verb for verb, _ in self.outcomes}):
            counts = [self.outcomes[verb, word] for word in ended]
            every = sum(n for (it, _), n in self.outcomes.items() if it == verb)
            cells = " | ".join(f"{n:,}" for n in (*counts, every - sum(counts)))
            lines.append(f"| {verb} | {cells} |")
        came = "Removed files that a second Complete brought back for good (*Not guaranteed*)"
        return [*lines, "", f"{came}: {self.left:,}."]


class WalkFailure(AssertionError):
    """A walk whose table is not what the oracle says, or that ended in a foreign error."""

    def __init__(self, plan: Any, step: str, cause: BaseException, trace: list[str]) -> None:
        self.plan, self.step, self.cause, self.trace = plan, step, cause, trace
        told = f"{type(cause).__name__}: {cause}"
        lines = [told, f"in {step}", str(plan), "what happened:", *trace]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[WalkFailure], tuple[object, ...]]:
        cause = Violation(f"{type(self.cause).__name__}: {self.cause}")
        return WalkFailure, (self.plan, self.step, cause, self.trace)
