"""Rows that Spark wrote, against those that the files hold."""

from __future__ import annotations

import pytest

from zero_rename.committer.errors import VerificationError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.s3a.verification.contents import check_rows

ROOT = TableRoot("bucket", "t")


@pytest.mark.parametrize(
    ("wrote", "hold"),
    [(3, 3), (0, 0), (None, 3), (3, None)],
)
def test_none_is_missing(wrote: int | None, hold: int | None) -> None:
    check_rows(ROOT, "job", wrote, hold)


@pytest.mark.parametrize(("wrote", "hold"), [(240, 230), (3, 4)])
def test_the_numbers_differ(wrote: int, hold: int) -> None:
    with pytest.raises(VerificationError, match=f"wrote {wrote} rows, .* hold {hold}") as e:
        check_rows(ROOT, "job", wrote, hold)
    assert (e.value.table, e.value.job) == (ROOT.url, "job")
