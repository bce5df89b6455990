"""Verbs of a walk about runs that conflict: loads that give way, and settlements."""

from __future__ import annotations

from walk import verbs
from walk.oracle import Violation
from walk.plan import BY_RANK, Operation
from walk.runs_oracle import RunsOracle
from walk.settled import SettleConflict, lost
from walk.world import Process, Told, World

from zero_rename.committer.errors import InvalidInputError, SupersededRunError
from zero_rename.committer.upkeep.conflicts.settlement_policy import SettlementPolicy


def runs_of(world: World) -> RunsOracle:
    """The oracle of a walk, which knows of runs."""
    assert isinstance(world.oracle, RunsOracle)
    return world.oracle


def write(world: World, process: Process, operation: Operation) -> Told:
    """A job as a block, which gives way to other runs where it has to."""
    before = runs_of(world).settled
    try:
        return verbs.write(world, process, operation)
    except SupersededRunError as error:
        key = operation.options.get("idempotency_key")
        if not (operation.verb.endswith(BY_RANK) or lost(before, key)) and world.quiet:
            raise Violation(f"nobody stands before it: {error}") from error
        raise


def settle_conflict(world: World, process: Process, operation: Operation) -> Told:
    """Look which runs conflict, and let one of them stand."""
    table, run = process.fresh(), operation.options["run"]
    found = [it for it in table.conflicts().conflicts if not it.is_settled]
    if not found:
        return None
    conflict = found[operation.choice % len(found)]
    winner = conflict.runs[(run or 0) % len(conflict.runs)]
    policy = "newest_run" if run is None else {"keep": [winner.job]}
    if run is None:
        try:
            winner = SettlementPolicy.parse(policy).winner(conflict)
        except InvalidInputError:
            return None
    process.effect = lambda job: SettleConflict(
        job,
        partition=conflict.partition,
        runs=frozenset(it.key for it in conflict.runs),
        job_of_winner=winner.job,
    )
    (done,) = table.resolve(policy, [conflict.partition], apply=True)
    said = done.settlement
    assert said is not None
    world.trace.append(f"  {conflict.partition}: {winner.key} of {conflict.cause}: {said}")
    if said.error:
        return None
    if said.job not in world.oracle.commits or said.stands != winner.key:
        raise Violation(f"{conflict.partition} is said to be settled, and is not: {said}")
    if world.quiet:
        again = table.conflicts().conflicts
        if any(not it.is_settled and it.partition == conflict.partition for it in again):
            raise Violation(f"{conflict.partition} is settled by {said}, and a look tells {again}")
    return "committed" if process.jobs and process.jobs[-1] == said.job else None
