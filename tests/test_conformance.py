"""docs/conformance.md says what is true: each item is covered by a test or does not apply."""

from __future__ import annotations

import pytest

from support import conformance
from support.conformance import ITEMS, Side


def test_the_document_is_up_to_date() -> None:
    """Write it anew: python tests/support/conformance.py > docs/conformance.md"""
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


def test_an_item_has_one_reason_at_most() -> None:
    assert [n for n, item in ITEMS.items() if item.s3a and item.s3a_hadoop] == []
    assert len(ITEMS) == sum(map(len, conformance.SECTIONS.values())), "no number twice"


def test_tests_that_are_named_here_exist() -> None:
    for item in ITEMS.values():
        for test in item.native_tests:
            file, name = test.split("::")
            assert f"def {name}(" in (conformance.TESTS / file).read_text("utf-8"), test


def test_numbers_are_read_from_docstrings_and_comments() -> None:
    source = '''
class TestX:
    """Conformance 94, 31 and 32."""

    def test_y(self):
        """What it does. Conformance items 100, and 102: more, and 7 words."""
        x = 1  # Conformance
        # Conformance 103: of a deleted object
        return x

    def test_z(self):
        """Conformance 7. And S3A
        conformance 8, 9."""

def helper():
    """conformance 5"""
'''
    assert list(conformance._named_in(source)) == [
        ("TestX", Side.NATIVE, [94, 31, 32]),
        ("TestX::test_y", Side.NATIVE, [100, 102]),
        ("TestX::test_z", Side.NATIVE, [7]),
        ("TestX::test_z", Side.S3A, [8, 9]),
        ("TestX::test_y", Side.NATIVE, [103]),
    ]
