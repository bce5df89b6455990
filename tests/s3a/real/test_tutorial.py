"""The tutorial of Hadoop's committers, followed from its first command to its last, with the real
jars: it runs as it stands, and leaves the rows that it promises."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torture.servers import Store, of_moto

from support import fork_server
from support.airflow import migrate
from support.hadoop_committers import write_spark_submit
from support.moto_server import S3Server
from support.newcomer import Newcomer
from support.spark import INTERPRETED, SETTINGS
from tools.bootstrap import cache_dir
from tools.fetch_s3a_jars import cached_jars
from tools.s3a_class_archive import class_path, jvm_flags
from zero_rename import Table
from zero_rename.spark.startup.launch import worker_python

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "hadoop.md"
pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]


@dataclass
class InTheCheckout(Newcomer):
    """Somebody whose environment is the checkout's own, as ``make setup`` has made it.

    :param said: what each command printed, by its words before the table.
    """

    said: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    @property
    def bin(self) -> Path:
        """Commands that start sooner than those of the checkout."""
        return self.folder / "bin"

    def _environment(self) -> dict[str, str]:
        known = super()._environment()
        return {**known, "PATH": f"{self.bin}:{known['PATH']}"}

    def type(self, command: str) -> str:
        """Type a command, and keep what it printed."""
        said = super().type(command)
        self.said[command.partition(" s3://")[0]] = said
        return said


@pytest.fixture
def newcomer(tmp_path: Path, s3_server: S3Server) -> Iterator[InTheCheckout]:
    """With the jars in the cache, and a store that Spark's settings lead to."""
    store: Store = of_moto(s3_server)
    path = class_path(cached_jars() or ())
    conf = (
        SETTINGS
        | INTERPRETED
        | {
            "spark.hadoop.fs.s3a.endpoint": store.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # Also by an archive of classes, which halves the start; the page's own come behind.
            "spark.driver.extraClassPath": path,
            "spark.driver.extraJavaOptions": jvm_flags(path),
        }
    )
    variables = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
    made = InTheCheckout(tmp_path, s3_server.environment | variables, {})
    made.bin.mkdir()
    write_spark_submit(made.bin, conf)
    program = tmp_path / "zero_rename_program.py"
    program.write_text("from zero_rename.cli import main\nmain()\n")
    (made.bin / "zero-rename").write_text(fork_server.client(str(program)))
    (made.bin / "zero-rename").chmod(0o755)
    (made.home / ".cache").mkdir(parents=True)
    (made.home / ".cache" / "zero-rename").symlink_to(cache_dir())
    # Made once for all tests; the page's command finds it as new as it can be.
    (made.home / "airflow").mkdir()
    with (
        contextlib.closing(sqlite3.connect(migrate() / "airflow.db")) as whole,
        contextlib.closing(sqlite3.connect(made.home / "airflow" / "airflow.db")) as copy,
    ):
        whole.backup(copy)
    yield made
    made.leave()


def test_the_tutorial_of_hadoops_committers(newcomer: InTheCheckout, s3_bucket: object) -> None:
    name = s3_bucket.name  # pyrefly: ignore[missing-attribute]
    newcomer.follow(PAGE, name)
    table = Table(f"s3://{name}/tables/flights")
    days = table.to_arrow(["day"]).column("day").to_pylist()
    assert sorted(map(str, days)) == ["2013-02-01"] * 6 + ["2013-02-02"] * 6
    assert "Nothing is wrong" in newcomer.said["zero-rename s3a-check --conf-file magic.conf"]
    assert "day=2013-02-02/part-00000" in newcomer.said["zero-rename uploads list"]
    assert "live" in newcomer.said["zero-rename s3a-jobs"]
    assert "rolled-back" in newcomer.said["zero-rename s3a-recover"]
    assert "No runs conflict" in newcomer.said["zero-rename conflicts"]
    assert "No upload is under way" in newcomer.said["zero-rename purge"]
