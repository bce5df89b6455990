"""Words and settings that are added to a user's request to a service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError
from ...committer.format.handoff import HANDOFF, HANDOFF_SETTING
from .credentials import holds_one_of, looks_like_credential
from .properties import PY_FILES

#: A word, as a shell would split the text.
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
#: Options of spark-submit without a value (``org.apache.spark.launcher.SparkSubmitOptionParser``).
_SWITCHES = {
    *("--help", "-h", "--load-spark-defaults", "--supervise", "--usage-error"),
    *("--verbose", "-v", "--version"),
}
#: The most characters of ``sparkSubmitParameters`` (API references of EMR Serverless and EMR on
#: EKS), and of one word of a step (API reference of EMR, HadoopJarStepConfig).
_LONGEST_PARAMETERS, _LONGEST_WORD = 102_400, 10_280
#: References to secrets: EMR reads such a value from Secrets Manager, Databricks from a scope of
#: secrets. That of Databricks may be quoted in a template, since both use double braces.
_REFERENCES = re.compile(
    r"""EMR\.secret@\S+ | (?: \{\{\s*['"] )? \{\{secrets/[^{}\s]+\}\} (?: ['"]\s*\}\} )?""",
    re.VERBOSE,
)
#: Members of a request that name a text and hold it: a pod's variables, a property of an EMR step.
_PAIRS = (("name", "value"), ("Key", "Value"))
_NESTED = (Mapping, list, tuple)
#: Part of the names of Spark's settings that refer to a key of a Kubernetes Secret.
_REFERS = "secretKeyRef."


def with_words(
    parameters: str, settings: Mapping[str, str], package: str | None, configured: str | None = None
) -> str:
    """Add settings and the package to ``sparkSubmitParameters``.

    :param parameters: the user's.
    :param settings: as for :func:`plain_settings`.
    :param package: URL of a zip for ``--py-files``.
    :param configured: the value of :data:`PY_FILES` in other configurations of the job.
    :raises InvalidInputError: the text is longer than the service takes, or the service would
        split a value; or quotes in the user's text are not closed.
    """
    parameter_words(parameters)
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


def parameter_words(parameters: str) -> list[str]:
    """Split ``sparkSubmitParameters`` into words.

    :raises InvalidInputError: quotes are not closed, so that what is added would be part of a word.
    """
    try:
        return shlex.split(parameters)
    except ValueError as error:
        # The error does not show the parameters, which may hold a secret.
        raise InvalidInputError(
            f"sparkSubmitParameters of job_driver cannot be told apart: {error}. Nothing was "
            "submitted.",
            remedy="Close the quotes in sparkSubmitParameters.",
        ) from None


def plain_settings(settings: Mapping[str, str]) -> list[str]:
    """Return settings as ``name=value``, for a service that splits a text into words itself.

    :raises InvalidInputError: a value has a blank, a quote or a backslash.
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
    """Add settings and the package to the words of a step that begins with spark-submit.

    :raises InvalidInputError: a word is longer than EMR takes.
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
    """Yield the options of spark-submit, each with its value and the index of its last word.

    Words after the application are the application's own, and are left out.

    :param words: those after ``spark-submit``.
    """
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
    """Return the name and value of the setting in an option; empty for any other option."""
    name, _, said = value.partition("=") if option in ("--conf", "-c") else ("", "", "")
    return name, said


def _py_files_in(words: Sequence[str]) -> int | None:
    """Return the index of the word that ends with the Python files; ``None`` if there is none.

    It is that of the last option ``--py-files`` or, without one, of the last setting: Spark uses
    the setting only if there is no option.
    """
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
            remedy="Spread the partitions over several tasks, in Dagster over several runs "
            "(BackfillPolicy.multi_run(…)); or submit with partition='*' and let the application "
            "name them itself, by save(partitions=[...]).",
        )


def refuse_in_request(request: Any, where: str, secrets: Collection[str] = ()) -> None:
    """Refuse credentials in a request to a service.

    The service keeps the request, and shows it to all users who may see its jobs.

    :param request: texts, in lists and mappings of any depth.
    :param secrets: values that are refused with any name.
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
    """Yield the place, the name and the value of each text in a request."""
    if isinstance(request, Mapping):
        for its_name, its_value in _PAIRS:
            named, value = request.get(its_name), request.get(its_value)
            if isinstance(named, str) and not isinstance(value, (*_NESTED, type(None))):
                yield f"{where}[{named!r}]", named, str(value)
        for key, value in request.items():
            yield from _texts(value, f"{where}[{key!r}]", str(key))
    elif isinstance(request, list | tuple):
        # Services take numbers as words, too.
        words = [str(it) for it in request if not isinstance(it, _NESTED)]
        # An option and its value are two words; a word that has a quote is another text in a line.
        yield from ((where, name, it) for it in (*words, shlex.join(words)))
        for number, value in enumerate(request):
            if isinstance(value, _NESTED):
                yield from _texts(value, f"{where}[{number}]")
    elif request is not None:
        yield where, name, str(request)


def with_driver_words(
    driver: Any, member: str, settings: Mapping[str, str], package: str | None, overrides: Any
) -> dict[str, Any]:
    """Add settings and the package to the ``sparkSubmitParameters`` of a ``job_driver``.

    :param driver: as for :func:`spark_driver`.
    :param member: as for :func:`spark_driver`.
    :param settings: as for :func:`with_words`.
    :param package: as for :func:`with_words`.
    :param overrides: ``configuration_overrides``, which may set :data:`PY_FILES`, too.
    :raises InvalidInputError: as these two functions.
    """
    spark = spark_driver(driver, member)
    configured = None
    for it in (overrides or {}).get("applicationConfiguration") or ():
        if it.get("classification") == "spark-defaults":
            configured = (it.get("properties") or {}).get(PY_FILES, configured)
    words = with_words(spark.get("sparkSubmitParameters") or "", settings, package, configured)
    return {member: {**spark, "sparkSubmitParameters": words}}


def spark_driver(driver: Any, member: str) -> Mapping[str, Any]:
    """Return the part of a ``job_driver`` about its Spark application.

    :param member: ``sparkSubmit`` or ``sparkSubmitJobDriver``.
    :raises InvalidInputError: it has no such part, for example a driver for Hive or SQL.
    """
    found = driver.get(member) if isinstance(driver, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("entryPoint"):
        raise InvalidInputError(
            f"job_driver has no {member} with an entryPoint; nothing was submitted.",
            remedy=f"Give {{'{member}': {{'entryPoint': 's3://bucket/job.py'}}}}.",
        )
    return found


def spark_step(steps: Any) -> Mapping[str, Any]:
    """Return the only step of a load.

    :raises InvalidInputError: there are several steps, or it does not run spark-submit.
    """
    only = steps[0] if isinstance(steps, list) and len(steps) == 1 else None
    step: Mapping[str, Any] = only if isinstance(only, Mapping) else {}
    found = step.get("HadoopJarStep")
    jar_step = found if isinstance(found, Mapping) else {}
    words = jar_step.get("Args") or [""]
    runs = str(jar_step.get("Jar", "")).endswith("command-runner.jar")
    if not runs or str(words[0]).rpartition("/")[2] != "spark-submit":
        raise InvalidInputError(
            "steps is not one step that runs spark-submit by command-runner.jar, so it is not "
            "known where the application is to be told what it loads. Nothing was submitted.",
            remedy="Give [{'Name': …, 'HadoopJarStep': {'Jar': 'command-runner.jar', 'Args': "
            "['spark-submit', …]}}]; other steps belong to a task of their own.",
        )
    return step


def with_step_words(
    arguments: Sequence[Any], handed: str, settings: Mapping[str, str], package: str | None = None
) -> list[str]:
    """Add the hand-off, settings and the package to the words of a step with spark-submit.

    :param handed: the hand-off; in cluster mode the driver also gets it as a variable.
    :param settings: as for :func:`with_arguments`.
    :param package: as for :func:`with_arguments`.
    :raises InvalidInputError: as :func:`with_arguments`.
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
    """Add settings to the argument ``--conf`` of a Glue job.

    :param given: the argument so far.
    :raises InvalidInputError: Glue would split a value.
    """
    return " --conf ".join(filter(None, (given, *plain_settings(settings))))
