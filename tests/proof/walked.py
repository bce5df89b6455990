"""The public walk in its long form: as many walks as there is time for.

``WALK_SEEDS`` names the seeds, each the beginning of as many walks of either layout, and by
Hadoop's committers, as its share of the time allows; ``WALK_MINUTES`` says how long all of them
take together.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

from proof.outcome import Outcome, Verdict
from walk.plan import DELTA, DIRECTORIES, HADOOP
from walk.walking import walk_seeds
from walk.walks import WalkFailure, Walks

from support.garbage import collect_rarely

_SEEDS = "1 2 3"
_MINUTES = "60"
_LAYOUTS = (DIRECTORIES, DELTA, HADOOP)
#: Walks between the first of a seed and the first of the next.
APART = 10_000_000


def prove(processes: int) -> Outcome:
    seeds = [int(word) for word in os.environ.get("WALK_SEEDS", _SEEDS).split()]
    minutes = float(os.environ.get("WALK_MINUTES", _MINUTES))
    command = (
        f'WALK_SEEDS="{" ".join(map(str, seeds))}" WALK_MINUTES={minutes:g} make proof PARTS=walk'
    )
    by_layout = {layout: Walks() for layout in _LAYOUTS}
    lines, failures = ["| layout | seed | walks | commits | requests |"], []
    lines.append("|---|---|---:|---:|---:|")
    each = 60 * minutes / len(seeds) / len(by_layout)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, collect_rarely) as pool:
        for layout, seed in ((layout, seed) for layout in by_layout for seed in seeds):
            until = time.monotonic() + each
            shares = [
                pool.submit(_walk, layout, seed, processes, n, until) for n in range(processes)
            ]
            walks = Walks()
            for share in shares:
                try:
                    walks.add(share.result())
                except WalkFailure as failure:
                    print(failure, flush=True)
                    failures.append(str(failure))
            by_layout[layout].add(walks)
            counts = f"{walks.walks:,} | {walks.commits:,} | {walks.requests:,}"
            lines.append(f"| {layout} | {seed} | {counts} |")
            print(lines[-1], flush=True)
    tables = [
        line
        for layout, walks in by_layout.items()
        for line in ("", f"Of the layout *{layout}*:", "", *walks.table)
    ]
    details = (*lines, *tables)
    if failures:
        text = [line for it in failures for line in ("", "```", *it.splitlines(), "```")]
        why = f"broken: {len(failures)} walks failed"
        return Outcome(Verdict.FAILED, command, (*details, *text), why)
    return Outcome(Verdict.PASSED, command, details)


def _walk(layout: str, seed: int, processes: int, number: int, until: float) -> Walks:
    """A process's walks of a seed: every so manieth."""
    logging.disable(logging.CRITICAL)
    first = seed * APART
    return walk_seeds(range(first + number, first + APART, processes), until, layout=layout)
