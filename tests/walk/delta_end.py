"""The end of a walk of a Delta table: everything is settled, purged, and compared."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from walk.delta_verbs import read_state, table_of
from walk.delta_world import DeltaWorld
from walk.directory_end import require_settled, require_writable
from walk.oracle import Violation
from walk.world import ROOT, Process, World

from zero_rename.committer.errors import OutcomeUnknownError, ZeroRenameError
from zero_rename.tables import DeltaTable

_EIGHT_DAYS = 8 * 24 * 3600.0


def look(world: World) -> None:
    """Somebody reads the whole table, with nothing in the way."""
    if world.oracle.commits:
        read_state(world, table_of(world.process(9)))


def end(world: World) -> None:
    """Whoever was at work has gone; recovery and purge settle it, and everything is compared."""
    assert isinstance(world, DeltaWorld)
    world.open_jobs.clear()
    world.deliver(every=True)
    process = world.process(8)
    table = table_of(process)
    if not world.oracle.commits:
        return
    # Twice: what is left the first time is so because of what the repair itself has done.
    for accept_loss in (False, True):
        table.repair(apply=True, accept_loss=accept_loss)
    if world.oracle.lost or world.oracle.accepted:
        # Nothing is purged before a checksum file again says what the log is.
        require_writable(world)
    waits = {it.job for it in table.unpublished()}
    settled = [it for it in table.recover(0.0) if it.job not in waits]
    # Of a job whose entry may have been cleaned nobody can tell whether it is committed.
    require_settled(it for it in settled if not (world.cleaned and "were cleaned" in it.detail))
    _compare(world, process)
    for job in [it.job for it in table.unpublished()]:
        # Where entries were cleaned nobody can tell whether it was published.
        with suppress(OutcomeUnknownError) if world.cleaned else nullcontext():
            table.abort(job)
    world.clock.advance(_EIGHT_DAYS)
    table.purge(apply=True)
    _nothing_left(world, table)
    _compare(world, process)
    table.checkpoint_log()
    _compare(world, process)
    require_writable(world)
    _compare(world, process)


def _compare(world: World, process: Process) -> None:
    """Compare two readers with the oracle: one has opened the table before, and one has not."""
    last = len(world.oracle.commits) - 1
    for table in (table_of(process), table_of(world.begin_process("a reader"))):
        version, _ = read_state(world, table)
        if version != last:
            raise Violation(f"a reader is given version {version} of {last}")
        found = table.verify()
        if found:
            raise Violation(f"verify finds {found}")


def _nothing_left(world: World, table: DeltaTable) -> None:
    assert isinstance(world, DeltaWorld)
    if world.cleaned:
        return  # Jobs whose entries are gone cannot be settled: they keep their files and records.
    prefix = f"{ROOT.prefix}/"
    named = {f"{prefix}{path}" for path in world.oracle.live}
    lost = {*world.oracle.lost, *world.oracle.repaired}
    left = [key for key in world.objects(prefix) if key.endswith(".parquet") and key not in named]
    # Files of entries that were written over stay as long as the log tells of it, unless their loss
    # was accepted.
    left = [key for key in left if not any(f"/{job}/" in key for job in lost)]
    # What another engine has written its own VACUUM deletes.
    left = [key for key in left if "/_delta_log/" not in key and "/engine-" not in key]
    # Those of probes are no job's: maintenance sweeps them by their age.
    uploads = (it for it in world.store.upload_keys(prefix) if "/_zero_rename/probe/" not in it)
    left += [f"upload of {key}" for key in uploads]
    left += [f"open job {it.job}" for it in table.open_jobs()]
    if left:
        raise Violation(f"recovery and purge have left {left}")
    for job, word in world.oracle.told.items():
        if job in world.oracle.lost or job in world.oracle.accepted:
            continue
        try:
            result = table.result(job)
        except ZeroRenameError as error:
            raise Violation(f"nobody can tell what became of {job}: {error}") from error
        if (result is not None) != (word == "committed"):
            raise Violation(f"{job} was told {word}, and its result is {result}")
