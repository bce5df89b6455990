"""The command about uploads under way, by age: what ``hadoop s3guard uploads`` is."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..committer.errors import InvalidInputError, ZeroRenameError
from .output import AsJson, plain, print_rows

if TYPE_CHECKING:
    from ..committer.upkeep.upload_selection import UploadsPath
    from ..s3a.outstanding_uploads import OutstandingUpload


class ExitCode(IntEnum):
    """Hadoop's exit codes (``LauncherExitCodes``), as ``S3GuardTool`` uses them; its usage errors
    are typer's 2."""

    FAILED = 255
    INVALID_ARGUMENT = 40
    UNEXPECTED_COUNT = 46


def s3a_uploads(
    path: Annotated[str, typer.Argument(metavar="PATH", help="s3://bucket or s3://bucket/folder.")],
    list_: Annotated[
        bool, typer.Option("--list", "-list", help="List them. What is done by default.")
    ] = False,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort",
            "-abort",
            help="Abort them. Their jobs' rows are lost: uploads of jobs at work, and of jobs that "
            "s3a-recover could roll forward, are among them. Give an age.",
        ),
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option(
            "--expect",
            "-expect",
            metavar="N",
            help=f"Print nothing; exit code {ExitCode.UNEXPECTED_COUNT} unless there are so many.",
            min=0,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", "-force", "--apply", help="With --abort: do it. Without, only list them."
        ),
    ] = False,
    days: Annotated[int, typer.Option("--days", "-days", min=0)] = 0,
    hours: Annotated[int, typer.Option("--hours", "-hours", min=0)] = 0,
    minutes: Annotated[int, typer.Option("--minutes", "-minutes", min=0)] = 0,
    seconds: Annotated[
        int,
        typer.Option("--seconds", "-seconds", help="Least age: the sum of the four.", min=0),
    ] = 0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-verbose", help="With --expect: list them, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List, count or abort the uploads under way below a path, by age, whosever they are."""
    from ..committer.store.driver import connect
    from ..committer.upkeep.upload_selection import UploadsPath
    from ..s3a.outstanding_uploads import outstanding_uploads

    least_age = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    try:
        if list_ + abort + (expect is not None) > 1:
            raise InvalidInputError("Give one of --list, --abort and --expect.")
        place = UploadsPath.parse(path)
        found = connect(place.bucket).run(outstanding_uploads(place, least_age))
        acts = abort and force
        left = _abort(place, found) if acts and found else 0
    except InvalidInputError as error:
        raise _ended(error, ExitCode.INVALID_ARGUMENT) from error
    except ZeroRenameError as error:
        raise _ended(error, ExitCode.FAILED) from error
    if expect is None or verbose or as_json:
        columns = ("upload", "id", "age, s")
        rows = [(u.key, u.upload_id, f"{u.age:.0f}") for u in found]
        print_rows(as_json, columns, rows, plain(found), "No upload is under way there.")
    if not as_json and (expect is None or verbose):
        _say_total(len(found), "deleted" if acts else "found", abort and not force)
    if left:
        typer.echo(f"{left} of them are still listed after being aborted. Run it again.", err=True)
        raise typer.Exit(ExitCode.FAILED)
    if expect is not None and len(found) != expect:
        typer.echo(f"Expected {expect} uploads, found {len(found)}", err=True)
        raise typer.Exit(ExitCode.UNEXPECTED_COUNT)


def _say_total(count: int, done: str, is_dry: bool) -> None:
    typer.echo(f"Total {count} uploads {done}.")
    if is_dry and count:
        typer.echo("Nothing was aborted: --abort does it with --force.", err=True)


def _abort(place: UploadsPath, found: tuple[OutstandingUpload, ...]) -> int:
    from ..committer.store.driver import connect
    from ..s3a.outstanding_uploads import abort_outstanding

    return connect(place.bucket).run(abort_outstanding(place, found))


def _ended(error: ZeroRenameError, code: ExitCode) -> typer.Exit:
    typer.echo(f"{type(error).__name__}: {error}", err=True)
    return typer.Exit(code)
