"""Probe of a store: finds out which guarantees it keeps, before a table's first write.

The findings stay in ``table.json``, so nothing uncertain may get there. If the store answers a
question with a time-out, a 5xx or a 409, the question is repeated on another key, where a late
request of the first time changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ...errors import StoreRefusedError, StoreUnfitError, StoreUnreachableError, ZeroRenameError
from ...format.layout import TableRoot
from ...format.records.store_facts import StoreFacts, other_stores
from ...store.backoff import Backoff
from ...store.listing import list_uploads
from ...store.requests import (
    AbortUpload,
    All,
    CompleteUpload,
    CreateUpload,
    Delete,
    DeleteMany,
    Done,
    Found,
    Head,
    Put,
    Refused,
    ServerName,
    Step,
    Unknown,
    UploadPart,
)

T = TypeVar("T")
#: Stores that are known to check and carry out conditional writes in two steps, by the name that
#: they give themselves: moto, versitygw on posix, S3Mock. Other stores show it when racing creators
#: have two winners; a race can refute atomicity, never prove it.
_NOT_ATOMIC = ("werkzeug", "versitygw", "s3-mock-file-store")
_RACERS = 8
#: Racers that must get an answer: with fewer answers the race shows nothing.
_ANSWERED = 5
_COMPLETES = 3
#: If one answer in five is uncertain, a question of three requests is answered in half of the
#: attempts.
_TRIES = Backoff(tries=20, first=0.5, cap=4.0)
#: Refusals that are about the moment, not about the condition.
_PASSING = frozenset(
    {
        "ConditionalRequestConflict",
        "OperationAborted",
        "InternalError",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
    }
)


class _UnansweredError(Exception):
    """Answer that leaves open what the store keeps."""


@dataclass
class _Questions:
    """Questions of one probe.

    :param ids: makes ids that never repeat.
    :param keys: every key that was used for a question.
    """

    root: TableRoot
    ids: Callable[[], str]
    keys: list[str] = field(default_factory=list)

    def ask(self, name: str, question: Callable[[str], Step[T]], unique: str) -> Step[T]:
        """Repeat a question until its answer is certain.

        :raises StoreUnreachableError: it never was.
        """
        cause = ""
        for attempt in _TRIES.attempts():
            yield from _TRIES.pause(attempt)
            key = self.root.probe_key(f"{self.ids() if attempt else unique}-{name}")
            self.keys.append(key)
            try:
                return (yield from question(key))
            except _UnansweredError as error:
                cause = str(error)
        raise StoreUnreachableError(
            f"What this store keeps could not be found out: {_TRIES.tries} times it did not say "
            f"what became of a probe's request ({cause}). Only probe objects were written, and "
            "nothing was recorded.",
            key=self.keys[-1],
            remedy="Run the job again when the store answers.",
        )


def probe(root: TableRoot, ids: Callable[[], str]) -> Step[StoreFacts]:
    """Find out what the store keeps, with small objects under ``_zero_rename/probe/``.

    All objects and uploads of the probe are removed afterwards.

    :raises StoreUnfitError: the store removes objects that no request has deleted.
    :raises StoreUnreachableError: it gave no certain answer, however often it was asked.
    :raises StoreRefusedError: it lets nothing be deleted.
    """
    questions = _Questions(root, ids)
    ask = partial(questions.ask, unique=ids())
    try:
        objects = (
            ask("create", _probe_create),
            ask("race", _probe_race),
            ask("swap", _probe_swap),
            ask("delete", _probe_delete),
            ask("abort", _probe_abort),
        )
        found, upload = yield from All((All(objects), ask("upload", _probe_upload)))
    except ZeroRenameError:
        yield from DeleteMany(tuple((key, None) for key in questions.keys))
        raise
    yield from DeleteMany(tuple((key, None) for key in questions.keys))
    server = yield from ServerName()
    created, raced, swapped, deleted, kept = found
    if not kept:
        raise _removes_on_abort(server)
    by_prefix, listed, resurrects = upload
    return StoreFacts(
        server=server,
        atomic=raced and not any(name in server.lower() for name in _NOT_ATOMIC),
        conditional_put=created and swapped,
        conditional_delete=deleted,
        uploads_by_prefix=by_prefix,
        uploads_listed=listed,
        complete_resurrects=resurrects,
    )


def what_changed(root: TableRoot, ids: Callable[[], str], known: StoreFacts) -> Step[str | None]:
    """Probe a store again, and describe in a sentence the guarantees that it no longer keeps.

    :param known: what it kept when the table was made.
    :returns: ``None``: it keeps all, or this cannot be found out now.
    """
    try:
        now = yield from probe(root, ids)
    except StoreUnfitError as error:
        return error.message
    except ZeroRenameError:
        return None
    lost = known.lost(now)
    if not lost:
        return None
    return f"The store ({now.server or 'unnamed'}) has changed: {'; '.join(lost.values())}."


def _certain(answer: T | Unknown) -> T:
    """Return an answer if it shows what happened.

    :raises _UnansweredError: it does not.
    """
    if isinstance(answer, Unknown):
        raise _UnansweredError(answer.cause)
    if isinstance(answer, Refused) and answer.code in _PASSING:
        raise _UnansweredError(answer.code)
    return answer


def _done(answer: Done | Refused | Unknown) -> Done:
    """Return the answer to a request that any store carries out.

    :raises _UnansweredError: this one did not, just now.
    """
    certain = _certain(answer)
    if isinstance(certain, Refused):
        raise _UnansweredError(certain.code)
    return certain


def _probe_create(key: str) -> Step[bool]:
    """Return whether, of two creators of one key, one after the other, the second one loses."""
    first = _certain((yield from Put(key, b"first", if_none_match=True)))
    late = _certain((yield from Put(key, b"late", if_none_match=True)))
    return isinstance(first, Done) and isinstance(late, Refused)


def _probe_race(key: str) -> Step[bool]:
    """Return whether at most one of several racing creators of one key wins.

    A 409 is a loser's answer. Two known winners disprove it, whatever answers the others got. No
    race proves it, so a few racers without an answer make little difference.
    """
    racers = [Put(key, f"racer {n}".encode(), if_none_match=True) for n in range(_RACERS)]
    answers = yield from All(tuple(racers))
    if sum(isinstance(answer, Done) for answer in answers) > 1:
        return False
    unknown = [answer for answer in answers if isinstance(answer, Unknown)]
    if len(unknown) > _RACERS - _ANSWERED:
        raise _UnansweredError(unknown[0].cause)
    return True


def _probe_swap(key: str) -> Step[bool]:
    first = _done((yield from Put(key, b"first")))
    second = _certain((yield from Put(key, b"second", if_match=first.etag)))
    stale = _certain((yield from Put(key, b"third", if_match=first.etag)))
    now = yield from Head(key)
    return (
        isinstance(second, Done)
        and isinstance(stale, Refused)
        and isinstance(now, Found)
        and now.etag == second.etag
    )


def _probe_delete(key: str) -> Step[bool]:
    first = _done((yield from Put(key, b"first")))
    second = _done((yield from Put(key, b"second")))
    yield from _delete(key, first.etag)
    survivor = yield from Head(key)
    if not isinstance(survivor, Found):
        return False
    deleted = yield from _delete(key, second.etag)
    gone = yield from Head(key)
    return deleted and not isinstance(gone, Found)


def _delete(key: str, etag: str) -> Step[bool]:
    """Delete a version; return ``False`` if that was refused."""
    answer = _certain((yield from DeleteMany(((key, etag),))))
    code = answer.errors.get(key)
    if code == "AccessDenied":
        raise StoreRefusedError(
            "The store lets these credentials delete nothing (AccessDenied), so no job could be "
            "closed. Only probe objects were written; they are still there.",
            key=key,
            remedy="Grant s3:DeleteObject on the table's prefix.",
        )
    if code in _PASSING:
        raise _UnansweredError(code)
    return code is None


def _probe_abort(key: str) -> Step[bool]:
    """Return whether an object stays when an upload of its key is aborted.

    Uploads of a killed task's attempts are aborted, and share the keys of the attempt that was
    committed.
    """
    _done((yield from Put(key, b"object")))
    created = yield from CreateUpload(key)
    answer = yield from AbortUpload(key, created.upload_id)
    if not isinstance(answer, Done):
        yield from AbortUpload(key, created.upload_id)
    _done(answer)
    after = yield from Head(key)
    return isinstance(after, Found)


def _removes_on_abort(server: str) -> StoreUnfitError:
    return StoreUnfitError(
        f"On this store ({server or 'unnamed'}) aborting an upload removes the object of its key: "
        "tidying up after a killed task would remove rows that are committed. Only probe objects "
        "were written, and they were removed.",
        remedy=f"Use {other_stores(server)}; for tests, moto.",
    )


def _probe_upload(key: str) -> Step[tuple[bool, bool, bool]]:
    """Return whether listings show an upload, by prefix and at all, and whether objects come back.

    They come back if a second Complete brings a deleted object back.
    """
    created = yield from CreateUpload(key)
    # By a folder, as sweeps list: MinIO shows an upload only for its exact key as prefix.
    by_prefix = yield from _lists(f"{key.rsplit('/', 1)[0]}/", key, created.upload_id)
    listed = by_prefix or (yield from _lists("", key, created.upload_id))
    try:
        part = _done((yield from UploadPart(key, created.upload_id, 1, b"probe")))
        complete = CompleteUpload(key, created.upload_id, (part.etag,))
        _done((yield from complete))
        _done((yield from Delete(key)))
    except _UnansweredError:
        yield from AbortUpload(key, created.upload_id)
        raise
    return by_prefix, listed, (yield from _resurrects(complete))


def _resurrects(complete: CompleteUpload) -> Step[bool]:
    """Return whether a repeated Complete brings back an object that was deleted since the first.

    Ceph and moto answer 500 to each, so an answer that is uncertain every time counts as an answer.
    """
    for _ in range(_COMPLETES):
        answer = yield from complete
        after = yield from Head(complete.key)
        if isinstance(after, Found) or not isinstance(answer, Unknown):
            return isinstance(after, Found)
    return False


def _lists(prefix: str, key: str, upload_id: str) -> Step[bool]:
    found = yield from list_uploads(prefix)
    return any(upload.key == key and upload.upload_id == upload_id for upload in found)
