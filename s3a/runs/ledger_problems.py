"""Problems of a ledger of S3A loads: rules that delete its records too soon, and its growth.

The ledger is never condensed: a run may be cleared at any later time, and its records say whether
its rows are in the table, and how new the rows of each partition are. Only the user knows how old
a run may be that is cleared, retried or waited for. A lifecycle rule of more days than that deletes
only records that nothing asks for any more. Records of attempts at work are written again with each
heartbeat, so they never reach such an age.
"""

from __future__ import annotations

from ...committer.errors import counted
from ...committer.format.layout import TableRoot
from ...committer.store.lifecycle import LifecycleRule
from ...committer.store.listing import list_objects
from ...committer.store.requests import LifecycleRules, ListLifecycleRules, Step
from ...committer.upkeep.problem import Problem
from .ledger import runs_prefix, tries_on_record

#: Least days of a rule that deletes records of runs: runs of a yearly schedule are older.
LEAST_DAYS = 400
#: Number of attempts on record from which on a ledger counts as large. A load that asks for other
#: runs reads the record of each.
MANY = 10_000
_FORGETS = (
    "Without its record a run that is cleared loads again, which doubles the rows of an append; "
    "newest_run does not know how new a partition is; and a sensor waits for a run that has ended."
)


def ledger_problems(root: TableRoot, many: int = MANY) -> Step[list[Problem]]:
    """Find problems of the ledger of a destination of Hadoop's committers; none if it has none.

    A LIST for each thousand records, and one request more if there are any.

    :param many: number of attempts on record from which on a ledger counts as large.
    """
    prefix = runs_prefix(root)
    listing = yield from list_objects(prefix)
    if not listing.objects:
        return []
    answer = yield ListLifecycleRules(prefix)
    rules = answer.rules if isinstance(answer, LifecycleRules) else ()
    found = [_about_rule(it, prefix) for it in rules if _harms(it, prefix)]
    tries = len(tries_on_record(listing.keys))
    expires = any(it.expires and it.concerns(prefix) for it in rules)
    if tries >= many and not expires:
        size = sum(it.size for it in listing.objects)
        found.append(
            Problem(
                "ledger of runs is large",
                prefix,
                f"It has the records of {counted(tries, 'attempt')}, {size / 1024**2:,.0f} MiB. A "
                "load that asks for other runs reads each of them.",
                f"Add a lifecycle rule that expires objects with the prefix {prefix} after "
                f"{LEAST_DAYS} days, or after more if older runs are cleared, retried or waited "
                f"for. {_FORGETS}",
            )
        )
    return found


def _harms(rule: LifecycleRule, prefix: str) -> bool:
    if not rule.concerns(prefix):
        return False
    too_soon = rule.expire_days is None or rule.expire_days < LEAST_DAYS
    return rule.archives is not None or (rule.expires and too_soon)


def _about_rule(rule: LifecycleRule, prefix: str) -> Problem:
    if rule.archives is not None:
        return Problem(
            "lifecycle rule archives the ledger of runs",
            rule.name,
            f"It moves records below {prefix} to {rule.archives}, from where nothing can be read "
            "before it is restored: loads then fail.",
            "Exclude that prefix.",
        )
    when = "at a date" if rule.expire_days is None else f"after {counted(rule.expire_days, 'day')}"
    return Problem(
        "lifecycle rule expires the ledger of runs",
        rule.name,
        f"It deletes records below {prefix} {when}. {_FORGETS}",
        f"Exclude that prefix, or give {LEAST_DAYS} days, or more if older runs are cleared, "
        "retried or waited for.",
    )
