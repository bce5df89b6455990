"""A new table below one whose engines delete, when they clean up, what its log does not name."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from conftest import Bucket

from support.faults import on
from support.memory_store import MemoryDriver
from zero_rename import Table
from zero_rename.committer.commit.state.found_table import refuse_below_swept
from zero_rename.committer.errors import InvalidInputError, StoreRefusedError, StoreUnreachableError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import ListObjects
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"day": ["1", "2"], "delay": [5, 6]})


def load_delta(url: str) -> None:
    with DeltaTable(url).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)


def load_directories(url: str) -> None:
    with Table(url).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)


def ask_for_hadoop(url: str) -> None:
    Table(url).refuse_folder_of_others()


LOADS: list[Callable[[str], None]] = [load_delta, load_directories]


@pytest.fixture
def lake(s3_bucket: Bucket) -> str:
    return f"s3://{s3_bucket.name}/lake"


@pytest.mark.parametrize("make", [*LOADS, ask_for_hadoop], ids=lambda it: it.__name__)
@pytest.mark.parametrize(
    "log", ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json"]
)
def test_a_new_table_below_one_whose_clean_up_would_delete_its_files_is_refused(
    lake: str, s3_bucket: Bucket, log: str, make: Callable[[str], None]
) -> None:
    s3_bucket.put(f"lake/{log}", b"{}")
    before = s3_bucket.keys()
    with pytest.raises(InvalidInputError, match=f"lies below {lake}, a table of") as refused:
        make(f"{lake}/eu/flights")
    assert "Write to a root that lies below no table" in str(refused.value)
    assert s3_bucket.keys() == before


@pytest.mark.parametrize("make", LOADS, ids=lambda it: it.__name__)
def test_a_new_table_beside_another_one_and_below_a_folder_of_metadata_is_made(
    lake: str, s3_bucket: Bucket, make: Callable[[str], None]
) -> None:
    s3_bucket.put("lake/metadata/owners/v1.metadata.json", b"{}")
    s3_bucket.put("lake/flights/_delta_log/00000000000000000000.json", b"{}")
    make(f"{lake}/flights2")


def test_a_folder_above_that_may_not_be_listed_is_taken_for_no_table() -> None:
    driver = MemoryDriver()
    driver.fault = on(ListObjects, StoreRefusedError("Access Denied.", lacks_right=True))
    driver.run(refuse_below_swept(TableRoot("bucket", "lake/eu/flights")))
    assert len(driver.requests) == 4


def test_a_folder_above_that_the_store_does_not_tell_of_refuses_the_table() -> None:
    driver = MemoryDriver()
    driver.fault = on(ListObjects, StoreUnreachableError("No answer."))
    with pytest.raises(StoreUnreachableError):
        driver.run(refuse_below_swept(TableRoot("bucket", "lake/flights")))
