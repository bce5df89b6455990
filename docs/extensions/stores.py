"""docs/stores.md: what each store keeps, by the probe that a table's first job sends to it.

``PYTHONPATH=tests python -m docs.extensions.stores > docs/stores.md`` asks moto, S3Mock and
Ceph, and MinIO and versitygw where they are on PATH. A store that cannot be started here keeps the
row that the page has of it, where it was asked before; others have rows by their documentation.
"""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torture.servers import serving

from tools.server_process import ServerError
from zero_rename.committer.commit.state.probe import probe
from zero_rename.committer.errors import StoreUnfitError
from zero_rename.committer.format.layout import TableRoot, new_write_id
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.store.driver import connect

DOCUMENT = Path(__file__).resolve().parents[1] / "stores.md"
ASKED = ("moto", "s3mock", "ceph", "minio", "versitygw")


@dataclass(frozen=True)
class Promise:
    """Something that a store may keep.

    :param fact: the field of :class:`StoreFacts` that says so.
    :param good: the field's value where it does.
    :param coping: what is done where it does not.
    """

    title: str
    fact: str
    coping: str
    good: bool = True


PROMISES = (
    Promise(
        "If-None-Match and If-Match of PUT",
        "conditional_put",
        "A table of coordination *store* is refused. With `coordination=none` there is one writer "
        "at a time, no conflict detection and no recovery by others "
        "([protocol.md](protocol.md#tables-of-coordination-none)).",
    ),
    Promise(
        "… in one step, where writers race",
        "atomic",
        "Only one writer at a time: a second job is refused while one is open, and orchestrators "
        "do not try it again by themselves. A race that nobody loses proves nothing, so the "
        "package has a list of stores that check and write in two steps.",
    ),
    Promise(
        "If-Match of DELETE",
        "conditional_delete",
        "A replace removes the files that it has listed without a condition: a file that a "
        "stranger puts at the same key meanwhile is removed, too.",
    ),
    Promise(
        "uploads listed by prefix",
        "uploads_by_prefix",
        "All uploads of the bucket are listed and filtered: this costs more in a bucket of many "
        "tables.",
    ),
    Promise(
        "uploads listed at all",
        "uploads_listed",
        "The store is refused: the uploads of a killed task could never be found.",
    ),
    Promise(
        "a second Complete leaves a deleted file deleted",
        "complete_resurrects",
        "A process that completes an upload looks at the head afterwards, and removes the file "
        "again if it belongs to a former state.",
        good=False,
    ),
)
_TITLES = {
    "minio": "MinIO",
    "versitygw": "versitygw (posix)",
    "ceph": "Ceph RGW",
    "s3mock": "S3Mock",
}
_SAID = tomllib.loads(Path(__file__).with_name("stores.toml").read_text("utf-8"))
_HEAD = """\
# Stores

This page shows which guarantees of the protocol each store keeps. A table's first job sends a
probe that finds them, and `zero-rename doctor` sends it again. Rows of stores that were not asked
follow documentation or source. Written by
`PYTHONPATH=tests python -m docs.extensions.stores > docs/stores.md`.
"""
_TAIL = """\
What happens if the store throttles, does not answer or is full: [protocol.md](protocol.md#retries).
Which tests run on which store: [contributing.md](contributing.md#tests).
"""


def row(title: str, facts: StoreFacts | None, source: str) -> str:
    """A line of the table; ``facts`` of a store that is refused: ``None``."""
    if facts is None:
        cells = ["" for _ in PROMISES]
        return f"| {title} | {' | '.join(cells)} | refused | {source} |"
    kept = [getattr(facts, promise.fact) == promise.good for promise in PROMISES]
    if not facts.conditional_put:
        fit = "`coordination=none`"
    elif not facts.uploads_listed:
        fit = "refused"
    else:
        fit = "many writers" if facts.atomic else "one writer at a time"
    return f"| {title} | {' | '.join('yes' if it else 'no' for it in kept)} | {fit} | {source} |"


def asked_now() -> Iterator[tuple[str, str]]:
    """Rows of the stores that start here, by title."""
    for name in ASKED:
        title = _TITLES.get(name, name)
        try:
            with serving(name) as store:
                client, bucket = store.client(), f"facts-{uuid.uuid4().hex[:12]}"
                client.create_bucket(Bucket=bucket)
                source = f"asked: {store.origin}"
                driver = connect(bucket, client)
                try:
                    facts = driver.run(probe(TableRoot(bucket, "table"), new_write_id))
                except StoreUnfitError as error:
                    facts, source = None, f"{source}. {error.message.split(': ')[0]}"
                yield title, row(title, facts, source)
        except ServerError:
            continue


def page(rows: Mapping[str, str], before: str) -> str:
    """The page.

    :param rows: of the stores that were asked now; ``before``: the page as it was.
    """
    kept = {
        found[1]: found[0]
        for found in re.finditer(r"^\| ([^|]+) \|.*\| asked: .*\|$", before, re.M)
    }
    documented = {
        it["store"]: row(it["store"], StoreFacts(**it.get("facts", {})), it["source"])
        for it in _SAID["documented"]
    }
    rows = {**documented, **kept, **rows}
    titles = [promise.title for promise in PROMISES]
    lines = [
        _HEAD,
        f"| store | {' | '.join(titles)} | tables | known from |",
        f"|---|{'---|' * len(PROMISES)}---|---|",
        *(rows[title] for title in sorted(rows, key=str.lower)),
        "",
        "## If a guarantee is missing",
        "",
        "| missing | what is done |",
        "|---|---|",
        *(f"| {promise.title} | {promise.coping} |" for promise in PROMISES),
        "",
        "## Other differences",
        "",
        "| store | what it does | so |",
        "|---|---|---|",
        *(f"| {it['store']} | {it['does']} | {it['so']} |" for it in _SAID["oddity"]),
        "",
        _TAIL,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    former = DOCUMENT.read_text("utf-8") if DOCUMENT.exists() else ""
    print(page(dict(asked_now()), former), end="")
