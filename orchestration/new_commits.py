"""Commits to a table since the last poll, by any writer, and a cursor: the last commit read."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..committer.errors import DamagedError, TableNotFoundError
from ..committer.format.layout import TableRoot, jobs_between, jobs_on_record
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from .runs.reports import commit_report

if TYPE_CHECKING:
    from ..committer import Owner, Table
    from ..tables import DeltaTable

_log = logging.getLogger(__name__)
#: Commits read in one poll; the next poll reads the rest.
LIMIT = 200
#: Seconds for which a job may be open before it commits, and still be found.
LONGEST = 7 * 86_400.0
#: By how many prefixes a poll lists decisions, at most.
_PREFIXES = 4
#: Seconds without a commit after which a cursor moves on all the same, so that polls of a quiet
#: table go on to list the decisions of a few days only.
_QUIET = 86_400.0
#: Seconds by which a store may list an object late, or date it early.
OVERLAP = 300.0


@dataclass(frozen=True)
class ListingCursor:
    """Position in a listing of objects, by their dates: objects before it were read.

    :param at: the last date of an object that was read, by the store's clock.
    :param seen: digests of the objects' states that were read and whose date is at most
        :data:`OVERLAP` before ``at``.
    """

    at: float = 0.0
    seen: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def decode(text: str | None) -> ListingCursor:
        """Read a cursor from the text of :meth:`encode`; from any other text, the beginning."""
        try:
            found = json.loads(text or "{}")
            return ListingCursor(float(found.get("at", 0.0)), frozenset(found.get("seen", ())))
        except (AttributeError, TypeError, ValueError):
            return ListingCursor()

    def encode(self) -> str:
        return json.dumps({"at": self.at, "seen": sorted(self.seen)}, separators=(",", ":"))

    def unread(self, listed: Sequence[ListedObject]) -> list[ListedObject]:
        """Return the listed objects whose present state was not read yet, oldest first."""
        new = [
            item
            for item in listed
            if item.last_modified >= self.at - OVERLAP and _digest(item) not in self.seen
        ]
        return sorted(new, key=lambda item: (item.last_modified, item.key))

    def after(
        self,
        read: Sequence[ListedObject],
        listed: Sequence[ListedObject],
        left: Sequence[ListedObject] = (),
    ) -> ListingCursor:
        """Return the cursor after some of the unread objects are read.

        :param read: these objects.
        :param listed: the whole listing: an object that is no longer in it need not be remembered.
        :param left: unread objects to read later: the cursor does not move beyond them.
        """
        at = max((self.at, *(item.last_modified for item in read)))
        at = min((at, *(item.last_modified for item in left)))
        seen = self.seen | {_digest(item) for item in read}
        recent = {_digest(item) for item in listed if item.last_modified >= at - OVERLAP}
        return ListingCursor(at, seen & recent)

    def after_quiet(self, listed: Sequence[ListedObject], date: float) -> ListingCursor:
        """Return the cursor after a poll that has left nothing unread.

        :param date: when the listing was made, by the store's clock.
        """
        is_due = date - self.at >= _QUIET
        return ListingCursor(date, self.seen).after((), listed) if is_due else self


@dataclass(frozen=True)
class LogCursor:
    """Position in the log of a Delta table: entries up to it were read.

    :param version: of the last entry that was read; -1: none.
    """

    version: int = -1

    def encode(self) -> str:
        return json.dumps({"version": self.version}, separators=(",", ":"))


def decode_cursor(text: str) -> ListingCursor | LogCursor:
    """Read a cursor of either kind from its text."""
    try:
        return LogCursor(int(json.loads(text)["version"]))
    except (KeyError, TypeError, ValueError):
        return ListingCursor.decode(text)


@dataclass(frozen=True)
class NewCommits:
    """Result of a poll for new commits.

    :param reports: of the commits (:func:`.reports.commit_report`), oldest first, each with its
        ``owner``.
    :param cursor: for the next poll, once these reports were passed on.
    """

    reports: tuple[dict[str, Any], ...]
    cursor: ListingCursor | LogCursor


def present(table: Table, since: float | None, now: float) -> ListingCursor:
    """Return the cursor to begin with: commits made before are not reported.

    :param since: in Unix seconds; if given, commits from this time on are reported all the same.
    :param now: in Unix seconds.
    """
    found = table.run(_decisions(table.root, now if since is None else min(since, now), now))
    begin = found.date if since is None else since
    old = [it for it in found.closed if since is None or it.last_modified < since]
    return ListingCursor(begin).after(old, found.listed, found.open)


def new_commits(
    table: Table, cursor: ListingCursor, now: float, wanted: Callable[[str], bool]
) -> NewCommits:
    """Return the commits after a cursor; only those that readers by listing can see.

    This takes three listings, up to five after a pause of weeks, and two requests for each commit.
    Compactions, which bring no rows, and jobs that were open for longer than :data:`LONGEST` are
    not reported. A commit whose records are damaged is logged, and read again by each poll until
    they are restored.

    :param now: in Unix seconds.
    :param wanted: return whether a partition is of interest; a commit that changed no such
        partition is not reported.
    """
    since = min(cursor.at, now) if cursor.at else now
    decisions = table.run(_decisions(table.root, since, now))
    listed, left = decisions.listed, decisions.open
    new = [item for item in cursor.unread(listed) if item not in left]
    unread = new[:LIMIT]
    reports: list[dict[str, Any]] = []
    damaged: list[ListedObject] = []
    for item in unread:
        (job,) = jobs_on_record(table.root.decisions_prefix, [item.key])
        try:
            report = _report(table, job, cursor, wanted)
        except DamagedError as error:
            _log.warning("Job %s is not reported before its records are restored: %s", job, error)
            damaged.append(item)
            continue
        if report is not None:
            reports.append(report)
    read = [item for item in unread if item not in damaged]
    after = cursor.after(read, listed, [*left, *damaged])
    if not left and len(read) == len(new):
        after = after.after_quiet(listed, decisions.date)
    return NewCommits(tuple(reports), after)


def _report(
    table: Table, job: str, cursor: ListingCursor, wanted: Callable[[str], bool]
) -> dict[str, Any] | None:
    """Return the report of a decided job, or ``None`` if it is not to be reported."""
    committed = table.result(job)
    # A decision that was written again later has a new date in the listing; decided_at stays.
    if committed is None or committed.rewritten or committed.decided_at < cursor.at - OVERLAP:
        return None
    names = [it.partition for it in committed.partitions if wanted(it.partition)]
    if not names:
        return None
    return commit_report(committed, names) | {"owner": _told(table.owner_of(job))}


def new_entries(
    table: DeltaTable,
    cursor: ListingCursor | LogCursor | None,
    since: float | None,
    wanted: Callable[[str], bool],
) -> NewCommits:
    """Return the commits to a Delta table after a cursor, also those of other engines.

    If there are none, this takes one listing. A commit of another engine has the job ``None``.

    :param cursor: a cursor of a listing is from before there was a Delta table: then all of its
        entries are new. ``None``: begin now, or at ``since``.
    :param since: in Unix seconds.
    :param wanted: as for :func:`new_commits`.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..tables import Since

    if cursor is None and since is None:
        newest = table.newest_entry()
        return NewCommits((), LogCursor(-1 if newest is None else newest.version))
    after = Since(time=since)
    if cursor is not None:
        after = Since(version=cursor.version if isinstance(cursor, LogCursor) else -1)
    try:
        changes = table.changes_since(after, LIMIT)
    except TableNotFoundError:  # Its first job has not committed.
        return NewCommits((), LogCursor())
    if changes.cleaned:
        _log.warning(
            "Entries that were due for a report were cleaned from the log of %s: the commits by "
            "them are not reported. Load what depends on them again.",
            table.root.url,
        )
    reports = [
        commit_report(it.done, names) | {"job": it.done.job or None, "owner": _told(it.owner)}
        for it in changes.found
        if (names := sorted(filter(wanted, it.partitions)))
    ]
    return NewCommits(tuple(reports), LogCursor(changes.read))


def _told(owner: Owner | None) -> dict[str, Any]:
    return {name: value for name, value in asdict(owner).items() if value} if owner else {}


@dataclass(frozen=True)
class _Decisions:
    """Decisions of a table's jobs, as they were listed.

    :param open: those of jobs that are still open: they may not be applied to their end yet.
    :param date: when they were listed, by the store's clock.
    """

    listed: Sequence[ListedObject]
    open: Sequence[ListedObject]
    date: float

    @property
    def closed(self) -> list[ListedObject]:
        return [item for item in self.listed if item not in self.open]


def _decisions(root: TableRoot, since: float, now: float) -> Step[_Decisions]:
    """List the decisions that were made since a time, and some from before.

    A job is open before it decides, so the open jobs are listed after the decisions.

    :param since: jobs that began up to :data:`LONGEST` seconds before it are listed.
    """
    prefixes = jobs_between(since - LONGEST, now + 86_400.0, _PREFIXES)
    listings = yield from All(
        tuple(list_objects(f"{root.decisions_prefix}{prefix}") for prefix in prefixes)
    )
    opened = yield from list_objects(root.open_prefix)
    items = [item for listing in listings for item in listing.objects]
    # A decision is written again when it is condensed or when a loss is accepted. It is the same
    # commit, so its ETag must not count.
    decisions = {
        job: replace(item, etag="")
        for item in items
        for job in jobs_on_record(root.decisions_prefix, [item.key])
    }
    still_open = set(jobs_on_record(root.open_prefix, opened.keys))
    left = [item for job, item in decisions.items() if job in still_open]
    return _Decisions(list(decisions.values()), left, listings[0].since)


def _digest(item: ListedObject) -> str:
    return hashlib.sha256(f"{item.key} {item.etag}".encode()).hexdigest()[:12]
