"""A single-node Ceph on loopback: a monitor, an OSD that keeps objects in memory, the S3 gateway.

Made of Debian's packages. All of its state is in one folder; it needs no root, only ports.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.server_process import PATIENCE, ServerError, free_port, running, wait_for

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
_PROGRAMS = ("ceph", "ceph-authtool", "monmaptool", "ceph-mon", "ceph-osd", "radosgw")
REMEDY = f"on Debian or Ubuntu, as root: apt-get install {' '.join(PACKAGES)}"
#: Bytes of objects at most; what a whole run of the tests writes is a tenth of it.
CAPACITY = 2 << 30

# Deleted objects are freed by a garbage collector, an hour later unless it is told otherwise. The
# pools are made on one OSD, once, so the balancing that a manager would do is not missed. The
# monitor writes a few MB, and would otherwise end itself on a disk that is 95 % full.
_CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
run dir = {folder}
crash dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
mon data = {folder}/mon
mon data avail warn = 2
mon data avail crit = 1
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {capacity}
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw enable usage log = false
rgw gc obj min wait = 1
rgw gc processor period = 10
rgw gc processor max time = 10
"""


@dataclass(frozen=True)
class User:
    """Somebody who may sign requests."""

    user: str
    access_key: str
    secret_key: str


def installed() -> bool:
    return all(shutil.which(program) for program in _PROGRAMS)


def install() -> None:
    """Install the packages with apt.

    :raises ServerError: there is no apt, we are not root, or it failed.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ServerError(f"Ceph is not installed, and cannot be by this user; {REMEDY}.")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    print(f"installing {', '.join(PACKAGES)}", flush=True)
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES],
    ):
        _run(command, environment)


def version() -> str:
    """Such as ``16.2.15``."""
    found = re.search(r"version (\S+)", _run(["ceph", "--version"], dict(os.environ)))
    return found.group(1) if found else "of an unknown version"


@contextlib.contextmanager
def cluster(folder: Path, owner: User, limited: User) -> Iterator[str]:
    """Start a cluster with two users, and end it afterwards. Takes some 15 s.

    :param folder: empty; all state is kept there. Short, since sockets are there too.
    :param owner: who makes buckets, and may give ``limited`` rights by IAM's ``PutUserPolicy``.
    :returns: the S3 endpoint.
    :raises ServerError: it does not start.
    """
    if not installed():
        raise ServerError(f"Ceph is not installed; {REMEDY}.")
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    port, *ports = (free_port() for _ in range(3))
    fsid = str(uuid.uuid4())
    configuration = folder / "ceph.conf"
    configuration.write_text(
        _CONFIGURATION.format(folder=folder, fsid=fsid, port=port, ports=ports, capacity=CAPACITY)
    )
    variables = {"CEPH_CONF": str(configuration)}
    environment = {**os.environ, **variables}
    _make_monitor(folder, fsid, ports, environment)
    with contextlib.ExitStack() as daemons:
        monitor = daemons.enter_context(running(["ceph-mon", "-f", "-i", "a"], folder, variables))
        osd = str(uuid.uuid4())
        _run(["ceph", "osd", "new", osd], environment)
        _run(["ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd], environment)
        monitor.check()
        daemons.enter_context(running(["ceph-osd", "-f", "-i", "0"], folder, variables))
        # The first to want pools; waits until the OSD has made them.
        _make_user(owner, ["--caps=user-policy=*"], environment)
        _make_user(limited, [], environment)
        gateway = daemons.enter_context(
            running(["radosgw", "-f", "-n", "client.rgw"], folder, variables)
        )
        wait_for(f"http://127.0.0.1:{port}", gateway)
        yield f"http://127.0.0.1:{port}"


def _make_user(user: User, rights: list[str], environment: dict[str, str]) -> None:
    given = [f"--uid={user.user}", f"--display-name={user.user}"]
    given += [f"--access-key={user.access_key}", f"--secret-key={user.secret_key}"]
    _run(["radosgw-admin", "user", "create", *given, *rights], environment)


def _make_monitor(folder: Path, fsid: str, ports: list[int], environment: dict[str, str]) -> None:
    """The monitor's store with everybody's keys in it."""
    keys, everything = str(folder / "keyring"), "allow *"
    create = ["--create-keyring"]
    for name in ("mon.", "client.admin", "osd.0", "client.rgw"):
        rights = ["--cap", "mon", everything]
        rights += [] if name == "mon." else ["--cap", "osd", everything]
        _run(["ceph-authtool", keys, *create, "--gen-key", "-n", name, *rights], environment)
        create = []
    address = f"[v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]"
    monitors = str(folder / "monmap")
    made = ["--create", "--fsid", fsid, "--addv", "a", address, monitors]
    _run(["monmaptool", *made], environment)
    make = ["ceph-mon", "-i", "a", "--mkfs", "--monmap", monitors, "--keyring", keys]
    _run(make, environment)


def _run(command: list[str], environment: dict[str, str]) -> str:
    """:raises ServerError: it failed, or took too long."""
    try:
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{command[0]} did not run: {type(error).__name__}; {REMEDY}") from error
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip()[-1500:]
        raise ServerError(f"{' '.join(command[:3])} failed with {answer.returncode}: {said}")
    return answer.stdout
