"""docs/conformance.md and docs/stores.md, which are made from the code: each says what is true."""

from __future__ import annotations

import pytest

from docs.extensions import conformance, stores
from docs.extensions.conformance import ITEMS, Side


def test_the_document_is_up_to_date() -> None:
    """Write it anew: python -m docs.extensions.conformance > docs/conformance.md"""
    assert conformance.DOCUMENT.read_text("utf-8") == conformance.document()


@pytest.mark.parametrize("side", Side)
def test_every_item_is_covered_or_does_not_apply(side: Side) -> None:
    assert conformance.missing(conformance.covered())[side] == []


@pytest.mark.parametrize("side", Side)
def test_tests_name_items_that_there_are_and_that_apply(side: Side) -> None:
    tests = conformance.covered()[side]
    assert {n: names for n, names in tests.items() if n not in ITEMS} == {}
    contradicted = {n: tests[n] for n, i in ITEMS.items() if i.why_not(side) and n in tests}
    assert contradicted == {}


def test_tests_that_are_named_here_exist() -> None:
    for item in ITEMS.values():
        for test in item.native_tests:
            file, name = test.split("::")
            assert f"def {name}(" in (conformance.TESTS / file).read_text("utf-8"), test


def test_the_page_of_stores_is_up_to_date() -> None:
    text = stores.DOCUMENT.read_text("utf-8")
    assert stores.page({}, text) == text
    for name in ("moto", "S3Mock", "Ceph RGW"):
        assert f"\n| {name} |" in text, "it was asked"
