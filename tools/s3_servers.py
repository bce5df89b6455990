"""The S3 servers that tests run on, built by Go from pinned versions into the user's cache folder.

``python tools/s3_servers.py`` builds those that are not there. versitygw keeps objects as files;
MinIO carries conditional writes out in one step, so that writers may race on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from zero_rename.spark.startup.launch import cache_dir

#: By the program's name, what ``go install`` is asked for.
SERVERS = {
    "minio": "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
}
REMEDY = "with Go 1.24 or newer: python tools/s3_servers.py, or put the program on PATH"


class BuildError(Exception):
    """A server that could not be built, why, and what to do."""


def binary(name: str) -> Path | None:
    """Where a server's program is: built by us, or on ``PATH``; ``None``: nowhere."""
    built = cache_dir() / "bin" / name
    if built.is_file():
        return built
    found = shutil.which(name)
    return Path(found) if found else None


def build(name: str) -> Path:
    """A server's program, built where it is not there; that takes minutes.

    :param name: one of :data:`SERVERS`.
    :raises BuildError: Go is not installed, or cannot build it.
    """
    found = binary(name)
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"The S3 server {name} is not there, and neither is Go; {REMEDY}.")
    folder = cache_dir() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    print(f"building {SERVERS[name]}", flush=True)
    answer = subprocess.run(
        [go, "install", SERVERS[name]],
        env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise BuildError(f"go install {SERVERS[name]} failed: {answer.stderr.strip()[-1500:]}")
    return folder / name


def required() -> bool:
    """Whether a server that is missing fails a test rather than skips it: in CI."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def main(names: Sequence[str] = tuple(SERVERS)) -> int:
    """Build all; 1 where one cannot be."""
    try:
        for name in names:
            print(build(name))
    except BuildError as error:
        print(f"s3 servers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
