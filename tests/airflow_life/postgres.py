"""A PostgreSQL server of its own, below a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg2

from tools.server_process import ServerError, free_port

_SETTINGS = (
    *("-c", "fsync=off", "-c", "max_connections=200"),
    *("-c", "idle_in_transaction_session_timeout=60s"),
)
_DEBIAN = Path("/usr/lib/postgresql")


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Start a server on loopback; its data are gone afterwards.

    PostgreSQL refuses to run as root: there it runs as ``postgres``, else as ``nobody``.

    :return: the URL of an empty database, for SQLAlchemy.
    :raises ServerError: there is none, or it does not start.
    """
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="airflow-life-postgres-") as folder:
        user = _user()
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        data, port = Path(folder, "data"), free_port()

        def run(name: str, *arguments: str) -> None:
            done = subprocess.run(
                [programs / name, *arguments], user=user, cwd=folder, capture_output=True, text=True
            )
            if done.returncode:
                raise ServerError(f"{name} failed: {(done.stdout + done.stderr).strip()[-1000:]}")

        run("initdb", "-D", str(data), "-U", "airflow", "--auth=trust", "--no-sync")
        with Path(folder, "log").open("wb") as log:
            where = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder]
            server = subprocess.Popen(
                [programs / "postgres", *where, *_SETTINGS],
                user=user,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait(programs / "pg_isready", port, server)
            run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "airflow", "airflow")
            yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/airflow"
        finally:
            # Not by SIGTERM, which would wait for the clients to go.
            server.send_signal(signal.SIGINT)
            server.wait()


def locks_held(url: str, table: str) -> bool:
    """Whether a session that does nothing holds locks of a table's rows in an open transaction.

    :param url: SQLAlchemy's, of the database.
    """
    asked = """
        SELECT 1 FROM pg_stat_activity JOIN pg_locks USING (pid) JOIN pg_class ON oid = relation
        WHERE relname = %s AND mode = 'RowShareLock' AND state = 'idle in transaction'
    """
    with contextlib.closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection:
        cursor = connection.cursor()
        cursor.execute(asked, (table,))
        return cursor.fetchone() is not None


def _programs() -> Path:
    """Debian keeps the server's programs off PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(_DEBIAN.glob("*/bin"))
    if not folders:
        raise ServerError("There is no PostgreSQL. On Debian: apt-get install postgresql.")
    return folders[-1]


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _wait(ready: Path, port: int, server: subprocess.Popen[bytes]) -> None:
    asked = [ready, "-q", "-h", "127.0.0.1", "-p", str(port)]
    end = time.monotonic() + 60
    while subprocess.run(asked).returncode:
        if server.poll() is not None or time.monotonic() > end:
            raise ServerError("PostgreSQL did not start.")
        time.sleep(0.1)
