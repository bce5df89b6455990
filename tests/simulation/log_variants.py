"""Broken logs: one rule left out in each, by a change of the product's own text.

Each names a world of :mod:`simulation.log_walk` in which some walk must break.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from zero_rename.log import (
    change,
    checksum,
    committing,
    copies,
    job_steps,
    judging,
    purging,
    put_entry,
    ranks,
    rerunning,
    searching,
    taking_back,
    undoing,
)


@dataclass(frozen=True)
class LogVariant:
    """A rule that is left out.

    :param old: the text in the function; it stands there once.
    :param also: a second guard of the same rule, left out with it.
    :param seed: of a walk that breaks, from which the search begins.
    """

    name: str
    world: str
    module: ModuleType
    function: str
    old: str
    new: str
    also: LogVariant | None = None
    seed: int = 0

    @contextmanager
    def in_force(self) -> Iterator[None]:
        with ExitStack() as both:
            both.enter_context(self._in_force())
            if self.also is not None:
                both.enter_context(self.also.in_force())
            yield

    @contextmanager
    def _in_force(self) -> Iterator[None]:
        target: Any = getattr(self.module, self.function)
        source = inspect.getsource(target)
        assert source.count(self.old) == 1, f"{self.name}: the text is not there once"
        scope = dict(vars(self.module))
        exec("from __future__ import annotations\n" + source.replace(self.old, self.new), scope)
        former = target.__code__
        target.__code__ = scope[self.function].__code__
        try:
            yield
        finally:
            target.__code__ = former


def _judging(name: str, world: str, old: str, new: str = "if False:", seed: int = 0) -> LogVariant:
    return LogVariant(name, world, judging, "judge", old, new, seed=seed)


_TWO_LOOKS = """        data = yield from _data_in(folders)
        opened = yield from list_objects(records.opened)
"""
_SWAPPED = """        opened = yield from list_objects(records.opened)
        data = yield from _data_in(folders)
"""

#: Beside a purge that takes files of a job: the guard by which the job would be refused.
_ADDS_WHAT_IS_FORGOTTEN = _judging(
    "adds what purge forgets",
    "publishers",
    "for it in (*change.returned, *change.adds)",
    "for it in change.returned",
)

VARIANTS = (
    _judging(
        "commits over its fence", "publishers", "if entry.transaction(FENCE + change.job):", seed=25
    ),
    _judging(
        "never sees the entry of its job",
        "publishers",
        "if entry.job is not None and entry.job in {change.job, *change.fences}:",
        seed=102,
    ),
    _judging(
        "never sees the run beside it",
        "writers",
        "if change.run is not None and entry.transaction(RUN + change.run):",
    ),
    _judging("forgets what it has read", "writers", "if change.reads.has(partition):"),
    _judging("replaces whatever came", "writers", "        if replaces:", "        if False:"),
    _judging(
        "adds to what was replaced",
        "writers",
        "if change.changes_data and change.overtaking is Overtaking.FAIL",
        "if False",
        seed=6,
    ),
    LogVariant(
        "brings back what purge forgets",
        "restores",
        judging,
        "judge",
        "if both := sorted(removed & wanted):",
        "if False:",
        LogVariant(
            "returns any tombstone",
            "restores",
            committing,
            "check_state",
            "if tombstone is None or tombstone.removed_at == FORGOTTEN:",
            "if False:",
        ),
        seed=244,
    ),
    LogVariant(
        "overlooks a fence at its base",
        "reruns",
        committing,
        "_commit",
        "if FENCE + change.job in opened.state.transactions:",
        "if False:",
        seed=181,
    ),
    LogVariant(
        "looks for a fence at its base among the newest transactions",
        "reruns",
        searching,
        "has_hidden_fence",
        "if _has_all(layout, opened.state) or opened.written_at < opened_at - SLACK:",
        "if True:",
        seed=1260,
    ),
    LogVariant(
        "repeats an open record under its id",
        "late records",
        job_steps,
        "open_log_job",
        "        job = next(jobs)\n        answer",
        "        answer",
        seed=780,
    ),
    LogVariant(
        "judges what came since its second look only",
        "few in checksums",
        committing,
        "_judge_since",
        "    return (yield from _judge_between(layout, change, before, state))",
        "    yield from ()\n    return change, []",
        seed=18,
    ),
    LogVariant(
        "commits without a condition",
        "writers",
        put_entry,
        "put_entry",
        "if_none_match=True",
        "if_none_match=False",
    ),
    LogVariant(
        "asks for the next number after no answer",
        "writers",
        put_entry,
        "put_entry",
        "Put(key, body",
        "Put(folder.entry(version + attempt), body",
        seed=22,
    ),
    LogVariant(
        "searches for no job before its own base",
        "publishers",
        searching,
        "search_since_opened",
        "since = min(opened_at, began) - SLACK",
        'since = float("inf")',
    ),
    LogVariant(
        "asks the report of a run alone",
        "tries",
        searching,
        "find_run",
        "for found in bodies:",
        "for found in ():",
        seed=254,
    ),
    LogVariant(
        "loads again where rows were rewritten",
        "reruns",
        rerunning,
        "_see_gone",
        "    if fate.why and not fate.compactions:",
        "    if False:",
        seed=36,
    ),
    LogVariant(
        "takes any rewriting for a compaction",
        "reruns",
        taking_back,
        "compaction_of",
        'if entry.operation != "OPTIMIZE" or any',
        "if any",
        LogVariant(
            "takes a restore for a compaction",
            "reruns",
            rerunning,
            "_see_gone",
            "elif entry.operation == RESTORE:",
            "elif False:",
        ),
        seed=729,
    ),
    LogVariant(
        "takes a compaction back without the files of others",
        "reruns",
        taking_back,
        "take_back",
        "removed - added - frozenset(without)",
        "frozenset()",
    ),
    LogVariant(
        "takes back the first of several compactions alone",
        "reruns",
        rerunning,
        "_see_gone",
        "fate.compactions = (*fate.compactions, compaction)",
        "fate.compactions = fate.compactions or (compaction,)",
        LogVariant(
            "removes what is live of it",
            "reruns",
            taking_back,
            "take_back",
            "if removes - state.live.keys() or paths & state.live.keys():",
            "removes &= state.live.keys()\n    if False:",
        ),
    ),
    LogVariant(
        "takes what it brought back for its own",
        "reruns",
        rerunning,
        "find_past",
        'if add.tags.get("job") == entry.job',
        "if True",
        seed=29,
    ),
    LogVariant(
        "takes the place of its last try alone",
        "reruns",
        rerunning,
        "_entries_of",
        "version = former if",
        "version = None if",
        seed=15,
    ),
    _judging(
        "loads again beside a restore",
        "reruns",
        "if change.former is not None and entry.operation == RESTORE:",
        seed=448,
    ),
    LogVariant(
        "gives up a job that others may commit without a fence",
        "publishers",
        job_steps,
        "withdraw_job",
        "verdict = yield from fence_job(layout, job, opened_at, fencer, now)",
        "verdict = JobVerdict(fenced=True)",
    ),
    LogVariant(
        "deletes what no entry forgets",
        "restores",
        purging,
        "purge_log",
        "if plan.forgets and plan.state.exists:",
        "if 0:",
        seed=29,
    ),
    LogVariant(
        "forgets tombstones alone",
        "restores",
        purging,
        "purge_log",
        "forgets=tuple(plan.forgets.values()),",
        "forgets=tuple(it for it in plan.forgets.values() if it.removed_at),",
        seed=323,
    ),
    LogVariant(
        "looks at open records before the data",
        "publishers",
        purging,
        "plan_log_purge",
        _TWO_LOOKS,
        _SWAPPED,
        _ADDS_WHAT_IS_FORGOTTEN,
        seed=1941,
    ),
    LogVariant(
        "purges files of open jobs",
        "publishers",
        purging,
        "plan_log_purge",
        "open_jobs = {records.job_of(key) for key in opened.keys}",
        "open_jobs = set()",
        _ADDS_WHAT_IS_FORGOTTEN,
        seed=23,
    ),
    LogVariant(
        "lets late runs replace newer ones",
        "late runs",
        judging,
        "judge_ranks",
        "if change.overtaking is not Overtaking.NEWEST_RUN:",
        "if True:",
    ),
    LogVariant(
        "forgets ranks where rows are written again",
        "late runs",
        ranks,
        "ranks_after",
        "before[place].after(rank, False)",
        "NO_RANKS",
    ),
    LogVariant(
        "keeps no rank of an emptied partition",
        "late runs",
        ranks,
        "emptied_transactions",
        "unfilled = after.keys() - filled",
        "unfilled = set()",
    ),
    LogVariant(
        "adds to an emptied partition without its rank",
        "late runs",
        ranks,
        "ranks_after",
        "emptied[place][1] if place in emptied else NO_RANKS",
        "NO_RANKS",
        seed=69,
    ),
    LogVariant(
        "compares ranks by the newest transactions alone",
        "late runs",
        committing,
        "_lacks_ranks",
        "and not state.all_transactions",
        "and False",
        seed=156,
    ),
    LogVariant(
        "takes compactions back in partitions that it replaces",
        "replacing reruns",
        rerunning,
        "find_past",
        "if replaced.has(state.partition(add)):",
        "if False:",
    ),
    LogVariant(
        "lets losers of a settlement load",
        "settlements",
        judging,
        "judge_settled",
        "if change.overtaking is Overtaking.LAST_WINS:",
        "if True:",
    ),
    LogVariant(
        "settles whatever is there",
        "settlements",
        judging,
        "judge",
        "if change.reads.has(partition):",
        "if change.reads.has(partition) and not change.settles:",
        seed=108,
    ),
    _judging(
        "settles over another settlement",
        "settlements",
        "if change.settles and change.settles.keys() & settles_of(entry).keys():",
        seed=27,
    ),
    LogVariant(
        "ends a settlement as the run loads again for which it was made",
        "settlements",
        change,
        "_ended",
        "and it.runs.stands != change.run",
        "",
    ),
    LogVariant(
        "keeps a settlement as another run replaces the partition",
        "settlements",
        change,
        "_ended",
        "or (change.replaced.has(place)",
        "or (False",
    ),
    LogVariant(
        "keeps settlements among the newest transactions alone",
        "settlements",
        checksum,
        "write_checksum",
        "*(it for it in standing(state) if it not in newest), ",
        "",
    ),
    LogVariant(
        "undoes a job over what came after it",
        "undoings",
        undoing,
        "plan_undo",
        "if blocking := past.first_to_undo(version):",
        "if blocking := ():",
    ),
    LogVariant(
        "undoes a job whatever comes meanwhile",
        "undoings",
        judging,
        "judge",
        "if change.reads.has(partition):",
        "if change.reads.has(partition) and change.operation != RESTORE:",
    ),
    LogVariant(
        "leaves the copy of a file that it removes",
        "copies",
        copies,
        "follow_copies",
        "moved.get(path, path) for path in change.removes",
        "path for path in change.removes - moved.keys()",
        seed=57,
    ),
    LogVariant(
        "joins a table whatever the job holds that has made it",
        "first jobs",
        committing,
        "_judge_next",
        "    judge(change, before, entry)\n",
        "    entry.version == 0 or judge(change, before, entry)\n",
    ),
    LogVariant(
        "believes an old listing where others clean",
        "asleep",
        committing,
        "_commit",
        "listed_at + FRESH if cleaned else None",
        "None",
        seed=8,
    ),
    LogVariant(
        "believes a late answer where others clean",
        "asleep",
        committing,
        "_confirm",
        "    if deadline is None or",
        "    if True or",
        seed=31,
    ),
)
