"""One session of Delta on Spark for all tests of Delta tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.delta_spark import delta_spark as session_of_spark
from support.engine_process import EngineProcess
from support.moto_server import S3Server


@pytest.fixture(scope="session")
def delta_spark(
    moto_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    with session_of_spark(tmp_path_factory.mktemp("delta-spark"), moto_server) as process:
        yield process
