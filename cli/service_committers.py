"""``zero-rename doctor --service``: the committer that a service's job would write by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..committer.errors import InvalidInputError
from .output import look_where, plain, print_rows

OfService = Annotated[
    str | None,
    typer.Option(
        "--service", metavar="SERVICE", help="Say which committer a job of this service uses."
    ),
]
Release = Annotated[
    str, typer.Option(metavar="LABEL", help="EMR's release, such as emr-7.10.0, or Glue's version.")
]
Conf = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the job.")]
ConfFile = Annotated[
    Path | None,
    typer.Option(
        "--conf-file", metavar="FILE", help="A properties file with more settings of the job."
    ),
]
OfWord = Annotated[
    str | None,
    typer.Option("--committer", help="Add the settings of an operator with this committer."),
]


def print_committers(
    service: str,
    release: str,
    conf: Sequence[str],
    conf_file: Path | None,
    committer: str | None,
    as_json: bool,
) -> None:
    """Print which committer a service's job would write by, for each scheme of its paths.

    :raises typer.Exit: to ``s3a://`` it would not write by one of Hadoop's.
    """
    # Imported here: they load more than the other commands need.
    from ..committer.upkeep.access_policy import Service
    from ..s3a.hadoop import effective_settings as layers
    from ..s3a.hadoop.effective_settings import read_properties
    from ..s3a.hadoop.settings import NATIVE, Committer, S3ASettings, check_committer
    from ..s3a.service_committer import committers_in_force
    from ..s3a.services import RULES, check_word

    if service not in list(Service):
        known = ", ".join(Service)
        raise InvalidInputError(
            f"There is no service {service!r}.", remedy=f"Choose one of {known}."
        )
    rules, word = RULES[Service(service)], dict[str, str]()
    if committer is not None and check_committer(committer) != NATIVE:
        check_word(rules.service, committer)
        word = {**S3ASettings(Committer(committer)).spark_conf(), **rules.settings}
    given = [
        (layers.COMMAND_LINE, dict(map(_pair, conf))),
        (f"settings of committer={committer}", word),
        (layers.SPARK_DEFAULTS, read_properties(conf_file) if conf_file is not None else {}),
    ]
    found = committers_in_force(rules.service, release, layers.effective(given))
    rows = [(it.paths, it.committer, it.why) for it in found]
    print_rows(as_json, ("paths", "committer", "why"), rows, plain(found), "")
    look_where(not found[0].is_hadoops)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidInputError(f"--conf {text!r} has no value after an equals sign.")
    return key, value
