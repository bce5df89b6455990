"""Purge: uploads that nobody will complete, and claims of jobs that are gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ..job_spec import Coordination
from ..layout import job_in_key
from ..protocol.apply import finish
from ..protocol.close import list_uploads
from ..protocol.open import list_open, read_open
from ..records.decision import Decision
from ..records.head import HeadState, head_at
from ..s3.listing import list_objects
from ..s3.requests import (
    AbortUpload,
    All,
    Found,
    Get,
    Head,
    ListedUpload,
    Refused,
    Step,
)
from ..state.context import Context
from ..state.decide import decide, read_decision
from ..state.heads import list_heads, release_claim
from .recovery import Outcome, Recovered, known, recover


class PurgeAction(StrEnum):
    ABORTED = "aborted"
    WOULD_ABORT = "would-abort"
    KEPT = "kept"


@dataclass(frozen=True)
class PurgeEntry:
    """What purge did with one upload. ``initiated``: seconds since the epoch, store's clock."""

    key: str
    upload_id: str
    job: str | None
    initiated: float
    action: PurgeAction
    reason: str


@dataclass(frozen=True)
class PurgeReport:
    """What a purge found."""

    entries: tuple[PurgeEntry, ...]
    recovered: tuple[Recovered, ...]


def purge(
    context: Context,
    *,
    patience: float | None = None,
    foreign_older_than: float | None = None,
    dry_run: bool = False,
) -> Step[PurgeReport]:
    """Recover, then abort the uploads that nobody will complete.

    :param foreign_older_than: abort foreign uploads initiated so many seconds ago; ``None``
        leaves them.
    :param dry_run: say what would be done; nothing is recovered or aborted.
    """
    facts, coordination = yield from known(context)
    context = replace(context, facts=facts)
    recovered: list[Recovered] = []
    if not dry_run:
        recovered = yield from recover(context, patience)
        if coordination is Coordination.STORE:
            recovered += yield from release_dead_claims(context)
    # Uploads first, then the open records: a job that opens in between has no upload listed.
    uploads = yield from list_uploads(context)
    still_open = yield from list_open(context)
    jobs = sorted({j for u in uploads if (j := job_in_key(u.key)) and j not in still_open})
    found = yield All(tuple(read_decision(context, job) for job in jobs))
    decisions = dict(zip(jobs, found, strict=True))
    # The age of a foreign upload is told by the store's clock, as when it was initiated.
    asked = (yield Head(context.root.table_key)) if foreign_older_than is not None else None
    now = None if asked is None else asked.date
    entries = []
    for upload in uploads:
        job = job_in_key(upload.key)
        if upload.key.startswith(context.root.probe_key("")):
            # A probe runs while its job is open, and its upload names no job.
            abort = not still_open
            reason = "left by a probe" if abort else "a probe's, and a job is open"
        elif job is None or (job not in still_open and decisions[job] is None):
            abort, reason = _judge_foreign(upload, foreign_older_than, now)
        elif job in still_open:
            abort, reason = False, "its job is open"
        else:
            decision = decisions[job].decision
            named = (upload.key, upload.upload_id) in decision.upload_ids
            abort = not named
            reason = (
                "the committed decision names it"
                if named
                else f"its job is closed ({decision.verdict}) and its decision does not name it"
            )
        entries.append((yield from _carry_out(upload, job, abort, reason, dry_run)))
    return PurgeReport(tuple(entries), tuple(recovered))


def release_dead_claims(context: Context) -> Step[list[Recovered]]:
    """Resolve claims of jobs that have no open record any more: one GET a head.

    A job that was declared dead while it still wrote may put its claim on a head after its
    clean-up was done, and then die: nothing but the head tells. Whoever claims the head next takes
    such a claim off; this does it for partitions that nobody writes.
    """
    states = yield from all_heads(context)
    outcomes = []
    for state in states:
        job = state.head.claim
        if job is None or (yield from read_open(context, job)) is not None:
            continue
        decided = yield from decide(context, Decision.abort(job, context.write_id()))
        if decided.decision.is_commit:
            yield from finish(context, decided)
            outcomes.append(Recovered(job, Outcome.COMMITTED, f"applied {state.slot.name}"))
        else:
            yield from release_claim(context, state.slot, job)
            outcomes.append(
                Recovered(job, Outcome.ABORTED, f"took its claim off {state.slot.name}")
            )
    return outcomes


def all_heads(context: Context) -> Step[list[HeadState]]:
    """The heads of all partitions and of all runs."""
    partitions = yield from list_heads(context)
    runs = yield from list_objects(context.root.once_prefix)
    keys = (*(listed.slot.key for listed in partitions.values()), *runs.keys)
    found = yield All(tuple(Get(key) for key in keys))
    return [head_at(context.root, item) for item in found if isinstance(item, Found)]


def _judge_foreign(
    upload: ListedUpload, older_than: float | None, now: float | None
) -> tuple[bool, str]:
    if older_than is None or now is None:
        return False, "foreign: left unless foreign uploads are asked for, by age"
    age = now - upload.initiated
    if age < older_than:
        return False, f"foreign and {age:.0f} s old, younger than {older_than:.0f} s"
    return True, f"foreign and {age:.0f} s old"


def _carry_out(
    upload: ListedUpload, job: str | None, abort: bool, reason: str, dry_run: bool
) -> Step[PurgeEntry]:
    action = PurgeAction.KEPT
    if abort:
        action = PurgeAction.WOULD_ABORT
        if not dry_run:
            answer = yield AbortUpload(upload.key, upload.upload_id)
            gone = isinstance(answer, Refused)
            reason += "; it was gone already" if gone else ""
            action = PurgeAction.ABORTED
    return PurgeEntry(upload.key, upload.upload_id, job, upload.initiated, action, reason)
