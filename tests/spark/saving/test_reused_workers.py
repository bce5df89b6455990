"""Python workers that Spark uses again: they keep what they have read of unchanged zip archives,
and import what is new. Runs on other Sparks too, as ``test_save.py`` does: up to 4.1 Spark has
all importers read at each task's start."""

from __future__ import annotations

import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zero_rename.spark import save

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="importers read when next asked"),
]


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/lake/table"


def in_workers(spark: Any, act: Callable[[], str]) -> dict[int, set[str]]:
    """What a function of no names but its own returns in each of 8 tasks, by worker."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.record_batch([[os.getpid()], [act()]], names=["worker", "answer"])

    found: dict[int, set[str]] = {}
    for row in spark.range(0, 8, 1, 8).mapInArrow(task, "worker long, answer string").collect():
        found.setdefault(row.worker, set()).add(row.answer)
    return found


def saved_in_workers(spark: Any, url: str) -> None:
    """Write by tasks of eight, so that every worker has had one."""
    save(spark.range(0, 8, 1, 8), url)


def test_reused_workers_read_no_unchanged_archive_again(spark: Any, url: str) -> None:
    saved_in_workers(spark, url)
    key = f"known_to_{uuid.uuid4().hex}"

    def still_read() -> str:
        """Whether each importer of an archive has what it had when this worker was first asked."""
        import sys

        importers: Any = list(sys.path_importer_cache.values())
        now = {
            id(importer): importer._files
            for importer in importers
            if type(importer).__name__ == "zipimporter"
        }
        known: Any = sys.modules.setdefault(key, now)  # pyrefly: ignore[no-matching-overload]
        return f"{len(now)} {all(known[it] is files for it, files in now.items() if it in known)}"

    in_workers(spark, still_read)  # The first reading after the importers were made.
    first, again = in_workers(spark, still_read), in_workers(spark, still_read)
    both = first.keys() & again.keys()
    assert both, "no worker was used again: the test shows nothing"
    answers = set().union(*(again[worker] for worker in both))
    assert all(answer.endswith(" True") for answer in answers), again
    assert not any(answer.startswith("0 ") for answer in answers), "no archive is on the path"


def make_archive(path: Path, **modules: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in modules.items():
            archive.writestr(f"{name}.py", f"value = {value}")


def test_archive_added_later_and_replaced_in_place_is_imported(
    spark: Any, url: str, tmp_path: Path
) -> None:
    saved_in_workers(spark, url)
    name = f"m{uuid.uuid4().hex[:8]}"
    added = tmp_path / f"{name}.zip"
    make_archive(added, **{f"{name}_first": 1})
    if hasattr(spark, "_jsparkSession"):
        spark.sparkContext.addPyFile(str(added))
    else:
        spark.addArtifacts(str(added), pyfile=True)

    def first() -> str:
        """Import it. An archive of this moment counts as an old one from now on."""
        import importlib

        from zero_rename.spark import zip_archives

        zip_archives._TICK = 0.0
        module = importlib.import_module(f"{name}_first")
        importlib.invalidate_caches()
        loader = module.__loader__
        return f"{module.value} {loader.archive}"  # pyrefly: ignore[missing-attribute]

    found = set().union(*in_workers(spark, first).values())
    (answer,) = found
    assert answer.startswith("1 ")
    place = Path(answer[2:])
    make_archive(place, **{f"{name}_first": 1, f"{name}_second": 2})

    def second() -> str:
        import importlib

        importlib.invalidate_caches()  # As Spark does itself up to 4.1.
        return str(importlib.import_module(f"{name}_second").value)

    assert set().union(*in_workers(spark, second).values()) == {"2"}
    place.unlink()

    def third() -> str:
        import importlib
        import sys

        importlib.invalidate_caches()
        sys.modules.pop(f"{name}_second", None)
        try:
            return str(importlib.import_module(f"{name}_second").value)
        except ModuleNotFoundError:
            return "gone"

    assert set().union(*in_workers(spark, third).values()) == {"gone"}
