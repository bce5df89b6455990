"""``save()`` and ``load()`` on the Sparks between the oldest and the newest, classic and Connect.

Not of ``make test``: ``make other-sparks`` makes the environments, sets ``OTHER_SPARKS`` and runs
this.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.moto_server import S3Server
from support.spark_elsewhere import (
    CHANGING,
    FORMAT,
    KEPT,
    LOADING,
    SAVING,
    WORKERS,
    passed_elsewhere,
)
from tools.environments import SPARK_4_0, SPARK_4_1, PinnedEnvironment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("OTHER_SPARKS"), reason="of make other-sparks"),
]
#: What a client of Spark Connect can do: it has no context, and the JVM is the server's.
_BY_CONNECT = (
    *("test_append_overwrite_and_named_partitions", "test_more_partitions_than_are_open"),
    *("test_names_that_are_syntax_to_spark", "test_once", "test_what_cannot_be_written"),
    *(
        "test_types",
        "test_the_flights_pipeline",
        "test_a_killed_worker",
        "test_the_users_own_error",
    ),
    *(
        "test_an_error_of_ours_keeps_its_class",
        "test_another_job_meanwhile",
        "test_run_leaves_out",
        "test_another_version",
    ),
    *("test_rows_of_a_partition_come_together", "test_a_frame_with_an_order_of_its_own"),
    *("test_the_state_is_the_one", "test_an_overwrite_is_held", "test_a_view_shows_the_state"),
    *WORKERS,
)


@pytest.mark.parametrize("way", ["classic", "Connect"])
@pytest.mark.parametrize("environment", [SPARK_4_0, SPARK_4_1], ids=lambda it: it.version)
def test_save(
    environment: PinnedEnvironment, way: str, s3_server: S3Server, wheel: Path, tmp_path: Path
) -> None:
    variables = {"SPARK_TESTS_REMOTE": "local[2,3]"} if way == "Connect" else {}
    chosen, modules = KEPT if way == "classic" else _BY_CONNECT, [*SAVING, *LOADING, *CHANGING]
    if way == "classic" and not environment.version.startswith("4.0."):
        chosen, modules = (*chosen, "test_an_empty_table"), [*modules, *FORMAT]
    passed = passed_elsewhere(
        environment.python, wheel, s3_server, modules, chosen, tmp_path, variables
    )
    assert passed >= len(chosen)
