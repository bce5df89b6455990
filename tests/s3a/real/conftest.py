"""One JVM with the real jars, on versitygw or MinIO; skipped where the jars are not cached."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torture.servers import serving

from support.hadoop_committers import Application, Place, environment, static_settings
from tools import s3_servers
from tools.fetch_s3a_jars import cached_jars

#: Set by `.ci/run` for `make test`, since it runs `make test-s3a` next.
LATER = "S3A_TESTS_LATER"
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    line = (
        "shows(*ids): what happens where these checks of zero_rename.s3a.checks.run are passed over"
    )
    config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _why_not()
    if reason:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


def _why_not() -> str | None:
    if os.environ.get(LATER):
        return "make test-s3a runs these next"
    if cached_jars() is None:
        return "the S3A jars are not cached (700 MB): make test-s3a fetches them"
    return None


def server_name() -> str:
    """The real store: versitygw, built if need be; MinIO where that is all there is.

    In CI a missing server is a failure, not a skip.
    """
    named = os.environ.get("S3A_SERVER")
    if named:
        return named
    try:
        s3_servers.build("versitygw")
    except s3_servers.BuildError as error:
        if s3_servers.binary("minio"):
            return "minio"
        if s3_servers.required():
            pytest.fail(str(error))
        pytest.skip(str(error))
    return "versitygw"


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Spark on ``local[2,2]``: two tasks at once, two attempts each."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("s3a")
    jars = cached_jars()
    assert jars is not None
    with serving(server_name()) as store:
        before = dict(os.environ)
        os.environ.update(environment(store))
        try:
            builder = SparkSession.builder.master("local[2,2]").appName("s3a")
            for name, value in static_settings(store, jars, folder).items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
        finally:
            os.environ.clear()
            os.environ.update(before)
        try:
            yield Application(spark, store, folder)
        finally:
            spark.stop()


@pytest.fixture
def place(application: Application) -> Place:
    """An empty destination in the shared bucket."""
    return application.place()


@pytest.fixture
def own_place(application: Application) -> Place:
    """An empty destination in a bucket whose file system is not made yet."""
    return application.place(application.new_bucket())
