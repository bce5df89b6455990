"""The tables in docs/spark.md, docs/s3a.md, docs/airflow/services.md and the guides to services:
options, settings, services and the committers of their jobs, as the code has them.

``python -m docs.extensions.tables`` writes them anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from zero_rename.committer.upkeep.access_policy import Service
from zero_rename.s3a.hadoop.effective_settings import effective
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings
from zero_rename.s3a.service_committer import CommitterInForce, committers_in_force
from zero_rename.s3a.services import RULES, ServiceRules
from zero_rename.spark.option_table import markdown
from zero_rename.spark.options import ReaderOptions, WriterOptions

_DOCS = Path(__file__).resolve().parents[1]
SPARK, S3A = _DOCS / "spark.md", _DOCS / "s3a.md"
SERVICES = _DOCS / "airflow" / "services.md"
#: The guide to each service, and the releases that it tells of.
GUIDES = {
    _DOCS / "guides" / f"{name}.md": service
    for name, service in (
        ("emr-serverless", Service.EMR_SERVERLESS),
        ("emr-steps", Service.EMR_STEPS),
        ("emr-containers", Service.EMR_CONTAINERS),
        ("glue", Service.GLUE),
        ("kubernetes", Service.KUBERNETES),
        ("databricks", Service.DATABRICKS),
    )
}
_RELEASES = {Service.GLUE: ("5.1", "5.0"), Service.KUBERNETES: ("",), Service.DATABRICKS: ("",)}
_OF_EMR = ("emr-7.10.0", "emr-7.9.0")


def updated(document: Path) -> str:
    """A page with what the code has now between its marks."""
    text = document.read_text("utf-8")
    for name, table in _TABLES[document].items():
        text = between(text, name, table())
    return text


def between(text: str, name: str, part: str) -> str:
    """A page with another part between the marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}{part}\n{end}{rest.split(end)[1]}"


def _settings() -> str:
    """One row per key, one column per committer; class names without their packages."""
    rendered = {committer: S3ASettings(committer).spark_conf() for committer in Committer}
    keys = sorted({key for conf in rendered.values() for key in conf})
    rows = [(f"`{key}`", *(_code(conf.get(key, "")) for conf in rendered.values())) for key in keys]
    return _table(("setting", *Committer), rows)


def _services() -> str:
    """One row per service, as the code carries them out."""
    columns = (
        *("service", "its own committer", "`magic`", "`directory`, `partitioned`"),
        *("settings besides the word's", "a driver that is started again", "seen before"),
    )
    return _table(columns, (_service(row) for row in RULES.values()))


def _service(row: ServiceRules) -> Iterator[str]:
    yield f"`{row.service}`"
    yield row.own
    if not row.words:
        yield from ("refused", "refused", "", "", "")
        return
    yield "yes" if Committer.MAGIC in row.words else "refused"
    yield f"by {row.shared}" if row.shared else "refused: machines share no file system"
    given = {**row.settings, **row.arguments}
    yield ", ".join(f"`{name}={value.rpartition('.')[2]}`" for name, value in given.items()) or ""
    yield row.retries
    yield row.asked


def _in_force(service: Service) -> str:
    """One row per release and scheme of paths: the committer of a job without a word, and with
    each."""
    row = RULES[service]
    columns = ("release", "paths", "without a word", "why", *(f"`{it}`" for it in Committer))
    rows = []
    for release in _RELEASES.get(service, _OF_EMR):
        without = committers_in_force(service, release, effective([]))
        with_word = {it: _by_word(row, release, it) for it in row.words}
        for number, found in enumerate(without):
            cells = (
                _outcome(with_word[it][number]) if it in with_word else "refused"
                for it in Committer
            )
            shown = f"`{release}`" if release else ""
            rows.append((shown, f"`{found.paths}`", found.committer, found.why, *cells))
    return _table(columns, rows)


def _by_word(row: ServiceRules, release: str, committer: Committer) -> tuple[CommitterInForce, ...]:
    given = {**S3ASettings(committer).spark_conf(), **row.settings}
    return committers_in_force(row.service, release, effective([("the word", given)]))


def _outcome(found: CommitterInForce) -> str:
    """What becomes of a job with a word: the committer that writes, if one does."""
    return "the job fails" if found.committer == "none" else found.committer


def _code(value: str) -> str:
    short = value.rpartition(".")[2] if value.startswith("org.apache.") else value
    return f"`{short}`" if value else ""


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


_TABLES = {
    SPARK: {
        "options for writing": lambda: markdown(WriterOptions),
        "options for reading": lambda: markdown(ReaderOptions),
    },
    S3A: {"settings": _settings},
    SERVICES: {"committers": _services},
    **{
        guide: {"committers in force": partial(_in_force, service)}
        for guide, service in GUIDES.items()
    },
}

if __name__ == "__main__":
    for page in _TABLES:
        page.write_text(updated(page), "utf-8")
