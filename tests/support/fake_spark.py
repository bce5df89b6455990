"""A ``spark-submit`` that runs the application in plain Python and records how it was called.

It stands for Spark where a test is about what reaches the application: words of the command
line, variables, files. ``tests/docs/test_tutorials.py`` has the real one. Where the store is
in the test's own process, the application is too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from support import fork_server

_SUBMIT = """
import json, os, runpy, sys
files = {{}}
for option in ("--properties-file", "--py-files"):
    if option in sys.argv:
        for name in sys.argv[sys.argv.index(option) + 1].split(","):
            files[name] = {{
                "mode": oct(os.stat(name).st_mode & 0o777),
                "text": open(name, "rb").read().decode("latin-1"),
            }}
with open({record!r}, "a") as record:
    record.write(json.dumps(
        {{"argv": sys.argv, "env": dict(os.environ), "files": files}}) + "\\n")
print("the application says AWS_SECRET_ACCESS_KEY", os.environ.get("AWS_SECRET_ACCESS_KEY"))
sys.stdout.flush()
runpy.run_path({application!r}, run_name="__main__")
"""

#: Writes rows for ``DAY`` as the data source would, by the same options and variables.
WRITES = """
import os
import pyarrow as pa
from zero_rename import committer
from zero_rename.spark.options import read_writer_options

url = os.environ.get("TEST_TABLE", os.environ["ZERO_RENAME_TABLE"])
options = read_writer_options({"path": url, "partitionBy": "day"}, os.environ)
schema = pa.schema([("day", pa.int32()), ("flight", pa.string())])
days = [int(day) for day in os.environ.get("TEST_DAYS", "1").split(",") if day]
overwrite = os.environ.get("TEST_OVERWRITE") == "1" or bool(options.replace_partitions)
job = committer.Table(url).job(
    schema,
    mode=options.mode(overwrite),
    partition_by=options.partition_by,
    replace_partitions=options.replace_partitions,
    on_conflict=options.on_conflict,
    on_superseded=options.on_superseded,
    run_rank=options.run_rank,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    owner=options.owner("test"),
)
with job:
    job.write(pa.table({"day": days, "flight": [f"f{day}" for day in days]}, schema=schema))
print("wrote", job.committed.job)
"""
#: Ends well without writing anything.
IDLE = "print('nothing to do')\n"
#: The same into a Delta table.
WRITES_DELTA = WRITES.replace("committer.Table(url)", "DeltaTable(url)").replace(
    "from zero_rename import committer", "from zero_rename.tables import DeltaTable"
)
#: Writes, and fails afterwards.
FAILS_AFTERWARDS = WRITES + "\nraise SystemExit(3)\n"
#: Fails before anything.
FAILS = "raise SystemExit(4)\n"


@dataclass(frozen=True)
class FakeSpark:
    """The stand-in's folder. Put ``bin`` first on PATH.

    :param here: applications run in this process.
    """

    folder: Path
    here: bool = False

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def record(self) -> Path:
        return self.folder / "record.jsonl"

    def runs(self, application: str) -> None:
        """From now on, ``application`` is what runs."""
        source = self.folder / "application.py"
        source.write_text(application)
        self.bin.mkdir(exist_ok=True)
        script = self.bin / "spark-submit"
        submit = self.folder / "submit.py"
        submit.write_text(_SUBMIT.format(record=str(self.record), application=str(source)))
        script.write_text("" if self.here else fork_server.client(str(submit)))
        script.chmod(0o755)

    def submit(self, words: Sequence[str], env: Any = None, **_: object) -> Any:
        """Run the application in this process, in place of ``subprocess.Popen``."""
        said, code = io.StringIO(), 0
        with (
            mock.patch.dict(os.environ, env or {}, clear=bool(env)),
            mock.patch.object(sys, "argv", list(words)),
            contextlib.redirect_stdout(said),
        ):
            try:
                runpy.run_path(str(self.folder / "submit.py"), run_name="__main__")
            except SystemExit as end:
                code = end.code
            except Exception:
                traceback.print_exc(file=said)
                code = 1
        said.seek(0)
        return SimpleNamespace(stdout=said, returncode=code, poll=lambda: code, wait=lambda: code)

    def calls(self) -> list[dict[str, Any]]:
        """How it was called so far: ``argv``, ``env``, ``files``."""
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines()]


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, here: bool = False) -> FakeSpark:
    """The stand-in as this process's Spark. It writes day 1, until it is told otherwise.

    :param here: Airflow's hook runs it in this process.
    """
    fake = FakeSpark(folder, here)
    if here:
        from airflow.providers.apache.spark.hooks import spark_submit

        processes = SimpleNamespace(**{**vars(subprocess), "Popen": fake.submit})
        monkeypatch.setattr(spark_submit, "subprocess", processes)
    fake.runs(WRITES)
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    return fake
