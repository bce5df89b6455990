"""Backstop: a lifecycle rule that aborts what nobody cleaned up, later than anybody may need it."""

from __future__ import annotations

from math import ceil

from ..errors import InvalidInputError, OutcomeUnknownError, StoreRefusedError
from ..format.layout import TableRoot
from ..store.lifecycle import LifecycleRule
from ..store.requests import Done, PutLifecycleRule, Refused, Step

DAY = 24 * 3600.0
#: Seconds a table may wait for somebody to run recovery.
RECOVERY = DAY
#: Days after which uploads go by default: a week in which somebody looks.
_DAYS = 7


def least_days(longest: float) -> int:
    """Whole days that an upload has to be left: a rule counts them from its start, and its first
    parts are as old as its job.

    :param longest: seconds the longest job may run.
    """
    return ceil((longest + RECOVERY) / DAY)


def lay_backstop(
    root: TableRoot, days: int | None, longest: float, apply: bool
) -> Step[LifecycleRule]:
    """The rule for a table, put into its bucket beside the rules that are there.

    S3 takes all rules of a bucket at once and knows no condition: whoever changes them at the same
    time undoes one or the other.

    :param longest: seconds the longest job may run.
    :param apply: ``False`` only works it out.
    :raises InvalidInputError: so few days that it would take files that a job has committed.
    :raises StoreRefusedError: the store keeps no such rules, or not from these credentials.
    :raises OutcomeUnknownError: the store did not say.
    """
    rule = _rule(root, longest, days)
    answer = (yield from PutLifecycleRule(rule)) if apply else Done()
    if isinstance(answer, Refused):
        raise StoreRefusedError(
            f"The store took no lifecycle rule ({answer.code}). Nothing was changed.",
            table=root.url,
            remedy="Run zero-rename uploads abort by age instead, from a DAG or cron.",
        )
    if not isinstance(answer, Done):
        raise OutcomeUnknownError(
            f"The store did not say whether it took the lifecycle rule ({answer.cause}).",
            table=root.url,
            remedy="Run it again: the rule has a name of its own and is written over.",
        )
    return rule


def _rule(root: TableRoot, longest: float, days: int | None) -> LifecycleRule:
    """The rule for a table.

    :param days: after which it aborts; ``None``: a week, or longer where jobs are.
    :raises InvalidInputError: so few that it would take files that a job has committed.
    """
    least = least_days(longest) + 1
    if days is not None and days < least:
        raise InvalidInputError(
            f"A rule of {days} days would abort uploads that a job may still complete: jobs may "
            f"take {longest / 3600:.0f} h here and their recovery {RECOVERY / 3600:.0f} h. Nothing "
            "was changed.",
            table=root.url,
            remedy=f"Give --days {least} or more, or say how long the longest job is "
            "(--max-duration).",
        )
    name = f"zero-rename-backstop-{root.prefix}"[:255]
    return LifecycleRule(name, f"{root.prefix}/", abort_days=days or max(_DAYS, least))
