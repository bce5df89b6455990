"""A process of another environment that does what it is asked: a line of JSON for each question,
one for each answer."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


class EngineError(AssertionError):
    """An engine's own error, as it says it."""


class EngineProcess:
    """A process whose program reads questions and prints answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **given: Any) -> Any:
        """Ask it to do something; ``do=`` names it.

        :raises EngineError: it could not.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(given) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline() or '{"error": "the process has ended"}')
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["answer"]


@contextlib.contextmanager
def engine_process(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[EngineProcess]:
    """Start a program, and end it afterwards.

    :param log: for its standard error; ``None``: the test's own.
    """
    with contextlib.ExitStack() as stack:
        errors = None if log is None else stack.enter_context(log.open("w"))
        process = stack.enter_context(
            subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=None if environment is None else dict(environment),
                text=True,
            )
        )
        try:
            yield EngineProcess(process)
        finally:
            process.terminate()
