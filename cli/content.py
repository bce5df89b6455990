"""Commands about a table's content: show, delete, compact or copy it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from ..committer import Table
from ..committer.commit.state.context import Progress
from ..committer.errors import InvalidInputError, counted, first_few
from ..committer.format.job_spec import FileOptions, TableLayout
from ..committer.format.layout import TableRoot
from ..committer.format.parquet.row_filter import comparison
from ..committer.format.records.data_file import rows_of
from ..committer.store.clients import profile_client
from ..committer.upkeep.compaction import TARGET_BYTES, CompactAction
from ..tables import DeltaTable
from . import delta
from .amounts import size_option
from .output import (
    DRY,
    Apply,
    AsJson,
    Exit,
    Partitions,
    Url,
    is_of_hadoop,
    look_where,
    plain,
    print_rows,
    say,
)
from .tables import open_table, refuse_delta

_CELLS = ("version", "files", "rows", "bytes")


def show(table: Url, as_json: AsJson = False) -> None:
    """Show the table's partitions as a reader sees them."""
    opened = open_table(table)
    if isinstance(opened, DeltaTable):
        delta.show(opened, as_json)
        return
    found = opened.survey()
    snapshot, damaged = found.snapshot, found.damaged
    by_partition = snapshot.by_partition()
    document: list[dict[str, Any]] = []
    for name in sorted({*snapshot.versions, *by_partition, *damaged}):
        if name in damaged:
            cells = dict.fromkeys(_CELLS)
            document.append({"partition": name, **cells, "damage": str(damaged[name])})
            continue
        files = by_partition.get(name, [])
        document.append(
            {
                "partition": name,
                "version": snapshot.versions.get(name, 0),
                "files": len(files),
                "rows": rows_of(files),
                "bytes": sum(file.size for file in files),
                "damage": None,
            }
        )
    columns = ("partition", *_CELLS)
    rows = [tuple(entry[name] for name in columns) for entry in document]
    print_rows(as_json, columns, rows, document, "The table holds no partition.")
    for name, error in sorted(damaged.items()):
        say(f"{name} cannot be read: {error}")
    look_where(damaged)


def compact(
    table: Url,
    partition: Partitions = None,
    target_size: Annotated[
        int,
        size_option("About how large files become: 256MB, 1GB.", f"{TARGET_BYTES // 1024**2}MB"),
    ] = TARGET_BYTES,
    sort_by: Annotated[
        list[str] | None, typer.Option(help="A column to sort rows by; may be repeated.")
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite small files of partitions into fewer ones, by a job for each partition.

    With --sort-by it also sorts partitions that are not sorted so.
    """
    opened = open_table(table)
    found = opened.compact(partition or None, target_size, apply, sort_by or ())
    rows = [(e.partition, e.action, e.files, e.files_after, e.bytes, e.job) for e in found]
    columns = ("partition", "action", "files", "files after", "bytes", "job")
    left = [entry for entry in found if entry.action is CompactAction.LEFT]
    nothing = "No partition has twice as many files as its bytes need: there is nothing to compact."
    if sort_by:
        nothing = "Every partition is sorted so, and has no file too many: there is nothing to do."
    print_rows(as_json, columns, rows, plain(found), nothing)
    if any(entry.action is CompactAction.WOULD_COMPACT for entry in found):
        say(DRY)
    for entry in left:
        say(f"{entry.partition or 'The table'} was left as it is: {entry.reason}")
    changed = any(entry.action is CompactAction.CHANGED_MEANWHILE for entry in found)
    if changed:
        say(
            "Partitions that another job changed meanwhile are as that job left them; run it again."
        )
    look_where(changed or bool(left))


#: A warning about what a user may expect to be copied, and is not.
_LEFT = (
    "The idempotency keys of OLD's runs were not copied: a run that is done in OLD would be loaded "
    "into NEW again."
)


def copy(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The table's root, s3://bucket/prefix.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The root to copy to: no table, or an empty one.")
    ],
    layout: Annotated[
        TableLayout, typer.Option(help="Layout of NEW. delta: this process writes the rows anew.")
    ] = TableLayout.DIRECTORY,
    from_profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Profile of ~/.aws/config with which OLD is read: its keys, region, endpoint_url. "
            "The bytes then go through this process; without it the store copies them itself.",
        ),
    ] = None,
    encryption: Annotated[
        str | None,
        typer.Option(
            metavar="SSE-S3|SSE-KMS|DSSE-KMS",
            help="Encryption of NEW. Default: that of OLD in the same bucket, else the bucket's.",
        ),
    ] = None,
    encryption_key: Annotated[
        str | None, typer.Option(help="With KMS: the key, by its id, ARN or alias.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a table's content to another root by one job: all of it or nothing.

    A second copy of the same state does nothing. OLD stays as it is. The keys of its runs are not
    copied.
    """

    def tell(progress: Progress) -> None:
        say(f"{progress.done:,} of {counted(progress.total, 'file')} copied")

    for given in (old, new):
        TableRoot.parse(given)  # Refuses credentials in a URL before an error can show them.
    client = None if from_profile is None else profile_client(from_profile)
    to_delta = layout is TableLayout.DELTA
    for given, of in ((old, client), *(() if to_delta else ((new, None),))):
        refuse_delta(
            given,
            "files of a Delta table are not copied by themselves",
            f"Write its rows by a job: save(load(spark, {old!r}), {new!r}, layout='delta').",
            of,
        )
    source = Table(old, client)
    if to_delta:
        files = FileOptions(encryption=encryption, encryption_key=encryption_key)
        done = DeltaTable(new).copy_of(source, tell, files)
    else:
        to = {"encryption": encryption, "encryption_key": encryption_key}
        done = source.copy(Table(new), progress=tell, **to)
    cells = (done.job, done.partitions, done.files, done.rows, done.bytes, done.rewritten)
    columns = ("job", "partitions", "files", "rows", "bytes", "files written anew")
    print_rows(as_json, columns, [cells], dataclasses.asdict(done), "")
    if done.repeated:
        say("This state was copied before: nothing was done.")
    else:
        say(_LEFT)
    if done.changed is None:
        say("NEW is complete. It is unknown whether OLD has changed meanwhile.")
        raise typer.Exit(Exit.LOOK)
    if done.changed:
        names = first_few([name or "the table" for name in done.changed])
        say(f"OLD has changed meanwhile in {names}; NEW holds what OLD held before.")
        raise typer.Exit(Exit.LOOK)


def delete(
    table: Url,
    where: Annotated[
        list[str],
        typer.Option(help='Which rows: "id = 3", "name is null". May be repeated: all must hold.'),
    ],
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Only in this partition, such as day=1; may be repeated."),
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Delete the rows that meet all comparisons; without --apply, only count them."""
    opened = open_table(table)
    if isinstance(opened, Table) and not opened.exists() and is_of_hadoop(table):
        raise InvalidInputError(
            "This is a destination of Hadoop's committers. A deletion would make a table of this "
            "package of it, where those committers are refused. Nothing was changed.",
            table=opened.root.url,
            remedy="Let the task that loads the partitions load them whole, by an overwrite. Or "
            f"give it to this package first: zero-rename adopt {opened.root.url} --apply, and load "
            "it with committer='zero_rename' from then on.",
        )
    condition = comparison(where[0], opened.schema, "--where")
    for text in where[1:]:
        condition &= comparison(text, opened.schema, "--where")
    done = opened.delete(condition, partitions=partition or None, apply=apply)
    rows = [(name, "deleted from" if apply else "would delete from") for name in done.partitions]
    (found,) = plain([done])
    print_rows(
        as_json,
        ("partition", "action"),
        rows,
        found,
        "No row meets the condition: nothing is deleted.",
    )
    if done.partitions and not as_json:
        one, many = ("row was", "rows were") if apply else ("row would be", "rows would be")
        gone, kept = counted(done.rows.deleted, one, many), done.rows.unchanged
        say(f"{gone} deleted; {kept:,} of the rows read {'stays' if kept == 1 else 'stay'}.")
    if done.partitions and not apply:
        say(DRY)
