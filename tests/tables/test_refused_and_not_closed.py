"""A job is refused, and the store fails as its open record is removed: the refusal is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.delta_tables import on, rows, write
from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename.committer import InvalidInputError, TableMismatchError
from zero_rename.committer.errors import StoreUnreachableError
from zero_rename.committer.store.requests import Delete

OTHERS = pa.table({"day": ["1"], "other": [1.5]})


def keeps_records(request: Any, apply: Any) -> Any:
    if isinstance(request, Delete) and "/open/" in request.key:
        raise StoreUnreachableError("The store does not answer.")
    return apply(request)


def directories(store: MemoryStore, fault: Any = None) -> Any:
    table: Any = memory_table(store)
    table.driver.fault = fault
    return table


@pytest.mark.parametrize("opened", [directories, on], ids=["directories", "delta"])
def test_job_with_other_columns_is_told_so(
    opened: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A failure of the store was told in its place, and a scheduler tried the job again."""
    store = MemoryStore()
    write(opened(store), rows(1))
    with pytest.raises(TableMismatchError):
        write(opened(store, keeps_records), OTHERS)
    assert "stays for recovery" in caplog.text
    assert len(opened(store).open_jobs()) == 1


def test_restore_of_a_version_that_is_not_there_is_told_so() -> None:
    store = MemoryStore()
    write(on(store), rows(1))
    with pytest.raises(InvalidInputError, match="no version 7"):
        on(store, keeps_records).restore(7, apply=True)


def test_retention_of_a_table_that_is_not_there_is_told_so() -> None:
    store = MemoryStore()
    with pytest.raises(Exception, match="There is no Delta table here"):
        on(store, keeps_records).set_retention(7 * 24 * 3600.0)
