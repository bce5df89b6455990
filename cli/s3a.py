"""Commands about Hadoop's S3A committers: their settings, the checks, and what their jobs left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer.errors import InvalidInputError, first_few
from .amounts import age_option
from .output import DRY, Apply, AsJson, Url, is_of_hadoop, look_where, plain, print_rows, say

if TYPE_CHECKING:
    from ..s3a.checks import JobFacts
    from ..s3a.hadoop.effective_settings import Setting
    from ..s3a.recovery.recover import RecoveredJob

_ABOUT = {
    "zero_rename": "this package's own: atomic for each partition, recovers by itself",
    "magic": "Hadoop's: tasks write uploads, the job completes them; for large files",
    "directory": "Hadoop's: by local disk and a shared file system; for many small files",
    "partitioned": "like directory, and replaces the partitions that receive rows",
}
Patience = Annotated[
    float | None,
    age_option(
        "How long a job may be silent, if nothing else is known about it, before it counts as "
        "dead. Give more than the longest task takes: a task that writes a file is silent. "
        "Default: the job's state stays unknown."
    ),
]
Dead = Annotated[
    list[str] | None,
    typer.Option(
        metavar="UUID",
        help="A job or a run whose application is known to have ended; may be repeated.",
    ),
]
Folder = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PARTITION",
        help="A partition that jobs have as their destination, as a path below the table; may be "
        "repeated.",
    ),
]
Deep = Annotated[
    bool,
    typer.Option("--deep", help="List the whole table, by one request for each thousand files."),
]
Staging = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the pending sets of the directory and partitioned committers, "
        "fs.s3a.committer.staging.tmp.path: a path, an hdfs:// URL, or a copy. Without the sets, a "
        "job of theirs that died in its commit can only be left, or rolled back.",
    ),
]


def checks(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these checks.")
    ] = None,
    committer: Annotated[
        str | None, typer.Option(help="Only the checks for this committer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the checks of S3A settings that are made before a job is submitted.

    docs/s3a.md gives the reasons.
    """
    from ..s3a.checks import CHECKS

    known = {check.id: check for check in CHECKS}
    if unknown := sorted(set(ids or ()) - set(known)):
        raise InvalidInputError(
            f"There is no check {unknown[0]!r}.", remedy="zero-rename checks lists them."
        )
    _check_word(committer)
    chosen = [known[id] for id in ids] if ids else list(CHECKS)
    chosen = [check for check in chosen if committer is None or committer in check.committers]
    columns = ("check", "severity", "committers", "what is wrong", "what to do")
    rows = [(c.id, c.severity, ", ".join(c.committers), c.title, c.remedy) for c in chosen]
    shown = ("id", "severity", "committers", "title", "remedy")
    documents = [{name: getattr(check, name) for name in shown} for check in chosen]
    print_rows(as_json, columns, rows, documents, "No check concerns this committer.")


def committers(
    conf: Annotated[
        str | None,
        typer.Option(
            metavar="COMMITTER", help="Print the Spark settings of this committer, one per line."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the committers, or the settings of one of Hadoop's."""
    from ..s3a.hadoop.settings import COMMITTERS, S3ASettings

    if conf is None:
        rows = [(word, _ABOUT[word]) for word in COMMITTERS]
        documents = [dict(zip(("committer", "about"), row, strict=True)) for row in rows]
        print_rows(as_json, ("committer", "what it does"), rows, documents, "")
        return
    settings = S3ASettings(conf).spark_conf()  # pyrefly: ignore[bad-argument-type]
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    for key, value in settings.items():
        typer.echo(f"{key} {value}")


def _check_word(committer: str | None) -> None:
    """Check the name of a committer, if one is given.

    :raises InvalidInputError: the name is invalid.
    """
    from ..s3a.hadoop.settings import check_committer

    if committer is not None:
        check_committer(committer)


def s3a_check(
    conf_file: Annotated[
        Path | None,
        typer.Option(
            "--conf-file", metavar="FILE", help="A properties file, such as spark-defaults.conf."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting, as for spark-submit; wins over the file. May be repeated.",
        ),
    ] = None,
    hadoop_conf: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with core-site.xml, as HADOOP_CONF_DIR."),
    ] = None,
    committer: Annotated[
        str | None,
        typer.Option(help="The committer to check for. Default: the one that the settings name."),
    ] = None,
    destination: Annotated[
        str,
        typer.Option(metavar="URL", help="The path that the job will write: s3a://bucket/table."),
    ] = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Skip this check, as spark.zero_rename.s3a.accept does."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check S3A settings from files: list errors, with which a job would be refused, and warnings.

    The exit code is 1 if there are errors.
    """
    from ..s3a.checks import Severity, inspect

    found = inspect(_facts(conf_file, conf or (), hadoop_conf, committer, destination, accept))
    rows = [(f.check.id, f.check.severity, f.check.title, f.detail, f.check.remedy) for f in found]
    names = ("check", "severity", "title", "detail", "remedy")
    documents = [dict(zip(names, row, strict=True)) for row in rows]
    columns, shown = ("check", "severity", "what is wrong", "where"), [row[:4] for row in rows]
    print_rows(as_json, columns, shown, documents, "Nothing is wrong with these settings.")
    look_where(any(finding.check.severity is Severity.ERROR for finding in found))


def _facts(
    conf_file: Path | None,
    conf: Sequence[str],
    hadoop_conf: Path | None,
    committer: str | None,
    destination: str,
    accept: Sequence[str] | None,
) -> JobFacts:
    from ..s3a.checks import ACCEPT_KEY, JobFacts
    from ..s3a.hadoop import effective_settings as layers
    from ..s3a.hadoop.effective_settings import HADOOP_FILES, hadoop_layer, read_properties

    if conf_file is None and not conf and hadoop_conf is None:
        raise InvalidInputError(
            "There is nothing to check.", remedy="Give --conf-file, --conf or --hadoop-conf."
        )
    if hadoop_conf and not any((hadoop_conf / name).is_file() for name in HADOOP_FILES):
        raise InvalidInputError(
            f"{str(hadoop_conf)!r} has neither {' nor '.join(HADOOP_FILES)}. Nothing was checked.",
            remedy="Give the folder that HADOOP_CONF_DIR names where the job runs.",
        )
    _check_word(committer)
    given = [
        ("--accept", {ACCEPT_KEY: ",".join(accept)} if accept else {}),
        (layers.COMMAND_LINE, dict(map(_pair, conf))),
        (layers.SPARK_DEFAULTS, read_properties(conf_file) if conf_file is not None else {}),
        hadoop_layer({"HADOOP_CONF_DIR": str(hadoop_conf)} if hadoop_conf is not None else {}),
    ]
    bucket = destination.partition("://")[2].partition("/")[0]
    settings = layers.effective(given, bucket or None)
    master = settings.get("spark.master")
    return JobFacts(
        committer=committer or _named(settings),
        settings=settings,
        destination=destination,
        is_cluster=None if master is None else not master.value.startswith("local"),
    )


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidInputError(f"--conf {text!r} has no value after an equals sign.")
    return key, value


def _named(settings: Mapping[str, Setting]) -> str:
    """Return the committer that the settings name. If the name is unknown, return magic: its checks
    then report the name."""
    from ..s3a.hadoop.settings import NAME_KEY

    name = settings[NAME_KEY].value
    return name if name in ("directory", "partitioned") else "magic"


def _say_where_none(found: Sequence[object], table: str) -> None:
    """Warn if nothing was found at a path where no committer of Hadoop's has written: else a path
    with a typing error would look like one whose jobs all ended well."""
    if not found and not is_of_hadoop(table):
        say(
            "Hadoop's committers have left nothing there, not even a _SUCCESS: check that the "
            "path is right. `zero-rename jobs` lists jobs of this package."
        )


def s3a_jobs(
    table: Url,
    patience: Patience = None,
    dead: Dead = None,
    folder: Folder = None,
    deep: Deep = False,
    staging: Staging = None,
    as_json: AsJson = False,
) -> None:
    """List what jobs of the S3A committers have left, and whether the jobs are alive."""
    found = _found(table, dead, folder, patience=patience, deep=deep, staging=staging)
    columns = ("job", "left", "state", "silent for, s", "run", "tasks", "files", "written")
    columns += ("outstanding", "unsure", "other uploads", "destination", "why")
    rows = [_cells(job, columns, job.state_reason) for job in found]
    print_rows(as_json, columns, rows, plain(found), "Nothing is left of S3A jobs.")
    _say_where_none(found, table)


def s3a_recover(
    table: Url,
    job: Annotated[
        list[str] | None, typer.Option(metavar="UUID", help="Only this job; may be repeated.")
    ] = None,
    apply: Apply = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also act on jobs of which it is unknown whether they live."),
    ] = False,
    patience: Patience = None,
    dead: Dead = None,
    roll_back: Annotated[
        bool,
        typer.Option("--roll-back", help="Roll back, even if the job could be rolled forward."),
    ] = False,
    roll_forward: Annotated[
        bool,
        typer.Option(
            "--roll-forward",
            help="Roll forward although another job has committed since, or ETags cannot be "
            "compared: you know that the other job was not a retry, and that the files are this "
            "job's.",
        ),
    ] = False,
    folder: Folder = None,
    deep: Deep = False,
    staging: Staging = None,
    as_json: AsJson = False,
) -> None:
    """Roll dead jobs of the S3A committers forward or back, and report what was done, and why."""
    from ..s3a.recovery.liveness import Action
    from ..s3a.recovery.recover import UNSETTLED, JobOutcome

    if roll_back and roll_forward:
        raise InvalidInputError("A job cannot be rolled both back and forward.")
    forward = Action.FORWARD if roll_forward else None
    found = _found(
        *(table, dead, folder),
        apply=apply,
        force=force,
        patience=patience,
        direction=Action.BACK if roll_back else forward,
        jobs=job or None,
        deep=deep,
        staging=staging,
    )
    columns = ("job", "state", "outcome", "files", "completed", "removed", "aborted", "marker")
    columns += ("why",)
    why = "{0.reason} ({0.state}: {0.state_reason})"
    rows = [_cells(one, columns, why.format(one)) for one in found]
    nothing = "Nothing is left of S3A jobs" if not job else f"Nothing is left of {first_few(job)}"
    print_rows(as_json, columns, rows, plain(found), f"{nothing}.")
    for uuid in job or ():
        if found and uuid.lower() not in {one.job.lower() for one in found}:
            say(f"Nothing is left of {uuid}.")
    _say_where_none(found, table)
    for one in found:
        for key in one.kept:
            say(f"{one.job}: left {key}")
    planned = (JobOutcome.WOULD_ROLL_FORWARD, JobOutcome.WOULD_ROLL_BACK)
    if any(one.outcome in planned for one in found):
        say(DRY)
    look_where(any(one.outcome in UNSETTLED for one in found))


def _found(
    table: str, dead: Sequence[str] | None, folders: Sequence[str] | None, **said: Any
) -> tuple[RecoveredJob, ...]:
    """Recover the jobs at a table, or plan that, and return the results.

    :param said: further members of :class:`.s3a.recovery.liveness.RecoveryOptions`.
    """
    from ..committer import Table
    from ..s3a.recovery.liveness import RecoveryOptions
    from ..s3a.recovery.recover import recover_jobs
    from ..tables.files_in_log import files_in_log

    options = RecoveryOptions(dead=dead or (), folders=folders or (), in_log=files_in_log, **said)
    opened = Table(table)
    return opened.tend(recover_jobs(opened.root, options))


def _cells(job: RecoveredJob, columns: Sequence[str], why: str) -> list[Any]:
    """Return the values of a job in the order of the columns. Some are fields of the job, others
    are computed."""
    run = job.owner.run_id or job.owner.application
    made = {"run": run, "silent for, s": f"{job.silent_for:.0f}", "other uploads": job.extra}
    return [{**vars(job), **made, "why": why}[name] for name in columns]
