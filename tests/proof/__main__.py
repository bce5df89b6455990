"""``python -m proof``: proofs that are too long for every test run; writes ``docs/proof.md``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from proof import logged, programs, simulated, walked
from proof.outcome import Outcome, Verdict
from proof.page import Page

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[int], Outcome]] = {
    "simulation": simulated.prove,
    "log": logged.prove,
    "walk": walked.prove,
    "torture": programs.torture,
    "each": programs.each_request,
    "each_delta": programs.each_delta,
    "crowds": programs.crowds,
    "faults": programs.faults,
    "s3a": programs.s3a,
    "engines": programs.engines,
    "airflow": programs.airflow,
}


def main() -> int:
    """Returns 0 only if every part that was asked for ran to its end and passed."""
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}; or all")
    processes = int(os.environ.get("PROCESSES") or os.cpu_count() or 1)
    parser.add_argument("--processes", type=int, default=processes, help="at once; the cores")
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "proof.md")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    good = True
    for name in PARTS:
        if options.parts and name not in options.parts:
            continue
        print(f"== {name}", flush=True)
        commit, day, begun = _commit(), datetime.now(UTC).date(), time.monotonic()
        outcome = PARTS[name](options.processes)
        # Read now: another part may have been run beside this one.
        page = Page.read(options.page, list(PARTS))
        page.enter(name, outcome, commit, day, time.monotonic() - begun)
        page.write(options.page)
        print(f"== {name}: {outcome.verdict} {outcome.why}".rstrip(), flush=True)
        good &= outcome.verdict is Verdict.PASSED
    print(f"results: {options.page}")
    return 0 if good else 1


def _commit() -> str:
    """The commit that is checked out; ``-dirty`` where files differ from it.

    The page itself does not count: an earlier part of this run has written it.
    """
    git = ["git", "-C", str(REPOSITORY)]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        return "unknown"
    changed = [*git, "status", "--porcelain", "--", ".", ":(exclude)docs/proof.md"]
    status = subprocess.run(changed, capture_output=True, text=True, check=True)
    return head.stdout.strip() + ("-dirty" if status.stdout.strip() else "")


if __name__ == "__main__":
    sys.exit(main())
