"""The command that copies a table to another root."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ..committer import Readers, Table
from ..committer.commit.state.context import Progress
from ..committer.errors import counted, first_few
from ..committer.store.clients import profile_client
from .output import AsJson, Exit, print_rows, refusals, say

#: What users take for copied who have not read the guide.
_LEFT = (
    "The history of OLD and its symlink manifests did not come along, nor its runs' keys: a run "
    "that is done there would be loaded into NEW again."
)


def copy(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The table's root, s3://bucket/prefix.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The root to copy to: no table, or an empty one.")
    ],
    readers: Annotated[
        Readers, typer.Option(help="How readers of the new table find its files.")
    ] = Readers.LISTING,
    from_profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A profile of ~/.aws/config by which OLD is read: its keys, region, endpoint_url. "
            "The bytes then go through this process; else the store copies by itself.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy what a table holds to another root, by one job: all of it or nothing.

    Made once more of the same state it does nothing. OLD stays as it is. Its history, symlink
    manifests and runs' keys do not come along."""

    def tell(progress: Progress) -> None:
        say(f"{progress.done:,} of {counted(progress.total, 'file')} copied")

    with refusals():
        client = None if from_profile is None else profile_client(from_profile)
        done = Table(old, client).copy(Table(new), readers, tell)
    cells = (done.job, done.partitions, done.files, done.rows, done.bytes, done.rewritten)
    columns = ("job", "partitions", "files", "rows", "bytes", "files written anew")
    print_rows(as_json, columns, [cells], dataclasses.asdict(done), "")
    if done.repeated:
        say("It was copied before: nothing was done.")
    else:
        say(_LEFT)
    if done.changed:
        names = first_few([name or "the table" for name in done.changed])
        say(f"OLD holds something else by now in {names}; NEW holds what was there before.")
        raise typer.Exit(Exit.LOOK)
