"""Where the time of a missed goal goes, by py-spy: Python's part of driver and workers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

_SHOWN = 12
#: Seconds: the sampler takes one or two to begin.
_LEAST = 10.0
#: Where threads wait for work; py-spy does not always see that they do.
_IDLE = (
    "concurrent/futures/thread.py",
    "threading.py",
    "pyspark/accumulators.py",
    "py4j/clientserver.py",
    "py4j/java_gateway.py",
    "pyspark/daemon.py",
)


def profile(pid: int, act: Callable[[], object], file: Path) -> str:
    """Do something while a process tree is sampled, again and again where it takes no time.

    :return: Markdown: the command, and the functions that most samples were in.
    """
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--subprocesses"]
    command += ["--format", "raw", "--rate", "50", "--output", str(file), "--pid", str(pid)]
    file.unlink(missing_ok=True)
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as spy:
            try:
                until = time.monotonic() + _LEAST
                act()
                while time.monotonic() < until:
                    act()
            finally:
                spy.send_signal(signal.SIGINT)
                _, said_by_it = spy.communicate(timeout=60)
        if not file.exists():
            return f"No profile: py-spy {_last_words(said_by_it)}"
        stacks = file.read_text("utf-8")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"No profile: {_without_paths(error)}."
    said = f"`py-spy {' '.join(command[1:-4])} --output FILE --pid DRIVER` while it ran again:"
    return "\n".join((said, "", *digest(stacks)))


def _last_words(said: bytes) -> str:
    """Why a program failed, as its last line of output says it."""
    lines = said.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"said: {last}" if last else "wrote no file."


def _without_paths(error: Exception) -> str:
    """Say what went wrong without the paths of this machine."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def digest(stacks: str) -> list[str]:
    """The functions in which most samples ended, and those of this package they were called by;
    without threads that wait for work, or for Spark."""
    ends: Counter[str] = Counter()
    callers: dict[str, Counter[str]] = {}
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [it.rpartition(":")[0] or it for it in stack.split(";")]
        end = frames[-1].rstrip(")") + ")"
        if any(f"({file})" in end for file in _IDLE) or "_StepsRun._wait" in end:
            continue
        ends[end] += int(count)
        ours = [it for it in frames if "zero_rename" in it or "committer/" in it]
        caller = ours[-1].rstrip(")") + ")" if ours else ""
        callers.setdefault(end, Counter())[caller] += int(count)
    whole = sum(ends.values()) or 1
    lines = ["| of what did not wait | function | called for |", "|---:|---|---|"]
    for end, count in ends.most_common(_SHOWN):
        caller = callers[end].most_common(1)[0][0]
        cells = (f"{count / whole:.0%}", f"`{end}`", f"`{caller}`" if caller else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
