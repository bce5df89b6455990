"""``python -m demo`` where it cannot go on: one paragraph, soon, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo.processes import started, sweep
from demo.store import store
from demo.workspace import DemoError, workspace
from support.waiting import STUCK
from tools.server_process import free_port

pytestmark = pytest.mark.memory_s3

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; import demo.workspace as w, demo.__main__ as m, functools, pathlib; "
START += (
    "m.workspace = functools.partial(w.workspace, pathlib.Path(sys.argv[1])); sys.exit(m.main())"
)


def command(folder: Path) -> list[str]:
    """The demonstration with another folder than the checkout's."""
    return [sys.executable, "-c", START, str(folder)]


def environment(**more: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "S3_"))}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def test_an_unreachable_endpoint_is_one_paragraph_within_seconds(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s3cr3t-key"}
    begun = time.monotonic()
    done = subprocess.run(
        command(tmp_path / "demo"),
        env=environment(S3_ENDPOINT=address, **keys),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert address in done.stderr
    assert "S3_ENDPOINT" in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cr3t" not in done.stderr + done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    assert time.monotonic() - begun < 90


@pytest.mark.parametrize(
    ("named", "cache", "said"),
    [
        ("majic", "", "COMMITTER='majic' is no committer of Hadoop's. Nothing was started"),
        ("magic", "elsewhere", "Run make s3a-jars, once"),
    ],
)
def test_committer_that_cannot_write_is_one_paragraph(
    tmp_path: Path, named: str, cache: str, said: str
) -> None:
    variables = {"COMMITTER": named} | ({"XDG_CACHE_HOME": str(tmp_path / cache)} if cache else {})
    done = subprocess.run(
        command(tmp_path / "demo"),
        env=environment(**variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "demo").exists()


def test_wrong_credentials_and_missing_buckets_name_the_variables(
    tmp_path: Path, s3_env: Any
) -> None:
    settings = {**s3_env.environment, "S3_ENDPOINT": s3_env.endpoint, "S3_BUCKET": "not-there"}
    with (
        pytest.raises(DemoError, match=r"S3_BUCKET names an existing bucket"),
        store(tmp_path, settings),
    ):
        pass


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_the_users_server_gets_a_bucket_that_is_removed_afterwards(
    tmp_path: Path, s3_env: Any, region: str
) -> None:
    settings = {**s3_env.environment, "S3_ENDPOINT": s3_env.endpoint, "AWS_REGION": region}
    with store(tmp_path, settings) as made:
        assert made.requests() is None
        made.client.put_object(Bucket=made.name, Key="a/b", Body=b"x")
        made.client.create_multipart_upload(Bucket=made.name, Key="a/c")
        assert made.has_uploaded("a/")
    names = [entry["Name"] for entry in made.client.list_buckets()["Buckets"]]
    assert made.name not in names


def test_interrupting_leaves_nothing_running(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path / "demo"),
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # The server is up.
    process.stdout.readline()  # Airflow is starting.
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=STUCK)
    assert process.returncode == 130
    assert "nothing is left running" in said
    _, alive = psutil.wait_procs(children, timeout=STUCK)
    assert not alive


def test_two_demonstrations_in_one_checkout_are_refused(tmp_path: Path) -> None:
    with (
        workspace(tmp_path / "demo"),
        pytest.raises(DemoError, match=r"Another `make demo`"),
        workspace(tmp_path / "demo"),
    ):
        pass


#: Starts a child in a session of its own, as PySpark's daemon does, prints its pid and waits.
FAMILY = (
    "import subprocess, sys, time; "
    "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " start_new_session=True); "
    "print(c.pid, flush=True); "
)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does within ten seconds."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(120)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def test_the_sweep_finds_orphans(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAMILY]
    with started(command, os.environ, tmp_path / "log", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        process.wait(120)
        assert psutil.pid_exists(orphan)
    assert sweep() == 1
    assert is_gone(orphan)
    assert sweep() == 0


def test_a_child_ends_with_its_parent() -> None:
    child = "from demo.processes import end_with_parent; import time; end_with_parent(); "
    child += "print('up', flush=True); time.sleep(600)"
    parent = (
        "import subprocess, sys; "
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE); "
        "c.stdout.readline(); print(c.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert is_gone(pid)
