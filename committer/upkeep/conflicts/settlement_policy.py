"""Policies that settle conflicts by choosing the run that stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...errors import InvalidInputError, first_few
from ...format.records.run_conflict import ConflictingRun, RunConflict

_REMEDY = "Give newest_run; or prefer, with DAGs, tasks or assets in order; or keep, with jobs."


class SettlementRule(StrEnum):
    """Rule by which a policy chooses the run that stands."""

    #: The run with the highest rank.
    NEWEST_RUN = "newest_run"
    #: The run of the DAG, task or asset that is named first; the newest, if there are several.
    PREFER = "prefer"
    #: The run of a named job or idempotency key.
    KEEP = "keep"


@dataclass(frozen=True)
class SettlementPolicy:
    """A policy that settles conflicts.

    :param names: for *prefer*: DAGs, ``dag.task``, applications or assets, the preferred first; for
        *keep*: jobs or idempotency keys.
    """

    rule: SettlementRule
    names: tuple[str, ...] = ()

    @staticmethod
    def parse(given: object) -> SettlementPolicy:
        """Read a policy: ``"newest_run"``, ``{"prefer": [...]}`` or ``{"keep": [...]}``; also as a
        string, ``"prefer=corrections,flights_daily"``.

        :raises InvalidInputError: ``given`` is an invalid policy.
        """
        if isinstance(given, SettlementPolicy):
            return given
        said: object = given
        if isinstance(given, str):
            word, equals, names = given.partition("=")
            said = {word.strip(): names.split(",") if equals else ()}
        if not isinstance(said, Mapping) or len(said) != 1:
            raise InvalidInputError(f"Invalid policy {given!r}. Nothing was done.", remedy=_REMEDY)
        ((word, names),) = said.items()
        if isinstance(names, str):
            names = [names]
        if word not in set(SettlementRule) or not isinstance(names, Sequence):
            raise InvalidInputError(f"Invalid policy {given!r}. Nothing was done.", remedy=_REMEDY)
        read = tuple(str(name).strip() for name in names if str(name).strip())
        rule = SettlementRule(word)
        if bool(read) is (rule is SettlementRule.NEWEST_RUN):
            what = "names runs" if read else "names none"
            raise InvalidInputError(
                f"Invalid policy {given!r}: it {what}. Nothing was done.", remedy=_REMEDY
            )
        return SettlementPolicy(rule, read)

    def __str__(self) -> str:
        return f"{self.rule}={','.join(self.names)}" if self.names else str(self.rule)

    def winner(self, conflict: RunConflict) -> ConflictingRun:
        """Return the run of a conflict that stands.

        :raises InvalidInputError: the policy names none of the runs; *keep* names several; or
            their ranks do not show which is the newest.
        """
        if self.rule is SettlementRule.KEEP:
            named = [it for it in conflict.runs if it.job in self.names or it.key in self.names]
            if len(named) != 1:
                raise _nobody(conflict, self, f"{len(named)} of its runs are named")
            return named[0]
        if self.rule is SettlementRule.NEWEST_RUN:
            return _newest(conflict, conflict.runs)
        for word in self.names:
            named = [it for it in conflict.runs if it.is_named(word)]
            if named:
                return named[0] if len(named) == 1 else _newest(conflict, named)
        raise _nobody(conflict, self, "it names none of its runs")


def _newest(conflict: RunConflict, runs: Iterable[ConflictingRun]) -> ConflictingRun:
    conflict.check_kinds()
    ranked = [(it.rank, it) for it in runs if it.rank is not None]
    best = max((rank for rank, _ in ranked), key=lambda it: (it.value, it.then), default=None)
    found = [it for rank, it in ranked if rank == best]
    if len(found) != 1:
        what = "no run has a rank" if not found else f"{len(found)} runs have the highest rank"
        raise InvalidInputError(
            f"Nobody can tell which run over {conflict.name} is the newest: {what} "
            f"({first_few([str(it) for it in conflict.runs])}). Nothing was changed.",
            remedy="Name the run that is to stand, by a policy of prefer or keep.",
        )
    return found[0]


def _nobody(conflict: RunConflict, policy: SettlementPolicy, what: str) -> InvalidInputError:
    runs = [f"{it} ({it.job or it.key})" for it in conflict.runs]
    return InvalidInputError(
        f"The policy {policy} does not settle the conflict over {conflict.name}: {what}. Its runs "
        f"are {first_few(runs)}. Nothing was changed.",
        remedy="Name one of them.",
    )
