"""The tests' S3 servers: what is said where one cannot be had, and that none outlives its run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import ceph, s3_servers
from tools.server_process import ServerError


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


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
