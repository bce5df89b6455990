"""What must hold of a table's columns at every request: they are those that the table began with
and those of committed jobs' files, no more and no fewer."""

from __future__ import annotations

from functools import lru_cache

from simulation.invariants import ROOT, Violation, decision_of
from simulation.sim_store import Store

from zero_rename.committer.protocol.snapshot import Snapshot
from zero_rename.committer.records.table_record import TableRecord


def check_columns(before: Store, after: Store, start: Store) -> None:
    """The table's columns after a request that wrote ``table.json`` or a decision.

    :param start: the store at the beginning, which has a table.
    :raises Violation: a committed job's column is none of the table's, or the table has one that
        no committed job brought.
    """
    first = start.objects.get(ROOT.table_key)
    if first is None or before.objects is after.objects:
        return
    decided = [
        key.removeprefix(ROOT.decisions_prefix).removesuffix(".json")
        for key in after.objects
        if key.startswith(ROOT.decisions_prefix) and key.endswith(".json")
    ]
    new_decision = any(ROOT.decision_key(job) not in before.objects for job in decided)
    if not new_decision and before.objects[ROOT.table_key] is after.objects[ROOT.table_key]:
        return
    brought = set(_record(first.body).schema.names)
    for job in decided:
        decision = decision_of(after, job)
        if decision is not None and decision.is_commit:
            brought.update(*(columns_in(file.checksum) for file in decision.files))
    shown = set(_columns(after))
    if brought - shown:
        raise Violation("completeness", f"the columns {sorted(brought - shown)} are lost")
    if shown - brought:
        raise Violation("exclusivity", f"the columns {sorted(shown - brought)} are nobody's")


def check_read_columns(snapshot: Snapshot) -> None:
    """A reader's schema has the columns of all its files.

    :raises Violation: it has not.
    """
    for file in snapshot.files:
        missing = columns_in(file.checksum) - set(snapshot.schema.names)
        if missing:
            raise Violation("consistency", f"{sorted(missing)} of {file.key} were not read")


def columns_in(note: str) -> set[str]:
    """The columns of a file, from what it carries in the place of its checksum; none of a file
    that nobody of ours wrote."""
    return set(note.rpartition("|")[2].split())


def _columns(store: Store) -> list[str]:
    record = _record(store.objects[ROOT.table_key].body)
    if record.evolution is not None:
        decision = decision_of(store, record.evolution.job)
        if decision is not None and decision.is_commit:
            record = record.evolved()
    return record.schema.names


@lru_cache(maxsize=100_000)
def _record(body: bytes) -> TableRecord:
    return TableRecord.decode(body, ROOT.table_key)
