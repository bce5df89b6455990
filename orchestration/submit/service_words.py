"""Words and settings that a submission to a service gets besides its user's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError
from .credentials import looks_like_credential

#: Python files among the words of spark-submit: by the option, or by the setting it stands for.
_PY_FILES = re.compile(
    r"""(?<!\S)(?P<before>--py-files(?:\s+|=)|--conf(?:\s+|=)["']?spark\.submit\.pyFiles=)"""
    r"""(?P<files>"[^"]*"|'[^']*'|\S+)"""
)
#: Characters of ``sparkSubmitParameters`` (API references of EMR Serverless and EMR on EKS), and of
#: one of a step's words (that of EMR, HadoopJarStepConfig).
_LONGEST_PARAMETERS, _LONGEST_WORD = 102_400, 10_280
#: Values that EMR takes out of Secrets Manager itself, and Databricks out of a scope of secrets;
#: those of Databricks within a template, too, whose braces they have.
_REFERENCES = re.compile(
    r"""EMR\.secret@\S+ | (?: \{\{\s*['"] )? \{\{secrets/[^{}\s]+\}\} (?: ['"]\s*\}\} )?""",
    re.VERBOSE,
)
#: Settings of Spark that name a key of a Secret of Kubernetes.
_REFERS = "secretKeyRef."


def with_words(parameters: str, settings: Mapping[str, str], package: str | None) -> str:
    """``sparkSubmitParameters``, with settings and the package.

    :param parameters: the user's.
    :param settings: names and values without blanks or quotes, which are given as they are.
    :param package: URL of a zip for ``--py-files``.
    :raises InvalidInputError: they are more than a service takes.
    """
    if package:
        found = _PY_FILES.search(parameters)
        if found is None:
            parameters = f"{parameters} --py-files {package}"
        else:
            end = found.end() - (found["files"][0] in "\"'")
            parameters = f"{parameters[:end]},{package}{parameters[end:]}"
    words = [parameters, *(f"--conf {name}={value}" for name, value in settings.items())]
    text = " ".join(words).strip()
    _check_length("sparkSubmitParameters", text, _LONGEST_PARAMETERS)
    return text


def with_arguments(
    arguments: Sequence[str], settings: Mapping[str, str], package: str | None
) -> list[str]:
    """The words of a step that begins with spark-submit, with settings and the package.

    :raises InvalidInputError: one is longer than EMR takes.
    """
    command, *rest = map(str, arguments)
    added = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    if package and "--py-files" in rest[:-1]:
        at = rest.index("--py-files") + 1
        rest[at] = f"{rest[at]},{package}"
    elif package:
        setting = next((w for w in rest if w.startswith("spark.submit.pyFiles=")), None)
        if setting is None:
            added += ["--py-files", package]
        else:
            rest[rest.index(setting)] = f"{setting},{package}"
    words = [command, *added, *rest]
    _check_length("a word of the step", max(words, key=len), _LONGEST_WORD)
    return words


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidInputError(
            f"With what the application is told, {what} would have {len(text):,} characters, and "
            f"the service takes {longest:,}; nothing was submitted.",
            remedy="Spread the partitions over several tasks; or submit with partition='*' and let "
            "the application name them itself, by save(partitions=[...]).",
        )


def refuse_in_request(request: Any, where: str) -> None:
    """Refuse credentials in what a service is asked to run: it keeps that, and shows it to
    whoever may look at its jobs.

    :param request: texts, in lists and mappings of any depth.
    :raises InvalidInputError: names the place, never the value.
    """
    for place, name, value in _texts(request, where):
        if _REFERS not in name and looks_like_credential(name, _REFERENCES.sub("none", value)):
            raise InvalidInputError(
                f"{place} is or holds a credential, and the service keeps what it is asked to run "
                "and shows it. Nothing was submitted.",
                remedy="Leave it out: jobs of a service have the rights of the role that they run "
                "under. For other secrets name one of AWS Secrets Manager, which the application "
                "reads.",
            )


def _texts(request: Any, where: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Each text with its place and the name it has there."""
    if isinstance(request, Mapping):
        if isinstance(request.get("name"), str) and isinstance(request.get("value"), str):
            yield f"{where}[{request['name']!r}]", request["name"], request["value"]
        for key, value in request.items():
            yield from _texts(value, f"{where}[{key!r}]", str(key))
    elif isinstance(request, list | tuple) and not all(isinstance(it, str) for it in request):
        for number, value in enumerate(request):
            yield from _texts(value, f"{where}[{number}]")
    elif isinstance(request, list | tuple):
        yield where, name, shlex.join(request)
    elif request is not None:
        yield where, name, str(request)


def with_driver_words(
    driver: Any, member: str, settings: Mapping[str, str], package: str | None
) -> dict[str, Any]:
    """A ``job_driver`` whose ``sparkSubmitParameters`` have settings and the package.

    :param member: and ``driver`` as :func:`spark_driver` takes them, the rest as
        :func:`with_words`.
    :raises InvalidInputError: as they do.
    """
    spark = spark_driver(driver, member)
    words = with_words(spark.get("sparkSubmitParameters", ""), settings, package)
    return {member: {**spark, "sparkSubmitParameters": words}}


def spark_driver(driver: Any, member: str) -> Mapping[str, Any]:
    """What a ``job_driver`` says of its Spark application.

    :param member: ``sparkSubmit`` or ``sparkSubmitJobDriver``.
    :raises InvalidInputError: nothing, as one for Hive or SQL.
    """
    found = driver.get(member) if isinstance(driver, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("entryPoint"):
        raise InvalidInputError(
            f"job_driver has no {member} with an entryPoint; nothing was submitted.",
            remedy=f"Give {{'{member}': {{'entryPoint': 's3://bucket/job.py'}}}}.",
        )
    return found
