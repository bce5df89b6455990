"""Words and settings that a submission to a service gets besides its user's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError
from ...committer.format.handoff import HANDOFF, HANDOFF_SETTING
from .credentials import holds_one_of, looks_like_credential
from .properties import PY_FILES

#: A word as a shell tells them apart.
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
#: Options of spark-submit without a value (``org.apache.spark.launcher.SparkSubmitOptionParser``).
_SWITCHES = {
    *("--help", "-h", "--load-spark-defaults", "--supervise", "--usage-error"),
    *("--verbose", "-v", "--version"),
}
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


def with_words(
    parameters: str, settings: Mapping[str, str], package: str | None, configured: str | None = None
) -> str:
    """``sparkSubmitParameters``, with settings and the package.

    :param parameters: the user's.
    :param settings: as :func:`plain_settings` takes them.
    :param package: URL of a zip for ``--py-files``.
    :param configured: what :data:`PY_FILES` is set to elsewhere.
    :raises InvalidInputError: they are more than a service takes, or it would tear one apart.
    """
    if package:
        words = list(_WORD.finditer(parameters))
        at = _py_files_in([re.sub("[\"']", "", word.group()) for word in words])
        if at is None:
            files = ",".join(filter(None, (configured, package)))
            parameters = f"{parameters} --py-files {shlex.quote(files)}"
        else:
            end = words[at].end() - (words[at].group()[-1] in "\"'")
            parameters = f"{parameters[:end]},{package}{parameters[end:]}"
    words = [parameters, *(f"--conf {text}" for text in plain_settings(settings))]
    text = " ".join(words).strip()
    _check_length("sparkSubmitParameters", text, _LONGEST_PARAMETERS)
    return text


def plain_settings(settings: Mapping[str, str]) -> list[str]:
    """Return settings as ``name=value``, for a service that tells words apart by itself.

    :raises InvalidInputError: a value has a blank or a quote.
    """
    for name, value in settings.items():
        if re.search(r"""[\s"'\\]""", value):
            raise InvalidInputError(
                f"The setting {name} has a blank, a quote or a backslash ({value!r}), and the "
                "service would tear it apart. Nothing was submitted.",
                remedy="Choose a value without them, such as another folder.",
            )
    return [f"{name}={value}" for name, value in settings.items()]


def with_arguments(
    arguments: Sequence[str], settings: Mapping[str, str], package: str | None
) -> list[str]:
    """The words of a step that begins with spark-submit, with settings and the package.

    :raises InvalidInputError: one is longer than EMR takes.
    """
    command, *rest = map(str, arguments)
    added = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    at = _py_files_in(rest)
    if package and at is not None:
        rest[at] = f"{rest[at]},{package}"
    elif package:
        added += ["--py-files", package]
    words = [command, *added, *rest]
    _check_length("a word of the step", max(words, key=len), _LONGEST_WORD)
    return words


def options_of(words: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """The options among words behind ``spark-submit``, each with its value and the number of the
    word that ends with it. What follows the application is the application's."""
    number = 0
    while number < len(words) and words[number].startswith("-"):
        option, equals, value = words[number].partition("=")
        if option not in _SWITCHES:
            if not equals:
                number += 1
                value = words[number] if number < len(words) else ""
            yield option, value, min(number, len(words) - 1)
        number += 1


def setting_of(option: str, value: str) -> tuple[str, str]:
    """Name and value of the setting that an option makes; empty for any other one."""
    name, _, said = value.partition("=") if option in ("--conf", "-c") else ("", "", "")
    return name, said


def _py_files_in(words: Sequence[str]) -> int | None:
    """The number of the word that ends with the Python files: of the last such option, or else of
    its setting, which Spark takes where there is no option."""
    by_option = by_setting = None
    for option, value, number in options_of(words):
        if option == "--py-files":
            by_option = number
        elif setting_of(option, value)[0] == PY_FILES:
            by_setting = number
    return by_setting if by_option is None else by_option


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidInputError(
            f"With what the application is told, {what} would have {len(text):,} characters, and "
            f"the service takes {longest:,}; nothing was submitted.",
            remedy="Spread the partitions over several tasks; or submit with partition='*' and let "
            "the application name them itself, by save(partitions=[...]).",
        )


def refuse_in_request(request: Any, where: str, secrets: Collection[str] = ()) -> None:
    """Refuse credentials in what a service is asked to run: it keeps that, and shows it to
    whoever may look at its jobs.

    :param request: texts, in lists and mappings of any depth.
    :param secrets: values that are refused whatever their names are.
    :raises InvalidInputError: names the place, never the value.
    """
    for place, name, value in _texts(request, where):
        named = _REFERS not in name and looks_like_credential(name, _REFERENCES.sub("none", value))
        if named or holds_one_of(value, secrets):
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
    driver: Any, member: str, settings: Mapping[str, str], package: str | None, overrides: Any
) -> dict[str, Any]:
    """A ``job_driver`` whose ``sparkSubmitParameters`` have settings and the package.

    :param member: and ``driver`` as :func:`spark_driver` takes them, the rest as
        :func:`with_words`.
    :param overrides: ``configuration_overrides``, which may set :data:`PY_FILES`, too.
    :raises InvalidInputError: as they do.
    """
    spark = spark_driver(driver, member)
    configured = None
    for it in (overrides or {}).get("applicationConfiguration") or ():
        if it.get("classification") == "spark-defaults":
            configured = (it.get("properties") or {}).get(PY_FILES, configured)
    words = with_words(spark.get("sparkSubmitParameters", ""), settings, package, configured)
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


def spark_step(steps: Any) -> Mapping[str, Any]:
    """What the one step of a load says.

    :raises InvalidInputError: it is not one that runs spark-submit.
    """
    named = steps if isinstance(steps, list) else []
    jar_step = named[0].get("HadoopJarStep", {}) if len(named) == 1 else {}
    words = jar_step.get("Args") or [""]
    runs = str(jar_step.get("Jar", "")).endswith("command-runner.jar")
    if not runs or str(words[0]).rpartition("/")[2] != "spark-submit":
        raise InvalidInputError(
            "steps is not one step that runs spark-submit by command-runner.jar, so it is not "
            "known where the application is to be told what it loads. Nothing was submitted.",
            remedy="Give [{'Name': …, 'HadoopJarStep': {'Jar': 'command-runner.jar', 'Args': "
            "['spark-submit', …]}}]; other steps belong to a task of their own.",
        )
    return named[0]


def with_step_words(
    arguments: Sequence[Any], handed: str, settings: Mapping[str, str], package: str | None = None
) -> list[str]:
    """The words of a step that begins with spark-submit, with what its application is told.

    :param handed: that, which in cluster mode the driver gets as a variable, too.
    :param settings: and ``package`` as :func:`with_arguments` takes them.
    :raises InvalidInputError: as it does.
    """
    given = {HANDOFF_SETTING: handed, **settings}
    if _in_cluster_mode(arguments):
        given[f"spark.yarn.appMasterEnv.{HANDOFF}"] = handed
    return with_arguments(arguments, given, package)


def _in_cluster_mode(arguments: Sequence[Any]) -> bool:
    mode = configured = ""
    for option, value, _ in options_of([*map(str, arguments)][1:]):
        if option == "--deploy-mode":
            mode = value
        elif (setting := setting_of(option, value))[0] == "spark.submit.deployMode":
            configured = setting[1]
    return (mode or configured) == "cluster"


def with_glue_settings(given: str | None, settings: Mapping[str, str]) -> str:
    """The argument ``--conf`` of a Glue job, with more settings.

    :param given: what it says already.
    :raises InvalidInputError: a value that Glue would tear apart.
    """
    return " --conf ".join(filter(None, (given, *plain_settings(settings))))
