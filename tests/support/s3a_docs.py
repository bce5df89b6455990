"""``docs/s3a.md``: its table of settings is the code's.

Run ``python tests/support/s3a_docs.py`` after changing them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "s3a.md"


def settings_table() -> str:
    """One row per key, one column per committer; class names without their packages."""
    rendered = {committer: S3ASettings(committer).spark_conf() for committer in Committer}
    keys = sorted({key for conf in rendered.values() for key in conf})
    rows = [(f"`{key}`", *(_code(conf.get(key, "")) for conf in rendered.values())) for key in keys]
    return _table(("setting", *Committer), rows)


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
    made = {"settings": settings_table()}
    for name, table in made.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}{table}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text("utf-8")), "utf-8")
