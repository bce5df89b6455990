"""Commands about uploads under way below a path: list, abort or count them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ..committer.errors import InvalidInputError, counted
from ..committer.upkeep.storage_price import STANDARD, monthly_cost
from .amounts import age_option
from .output import DRY, EXIT_CODES, Apply, look_where, say, sheet_of

if TYPE_CHECKING:
    from ..committer.upkeep.purging.upload_selection import Selection, UploadsPath
    from ..committer.upkeep.purging.upload_sweep import SeenUpload

app = typer.Typer(
    no_args_is_help=True,
    help="List, count or abort multipart uploads under way below a path: those of this package's "
    "jobs, and foreign ones. An upload that a live or a committed job needs is never aborted.",
    epilog=EXIT_CODES,
)

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A table, a folder in one, a folder that holds tables, or a bucket. day=1 is not "
        "day=10.",
    ),
]
Age = Annotated[
    float | None,
    age_option(
        "Only uploads of at least this age, by the store's clock: seconds, or 45m, 12h, 7d."
    ),
]
Jobs = Annotated[
    list[str] | None,
    typer.Option("--job", metavar="JOB", help="Only uploads of this job; may be repeated."),
]
Ours = Annotated[bool, typer.Option("--ours", help="Only uploads with a job id of this package.")]
Foreign = Annotated[bool, typer.Option("--foreign", help="Only uploads without one.")]
Lines = Annotated[
    bool, typer.Option("--json", help="Print JSON lines: one document for each upload.")
]
Sizes = Annotated[
    bool,
    typer.Option(
        "--sizes/--no-sizes", help="Ask for the size of each upload, by one request each."
    ),
]
Price = Annotated[
    float, typer.Option(help="Price of storage per GiB and month, to compute costs.", min=0.0)
]


@app.command("list")
def list_(
    path: Path,
    older_than: Age = None,
    job: Jobs = None,
    ours: Ours = False,
    foreign: Foreign = False,
    sizes: Sizes = True,
    price: Price = STANDARD,
    as_json: Lines = False,
) -> None:
    """List uploads under way: owner, age, size, and whether a job needs them."""
    selection = _selection(older_than, job, ours, foreign)
    _UploadPrinter(as_json, price).run(path, selection, sizes=sizes)


@app.command()
def abort(
    path: Path,
    older_than: Age = None,
    job: Jobs = None,
    ours: Ours = False,
    foreign: Foreign = False,
    sizes: Sizes = False,
    price: Price = STANDARD,
    apply: Apply = False,
    as_json: Lines = False,
) -> None:
    """Abort uploads that no job will complete. Dead jobs of this package are fenced first."""
    if older_than is None:
        raise InvalidInputError(
            "uploads abort needs an age: only its age tells whether a foreign upload is at work "
            "or dead. Nothing was aborted.",
            remedy="Give --older-than, such as 7d; 0 takes all.",
        )
    selection = _selection(older_than, job, ours, foreign)
    listing = _UploadPrinter(as_json, price)
    listing.run(path, selection, sizes=sizes, apply=apply)
    if listing.counts["would-abort"]:
        say(DRY)
    if listing.counts["failed"]:
        say(f"{listing.counts['failed']} are still listed after they were aborted; run it again.")
    look_where(listing.counts["failed"] or listing.unsettled)


@app.command()
def expect(
    number: Annotated[
        int, typer.Argument(metavar="N", help="How many uploads there should be.", min=0)
    ],
    path: Path,
    older_than: Age = None,
    job: Jobs = None,
    ours: Ours = False,
    foreign: Foreign = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Count uploads under way. The exit code is 1 unless there are N."""
    selection = _selection(older_than, job, ours, foreign)
    listing = _UploadPrinter(None, STANDARD)
    listing.run(path, selection)
    found = listing.counts.total()
    if as_json:
        typer.echo(json.dumps({"expected": number, "found": found}))
    else:
        typer.echo(f"Expected {counted(number, 'upload')}, found {found}.")
    look_where(found != number)


def _selection(
    older_than: float | None, jobs: Sequence[str] | None, ours: bool, foreign: bool
) -> Selection:
    from ..committer.upkeep.purging.purge_plan import Whose
    from ..committer.upkeep.purging.upload_selection import Selection

    whose: set[Whose] = set()
    if ours:
        whose |= {Whose.OURS, Whose.UNKNOWN, Whose.NESTED}
    if foreign:
        whose |= {Whose.FOREIGN}
    return Selection(older_than or 0.0, frozenset(whose), frozenset(jobs or ()))


class _UploadPrinter:
    """Printer of uploads, a page at a time, that also counts them.

    :param as_json: lines of JSON; ``None`` prints neither lines nor a table.
    """

    def __init__(self, as_json: bool | None, price: float) -> None:
        self.as_json = as_json
        self.price = price
        self.counts: Counter[str] = Counter()
        self.bytes: int | None = None
        self.unsettled = 0
        self._console = Console(
            width=None if sys.stdout.isatty() else 240, markup=False, highlight=False
        )

    def run(
        self, path: str, selection: Selection, *, sizes: bool = False, apply: bool = False
    ) -> None:
        """Sweep the uploads below ``path``; with ``apply``, abort those that may be aborted."""
        from ..committer.store.driver import connect
        from ..committer.upkeep.purging.upload_selection import UploadsPath
        from ..committer.upkeep.purging.upload_sweep import UploadSweep
        from ..committer.upkeep.recovery import Outcome
        from ..committer.upkeep.unfinished import unless_begun
        from ..s3a.recovery.living import LivingJobs

        place: UploadsPath = UploadsPath.parse(path)
        spared = LivingJobs(place.bucket, within=place.prefix.rstrip("/"))
        with self._progress() as (bar, task):

            def emit(page: Sequence[SeenUpload]) -> None:
                self._print(page)
                bar.update(task, description=self._so_far())

            sweep = UploadSweep(place, selection, emit, apply=apply, sizes=sizes, spared=spared)
            settled = connect(place.bucket).run(unless_begun(sweep.run()))
        for job in settled:
            say(f"{job.job}: {job.outcome}, {job.detail}")
        self.unsettled = sum(job.outcome is Outcome.FAILED for job in settled)
        if self.as_json is not None:
            self._total()

    @contextmanager
    def _progress(self) -> Iterator[tuple[Progress, TaskID]]:
        """Show on a terminal how many uploads were seen."""
        shown = sys.stdout.isatty()
        console = self._console if shown else Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as bar:
            yield bar, bar.add_task("listing", total=None)

    def _print(self, page: Sequence[SeenUpload]) -> None:
        self.counts.update(str(it.action) for it in page)
        for it in page:
            if it.bytes is not None:
                self.bytes = (self.bytes or 0) + it.bytes
        if self.as_json:
            for it in page:
                typer.echo(json.dumps(vars(it)))
        elif self.as_json is not None and page:
            columns = ("upload", "id", "age, s", "owner", "bytes", "action", "why")
            rows = [
                (it.key, it.upload_id, f"{it.age:.0f}", it.whose, it.bytes, it.action, it.reason)
                for it in page
            ]
            self._console.print(sheet_of(columns, rows))

    def _so_far(self) -> str:
        return f"{self.counts.total():,} listed, {self.counts['aborted']:,} aborted"

    def _total(self) -> None:
        """Print the totals on standard error, so that lines of JSON on standard output stay
        clean."""
        count = self.counts.total()
        if not count and not self.as_json:
            typer.echo("No unfinished upload was found there.")
            return
        told = ", ".join(f"{number:,} {action}" for action, number in sorted(self.counts.items()))
        cost = ""
        if self.bytes is not None:
            month = monthly_cost(self.bytes, self.price)
            held = counted(self.bytes, "byte")
            cost = f" They hold {held}: {month:,.2f} a month at {self.price} per GiB."
        say(f"{counted(count, 'upload')}{': ' if told else ''}{told}.{cost}")
