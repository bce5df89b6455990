"""Problems of a table's jobs, and of its heads and what they name."""

from __future__ import annotations

from collections.abc import Iterable

from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.heads import all_heads, read_head
from ...commit.state.open_jobs import OpenEntry, list_open, read_open
from ...commit.state.partition_files import files_of_heads
from ...commit.state.tolerance import or_damage
from ...errors import DamagedError, HeadMovedError, StoreRefusedError, counted
from ...format.job_spec import Coordination
from ...format.layout import is_hidden, is_job_id
from ...format.records.decision import Decision
from ...format.records.head import HeadState, Slot
from ...format.records.table_record import TableRecord
from ...store.listing import list_objects
from ...store.requests import All, Delete, Head, Refused, Step, etag_of
from ..problem import Problem, about_damage
from ..put_back import heads_put_back
from ..repair import find_lost

#: Seconds of silence after which a decided job counts as abandoned, even if its patience is longer.
APPLYING = 3600.0
#: How many of a job's removals are tried at the store.
_ASKED = 4
#: An ETag that no object has.
_NO_ETAG = "0" * 32


def about_jobs(context: Context, coordination: Coordination) -> Step[list[Problem]]:
    """Find open jobs that are dead, damaged, or have lost files; and stray objects beside their
    records."""
    jobs = yield from list_open(context)
    found = yield from All(tuple(_about_job(context, job, coordination) for job in sorted(jobs)))
    strays = yield from _strays(context)
    return strays + [problem for problems in found for problem in problems]


def _strays(context: Context) -> Step[list[Problem]]:
    prefix = context.root.open_prefix
    listing = yield from list_objects(prefix)
    names = {key: key.removeprefix(prefix).removesuffix(".json") for key in listing.keys}
    return [
        Problem(
            "stray object",
            key,
            "It lies among the records of open jobs and is no job's; nobody heeds it.",
            "Find out what wrote it, and remove it.",
        )
        for key, name in names.items()
        if name and not is_job_id(name) and not is_hidden(name)
    ]


def _about_job(context: Context, job: str, coordination: Coordination) -> Step[list[Problem]]:
    entry = yield from read_open(context, job)
    if entry is None:
        return []
    found = [] if entry.damage is None else [_unread(context, entry, entry.damage)]
    decided = yield from or_damage(read_decision(context, job))
    if isinstance(decided, DamagedError):
        return [*found, about_damage(context.root, decided)]
    stores = coordination is Coordination.STORE
    if stores and decided is not None and decided.decision.is_commit:
        found += yield from _about_losses(context, decided)
        found += yield from _about_removals(context, decided)
        errors = yield from heads_put_back(context, decided)
        found += [about_damage(context.root, it) for it in errors.values()]
    return found + _about_silence(context, entry, decided, coordination)


def _unread(context: Context, entry: OpenEntry, damage: DamagedError) -> Problem:
    return Problem(
        "damaged",
        context.root.open_key(entry.job),
        f"{damage.message} Whose job it is and with which policy, nobody can tell.",
        f"If its process is dead: zero-rename recover {context.root.url} --patience 0 --apply, "
        "beside no running job",
    )


def _about_losses(context: Context, decided: Decided) -> Step[list[Problem]]:
    lost = yield from find_lost(context, decided)
    if not lost:
        return []
    job = decided.decision.job
    return [
        Problem(
            "committed files lost",
            lost[0].key,
            f"{counted(len(lost), 'decided file')} of {job}: neither upload nor object is there. "
            "The partitions keep their former state, and no writer gets past the job.",
            "Look for what aborts uploads; go on without the files: zero-rename repair "
            f"{context.root.url} --job {job} --accept-loss (--patience 0 where the job's process "
            "has ended)",
        )
    ]


def _about_removals(context: Context, decided: Decided) -> Step[list[Problem]]:
    """Find out whether the store refuses to remove the files that a committed job replaced.

    It tries deletions under a condition that does not hold, so nothing is deleted. A store that
    ignores such conditions is not tried."""
    if not context.facts.conditional_delete:
        return []
    due = [it for change in decided.decision.partitions for it in change.removals][:_ASKED]
    there = yield from All(tuple(Head(it.key) for it in due))
    left = [it for it, found in zip(due, there, strict=True) if etag_of(found) == it.etag]
    said = yield from All(tuple(_refusal_to_delete(it.key) for it in left))
    refused = [(it.key, why) for it, why in zip(left, said, strict=True) if why]
    if not refused:
        return []
    key, why = refused[0]
    return [
        Problem(
            "deletions refused",
            key,
            f"Job {decided.decision.job} is committed, and the store does not let it remove what "
            f"it replaced ({why}): who lists the table reads these rows beside the new ones.",
            "Grant s3:DeleteObject there, and see the bucket's policy and retention (Object "
            f"Lock); then zero-rename recover {context.root.url} --apply",
        )
    ]


def _refusal_to_delete(key: str) -> Step[str]:
    """Return the code with which a store refuses to delete an object; ``""``: it does not refuse.
    The object stays."""
    try:
        answer = yield from Delete(key, if_match=_NO_ETAG)
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return "AccessDenied"
    if isinstance(answer, Refused) and answer.code not in ("PreconditionFailed", "NoSuchKey"):
        return answer.code
    return ""


def _about_silence(
    context: Context, entry: OpenEntry, decided: Decided | None, coordination: Coordination
) -> list[Problem]:
    # A decided job's process sends heartbeats until the job is applied.
    allowed = entry.patience if decided is None else min(entry.patience, APPLYING)
    if entry.silent_for < allowed:
        return []
    state = "undecided" if decided is None else f"decided ({decided.decision.verdict})"
    url = context.root.url
    remedy = f"Settle it: zero-rename recover {url} --apply"
    if decided is not None and decided.decision.is_commit:
        remedy += f"; where files are lost: zero-rename repair {url} --job {entry.job}"
    if coordination is Coordination.NONE:
        remedy = f"Nobody but its owner can finish it; see zero-rename recover {url}"
    detail = f"{state} and silent for {entry.silent_for:.0f} s, {allowed:.0f} s are usual"
    return [Problem("job left open", entry.job, detail, remedy)]


def about_heads(context: Context, table: TableRecord) -> Step[list[Problem]]:
    """Find heads that cannot be read, name a missing record, or carry the claim of a dead job."""
    if table.coordination is Coordination.NONE:
        return []
    found = yield from all_heads(context)
    states = [state for state in found if isinstance(state, HeadState)]
    problems = [about_damage(context.root, it) for it in found if isinstance(it, DamagedError)]
    claimed = [state for state in states if state.head.claim is not None]
    claims = yield from All(tuple(_about_claim(context, state) for state in claimed))
    problems += [problem for problem in claims if problem is not None]
    return problems + (yield from _about_names(context, states))


def _about_names(context: Context, states: list[HeadState]) -> Step[list[Problem]]:
    """Find damaged decisions and manifests among those that heads name, and lost records of the
    runs of these decisions: one GET each."""
    named = yield from files_of_heads(context, [it for it in states if not it.slot.is_run])
    damaged = (it for it in named.files if isinstance(it, DamagedError))
    told = (about_damage(context.root, it) for it in damaged if not isinstance(it, HeadMovedError))
    return list(dict.fromkeys(told)) + (yield from _about_runs(context, states, named.decisions))


def _about_runs(
    context: Context, states: list[HeadState], decisions: Iterable[Decided]
) -> Step[list[Problem]]:
    """Find runs that have committed, and whose record is gone or was put back.

    A job claims the head of its run before it decides, and that head is never deleted.

    :param states: the heads of partitions and runs, as they were read before the decisions.
    """
    runs = {state.slot.name: state for state in states if state.slot.is_run}
    last: dict[str, Decision] = {}
    for decision in (it.decision for it in decisions):
        if (key := decision.idempotency_key) is not None:
            known = last.get(key, decision)
            last[key] = max(known, decision, key=lambda it: it.run_version)
    lost = [it for key, it in last.items() if not _knows(runs.get(key), it)]
    slots = [Slot.run(context.root, it.idempotency_key or "") for it in lost]
    # A run that has begun since the heads were listed has a head by now.
    again = yield from All(tuple(or_damage(read_head(context, slot)) for slot in slots))
    return [
        Problem(
            "record of a run gone",
            slot.key,
            f"Job {it.job} has committed the run {slot.name}, and the run's record does not say "
            "so: if the run is made again, it adds its rows a second time.",
            "Restore the object from a version or backup. Otherwise do not clear that run; load "
            "its partitions again by a job that replaces them.",
        )
        for it, slot, state in zip(lost, slots, again, strict=True)
        if isinstance(state, HeadState) and not _knows(state, it)
    ]


def _knows(state: HeadState | None, decision: Decision) -> bool:
    """Return whether the head of a run has been moved by a commit, or is about to be."""
    if state is None:
        return False
    return state.head.version > decision.run_version or state.head.claim == decision.job


def _about_claim(context: Context, state: HeadState) -> Step[Problem | None]:
    job = state.head.claim
    assert job is not None
    if (yield from read_open(context, job)) is not None:
        return None
    again = yield from or_damage(read_head(context, state.slot))
    if isinstance(again, DamagedError) or again.etag != state.etag:
        return None  # Its job was closed between the two reads.
    return Problem(
        "claim of a dead job",
        state.slot.key,
        f"The head carries the claim of {job}, which has no open record.",
        f"Take it off: zero-rename purge {context.root.url} --apply",
    )
