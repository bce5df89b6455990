"""Rows that Spark wrote, against those that the files hold."""

from __future__ import annotations

import pytest

from zero_rename.committer.errors import VerificationError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.s3a.verification.contents import check_rows

ROOT = TableRoot("bucket", "t")


@pytest.mark.parametrize(
    ("wrote", "hold", "at_least"),
    [(3, 3, False), (0, 0, False), (None, 3, False), (3, None, False), (3, 4, True), (3, 3, True)],
)
def test_none_is_missing(wrote: int | None, hold: int | None, at_least: bool) -> None:
    check_rows(ROOT, "job", wrote, hold, at_least=at_least)


@pytest.mark.parametrize(
    ("wrote", "hold", "at_least"), [(240, 230, False), (3, 4, False), (240, 230, True)]
)
def test_the_numbers_differ(wrote: int, hold: int, at_least: bool) -> None:
    with pytest.raises(VerificationError, match=f"wrote {wrote} rows, .* hold {hold}") as e:
        check_rows(ROOT, "job", wrote, hold, at_least=at_least)
    assert (e.value.table, e.value.job) == (ROOT.url, "job")
