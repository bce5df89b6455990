"""Commits to a table since somebody last looked, whoever made them, and how far they looked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..committer.errors import TableNotFoundError
from ..committer.format.layout import TableRoot, jobs_begun, jobs_on_record
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from .runs.reports import commit_report

if TYPE_CHECKING:
    from ..committer import Owner, Table
    from ..tables import DeltaTable

#: Commits read in one look; the next goes on with the rest.
LIMIT = 200
#: Seconds for which a job may be open before it commits, and still be noticed.
LONGEST = 7 * 86_400.0
#: Seconds by which a store may show what it was sent late, or date it early.
OVERLAP = 300.0


@dataclass(frozen=True)
class ListingCursor:
    """How far somebody has read objects, as their listing dates them.

    :param at: the last date of an object that was read, by the store's clock.
    :param seen: digests of the states read that are not older than :data:`OVERLAP` before.
    """

    at: float = 0.0
    seen: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def decode(text: str | None) -> ListingCursor:
        """Of a text by :meth:`encode`; the beginning, where it is none."""
        try:
            found = json.loads(text or "{}")
            return ListingCursor(float(found.get("at", 0.0)), frozenset(found.get("seen", ())))
        except (AttributeError, TypeError, ValueError):
            return ListingCursor()

    def encode(self) -> str:
        return json.dumps({"at": self.at, "seen": sorted(self.seen)}, separators=(",", ":"))

    def unread(self, listed: Sequence[ListedObject]) -> list[ListedObject]:
        """The states that were not read yet, oldest first."""
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
        """The cursor once some of the unread are read.

        :param listed: the whole listing: what is no longer in it need not be remembered.
        :param left: unread ones that are to be read later, however late.
        """
        at = max((self.at, *(item.last_modified for item in read)))
        at = min((at, *(item.last_modified for item in left)))
        seen = self.seen | {_digest(item) for item in read}
        recent = {_digest(item) for item in listed if item.last_modified >= at - OVERLAP}
        return ListingCursor(at, seen & recent)


@dataclass(frozen=True)
class LogCursor:
    """How far somebody has read the log of a Delta table.

    :param version: of the last entry that was read; -1: none.
    """

    version: int = -1

    def encode(self) -> str:
        return json.dumps({"version": self.version}, separators=(",", ":"))


def decode_cursor(text: str) -> ListingCursor | LogCursor:
    """Return a cursor by its text: of whichever kind it is."""
    try:
        return LogCursor(int(json.loads(text)["version"]))
    except (KeyError, TypeError, ValueError):
        return ListingCursor.decode(text)


@dataclass(frozen=True)
class NewCommits:
    """What a look found.

    :param reports: of the commits (:func:`.reports.commit_report`), oldest first, each with its
        ``owner``.
    :param cursor: for the next look, once these are told.
    """

    reports: tuple[dict[str, Any], ...]
    cursor: ListingCursor | LogCursor


def present(table: Table, since: float | None, now: float) -> ListingCursor:
    """Where to begin: what has been committed so far is not told.

    :param since: tell what was committed after this time, seconds since the epoch.
    """
    listed, left = table.run(_decisions(table.root, now))
    old = [it for it in listed if it not in left and (since is None or it.last_modified < since)]
    return ListingCursor().after(old, listed, left)


def new_commits(
    table: Table, cursor: ListingCursor, now: float, wanted: Callable[[str], bool]
) -> NewCommits:
    """The commits that were made since, and are to be seen by readers that list.

    Three listings, and two requests for each commit. Not told are compactions, which bring no rows,
    and jobs that were open for longer than :data:`LONGEST`.

    :param now: seconds since the epoch.
    :param wanted: whether a partition is; a commit that changed no such one is not told.
    """
    listed, left = table.run(_decisions(table.root, now))
    unread = [item for item in cursor.unread(listed) if item not in left][:LIMIT]
    reports = []
    for item in unread:
        (job,) = jobs_on_record(table.root.decisions_prefix, [item.key])
        committed = table.result(job)
        # What was written anew keeps its date.
        if committed is None or committed.rewritten or committed.decided_at < cursor.at - OVERLAP:
            continue
        names = [it.partition for it in committed.partitions if wanted(it.partition)]
        if not names:
            continue
        reports.append(commit_report(committed, names) | {"owner": _told(table.owner_of(job))})
    return NewCommits(tuple(reports), cursor.after(unread, listed, left))


def new_entries(
    table: DeltaTable,
    cursor: ListingCursor | LogCursor | None,
    since: float | None,
    wanted: Callable[[str], bool],
) -> NewCommits:
    """The commits to a Delta table that were made since, other engines' too: one listing where
    there are none. The job of another engine's is ``None``.

    :param cursor: of a listing, from before there was a Delta table: all of its entries are new;
        ``None``: begin now, or at a time.
    :param since: that time, in seconds since the epoch.
    :param wanted: as of :func:`new_commits`.
    """
    # On use: DAG files are parsed by processes that know no table.
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
    reports = [
        commit_report(it.done, names) | {"job": it.done.job or None, "owner": _told(it.owner)}
        for it in changes.found
        if (names := sorted(filter(wanted, it.partitions)))
    ]
    return NewCommits(tuple(reports), LogCursor(changes.read))


def _told(owner: Owner | None) -> dict[str, Any]:
    return {name: value for name, value in asdict(owner).items() if value} if owner else {}


def _decisions(root: TableRoot, now: float) -> Step[tuple[list[ListedObject], list[ListedObject]]]:
    """The decisions of jobs that began lately, and those of them that are not applied to their end
    or not known to be: a job is open before it decides, so the open ones are listed afterwards."""
    prefixes = jobs_begun(now - LONGEST, now + 86_400.0)
    listings = yield from All(
        tuple(list_objects(f"{root.decisions_prefix}{prefix}") for prefix in prefixes)
    )
    opened = yield from list_objects(root.open_prefix)
    items = [item for listing in listings for item in listing.objects]
    # One that is condensed, or in which a loss is accepted, is written anew: it is the same commit.
    decisions = {
        job: replace(item, etag="")
        for item in items
        for job in jobs_on_record(root.decisions_prefix, [item.key])
    }
    still_open = set(jobs_on_record(root.open_prefix, opened.keys))
    left = [item for job, item in decisions.items() if job in still_open]
    return list(decisions.values()), left


def _digest(item: ListedObject) -> str:
    return hashlib.sha256(f"{item.key} {item.etag}".encode()).hexdigest()[:12]
