"""Data roots as users write them, and where their files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError, TableRoot
from zero_rename.committer.store.fast_root import FastPlace, FastRoot, is_fast


@pytest.mark.parametrize(
    "text",
    [
        "s3://fast/scratch",
        "s3://fast/a/b?endpoint=http://127.0.0.1:9000",
        "s3://fast/a?endpoint=https://fast.example:9000&profile=my+fast&temporary=true",
    ],
)
def test_url_of_a_data_root_is_parsed_as_it_is_written(text: str) -> None:
    assert FastRoot.parse(text).url == text
    assert FastRoot.parse(FastRoot.parse(text).url) == FastRoot.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("fast", "s3://fast", "s3://fast/", "s3://fast/a//b", "s3://fast/../b", "file://a/b"),
        *("s3://fast/a?endpoint=ftp://x", "s3://fast/a?endpoint=http://user:secret@x"),
        *("s3://fast/a?profile=", "s3://fast/a?key=secret", "s3://fast/a?temporary=1"),
        *("s3://fast/a?user=a:secret@b", "s3://user:secret@fast/a"),
        "s3://fast/a?endpoint=http://x:port",
    ],
)
def test_other_text_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        FastRoot.parse(text)
    assert "secret" not in str(refused.value)


def test_key_of_a_file_says_where_the_file_lies() -> None:
    root = FastRoot.parse("s3://fast/scratch")
    key = f"{TableRoot('bucket', 'flights').fast_data_prefix(root)}zr1-x/day=2/part-00000.parquet"
    place = FastPlace.of("bucket", key)
    assert is_fast(key)
    assert place is not None
    assert place.root == root
    assert place.real(key) == "scratch/bucket/flights/zr1-x/day=2/part-00000.parquet"
    assert FastPlace.of("bucket", "flights/data/zr1-x/part-00000.parquet") is None


@pytest.mark.parametrize("given", [None, 5, Path("s3://bucket/scratch")])
def test_data_root_that_is_not_a_text_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="is no data root"):
        FastRoot.parse(given)
