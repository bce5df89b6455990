"""Check of a table's store: only one writer can have an entry of the log if the store refuses a
second PUT of its key, in one step.

The first job probes the store and records the result as a property of the table, so later jobs need
not probe it. For a table of another engine each process probes once.
"""

from __future__ import annotations

from ..committer.commit.state.probe import probe
from ..committer.errors import StoreUnfitError, first_few
from ..committer.format.layout import TableRoot, new_write_id
from ..committer.format.records.store_facts import StoreFacts
from ..committer.store.listing import list_objects
from ..committer.store.requests import Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.job_files import JobFiles
from ..log.replay import LogState

#: The property of a table that says whether its store carries out conditional writes in one step.
ATOMIC = "zero_rename.atomicPut"


def facts_of(root: TableRoot, state: LogState, known: StoreFacts | None) -> Step[StoreFacts]:
    """Return the guarantees of a table's store; probe it if they are not known.

    :param known: the guarantees that this process has found before.
    :raises StoreUnfitError: the store does not keep conditions of PUT. No data was written.
    """
    said = state.property_of(ATOMIC)
    if said:
        return StoreFacts(atomic=said == "true")
    if known is not None:
        return known
    facts = yield from probe(root, new_write_id)
    facts.require_coordination(root)
    return facts


def refuse_second_writer(
    root: TableRoot, layout: DeltaLayout, job: str, facts: StoreFacts
) -> Step[None]:
    """Refuse a job while another one is open, if the store checks a condition and writes in two
    steps: both jobs could then win the same entry.

    :raises StoreUnfitError: another job is open. No data was written.
    """
    if facts.atomic:
        return
    records = JobFiles(layout.control)
    listing = yield from list_objects(records.opened)
    others = {records.job_of(key) for key in listing.keys} - {job}
    if others:
        # A job that waits to be published writes nothing until then.
        waiting = yield from list_objects(records.waiting)
        others -= {records.job_of(key) for key in waiting.keys}
    if others:
        raise StoreUnfitError(
            "The store carries out conditional writes in two steps, so it holds one writer at a "
            f"time, and another job is open: {first_few(sorted(others))}. No data was written.",
            table=root.url,
            remedy="Wait for that job; if its process is dead, DeltaTable(…).recover(patience=0) "
            "closes it. Or use a store that writes in one step.",
        )
