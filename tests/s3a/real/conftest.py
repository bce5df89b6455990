"""One JVM with the real jars, on S3Mock; skipped where the jars are not cached."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from torture.servers import Store, is_url, of_moto, of_server, of_url

from support.dead_drivers import Death, Held, completion, kill_driver, pending_set
from support.hadoop_committers import (
    Application,
    OnAnotherStore,
    Place,
    environment,
    static_settings,
)
from support.moto_server import S3Server
from support.shared_servers import shared_server
from support.spark import end_of_sessions, remember_names, shared
from tools.fetch_s3a_jars import cached_jars

#: Set by `make test-s3a` and `make proof`: nothing is thinned out.
WHOLE = "S3A_WHOLE"
HERE = Path(__file__).parent
#: Jobs of drivers that died: the committer, and the request that was never carried out.
DEATHS: Mapping[str, tuple[str, Callable[[], Held]]] = {
    "before": ("magic", lambda: completion(0)),
    "middle": ("magic", lambda: completion(1)),
    "tasks": ("magic", lambda: pending_set(1)),
    "staging": ("directory", lambda: completion(1)),
    # These are recovered.
    "in the middle of its commit": ("magic", lambda: completion(1)),
    "at the end of its commit": ("magic", lambda: completion(3)),
    "before its commit": ("magic", lambda: completion(0)),
    "with a task not committed": ("magic", lambda: pending_set(1)),
    "a staging committer in the middle": ("directory", lambda: completion(1)),
}
MARKERS = (
    "shows(*ids): what happens where these checks of zero_rename.s3a.checks are passed over",
    "thinned(**kept): by parameter, the values that every run keeps; what "
    "is left out shows the same of other committers, and runs with make test-s3a and make proof",
    "of_the_jars: shows what the pinned jars do by themselves, or what another test shows, at the "
    "cost of a JVM or many jobs; runs with make test-s3a and make proof, and has to when the pins "
    "change",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get(WHOLE):
        left_out = set(_thinned_out([item for item in items if HERE in item.path.parents]))
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    if cached_jars() is None:
        reason = "the S3A jars are not cached (700 MB): make test-s3a fetches them"
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


def _thinned_out(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """What a run leaves out: of each test some parameters, and what is of the jars alone."""
    yield from (item for item in items if item.get_closest_marker("of_the_jars"))
    for _, group in itertools.groupby(items, lambda item: item.nodeid.partition("[")[0]):
        tests = list(group)
        kept = [item for item in tests if _is_kept(item)]
        yield from (item for item in tests if kept and item not in kept)


def _is_kept(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("thinned")
    given = getattr(item, "callspec", None)
    if mark is None or given is None:
        return True
    return all(given.params.get(name, kept[0]) in kept for name, kept in mark.kwargs.items())


@pytest.fixture(scope="session")
def s3a_store(pytestconfig: pytest.Config) -> Store:
    """The real store, the same for all workers: ``S3A_SERVER`` of the environment, else S3Mock."""
    name = os.environ.get("S3A_SERVER") or "s3mock"
    return of_url(name) if is_url(name) else of_server(shared_server(pytestconfig, name))


@pytest.fixture(scope="session")
def application(
    s3a_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """Spark on ``local[2,2]``: two tasks at once, two attempts each."""
    from pyspark.sql import SparkSession

    end_of_sessions()
    remember_names()
    folder = tmp_path_factory.mktemp("s3a")
    jars = cached_jars()
    assert jars is not None
    before = dict(os.environ)
    os.environ.update(environment(s3a_store))
    try:
        builder = SparkSession.builder.master("local[2,2]").appName("s3a")
        given = static_settings(s3a_store, jars, folder)
        spark = builder.config(map=shared(given)).getOrCreate()
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        yield Application(spark, s3a_store, folder)
    finally:
        end_of_sessions()


@pytest.fixture(scope="session")
def native_application(application: Application, s3_server: S3Server) -> Application:
    """The session on moto, where native tables can be beside: they refuse S3Mock."""
    return OnAnotherStore(application.spark, of_moto(s3_server), application.folder)


@pytest.fixture
def place(application: Application) -> Place:
    """An empty destination in the shared bucket."""
    return application.place()


@pytest.fixture
def own_place(application: Application) -> Place:
    """An empty destination in a bucket whose file system is not made yet."""
    return application.place(application.new_bucket())


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of the driver that died."""
    return tmp_path_factory.mktemp("dead")


@pytest.fixture(scope="session")
def dead(application: Application, folder: Path) -> Mapping[str, Death]:
    """Jobs that appended rows 100 … 139 to a table with rows 0 … 39, and died, in one JVM."""
    deaths = {}
    for name, (committer, held) in DEATHS.items():
        place = application.place(application.new_bucket())
        with application.with_committer("magic"):
            application.write(place, application.frame(0))
        deaths[name] = Death(place, committer, str(uuid.uuid4()), held())
    kill_driver(application, folder, *deaths.values())
    return deaths
