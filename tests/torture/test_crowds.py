"""Eight real processes that change one Delta table at once: the short form of the crowds of
``make torture``."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from torture.crowds import Reader, crowd, read_by_delta_rs
from torture.proxy import Proxy
from torture.servers import Store

from support.lake_readers import lake_readers

WRITERS, JOBS = 8, 4


@pytest.fixture
def url(atomic_store: Store) -> str:
    bucket = f"crowds-{uuid.uuid4().hex}"
    atomic_store.client().create_bucket(Bucket=bucket)
    return f"s3://{bucket}/flights"


@pytest.fixture
def read(atomic_store: Store) -> Iterator[Reader]:
    with lake_readers() as process:
        yield read_by_delta_rs(process, atomic_store)


def test_eight_writers_lose_and_double_no_row_and_delta_rs_reads_the_same(
    atomic_store: Store, url: str, read: Reader
) -> None:
    found = crowd(atomic_store, url, WRITERS, JOBS, seed=1, read=read)
    assert found.good, found
    assert (found.committed + found.refused).total() == WRITERS * JOBS
    assert set(found.committed) == {"append", "replace", "replace own", "merge"}
    assert found.refused.keys() <= {"append", "replace", "merge"}


def test_eight_writers_of_which_one_is_killed_lose_and_double_no_row(
    atomic_store: Store, url: str
) -> None:
    with Proxy(atomic_store.endpoint) as proxy:
        found = crowd(atomic_store, url, WRITERS, JOBS, seed=1, victim=proxy)
    assert found.good, found
    assert (found.committed + found.refused).total() < WRITERS * JOBS
    assert found.committed > Counter()
