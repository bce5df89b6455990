"""``save()`` and ``load()`` on the oldest Spark that they run on, from the wheel, in an environment
of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.moto_server import S3Server
from support.older_python import older_python
from support.spark import INTERPRETED
from support.spark_elsewhere import CHANGING, KEPT, LOADING, SAVING, passed_elsewhere
from tools.environments import OLDER_SPARK

pytestmark = [pytest.mark.spark, pytest.mark.slow]
#: Set by `make test-older-spark`: every test of these modules runs there.
WHOLE = "OLDER_SPARK_WHOLE"
_INTERPRETED = " ".join(f"--conf {key}={value}" for key, value in INTERPRETED.items())
_INTERPRETED += " pyspark-shell"


@pytest.fixture(scope="module")
def python() -> Path:
    return older_python(OLDER_SPARK)


def test_save(python: Path, s3_server: S3Server, wheel: Path, tmp_path: Path) -> None:
    """One session for all."""
    whole = bool(os.environ.get(WHOLE))
    chosen = () if whole else KEPT
    passed = passed_elsewhere(
        python,
        wheel,
        s3_server,
        [*SAVING, *LOADING, *CHANGING],
        chosen,
        tmp_path,
        {} if whole else {"ROW_SEQUENCES": "1", "PYSPARK_SUBMIT_ARGS": _INTERPRETED},
    )
    assert passed >= (30 if whole else len(KEPT))
