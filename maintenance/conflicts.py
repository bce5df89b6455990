"""Conflicts of runs at any destination: search, settlement, and a page about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..committer.commit.state.data_listing import list_data
from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import (
    DamagedError,
    InvalidInputError,
    OtherJobError,
    TableNotFoundError,
    ZeroRenameError,
    counted,
    escaped,
    first_few,
)
from ..committer.format.job_spec import NOBODY, Owner
from ..committer.format.layout import UNPARTITIONED, job_in_key
from ..committer.format.records.run_conflict import (
    ConflictingRun,
    RunConflict,
    SettledBy,
    Settlement,
)
from ..committer.format.schema.directory import is_data_file
from ..committer.format.schema.hive_paths import as_spark_writes
from ..committer.format.settling import SettledRuns, Settling
from ..committer.store.requests import ListObjects
from ..committer.upkeep.conflicts.conflict_record import open_conflicts, read_conflicts, settle
from ..committer.upkeep.conflicts.conflict_search import ConflictReport
from ..committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from ..s3a.runs.kept_rows import find_visible, forget_settled, note_settled
from ..s3a.runs.later_loads import refuse_later_loads
from ..s3a.runs.ledger import runs_prefix
from ..s3a.runs.run_conflicts import S3A, conflicts_key, find_s3a_conflicts
from ..tables import Since
from ..tables.table_at import delta_at
from .destinations import NOTHING, Destination, destination_at, destinations_in

if TYPE_CHECKING:
    from ..committer import Table
    from ..s3a.runs.try_record import TryRecord
    from ..tables import DeltaTable

#: The most conflicts that a report names; a table's record has all.
MOST_CONFLICTS = 200
#: The version of the entry by which a directory is adopted as a Delta table: the first.
ADOPTION = 0


@dataclass(frozen=True)
class ConflictOrder:
    """The instructions for maintenance about conflicts.

    :param policy: settle them by it, without a rerun; ``None``: only report them.
    :param fails: a conflict that is not settled is a finding that needs action.
    :param owner: recorded as the one that decides.
    """

    policy: SettlementPolicy | None = None
    fails: bool = False
    owner: Owner = NOBODY

    @staticmethod
    def parse(given: object) -> ConflictOrder | None:
        """Parse an order: ``"report"``, ``"fail"``, a policy, or ``None``.

        :raises InvalidInputError: the order is invalid.
        """
        if given is None or given == "":
            return None
        if given in ("report", "fail"):
            return ConflictOrder(fails=given == "fail")
        return ConflictOrder(SettlementPolicy.parse(given))


def find_at(
    table: Table, place: Destination, seconds: float | None = None, remember: bool = True
) -> list[ConflictReport]:
    """Find the conflicts at a destination. If one committer took over from another there, find
    those of both. A table whose writers do not notice each other yields a report with a note.

    :param table: opened at the destination's root; the kind does not matter.
    :param seconds: search back so far; ``None``: since the last search.
    :param remember: record the search, so that the next one continues from here.
    """
    found = []
    if place.is_table:
        try:
            found.append(table.conflicts(seconds, remember))
        except TableNotFoundError:
            pass  # Its first job has not committed.
        except InvalidInputError as error:  # The table has coordination=none.
            notes = (error.message,)
            found.append(ConflictReport(table.root.url, "", (), 0.0, 0.0, notes=notes))
    if place.is_s3a:
        found.append(table.run(find_s3a_conflicts(table.root, seconds, remember)))
    if place.is_delta:
        with suppress(TableNotFoundError):  # Its first job has not committed.
            found.append(delta_at(table).conflicts(seconds, remember))
    return found


def find_here(
    table: Table, seconds: float | None = None, remember: bool = True
) -> list[ConflictReport]:
    """Find the conflicts at a root if it is not known which committer writes there. There are none
    if the root is not a destination. At most ten requests if nothing has happened in a table since
    the last search.

    :param table: opened at the destination's root; the kind does not matter.
    :param seconds: as for :func:`find_at`, like ``remember``.
    """
    runs = table.run(ListObjects(runs_prefix(table.root)))
    found = []
    with suppress(TableNotFoundError):
        found.append(table.conflicts(seconds, remember))
    if not (found or runs.objects):
        # Only a magic tree, a marker or a Delta log shows its kind.
        place = table.run(destination_at(table.root))
        return find_at(table, place, seconds, remember)
    if runs.objects:
        # The directory of Hadoop's committers may have become a Delta table since.
        is_delta = not found and table.run(table_kind(table.root)) is TableKind.DELTA
        place = Destination(table.root, is_s3a=True, is_delta=is_delta)
        found += find_at(table, place, seconds, remember)
    return found


def find_below(
    table: Table, get_table: Callable[[str], Table], seconds: float | None = None
) -> list[ConflictReport]:
    """Find the conflicts at a destination, or at all destinations below a directory. If there is no
    destination, the report of the directory says so.

    :param get_table: opens a destination by its URL.
    """
    if found := find_here(table, seconds):
        return found
    places = table.run(destinations_in(table.root))
    found = [it for one in places for it in find_at(get_table(one.root.url), one, seconds)]
    return found or [ConflictReport(table.root.url, "", (), 0.0, 0.0, notes=(NOTHING,))]


def resolve_by_restore(
    table: Table,
    policy: object,
    partitions: Collection[str] | None = None,
    apply: bool = False,
    owner: Owner | None = None,
) -> list[RunConflict]:
    """Settle the conflicts at a destination without a rerun.

    In a Delta table this brings back the rows of the run that is to stand, within the table's
    retention. Elsewhere only a run whose rows are visible can stand. Where Hadoop's committers
    wrote, their ledger then says which runs have lost, until another run replaces the partition. A
    conflict of this package's runs is not settled if one of Hadoop's committers has written its
    partition since.

    :raises InvalidInputError: the policy is invalid, a partition has no conflict on record, or
        there is no destination.
    """
    chosen = SettlementPolicy.parse(policy)
    place = _destination(table)
    if not place.is_s3a:
        return _own(table, place).resolve(chosen, partitions, apply, owner)
    found = _open_at(table, place, partitions)
    theirs = [it for committer, it in found if committer]
    ours = [it for committer, it in found if not committer]
    done = [_settle_kept(table, place, it, chosen, apply, owner or NOBODY) for it in theirs]
    return [*done, *_restore(table, place, ours, chosen, apply, owner)]


def settled_before(
    table: Table, is_own: Callable[[Owner], bool], partitions: Collection[str] | None
) -> tuple[list[RunConflict], Collection[str] | None]:
    """Return the conflicts that earlier attempts of a task have settled, and what is left to do.

    :param is_own: return whether the one who decided is such an attempt.
    :param partitions: of the task; ``None``: all.
    :return: these conflicts; and the partitions without those that need no settlement any more,
        ``None`` if all were asked for.
    :raises InvalidInputError: a partition is invalid, or there is no destination.
    """
    place = _destination(table)
    names = None if partitions is None else _stored_names(table, place, partitions)
    done, still_open = list[RunConflict](), set[str]()
    for committer in _committers(place):
        record = table.run(read_conflicts(_record_key(table, committer))).said
        still_open |= {it.partition for it in record.open}
        done += [
            it
            for it in record.settled
            if it.settlement is not None
            and is_own(it.settlement.by)
            and (names is None or it.partition in names)
        ]
    over = {it.partition for it in done} - still_open
    return done, names if names is None else [it for it in names if it not in over]


def _own(table: Table, place: Destination) -> Table | DeltaTable:
    """Open this package's table at a destination, of either layout."""
    return delta_at(table) if place.is_delta else table


def _destination(table: Table) -> Destination:
    """Return the destination at a table's root.

    :raises InvalidInputError: there is none.
    """
    place = table.run(destination_at(table.root))
    if not place.is_directory:
        return place
    raise InvalidInputError(
        f"{NOTHING} Nothing was changed.", table=table.root.url, remedy="Name a table's root."
    )


def stored_names(table: Table, partitions: Collection[str]) -> Collection[str]:
    """Return partitions by the names under which a destination stores them: ``day=01`` of a numeric
    column is ``day=1``.

    :param table: opened at the destination's root; the kind does not matter.
    :raises InvalidInputError: a partition is invalid, or the table cannot have it.
    """
    return _stored_names(table, table.run(destination_at(table.root)), partitions)


def _stored_names(table: Table, place: Destination, partitions: Collection[str]) -> Collection[str]:
    if place.is_table or place.is_delta:
        return _own(table, place).stored_names(partitions)
    return frozenset(map(as_spark_writes, partitions))


def _open_at(
    table: Table, place: Destination, partitions: Collection[str] | None
) -> list[tuple[str, RunConflict]]:
    """Return the conflicts that are not settled, each with its committer: ``""``, or ``s3a``. If
    one committer took over from another, a partition may be on record with both.

    :raises InvalidInputError: a partition has a conflict on record with none of the committers.
    """
    committers = _committers(place)
    names = None if partitions is None else _stored_names(table, place, partitions)
    found = [
        (committer, it)
        for committer in committers
        for it in table.run(open_conflicts(_record_key(table, committer)))
        if names is None or it.partition in names
    ]
    unknown = [it for it in names or () if it not in {one.partition for _, one in found}]
    if unknown:
        table.run(open_conflicts(_record_key(table, committers[0]), unknown))
    return found


def _committers(place: Destination) -> list[str]:
    """Return the committers with a record of conflicts: ``""``, or ``s3a``."""
    is_there = {"": place.is_table or place.is_delta, S3A: place.is_s3a}
    return [name for name, it in is_there.items() if it]


def resolve_found(
    table: Table, found: ConflictReport, policy: SettlementPolicy, apply: bool, owner: Owner
) -> ConflictReport:
    """Settle the conflicts that a search has found, like :func:`resolve_by_restore`.

    :return: the report, with the outcome of each conflict.
    """
    left = found.unresolved
    if not left:
        return found
    settled = [it for it in found.conflicts if it.is_settled]
    place = table.run(destination_at(table.root))
    if found.committer == S3A:
        settled += [_settle_kept(table, place, it, policy, apply, owner) for it in left]
    else:
        settled += _restore(table, place, left, policy, apply, owner)
    return replace(found, conflicts=tuple(settled))


def _restore(
    table: Table,
    place: Destination,
    conflicts: Sequence[RunConflict],
    policy: SettlementPolicy,
    apply: bool,
    owner: Owner | None,
) -> list[RunConflict]:
    """Settle conflicts of this package's own runs without a rerun. Partitions that one of Hadoop's
    committers has written since are refused."""
    refused, free = [], []
    for it in conflicts:
        try:
            _refuse_others_rows(table, place, "", it)
            free.append(it.partition)
        except ZeroRenameError as error:
            who = owner or NOBODY
            said = Settlement("", (), None, who, str(policy), SettledBy.RESTORE, error=str(error))
            refused.append(_noted(table, "", it, said, apply))
    own = _own(table, place)
    return [*refused, *(own.resolve(policy, free, apply, owner) if free else ())]


def _noted(
    table: Table, committer: str, conflict: RunConflict, said: Settlement, apply: bool
) -> RunConflict:
    """Return a conflict with its settlement; record the settlement if it is applied."""
    if not apply:
        return conflict.settled(said)
    return table.run(settle(_record_key(table, committer), conflict, said))


def _settle_kept(
    table: Table,
    place: Destination,
    conflict: RunConflict,
    policy: SettlementPolicy,
    apply: bool,
    owner: Owner,
) -> RunConflict:
    """Settle a conflict between runs of Hadoop's committers for the run whose rows are visible."""
    said = Settlement("", (), None, owner, str(policy), SettledBy.KEPT)
    try:
        winner = _visible_winner(conflict, policy)
        _refuse_others_rows(table, place, S3A, conflict)
        record = table.run(find_visible(table.root, conflict, winner))
        losers = tuple(it.key for it in conflict.runs if it.key != winner.key)
        rank = conflict.highest_rank(winner)
        said = replace(said, stands=winner.key, losers=losers, rank=rank)
        if apply:
            settling = Settling(SettledRuns(winner.key, losers), rank)
            table.run(note_settled(table.root, record, conflict.partition, settling))
            _check_still_visible(table, conflict, winner, record)
    except ZeroRenameError as error:
        said = replace(said, error=str(error))
    return _noted(table, S3A, conflict, said, apply)


def _check_still_visible(
    table: Table, conflict: RunConflict, winner: ConflictingRun, record: TryRecord
) -> None:
    """Check that no run has come between the look at a partition and the record of its settlement;
    else take the record back.

    A run that gives way by the settlement puts itself on record before it reads the settlement: at
    least one of the two sees the other.

    :raises InvalidInputError: a run has loaded the partition.
    :raises OtherJobError: a run is at work on it.
    """
    try:
        table.run(find_visible(table.root, conflict, winner))
    except ZeroRenameError:
        table.run(forget_settled(table.root, record, conflict.partition))
        raise


def _visible_winner(conflict: RunConflict, policy: SettlementPolicy) -> ConflictingRun:
    """Choose the run that is to stand and check that its rows are visible.

    :raises InvalidInputError: the policy names no run, or one whose rows no longer exist.
    """
    winner = policy.winner(conflict)
    if [it.key for it in conflict.visible] != [winner.key]:
        raise InvalidInputError(
            f"The rows of {winner} in {conflict.name} cannot be brought back: a replace by one "
            "of Hadoop's committers removes what it takes the place of. Nothing was changed.",
            remedy="Let the run that is to stand load the partition again.",
        )
    return winner


@dataclass(frozen=True)
class ChosenRun:
    """A run that is to load its partition again, and so settle a conflict.

    :param settlement: the decision, with an error if it cannot be carried out.
    :param owner: the run's owner; ``None`` if the settlement has an error.
    :param committer: the committer whose record has the runs: ``""``, or ``s3a`` for Hadoop's.
    """

    conflict: RunConflict
    settlement: Settlement
    owner: Owner | None = None
    committer: str = ""


def choose_reruns(
    table: Table, policy: object, partitions: Collection[str] | None, owner: Owner
) -> list[ChosenRun]:
    """Choose the runs that are to load partitions in conflict again. If one committer took over
    from another, choose from the runs of both. Changes nothing.

    :raises InvalidInputError: the policy is invalid, a partition has no conflict on record, or
        there is no destination.
    """
    chosen, place = SettlementPolicy.parse(policy), _destination(table)
    made = [
        _chosen(table, place, committer, it, chosen, owner)
        for committer, it in _open_at(table, place, partitions)
    ]
    stands: dict[str, set[str]] = {}
    for it in made:
        if not it.settlement.error:
            stands.setdefault(it.conflict.partition, set()).add(it.settlement.stands)
    contested = {name for name, keys in stands.items() if len(keys) > 1}
    return [_refuse_contested(it) if it.conflict.partition in contested else it for it in made]


def _refuse_contested(chosen: ChosenRun) -> ChosenRun:
    """Refuse a choice if another run is to stand by the other committer's record."""
    if chosen.settlement.error:
        return chosen
    error = InvalidInputError(
        f"Runs of this package and runs of Hadoop's committers are in conflict over "
        f"{chosen.conflict.name}, and the policy chooses a run of either: the one would take the "
        "place of the other. Nothing was changed.",
        remedy="Name the one run that is to stand, by a policy of keep.",
    )
    return replace(chosen, settlement=replace(chosen.settlement, error=str(error)), owner=None)


def _record_key(table: Table, committer: str) -> str:
    return conflicts_key(table.root) if committer else table.root.conflicts_key


def _chosen(
    table: Table,
    place: Destination,
    committer: str,
    conflict: RunConflict,
    policy: SettlementPolicy,
    owner: Owner,
) -> ChosenRun:
    try:
        winner = policy.winner(conflict)
        if not committer:
            _own(table, place).check_rerun(conflict, winner)
        _refuse_others_rows(table, place, committer, conflict)
    except (InvalidInputError, OtherJobError, DamagedError) as error:
        said = Settlement("", (), None, owner, str(policy), SettledBy.RERUN, error=str(error))
        return ChosenRun(conflict, said, committer=committer)
    losers = tuple(it.key for it in conflict.runs if it.key != winner.key)
    rank = conflict.highest_rank(winner)
    said = Settlement(winner.key, losers, rank, owner, str(policy), SettledBy.RERUN)
    return ChosenRun(conflict, said, winner.owner, committer)


def _refuse_others_rows(
    table: Table, place: Destination, committer: str, conflict: RunConflict
) -> None:
    """Refuse to settle a conflict if the other committer has rows in the partition: they would be
    removed, or taken for those of the run that is to stand.

    It is also refused while a run with the other committer is at work there; and a conflict of this
    package's runs, if one of Hadoop's committers has loaded the partition since. No request if only
    one committer has written; else a LIST, the partition's state, and the records of jobs.

    :param committer: the committer whose record has the conflict.
    :raises InvalidInputError: there are such rows, or there was such a load.
    :raises OtherJobError: a run with the other committer is at work there.
    """
    if place.is_delta and place.is_s3a and committer:
        _refuse_rows_since_adoption(table, conflict)
    if not (place.is_table and place.is_s3a):
        return
    listed = table.run(list_data(table.root, conflict.partition))
    files = [it.key for it in listed if is_data_file(it)]
    if committer:
        others, whose = [it for it in files if job_in_key(it)], "a job of this package"
    else:
        named = {it.key for it in table.snapshot([conflict.partition]).files}
        others = [it for it in files if not job_in_key(it) and it not in named]
        whose = "a committer of Hadoop's, or another program,"
    if others:
        raise InvalidInputError(
            f"{conflict.name} has rows that are no part of the conflict: {whose} has written "
            f"{others[0]}. Nothing was changed.",
            key=others[0],
            remedy="Load the partition again by the task that is to own it, with "
            "on_conflict='last_wins'.",
        )
    if committer:
        table.refuse_open_jobs(conflict.partition)
    else:
        table.run(refuse_later_loads(table.root, conflict))


def _refuse_rows_since_adoption(table: Table, conflict: RunConflict) -> None:
    """Refuse to settle a conflict of Hadoop's committers in a directory that is a Delta table
    since, if the partition has changed in that table, or a job is at work on it there.

    :raises InvalidInputError: an entry of the log has changed the partition's rows.
    :raises OtherJobError: a job is at work on the partition, or may be.
    """
    delta = delta_at(table)
    named = [] if conflict.partition == UNPARTITIONED else [conflict.partition]
    for rival in delta.rival_jobs(named, appends=False):
        raise OtherJobError(
            f"{rival.job} is at work, and may write {conflict.name}. Nothing was changed.",
            job=rival.job,
            remedy="Settle the conflict when that job has ended.",
        )
    names = delta.stored_names(named) if named else None
    state, changes = delta.last_changes(names, Since(version=ADOPTION))
    own = (it.job for it in state.files if it.job)  # Of a table that no adoption has made.
    by = next((f"version {it.version} of its log" for it in changes.of.values()), next(own, None))
    if by is not None:
        raise InvalidInputError(
            f"The directory has become a Delta table, where {by} has written {conflict.name} since "
            "the runs in conflict loaded it. Nothing was changed.",
            table=table.root.url,
            remedy="Load the partition again by the task that is to own it, with "
            "on_conflict='last_wins'.",
        )


def note_rerun(
    table: Table, committer: str, partition: str, settlement: Settlement
) -> RunConflict | None:
    """Record the outcome of a conflict that was to be settled by a rerun. Return the conflict with
    what is on record then; ``None``: a search has dropped it from the record."""
    key = _record_key(table, committer)
    record = table.run(read_conflicts(key)).said
    for it in (*record.open, *reversed(record.settled)):
        if it.partition != partition:
            continue
        if it in record.open:
            return table.run(settle(key, it, settlement))
        return it if settlement.error == "" else it.settled(settlement)
    return None


def capped(report: ConflictReport) -> dict[str, Any]:
    """Return a report as a dict for XCom, of limited size: conflicts that are not settled come
    first."""
    ordered = (*report.unresolved, *(it for it in report.conflicts if it.is_settled))
    return {
        "table": report.table,
        "committer": report.committer,
        "since": report.since,
        "until": report.until,
        "unresolved": len(report.unresolved),
        "settled": len(report.conflicts) - len(report.unresolved),
        "conflicts": [as_members(it) for it in ordered[:MOST_CONFLICTS]],
        "left_off": max(0, len(ordered) - MOST_CONFLICTS),
        "unread": list(report.unread[:MOST_CONFLICTS]),
        "notes": list(report.notes),
    }


def not_settled(found: Sequence[ConflictReport]) -> str:
    """Return a message about what is not settled; ``""``: all is. It names conflicts, and records
    of runs that could not be read, since nothing shows whether those runs conflict."""
    conflicts = [f"{it.table}: {one}" for it in found for one in it.unresolved]
    unread = [f"{it.table}: {why}" for it in found for why in it.unread]
    said = []
    if conflicts:
        number = counted(len(conflicts), "conflict is", "conflicts are")
        said.append(f"{number} not settled. {first_few(conflicts)}")
    if unread:
        number = counted(len(unread), "record of runs", "records of runs")
        said.append(
            f"{number} could not be read, so whether those runs conflict with others is not known: "
            f"they count as not settled. {first_few(unread)} Restore an object that is damaged "
            "from a version or backup; each search reads it again."
        )
    return " ".join(said)


def as_members(conflict: RunConflict) -> dict[str, Any]:
    """Return a conflict as a dict for JSON."""
    runs = [
        {
            "run": it.key,
            "dag_id": it.owner.dag_id,
            "task_id": it.owner.task_id,
            "run_id": it.owner.run_id,
            "map_index": it.owner.map_index,
            "application": it.owner.application,
            "attempt": it.attempt,
            "rank": None if it.rank is None else str(it.rank),
            "job": it.job,
            "at": it.at,
            "rows": it.rows,
            "visible": it.is_visible,
            "gave_way": it.gave_way,
        }
        for it in conflict.runs
    ]
    said = conflict.settlement
    settlement = (
        None
        if said is None
        else asdict(said)
        | {
            "rank": None if said.rank is None else str(said.rank),
            "losers": list(said.losers),
            "by": decider(said),
            "how": str(said.how),
        }
    )
    return {
        "partition": conflict.partition,
        "cause": str(conflict.cause),
        "found_at": conflict.found_at,
        "version": conflict.version,
        "runs": runs,
        "settled": conflict.is_settled,
        "settlement": settlement,
    }


def decider(said: Settlement) -> str:
    """Return the name of the one that decided, for a report."""
    return str(ConflictingRun("", "", 0.0, said.by)) or "somebody"


def conflicts_as_markdown(found: Sequence[ConflictReport], planned: bool = False) -> str:
    """Return a page about conflicts in Markdown. Those that are not settled come first.

    :param planned: nothing was done yet.
    """
    lines = ["# Conflicts of runs", ""]
    for it in found:
        lines += [f"## {escaped(it.table)}", ""]
        unread = "No conflict was found, but some records of runs could not be read."
        none = unread if it.unread else "No runs conflict."
        lines += conflict_lines(it.conflicts, planned) or [none, ""]
        lines += [f"* could not be read: {escaped(why)}" for why in it.unread[:MOST_CONFLICTS]]
        lines += [f"* {escaped(why)}" for why in it.notes]
    return "\n".join(lines)


def conflict_lines(conflicts: Sequence[RunConflict], planned: bool) -> list[str]:
    """Return conflicts as Markdown tables, one for each partition."""
    lines = []
    for it in sorted(conflicts, key=lambda it: (it.is_settled, it.partition))[:MOST_CONFLICTS]:
        lines += [f"### {escaped(it.name)}: {outcome(it, planned)}", "", f"Cause: {it.cause}.", ""]
        if it.settlement is not None and it.settlement.error:
            lines += [escaped(it.settlement.error), ""]
        lines += ["| run | rank | attempt | job | rows | |", "|---|---|---|---|---|---|"]
        for run in it.runs:
            cells = (str(run), run.rank, run.attempt, run.job, run.rows, became(run))
            shown = ("" if cell is None else escaped(str(cell)) for cell in cells)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in shown)} |")
        lines.append("")
    return lines


def became(run: ConflictingRun) -> str:
    """Return what became of a run's rows."""
    if run.is_visible:
        return "visible"
    return "gave way" if run.gave_way else "removed"


def how_to_settle(url: str) -> str:
    """Return advice about a table's conflicts that are not settled."""
    return (
        f"Choose whose rows are to stay: zero-rename resolve {url} --policy newest_run --apply, or "
        "ResolveConflictsOperator. Other policies name a DAG or a job."
    )


def outcome(conflict: RunConflict, planned: bool = False) -> str:
    """Return whether a conflict is settled, for which run, and by what decision.

    :param planned: nothing was done yet.
    """
    said = conflict.settlement
    if said is None:
        return "not settled"
    who = f"{said.how}, {said.policy}, {decider(said)}" if said.policy else f"{said.how}"
    stands = conflict.run(said.stands)
    if said.error:
        return f"not settled ({escaped(who)})"
    done = "would be settled" if planned else "settled"
    return f"{done} for {stands} ({escaped(who)})" if stands else f"{done} ({escaped(who)})"
