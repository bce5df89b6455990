"""What must hold of jobs that write rows again which are there: a resolution, an undoing, a
compaction. Nothing goes but what they name, no row comes twice, and what is undone is as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from simulation.invariants import Violation, changes, content_after, decision_of
from simulation.sim_store import Store

from zero_rename.committer import Owner
from zero_rename.committer.format.layout import job_in_key

_AGAIN, _BACK = "writes again", "takes back"


def rewriting(sources: Iterable[str], dropped: Iterable[str], back: bool = False) -> Owner:
    """The owner of such a job, who says in its decision which files' rows it holds, and the rows
    of which jobs are to go.

    :param back: whether it takes back what the job before it did.
    """
    what = _BACK if back else _AGAIN
    return Owner(application=what, task_id=" ".join(sources), run_id=" ".join(dropped))


def _sources(owner: Owner) -> list[str]:
    return (owner.task_id or "").split() if owner.application in (_AGAIN, _BACK) else []


def check_rewritten(store: Store, job: str) -> None:
    """What the decision that was just written does to rows that were there.

    :raises Violation: it takes rows away that it does not name, keeps some that it does, has some
        twice, or does not take back what it was to.
    """
    decision = decision_of(store, job)
    if decision is None or decision.owner.application not in (_AGAIN, _BACK):
        return
    dropped = (decision.owner.run_id or "").split()
    log = changes(store)
    sources = {
        file.key: _sources(it.owner)
        for name in {name for entries in log.values() for name, _ in entries}
        if (it := decision_of(store, name)) is not None
        for file in it.files
    }
    for change in decision.partitions:
        entries = log[change.partition]
        before = _first_written(sources, content_after(entries, change.base_version))
        told = _first_written(sources, _sources(decision.owner))
        after = _first_written(sources, content_after(entries, change.base_version + 1))
        if after != told or max(after.values(), default=1) > 1:
            raise Violation("completeness", f"{job} holds {after} of {told}")
        gone = sorted(key for key in before - after if job_in_key(key) not in dropped)
        if gone:
            raise Violation("concurrent", f"{job} took {gone} away, unseen")
        kept = sorted(key for key in after if job_in_key(key) in dropped)
        if kept:
            raise Violation("completeness", f"{job} was to drop {kept}")
        former = _first_written(sources, content_after(entries, change.base_version - 1))
        if decision.owner.application == _BACK and after != former:
            raise Violation("completeness", f"{job} was to take back to {former}, not {after}")


def _first_written(sources: Mapping[str, list[str]], keys: Iterable[str]) -> Counter[str]:
    """The files in which the rows of files were written first."""

    def first(key: str) -> Iterator[str]:
        if not sources.get(key):
            yield key
        for source in sources.get(key, ()):
            yield from first(source)

    return Counter(origin for key in keys for origin in first(key))
