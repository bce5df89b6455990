"""``docs/s3a.md``: its tables of settings, attributes and checks are those of the code.

Run ``python tests/support/s3a_docs.py`` after changing one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zero_rename.s3a.checks.check import ALL, S3A, Check
from zero_rename.s3a.checks.run import by_theme
from zero_rename.s3a.hadoop.attributes import ATTRIBUTES, NAMES, TITLES
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "s3a.md"
_ABOUT = {ALL: "all, `zero_rename` too", S3A: "all of S3A"}


def settings_table() -> str:
    """One row per key, one column per committer; class names without their packages."""
    rendered = {committer: S3ASettings(committer).spark_conf() for committer in Committer}
    keys = sorted({key for conf in rendered.values() for key in conf})
    rows = [(f"`{key}`", *(_code(conf.get(key, "")) for conf in rendered.values())) for key in keys]
    return _table(("setting", *Committer), rows)


def attributes_table() -> str:
    """Yes and no, with numbered notes."""
    notes: list[str] = []
    rows = []
    for name in NAMES:
        cells = [TITLES[name]]
        for attributes in ATTRIBUTES.values():
            answer = "yes" if attributes.rows()[name] else "no"
            note = attributes.notes.get(name)
            if note is not None:
                if note not in notes:
                    notes.append(note)
                answer += f" ({notes.index(note) + 1})"
            cells.append(answer)
        rows.append(tuple(cells))
    sources = "; ".join(sorted({attributes.source for attributes in ATTRIBUTES.values()}))
    table = _table(("attribute", *ATTRIBUTES), rows)
    numbered = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return f"{table}\n\n{numbered}\n\nSources: {sources}."


def checks_list() -> str:
    """Every check, by theme, one by one."""
    parts = []
    for theme, checks in by_theme().items():
        parts.append(f"### {theme}")
        parts += [_one(check) for check in checks]
    return "\n\n".join(parts)


def _one(check: Check) -> str:
    about = _ABOUT.get(check.committers) or ", ".join(check.committers)
    when = "" if check.stage == "before" else ", in the job only"
    return (
        f"**`{check.id}`** ({check.severity}; {about}{when}): {check.title}.\n"
        f"{_text(check.reason)} *{_text(check.remedy)}* Source: {_text(check.source)}."
    )


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("__", "\\_\\_")


def _code(value: str) -> str:
    return (
        f"`{value.rpartition('.')[2] if value.startswith('org.apache.') else value}`"
        if value
        else ""
    )


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def updated(text: str) -> str:
    """The document with what the code has now between its marks."""
    made = {"settings": settings_table(), "attributes": attributes_table(), "checks": checks_list()}
    for name, table in made.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}{table}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text("utf-8")), "utf-8")
