"""Lifecycle rules and disks, as the checks get them."""

from __future__ import annotations

import shutil
from math import inf
from pathlib import Path
from typing import Any

import pytest

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename.committer import TableRoot
from zero_rename.committer.s3.lifecycle import LifecycleRule
from zero_rename.committer.s3.requests import Unknown
from zero_rename.s3a.checks.host_facts import buffer_free_bytes, lifecycle_days
from zero_rename.s3a.hadoop.effective_settings import DAG_CONF, effective

ROOT = TableRoot("bucket", "tables/flights")


def days(store: MemoryStore, fault: Any = None) -> float | None:
    return MemoryDriver(store, fault).run(lifecycle_days(ROOT))


def test_the_first_rule_that_aborts_uploads_of_the_table_counts() -> None:
    store = MemoryStore()
    assert days(store) == inf
    elsewhere = LifecycleRule("elsewhere", "tables/flights_old/", abort_days=1)
    store.rules = (elsewhere, LifecycleRule("expires", "", expires=True))
    assert days(store) == inf
    store.rules = (elsewhere, LifecycleRule("a", "", 7), LifecycleRule("b", "tables/flights/", 3))
    assert days(store) == 3


def test_rules_that_the_store_does_not_tell() -> None:
    assert days(MemoryStore(), lambda *_: Unknown("403 AccessDenied")) is None


def settings(folder: str) -> dict:
    return dict(effective([(DAG_CONF, {"spark.hadoop.fs.s3a.buffer.dir": folder})]))


def test_room_of_buffer_folders(tmp_path: Path) -> None:
    free = buffer_free_bytes(settings(f"{tmp_path}, {tmp_path}/later/s3a"))
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


def test_variables_are_put_in_as_hadoop_does(tmp_path: Path) -> None:
    given = settings("${env.LOCAL_DIRS:-${some.where.else}}/s3a")
    assert buffer_free_bytes(given, {"LOCAL_DIRS": str(tmp_path)}) is not None
    assert buffer_free_bytes(given, {}) is None


def test_what_cannot_be_told_is_left_out() -> None:
    assert buffer_free_bytes(settings("${some.where.else}/s3a,relative/path"), {}) is None
