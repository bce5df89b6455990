"""docs/stores.md: what the code and the texts beside it say now, and rows of stores that were
asked."""

from __future__ import annotations

from docs.extensions.stores import DOCUMENT, page, row
from zero_rename.committer.format.records.store_facts import StoreFacts


def test_the_page_is_up_to_date() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert page({}, text) == text
    for name in ("moto", "S3Mock", "Ceph RGW"):
        assert f"\n| {name} |" in text, "it was asked"


def test_a_row_says_what_tables_may_be_there() -> None:
    facts = StoreFacts("store", atomic=False, complete_resurrects=True)
    assert row("a", facts, "asked: 1") == (
        "| a | yes | no | yes | yes | yes | no | one writer at a time | asked: 1 |"
    )
    assert "many writers" in row("a", StoreFacts(), "")
    assert "`coordination=none`" in row("a", StoreFacts(conditional_put=False), "")
    assert "refused" in row("a", StoreFacts(uploads_listed=False), "")
    assert "refused" in row("a", None, "")


def test_a_store_that_is_asked_again_gets_a_new_row() -> None:
    before = page({"moto": row("moto", StoreFacts(), "asked: 1")}, "")
    after = page({"moto": row("moto", StoreFacts(atomic=False), "asked: 2")}, before)
    assert "asked: 1" not in after
    assert page({}, after) == after
