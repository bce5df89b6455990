"""States of partitions, by what their jobs and runs tell besides the heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..format.records.decision import Verdict
from .recent_jobs import SeenJob
from .run_failures import RunFailure
from .seen_partitions import SeenPartition, SeenState
from .under_way import JobUnderWay

#: Seconds within which two runs that wrote one partition are taken for a conflict.
TOGETHER = 3600.0
#: Seconds for which that is said.
_TOLD_FOR = 7 * 24 * 3600.0


def with_states(
    there: Mapping[str, SeenPartition],
    under_way: Iterable[JobUnderWay],
    jobs: Iterable[SeenJob],
    failures: Iterable[RunFailure],
    now: float,
) -> tuple[SeenPartition, ...]:
    """Partitions by name, each with its most pressing state; those too that a job or a run was to
    make and has not yet."""
    seen = dict(there)
    for partition, why in _conflicts(jobs, now).items():
        _press(seen, partition, SeenState.CONFLICTED, why)
    at_work = {job.once for job in under_way if job.once is not None and job.is_running}
    for failure in failures:
        if failure.once in at_work:
            continue  # Its next try is under way.
        kind = SeenState.CONFLICTED if failure.gave_way else SeenState.FAILED
        for partition in failure.partitions:
            _press(seen, partition, kind, failure.message)
    for job in under_way:
        if job.decided is not Verdict.ABORT:  # Nothing of that one will be visible.
            for partition in job.partitions:
                _press(seen, partition, *_of_job(job))
    return tuple(seen[name] for name in sorted(seen))


def _of_job(job: JobUnderWay) -> tuple[SeenState, str]:
    silent = f"{job.silent_for:.0f} s"
    if job.damage:
        return SeenState.FAILED, f"{job.job} is open: {job.damage}"
    if job.is_dead:
        said = job.decided or "undecided"
        return SeenState.FAILED, f"{job.job} is open, {said}, and silent for {silent}."
    if job.decided is Verdict.COMMIT:
        return SeenState.RUNNING, f"{job.job} is committed and makes its files visible."
    return SeenState.RUNNING, f"{job.job} writes it; last heartbeat {silent} ago."


def _press(seen: dict[str, SeenPartition], name: str, state: SeenState, why: str) -> None:
    known = seen.get(name, SeenPartition(name, state, None, 0, 0, 0, None, None))
    if name not in seen or state.pressing > known.state.pressing:
        seen[name] = replace(known, state=state, why=why)


def _conflicts(jobs: Iterable[SeenJob], now: float) -> dict[str, str]:
    """Partitions whose last job replaced, within an hour, what another run had written; both of a
    scheduler: whoever replaces his own work by hand knows."""
    last: dict[str, list[tuple[SeenJob, bool]]] = {}
    for job in jobs:  # Newest first.
        for change in job.changes:
            of_it = last.setdefault(change.partition, [])
            if len(of_it) < 2:
                of_it.append((job, change.replaced))
    found = {}
    for partition, of_it in last.items():
        if len(of_it) < 2 or now - of_it[0][0].decided_at > _TOLD_FOR:
            continue
        (later, replaced), (former, _) = of_it
        apart = later.decided_at - former.decided_at
        runs = {later.once, former.once}
        if replaced and len(runs) == 2 and None not in runs and apart <= TOGETHER:
            found[partition] = (
                f"{later.job} replaced what {former.job}, of another run, had written "
                f"{apart:.0f} s before."
            )
    return found
