"""docs/conformance.md says what is true: each item is covered by a test or does not apply."""

from __future__ import annotations

from support import conformance


def test_the_document_is_up_to_date() -> None:
    """Write it anew: python tests/support/conformance.py > docs/conformance.md"""
    assert conformance.DOCUMENT.read_text("utf-8") == conformance.document()


def test_every_item_is_covered_or_does_not_apply() -> None:
    tests = conformance.covered()
    missing = [
        number
        for number, item in conformance.ITEMS.items()
        if not item.reason and number not in tests
    ]
    assert missing == []


def test_tests_name_items_that_there_are_and_that_apply() -> None:
    tests = conformance.covered()
    unknown = {n: names for n, names in tests.items() if n not in conformance.ITEMS}
    assert unknown == {}
    contradicted = {n: tests[n] for n, i in conformance.ITEMS.items() if i.reason and n in tests}
    assert contradicted == {}


def test_tests_that_are_named_here_exist() -> None:
    for item in conformance.ITEMS.values():
        for test in item.tests:
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

def helper():
    """conformance 5"""
'''
    assert list(conformance._named_in(source)) == [
        ("TestX", [94, 31, 32]),
        ("TestX::test_y", [100, 102]),
        ("TestX::test_y", [103]),
    ]
