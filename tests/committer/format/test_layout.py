"""Table names and partition values as users make them up: each is written and read back."""

from __future__ import annotations

import itertools
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename import Table
from zero_rename.committer import InvalidInputError
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.schema.hive_paths import partition_values

_numbers = itertools.count()
NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    min_size=1,
    max_size=3,
).map("/".join)
#: Without those that are refused, see ``test_hive.py``: Hypothesis finds them in our source.
VALUES = st.none() | st.text(
    st.characters(exclude_categories=["Cs", "Cn"]) | st.sampled_from(" /=%:'\"\\{}[]^#?*é漢🙂"),
    min_size=1,
    max_size=20,
).filter(lambda text: not text.endswith("._COPYING_"))


def is_table_name(name: str) -> bool:
    """Whether the name is taken; :class:`InvalidInputError` is the only way to refuse it."""
    try:
        TableRoot.parse(f"s3://bucket/{name}")
    except InvalidInputError:
        return False
    return True


def table_in_memory(name: str) -> Table:
    """A table on a store of its own: names must not depend on what a server makes of them."""
    table = Table(f"s3://bucket-{next(_numbers)}/{name}")
    table.driver = MemoryDriver(MemoryStore(), bucket=table.root.bucket)  # type: ignore[assignment]
    return table


@settings(max_examples=100)
@given(name=NAMES)
def test_a_table_name_is_refused_or_read_back(name: str) -> None:
    url = f"s3://bucket/{name}"
    if not is_table_name(name):
        return
    root = TableRoot.parse(url)
    assert TableRoot.parse(root.url) == root
    assert root.prefix == name.rstrip("/")
    for partition in ("day=1", "day=1/hour=2"):
        assert root.partition_of_head_key(root.head_key(partition)) == partition
        key = root.data_key(partition, 0, "zr1-" + "0" * 26, 0)
        assert root.partition_of_data_key(key) == partition


@settings(max_examples=100)
@given(name=NAMES.filter(is_table_name), partition=NAMES | st.just(UNPARTITIONED))
def test_a_data_key_that_s3_takes_has_a_head_and_a_marker_that_s3_takes(
    name: str, partition: str
) -> None:
    """No key of a partition is longer than its data files': the length of that one is checked."""
    root = TableRoot.parse(f"s3://bucket/{name}")
    longest = len(root.data_key(partition, 0, "zr1-" + "0" * 26, 0).encode())
    for key in (root.head_key(partition), root.marker_key(partition)):
        assert len(key.encode()) < longest


@pytest.mark.parametrize("given", [None, "", 5, Path("s3://bucket/flights"), b"s3://bucket/t"])
def test_root_that_is_not_a_text_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="A table root is s3://bucket/prefix, not"):
        TableRoot.parse(given)


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_data_key_has_at_most_1024_bytes(letter: str) -> None:
    root = TableRoot("bucket", "t")
    job = "zr1-" + "0" * 26
    room = 1024 - len(root.data_key("p=", 0, job, 0))
    letters = letter * (room // len(letter.encode()))
    exactly = "x" * (room % len(letter.encode())) + letters
    assert len(root.data_key(f"p={exactly}", 0, job, 0).encode()) == 1024
    with pytest.raises(InvalidInputError, match="1025 bytes"):
        root.data_key(f"p={exactly}x", 0, job, 0)


@settings(max_examples=60)
@given(
    name=NAMES.filter(is_table_name), values=st.lists(VALUES, min_size=1, max_size=4, unique=True)
)
def test_rows_come_back_under_any_table_name_and_partition_value(
    name: str, values: list[str | None]
) -> None:
    data = pa.table({"row": range(len(values)), "value": pa.array(values, pa.string())})
    table = table_in_memory(name)
    with table.job(data.schema, partition_by=["value"]) as job:
        job.write(data)
    files = table.snapshot().files
    assert sum(file.rows for file in files) == len(values)
    assert len({file.partition for file in files}) == len(values)
    found = {_value_of(file.partition) for file in files}
    assert found == set(values)


def _value_of(partition: str) -> str | None:
    schema = pa.schema([("row", pa.int64()), ("value", pa.string())])
    return partition_values(partition, schema, ["value"])["value"]


def test_names_that_look_alike_are_two_tables() -> None:
    composed, decomposed = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    assert TableRoot.parse(f"s3://bucket/{composed}") != TableRoot.parse(
        f"s3://bucket/{decomposed}"
    )
