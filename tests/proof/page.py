"""``docs/proof.md``: the last result of each part, kept until the part runs again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from proof.outcome import Outcome

_INTRODUCTION = """\
# Proof: the last results

`make proof` writes this page. It runs what is too long for `make test`, before a release and by
hand: the simulation to the end of every scenario, or two million states of it, and on long random
walks, thousands of walks over the log of a Delta table, the walks through the public table of
either layout and by Hadoop's committers for an hour, the torture, kills at each request, many
processes that change one Delta table at once, jobs in faults of the store, Hadoop's committers on
a real S3 server, Delta tables beside Delta on Spark and delta-rs, and the example DAGs in a whole
Airflow. `make test` runs a shorter form of each, in which every broken variant is still caught;
beside Spark it has what each writes plainly, and leaves out features, Spark's checkpoints and
conflicts.
`make proof PARTS="simulation log walk torture each each_delta crowds faults s3a engines airflow"`
chooses parts; the results of the others stay here as they were, with their own commit and day.

| part | last result | commit | day | minutes | why |
|---|---|---|---|---:|---|
"""
_ROW = re.compile(r"^\| (\w+) \|.*\|$", flags=re.MULTILINE)
_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## \w+\n|\Z)", flags=re.MULTILINE | re.DOTALL)


@dataclass
class Page:
    """The page in pieces.

    :param rows: of its table, by part; ``sections`` below it.
    """

    parts: list[str]
    rows: dict[str, str] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(path: Path, parts: list[str]) -> Page:
        """The page as it is; an empty one where there is none."""
        text = path.read_text() if path.exists() else ""
        page = Page(parts)
        page.rows = {m[1]: m[0] for m in _ROW.finditer(text.split("\n## ")[0]) if m[1] in parts}
        page.sections = {m[1]: m[2].strip() for m in _SECTION.finditer(text) if m[1] in parts}
        return page

    def enter(self, part: str, outcome: Outcome, commit: str, day: date, seconds: float) -> None:
        """Put a part's new result in the place of its last."""
        cells = (part, outcome.verdict, commit, day, f"{seconds / 60:.0f}", outcome.why)
        self.rows[part] = "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
        self.sections[part] = "\n".join([f"`{outcome.command}`", "", *outcome.details]).strip()

    def write(self, path: Path) -> None:
        never = "| {} | DID NOT RUN | | | | never run yet |"
        rows = [self.rows.get(part, never.format(part)) for part in self.parts]
        sections = [
            f"\n## {part}\n{self.sections[part]}\n" for part in self.parts if part in self.sections
        ]
        path.write_text(_INTRODUCTION + "\n".join(rows) + "\n" + "".join(sections))
