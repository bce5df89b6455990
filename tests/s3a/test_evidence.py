"""Each check guards something real: a test shows it, or it is said why none can."""

from __future__ import annotations

import re

from support.s3a_evidence import NOT_SHOWN, TESTS, shown
from zero_rename.s3a.checks import CHECKS


def test_every_check_is_shown_or_it_is_said_why_not() -> None:
    ids = {check.id for check in CHECKS}
    assert set(shown()) <= ids, "a test shows a check that there is not"
    assert set(NOT_SHOWN) <= ids
    assert ids - set(shown()) - set(NOT_SHOWN) == set()


def test_no_excuse_for_what_is_shown() -> None:
    assert not set(shown()) & set(NOT_SHOWN)


def test_excuses_name_tests_that_exist() -> None:
    for reason in NOT_SHOWN.values():
        for name in re.findall(r"tests/[\w/]+\.py", reason):
            assert (TESTS.parent / name).is_file(), name
