"""The tests' S3 servers: what is said where one cannot be had, and that none outlives its run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tools import ceph, s3_servers
from tools.maven_jars import Jar, _ivy_file
from tools.s3_servers import S3MOCK
from tools.server_process import ServerError

ROOT = Path(__file__).resolve().parents[2]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_jar_with_a_classifier_is_asked_for_by_it() -> None:
    assert S3MOCK.file_name == f"s3mock-{S3MOCK.version}-exec.jar"
    assert S3MOCK.coordinates == f"com.adobe.testing:s3mock:{S3MOCK.version}:jar:exec"
    assert 'm:classifier="exec"' in _ivy_file(S3MOCK)
    assert "classifier" not in _ivy_file(Jar("org.example", "thing", "1.0", "0" * 64))


class TestWhereAServerIsMissing:
    @pytest.fixture(autouse=True)
    def _nothing_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("CI", raising=False)

    @pytest.mark.parametrize(
        ("name", "remedy"),
        [
            ("ceph", "as root: apt-get install ceph-mon ceph-osd radosgw"),
            ("s3mock", "make servers"),
            ("minio", "put its program on PATH"),
        ],
    )
    def test_the_error_names_a_remedy(self, name: str, remedy: str) -> None:
        with (
            pytest.raises(ServerError, match=f"{name} is not there; .*{remedy}"),
            s3_servers.serving(name),
        ):
            pass

    def test_who_is_not_root_installs_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(tmp_path / "bin" / "apt-get", f"/bin/touch {tmp_path}/called")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(ServerError, match=r"cannot be by this user; .*apt-get install"):
            s3_servers.make_ready("ceph")
        assert not (tmp_path / "called").exists()

    def test_root_gets_ceph_by_apt(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "bin"
        made = " ".join(f"{folder}/{name}" for name in ceph._PROGRAMS)
        program(
            folder / "apt-get",
            f'echo "$@" >> {tmp_path}/calls\n[ "$1" = update ] && exit 0\n'
            f"for made in {made}; do echo '#!/bin/sh' > $made; /bin/chmod +x $made; done",
        )
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        s3_servers.make_ready("ceph")
        assert (tmp_path / "calls").read_text().splitlines() == [
            "update -qq",
            "install -qq -y --no-install-recommends ceph-mon ceph-osd radosgw",
        ]


TESTS = """
    import os, time, urllib.request
    import pytest
    from torture.servers import of_server
    from support.shared_servers import shared_server

    @pytest.fixture(scope="session")
    def store(pytestconfig):
        return of_server(shared_server(pytestconfig, "minio"))

    @pytest.fixture
    def absent(pytestconfig):
        return shared_server(pytestconfig, "versitygw")

    @pytest.mark.parametrize("number", range(4))
    def test_asks(store, number):
        urllib.request.urlopen(store.endpoint).close()

    def test_lacks(absent):
        pass
"""
WAITS = """
    def test_waits(store):
        time.sleep(600)
"""


class TestAServerThatWorkersShare:
    """A run of pytest of its own, with a web server in the place of MinIO."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        serve = f"exec {sys.executable} -m http.server --bind 127.0.0.1 ${{3##*:}}"
        once = f'[ "$1" = --version ] && echo fake 1 && exit\necho $$ >> {tmp_path}/started\n'
        program(tmp_path / "bin" / "minio", once + serve)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        return tmp_path

    def start(self, folder: Path, tests: str, **variables: str) -> subprocess.Popen[str]:
        (folder / "test_it.py").write_text(textwrap.dedent(tests))
        options = ["-p", "support.shared_servers", "-p", "no:cacheprovider", "--numprocesses", "2"]
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        path = [p for p in os.environ["PATH"].split(":") if not shutil.which("versitygw", path=p)]
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "--rootdir", str(folder), *options, str(folder)],
            cwd=folder,
            env=kept
            | {"PATH": ":".join([str(folder / "bin"), *path]), "TMPDIR": str(folder)}
            | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
            | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def servers(self, folder: Path, run: subprocess.Popen[str]) -> list[int]:
        """Process ids of the servers that a run started, once it has started one."""
        while not (folder / "started").exists():
            assert run.poll() is None, run.communicate()[0]
            time.sleep(0.05)
        return [int(line) for line in (folder / "started").read_text().split()]

    def test_it_is_one_and_the_run_ends_with_what_ran_on_it(self, folder: Path) -> None:
        run = self.start(folder, TESTS)
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said
        assert f"4 tests on minio fake 1, {folder}/bin/minio" in said
        assert "1 tests NOT RUN, Skipped: no S3 server: The S3 server versitygw is not" in said
        (server,) = self.servers(folder, run)
        assert not psutil.pid_exists(server)
        assert list(folder.glob("zero-rename-servers-*")) == []

    def test_in_ci_a_missing_one_fails(self, folder: Path) -> None:
        run = self.start(folder, TESTS, CI="true")
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 1, said
        assert "4 passed" in said
        assert "1 error" in said

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_it_ends_with_a_run_that_is_interrupted_or_killed(
        self, folder: Path, number: int
    ) -> None:
        run = self.start(folder, TESTS + WAITS)
        (server,) = self.servers(folder, run)
        process = psutil.Process(server)
        below = psutil.Process(run.pid).children(recursive=True)
        while run.poll() is None:
            run.send_signal(number)  # again where xdist swallows it, as one would press it again
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(10)
        process.wait(120)
        psutil.wait_procs(below, 120)
        assert not any(one.is_running() for one in below)
