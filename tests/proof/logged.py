"""The walks over the log in their long form: many of each world, from seeds that no test has.

``LOG_WALKS`` says how many of each.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from proof.outcome import Outcome, Verdict
from simulation.log_walk import WORLDS, Broken, walk

from support.garbage import collect_rarely

_WALKS = 2_000
#: Of ours the tests' walks begin at 0.
_FIRST = 1_000_000


@dataclass(frozen=True)
class _Walked:
    """What a share of a world's walks came to.

    :param broken: what each walk that failed has said.
    """

    walks: int
    commits: int
    entries: int
    seconds: float
    broken: tuple[str, ...]


def prove(processes: int) -> Outcome:
    walks = int(os.environ.get("LOG_WALKS", _WALKS))
    lines = ["| walks in | walks | jobs committed | entries | seconds |"]
    lines.append("|---|---:|---:|---:|---:|")
    broken: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, collect_rarely) as pool:
        for world in WORLDS:
            seeds = [
                range(_FIRST + number, _FIRST + walks, processes) for number in range(processes)
            ]
            found = list(pool.map(_walk, [world] * processes, seeds))
            count, commits = sum(it.walks for it in found), sum(it.commits for it in found)
            entries, seconds = sum(it.entries for it in found), sum(it.seconds for it in found)
            lines.append(f"| {world} | {count:,} | {commits:,} | {entries:,} | {seconds:.0f} |")
            print(lines[-1], flush=True)
            broken += [it for share in found for it in share.broken]
    command = f"LOG_WALKS={walks} make proof PARTS=log"
    if broken:
        text = ("", "```", *broken, "```")
        return Outcome(Verdict.FAILED, command, (*lines, *text), f"{len(broken)} walks failed")
    return Outcome(Verdict.PASSED, command, tuple(lines))


def _walk(world: str, seeds: range) -> _Walked:
    logging.disable(logging.CRITICAL)
    begun, commits, entries, broken = time.process_time(), 0, 0, []
    for seed in seeds:
        try:
            walked = walk(world, seed)
        except Broken as error:
            broken.append(f"{world}, seed {seed}: {error}")
            continue
        commits += len(walked.committed)
        entries += len(walked.shadow)
    seconds = time.process_time() - begun
    return _Walked(len(seeds), commits, entries, seconds, tuple(broken))
