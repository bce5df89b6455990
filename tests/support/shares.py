"""Which worker of a run does which tests, and in which order.

A plugin of ``tests/conftest.py``. Tests that share a Spark session lie in a few large shares, so
that each JVM is started once or twice a run and not once a worker; they begin first, since what
begins last is waited for. The rest is handed out by class and module, or test by test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Shares of one worker each, by what their files' paths begin with; the first that fits counts.
#: A process has one Spark at a time: with Hadoop's jars, or without.
_SHARES = {
    "s3a/real/": "Hadoop's committers",
    "spark/saving/test_older_spark.py": "the oldest Spark",
    "spark/test_": "one Spark session",
    "spark/reading/": "another Spark session",
    "spark/saving/": "another Spark session",
    "torture/test_spark_processes.py": "another Spark session",
}
#: Files and folders that take long, mostly by waiting. What stands first begins first.
_FIRST = (
    *_SHARES,
    *("docs/test_tutorials.py", "torture", "walk", "simulation", "demo/test_airflow.py"),
    *("operators", "example_dags", "dagster_integration", "provider"),
    *("test_imports.py", "test_packaging.py", "demo"),
)
#: Modules of long tests that share nothing: each test goes to whichever worker is free.
_APART = (
    "docs/test_tutorials.py",
    "walk/",
    "simulation/test_simulation.py",
    "torture/test_kills.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(TESTS).as_posix()
        return next((n for n, begin in enumerate(_FIRST) if path.startswith(begin)), len(_FIRST))

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Take the place of ``--dist loadscope``; any other way of dealing out stays what it is."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class SharesScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.removeprefix("tests/")
            shares = (share for begin, share in _SHARES.items() if path.startswith(begin))
            own = path if path.startswith(_APART) else super()._split_scope(nodeid)
            return next(shares, own)

    return SharesScheduling(config, log)
