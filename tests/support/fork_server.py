"""A process that has imported what is slow to import, and forks for each program that is run.

A stand-in for spark-submit is a Python process of half a second's work and one and a half of
imports; hundreds of them are minutes. A client sends its arguments, variables, folder and standard
streams over a socket; a fork takes them on, runs the program, and its exit code is the answer.
A client that is killed takes its program along.

Run as a program: ``fork_server.py SOCKET``. It ends with whoever holds its standard input.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

#: What the client needs: nothing but the standard library's quickest part.
CLIENT = """#!{python} -IS
import array, json, os, socket, sys

request = {{"program": {program!r}, "argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd()}}
request = json.dumps(request).encode()
streams = array.array("i", [0, 1, 2])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendmsg([len(request).to_bytes(8, "big")],
                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(request)
    answer = server.recv(4)
if not answer:
    sys.exit("the fork server ended before the program")
sys.exit(int.from_bytes(answer, "big"))
"""


@cache
def address() -> str:
    """The socket of this process's server, started at the first call."""
    path = Path(tempfile.mkdtemp(prefix="zero-rename-forks-"), "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        subprocess.Popen(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.PIPE,
            env={**os.environ, "LISTENER": str(listener.fileno())},
            pass_fds=[listener.fileno()],
        )
    return str(path)


def client(program: str) -> str:
    """An executable that runs ``program``, a file's path, with whatever it is called with."""
    return CLIENT.format(python=sys.executable, address=address(), program=program)


def _serve(path: Path) -> dict[str, Any]:
    """Fork for each client. Comes back in the forks only, with what is to be run."""
    listener = socket.socket(fileno=int(os.environ.pop("LISTENER")))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()
            sys.exit(0)
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                return _take_on(connection)


def _take_on(connection: socket.socket) -> dict[str, Any]:
    """Receive a request and fork once more: one waits for the other, which comes back."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams = array.array("i")
    size, sent, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * streams.itemsize))
    for _, _, data in sent:
        streams.frombytes(data)
    request = json.loads(b"".join(_read(connection, int.from_bytes(size, "big"))))
    program = os.fork()
    if program == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request
    for stream in [0, 1, 2, *streams]:
        os.close(stream)  # or the client's reader waits for us too
    os._exit(_wait(program, connection))


def _read(connection: socket.socket, size: int) -> Iterator[bytes]:
    while size:
        part = connection.recv(size)
        if not part:
            os._exit(1)  # The client was killed.
        size -= len(part)
        yield part


def _wait(program: int, connection: socket.socket) -> int:
    while True:
        ended, status = os.waitpid(program, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                connection.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
            return 0
        if select.select([connection], [], [], 0.01)[0]:
            os.kill(program, signal.SIGTERM)
            return 0


def _import() -> None:
    """Import what programs do, and let botocore read its description of S3."""
    import boto3
    import descriptions  # pyrefly: ignore[missing-import]
    import known_store  # pyrefly: ignore[missing-import]
    import pandas  # noqa: F401 - pyarrow does, where it converts Python's values
    import pyarrow.parquet  # noqa: F401

    import zero_rename.committer.table
    import zero_rename.spark.options  # noqa: F401

    descriptions.read_once()
    known_store.spare_probes(setattr)
    boto3.client("s3", region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
    gc.freeze()  # or a fork's first collection copies all these pages


if __name__ == "__main__":
    _import()
    todo = _serve(Path(sys.argv[1]))
    os.environ.clear()
    os.environ.update(todo["env"])
    os.chdir(todo["cwd"])
    sys.argv = todo["argv"]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    runpy.run_path(todo["program"], run_name="__main__")
