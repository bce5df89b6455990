"""Tests run on another PySpark than the checkout's: from the wheel, in its own environment."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import _hypothesis_globals
import hypothesis
import sortedcontainers

from support.moto_server import S3Server
from support.spark import environment
from support.waiting import STUCK

#: What Spark's version and its way to run (classic, Connect) decide of workers that are used again.
WORKERS = (
    "test_reused_workers_read_no_unchanged_archive_again",
    "test_archive_added_later_and_replaced_in_place_is_imported",
)
#: What differs by Spark's version: its types, how it repeats tasks and ends jobs, a whole pipeline.
KEPT = (
    *("test_append_overwrite_and_named_partitions", "test_types", "test_the_flights_pipeline"),
    *("test_decimals_of_a_delta_table", "test_local_times_are_loaded_as_such"),
    *("test_a_retried_task_counts_once", "test_a_stage_that_is_run_again", "test_a_killed_worker"),
    *("test_an_error_of_ours_keeps_its_class", "test_a_job_group"),
    *("test_rows_of_a_partition_come_together", "test_a_frame_with_an_order_of_its_own"),
    "test_a_large_partition_is_of_several_tasks",
    *("test_while_its_tasks_write", "test_while_its_files_become_visible"),
    *("test_the_state_is_the_one_that_was_there", "test_a_view_shows_the_state"),
    "test_any_sequence_leaves_what_a_dictionary_says",
    *("test_merge_of_reordered_fields", "test_merge_that_widens", "test_update_by_reordered"),
    *WORKERS,
)
#: Tests of the Python data source, from 4.1.
FORMAT = ("reading/test_load.py::test_an_empty_table",)
SAVING = (
    *("saving/test_save.py", "saving/test_distribution.py", "saving/test_killed_driver.py"),
    "saving/test_reused_workers.py",
)
#: Merges, updates and deletions.
CHANGING = ("test_row_sequences.py", "test_fields_by_name.py")
#: Tests of ``load()`` that need no Python data source.
LOADING = tuple(
    f"reading/test_load.py::test_{name}"
    for name in (
        "what_cannot_be_right",
        "the_state_is_the_one_that_was_there_at_the_call",
        "an_overwrite_is_held_against_what_was_loaded",
        "a_view_shows_the_state_of_its_making",
        "a_join_sends_a_table_to_all_executors_if_it_is_small",
    )
)
#: What tests need beside pytest: the environments are of this Python, too.
_BORROWED = (hypothesis, _hypothesis_globals, sortedcontainers)

_TESTS = Path(__file__).resolve().parents[1]
#: None is skipped.
_SAID = re.compile(r"^(\d+) passed(?:, \d+ deselected)?(?:, \d+ warnings?)? in ", re.MULTILINE)
_INI = """
[pytest]
addopts = --import-mode=importlib --strict-markers -W ignore
markers =
    spark: starts a Java virtual machine
"""


def passed_elsewhere(
    python: Path,
    wheel: Path,
    server: S3Server,
    modules: Sequence[str],
    chosen: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> int:
    """How many tests passed in one session there; fails where one did not.

    The wheel is unpacked as pip does it: Python keeps no compiled modules of a zip, and each worker
    would compile them anew.

    :param modules: their files, below ``tests/spark``.
    :param chosen: names of tests; none for all.
    """
    package = folder / "package"
    zipfile.ZipFile(wheel).extractall(package)
    for module in _BORROWED:
        path = Path(str(module.__file__))
        path = path.parent if path.name == "__init__.py" else path
        (package / path.name).symlink_to(path)
    ini = folder / "pytest.ini"
    ini.write_text(_INI)
    here = _TESTS / "spark"
    command = [python, "-m", "pytest", "-q", "-c", ini, "--rootdir", _TESTS]
    command += ["--confcutdir", here / "saving", "-p", "support.older_spark"]
    command += ["-p", "no:cacheprovider", "--basetemp", folder / "t"]
    if chosen:
        command += ["-k", " or ".join(chosen)]
    done = subprocess.run(
        [*map(str, command), *(str(here / module) for module in modules)],
        cwd=folder,
        env=environment(server)
        | {
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join(map(str, (package, _TESTS))),
            # pytest of another environment shall not meet what this one was told.
            "PYTEST_ADDOPTS": "",
        }
        | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = _SAID.search(done.stdout)
    assert found is not None, done.stdout
    return int(found[1])
