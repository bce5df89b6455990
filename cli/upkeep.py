"""Commands that maintain destinations of any committer: purge, maintain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer import Outcome, PurgeAction, Table
from ..committer.commit.state.old_records import KEPT_FOR
from ..committer.errors import InvalidInputError, ZeroRenameError
from ..committer.format.catalog_name import refuse_one_name
from ..committer.format.layout import TableRoot
from ..tables.table_at import delta_at
from . import catalog
from .amounts import DAY, age_option
from .output import DRY, Apply, AsJson, look_where, print_rows, say
from .s3a import Staging
from .tables import why_no_table

if TYPE_CHECKING:
    from ..committer.upkeep.purging.upload_selection import UploadsPath
    from ..maintenance.destinations import Destination
    from ..maintenance.purging import PurgedEntry, PurgeOrder
    from ..maintenance.upkeep import Upkeep

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A table, a destination of Hadoop's committers, or a folder that holds some, "
        "s3://bucket/prefix; or a whole bucket, s3://bucket.",
    ),
]
Patience = Annotated[
    float | None,
    age_option(
        "How long an undecided job may be silent before it is declared dead. Default: ten times "
        "the job's heartbeat interval, or its maximum duration if it sends no heartbeats."
    ),
]
S3APatience = Annotated[
    float | None,
    age_option(
        "For jobs of Hadoop's committers that no run's record names: how long such a job may be "
        "silent before it counts as dead. Give more than the longest task takes. Default: its "
        "state stays unknown, and it is left alone."
    ),
]
BufferDir = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER,…",
        help="Folders of this machine in which S3A buffers files (fs.s3a.buffer.dir). What dead "
        "drivers left there is reported, and removed once its job is recovered.",
    ),
]
Foreign = Annotated[
    bool, typer.Option(help="Also abort uploads that belong to no known job, by age.")
]
OlderThan = Annotated[
    float | None, age_option("With --foreign: the least age of such uploads.", least="1h")
]

#: Outcomes in a plan that say that there is something to do.
PLANNED = (Outcome.WOULD_FINISH, Outcome.WOULD_ABORT)


def purge(
    path: Path,
    patience: Patience = None,
    s3a_patience: S3APatience = None,
    staging: Staging = None,
    buffer_dir: BufferDir = None,
    foreign: Foreign = False,
    older_than: OlderThan = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            help="Declare this job of a table dead: abort it if it is undecided, and abort uploads "
            "with its id that have no record. May be repeated."
        ),
    ] = None,
    records_older_than: Annotated[
        float,
        age_option(
            "How long to keep failures of runs, and lists of files that nothing names.",
            default=f"{KEPT_FOR / DAY:.0f}d",
            least="1h",
        ),
    ] = KEPT_FOR,
    registered: catalog.Registered = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Recover the jobs of any committer, then abort the uploads that no job will complete.

    Of tables of this package it also removes old records that nothing needs; of Delta tables, also
    files that no version within the retention names.
    """
    from ..maintenance.destinations import NOTHING
    from ..maintenance.purging import purge_destination
    from ..maintenance.residue import find_residue

    order = _order(
        patience,
        s3a_patience,
        staging,
        foreign,
        older_than,
        apply,
        jobs=job or (),
        records_older_than=records_older_than,
    )
    catalog.check_registered(registered)
    places = _places(path)
    tables = sum(it.is_table or it.is_delta for it in places)
    if registered:
        refuse_one_name(registered, tables, path)
    if order.jobs and len(places) > 1:
        raise InvalidInputError(
            "--job names jobs of one table, and this folder holds several tables. Nothing was "
            "changed.",
            table=path,
            remedy="Name the root of the jobs' table.",
        )
    entries: list[PurgedEntry] = []
    done, failures, unsynced = [], list[ZeroRenameError](), False
    for place in places:
        opened = Table(place.root.url)
        try:
            done.append(purge_destination(opened, place, order, entries.extend))
        except ZeroRenameError as error:
            if len(places) == 1:
                raise
            failures.append(error)  # Go on with the others below the folder.
            continue
        if registered and apply and (place.is_table or place.is_delta):
            own = delta_at(opened) if place.is_delta else opened
            unsynced |= not catalog.register_settled(own, registered)
    jobs = [it for found in done for it in found.jobs]
    residue = find_residue(staging, buffer_dir, jobs, apply)
    rows: list[Sequence[Any]] = [(it.key, it.action, it.bytes, it.reason) for it in entries]
    rows += [(it.job, it.outcome, None, f"{it.committer}: {it.detail}") for it in jobs]
    rows += [(it.path, it.action, it.bytes, it.reason) for it in residue.found]
    document = {
        "entries": [dataclasses.asdict(it) for it in entries],
        "recovered": [dataclasses.asdict(it) for it in jobs],
        "residue": [dataclasses.asdict(it) for it in residue.found],
        "unreachable": list(residue.unreachable),
        "errors": [f"{type(it).__name__}: {it}" for it in failures],
    }
    columns = ("upload, record or job", "action", "bytes", "why")
    nothing = "No upload is under way, no job is open, no record is old: there is nothing to purge."
    print_rows(as_json, columns, rows, document, nothing)
    if not rows and all(it.is_directory for it in places):
        say(_why_nothing(path) or NOTHING)
    if any(str(it).startswith("would-") for _, it, *_ in rows):
        say(DRY)
    for error in failures:
        say(f"not done: {type(error).__name__}: {error}")
    for why in residue.unreachable:
        say(f"not checked: {why}")
    failed = sum(it.action is PurgeAction.FAILED for it in entries)
    failed += sum(it.is_unsettled for it in jobs)
    if failed:
        say(f"{failed} of these are not done; run it again.")
    look_where(failed or failures or unsynced)


def maintain(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Tables, destinations of Hadoop's committers, or folders or buckets that hold "
            "some.",
        ),
    ],
    patience: Patience = None,
    s3a_patience: S3APatience = None,
    staging: Staging = None,
    buffer_dir: BufferDir = None,
    foreign: Foreign = False,
    older_than: OlderThan = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Maintain all tables below some paths, of any committer: recover jobs, purge, verify.

    In tables of this package it also makes records small and writes the index; in Delta tables it
    writes a checkpoint that is due. Prints Markdown.
    """
    from ..maintenance.destinations import NOTHING
    from ..maintenance.residue import find_residue, residue_lines
    from ..maintenance.upkeep import as_markdown

    order = _order(patience, s3a_patience, staging, foreign, older_than, apply)
    for path in paths:
        _parsed(path)  # Refuse an invalid path before anything is done at another.
    by_path = {path: _looked_after(path, order) for path in paths}
    done = [it for found in by_path.values() for it in found]
    jobs = [job for it in done for job in it.settled]
    residue = find_residue(staging, buffer_dir, jobs, apply)
    if as_json:
        print_rows(True, (), (), [it.capped() for it in done], "")
        for line in residue_lines(residue):
            say(line)
    else:
        typer.echo(as_markdown(done, apply, residue))
    # The path may be a typing error, and the table that was meant would never be maintained.
    for path in (path for path, found in by_path.items() if not found):
        if why := _why_nothing(path):
            say(why)
        elif done or as_json:
            say(f"{path}: {NOTHING}")
    if not apply:
        say(DRY)
    look_where([line for it in done for line in (*it.person, *it.again)])


def _looked_after(path: str, order: PurgeOrder) -> list[Upkeep]:
    from ..maintenance.upkeep import Upkeep, look_after

    try:
        places = _places(path)
    except ZeroRenameError as error:
        return [Upkeep.of_unseen(path, error)]
    done = [look_after(Table(place.root.url), place, order) for place in places]
    return [it for it in done if not it.is_empty_rest]


def _why_nothing(path: str) -> str:
    """Return what :func:`why_no_table` says of a path; ``""`` for a bucket."""
    return why_no_table(Table(path)) if _parsed(path).prefix else ""


def _places(path: str) -> list[Destination]:
    """List what is to be maintained at a path: a destination, or all in a folder or a bucket.

    :raises InvalidInputError: it is not a path on S3.
    """
    from ..committer.store.driver import connect
    from ..maintenance.destinations import destinations_in, destinations_of

    folder = _parsed(path)
    if folder.prefix:
        named = Table(path)
        return named.run(destinations_in(named.root))
    return connect(folder.bucket).run(destinations_of(folder))


def _parsed(path: str) -> UploadsPath:
    """Parse the path of a bucket or of a folder.

    :raises InvalidInputError: it is not a path on S3, or it is a folder that readers skip.
    """
    from ..committer.upkeep.purging.upload_selection import UploadsPath

    folder = UploadsPath.parse(path)
    if folder.prefix:
        TableRoot.parse(path)
    return folder


def _order(
    patience: float | None,
    s3a_patience: float | None,
    staging: str | None,
    foreign: bool,
    older_than: float | None,
    apply: bool,
    **of_tables: Any,
) -> PurgeOrder:
    """Build the order of a purge from the options.

    :raises typer.BadParameter: foreign uploads without an age, or an age without foreign uploads.
    """
    from ..maintenance.purging import PurgeOrder

    if foreign and older_than is None:
        raise typer.BadParameter("--foreign needs --older-than AGE")
    if older_than is not None and not foreign:
        raise typer.BadParameter(
            "--older-than is the age of foreign uploads: give --foreign, too, or leave it out. "
            "Uploads of jobs are judged by the jobs' records"
        )
    return PurgeOrder(
        apply=apply,
        foreign_age=older_than if foreign else None,
        patience=patience,
        s3a_patience=s3a_patience,
        staging=staging,
        **of_tables,
    )
