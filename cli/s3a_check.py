"""The command that looks at S3A settings before anybody submits with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..committer.errors import InvalidInputError
from .output import AsJson, Exit, print_rows, refusals
from .s3a import check_word

if TYPE_CHECKING:
    from ..s3a.checks.run import CheckFinding, JobFacts
    from ..s3a.hadoop.effective_settings import Setting


def s3a_check(
    conf_file: Annotated[
        Path | None,
        typer.Option(
            "--conf-file", metavar="FILE", help="A properties file, such as spark-defaults.conf."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="As spark-submit's; wins over the file."),
    ] = None,
    hadoop_conf: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where core-site.xml is, as HADOOP_CONF_DIR."),
    ] = None,
    committer: Annotated[
        str | None,
        typer.Option(help="The committer that is wanted. Default: the one that the settings name."),
    ] = None,
    destination: Annotated[
        str, typer.Option(metavar="URL", help="What will be written: s3a://bucket/table.")
    ] = "",
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Pass this check over, as spark.zero_rename.s3a.accept."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check S3A settings from files: what would be refused, what warned of. Exit code 1: errors."""
    from ..s3a.checks.run import Severity, inspect

    with refusals():
        found = inspect(_facts(conf_file, conf or (), hadoop_conf, committer, destination, accept))
    rows = [(f.check.id, f.check.severity, f.check.title, f.detail) for f in found]
    columns = ("check", "severity", "what is wrong", "where")
    print_rows(as_json, columns, rows, _documents(found), "Nothing is wrong with these settings.")
    if any(finding.check.severity is Severity.ERROR for finding in found):
        raise typer.Exit(Exit.LOOK)


def _facts(
    conf_file: Path | None,
    conf: Sequence[str],
    hadoop_conf: Path | None,
    committer: str | None,
    destination: str,
    accept: Sequence[str] | None,
) -> JobFacts:
    from ..s3a.checks.run import ACCEPT_KEY, JobFacts
    from ..s3a.checks.table import ALL
    from ..s3a.hadoop import effective_settings as layers
    from ..s3a.hadoop.setting_files import hadoop_layer, read_properties

    if conf_file is None and not conf and hadoop_conf is None:
        raise InvalidInputError(
            "There is nothing to check.", remedy="Give --conf-file, --conf or --hadoop-conf."
        )
    check_word(committer, ALL)
    given = [
        ("--accept", {ACCEPT_KEY: ",".join(accept)} if accept else {}),
        ("--conf", dict(map(_pair, conf))),
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
    """The committer of the settings; magic where they name none that is known, so that the name is
    found wrong."""
    from ..s3a.hadoop.settings import NAME_KEY

    name = settings[NAME_KEY].value
    return name if name in ("directory", "partitioned") else "magic"


def _documents(found: Sequence[CheckFinding]) -> list[dict[str, Any]]:
    return [
        {
            "check": finding.check.id,
            "severity": finding.check.severity,
            "title": finding.check.title,
            "detail": finding.detail,
            "remedy": finding.check.remedy,
        }
        for finding in found
    ]
