"""Trino as a process: one node with its connectors of Hive and Delta tables, on S3 and Glue of one
endpoint."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.waiting import STUCK
from tools.server_process import free_port


class TrinoServer:
    """A running server.

    :param url: where it is spoken to.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, sql: str) -> list[list[Any]]:
        """The rows of a statement.

        :raises RuntimeError: it failed; with Trino's own message.
        """
        document = self._ask(f"{self._url}/v1/statement", sql.encode())
        rows: list[list[Any]] = []
        while True:
            rows += document.get("data", [])
            if "error" in document:
                raise RuntimeError(document["error"]["message"])
            if "nextUri" not in document:
                return rows
            document = self._ask(document["nextUri"])

    def is_up(self) -> bool:
        try:
            return not self._ask(f"{self._url}/v1/info")["starting"]
        except (OSError, urllib.error.URLError):
            return False

    def _ask(self, url: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(url, body, {"X-Trino-User": "tests"})
        with urllib.request.urlopen(request, timeout=STUCK) as answer:
            return json.load(answer)


@contextmanager
def trino(home: Path, java: str, folder: Path, keys: Mapping[str, str]) -> Iterator[TrinoServer]:
    """Start a server, and end it.

    :param home: an unpacked ``trino-server``, of which two plugins are loaded: ``lake`` is a
        catalog of folders, ``delta`` one of Delta tables.
    :param java: the command; Trino 476 wants Java 24.
    :param folder: for its settings and logs.
    :param keys: ``AWS_ENDPOINT_URL`` and keys of S3 and Glue.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    _write_settings(folder, url, port, keys)
    (folder / "plugin").mkdir()
    for name in ("hive", "delta-lake"):
        (folder / "plugin" / name).symlink_to(home / "plugin" / name)
    command = [
        *(java, "-Xmx1500M", "--enable-native-access=ALL-UNNAMED"),
        *("--sun-misc-unsafe-memory-access=allow", "-Djdk.attach.allowAttachSelf=true"),
        *("-Dnode.environment=test", "-Dnode.id=one", f"-Dnode.data-dir={folder / 'data'}"),
        *(f"-Dcatalog.config-dir={folder / 'catalog'}", f"-Dplugin.dir={folder / 'plugin'}"),
        *(f"-Dconfig={folder / 'config.properties'}", "-cp", f"{home / 'lib'}/*"),
        "io.trino.server.TrinoServer",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            server = TrinoServer(url)
            until = time.monotonic() + STUCK
            while not server.is_up():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((folder / "log").read_text("utf-8", "replace")[-2000:])
                time.sleep(0.5)
            yield server
        finally:
            process.kill()
            process.wait()


def _write_settings(folder: Path, url: str, port: int, keys: Mapping[str, str]) -> None:
    (folder / "data").mkdir()
    (folder / "catalog").mkdir()
    endpoint, region = keys["AWS_ENDPOINT_URL"], keys.get("AWS_DEFAULT_REGION", "us-east-1")
    access, secret = keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"]
    config = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": port,
        "discovery.uri": url,
        "query.max-memory": "400MB",
        "query.max-memory-per-node": "300MB",
        "memory.heap-headroom-per-node": "200MB",
    }
    storage = {
        "hive.metastore": "glue",
        "hive.metastore.glue.region": region,
        "hive.metastore.glue.endpoint-url": endpoint,
        "hive.metastore.glue.aws-access-key": access,
        "hive.metastore.glue.aws-secret-key": secret,
        "hive.metastore-cache-ttl": "0s",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": endpoint,
        "s3.region": region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": access,
        "s3.aws-secret-key": secret,
    }
    files = {
        "config.properties": config,
        "catalog/lake.properties": {"connector.name": "hive", **storage},
        "catalog/delta.properties": {"connector.name": "delta_lake", **storage},
    }
    for name, settings in files.items():
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / name).touch(0o600)
        (folder / name).write_text(text, "utf-8")
