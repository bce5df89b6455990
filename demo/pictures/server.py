"""Airflow's own API server on the demonstration's database, and who may log in."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tools.server_process import free_port

from ..processes import started, tail
from ..workspace import DemoError, Workspace, shown

#: Seconds until it answers.
_PATIENCE = 180.0


@dataclass(frozen=True)
class ApiServer:
    """Where it is, and its only user, who has every right."""

    address: str
    user: str = "night"
    password: str = "watch"


@contextlib.contextmanager
def api_server(workspace: Workspace, environment: Mapping[str, str]) -> Iterator[ApiServer]:
    """Start it; it is ended with the block.

    :raises DemoError: it does not answer.
    """
    port = free_port()
    server = ApiServer(f"http://127.0.0.1:{port}")
    passwords = workspace.airflow / "passwords.json"
    passwords.write_text(json.dumps({server.user: server.password}))
    settings = {
        **environment,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{server.user}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "of-the-demonstration-" * 4,
        "AIRFLOW__API__BASE_URL": server.address,
        "AIRFLOW__API__EXPOSE_CONFIG": "False",
    }
    log = workspace.logs / "api-server.log"
    command = [sys.executable, "-m", "airflow", "api-server", "--host", "127.0.0.1"]
    with started([*command, "--port", str(port), "--workers", "1"], settings, log) as process:
        deadline = time.monotonic() + _PATIENCE
        while not _answers(server.address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(
                    f"The API server does not answer; {shown(log)} ends with:\n{tail(log, 30)}"
                )
            time.sleep(0.2)  # Between two looks.
        yield server


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api/v2/version", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
