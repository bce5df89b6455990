"""Operator for loads by a function in the DAG file: ``@task.zero_rename``."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DecoratedOperator, task_decorator_factory

from ..committer.errors import InvalidInputError
from ..orchestration.submit.properties import private_folder
from ..provider.failures import final_where_refused
from .loading.load import TableLoad
from .spark_submit import ZeroRenameSparkSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskDecorator
    from airflow.sdk import Context

#: Name of the parameter that gets the Spark session.
_SESSION = "spark"
_SCRIPT = '''"""The function {name} of a DAG file, as it was submitted."""
import base64 as _base64
import pickle as _pickle

from pyspark.sql import SparkSession as _SparkSession

{source}

if __name__ == "__main__":
    _args, _kwargs = _pickle.loads(_base64.b64decode("{arguments}"))
    _spark = _SparkSession.builder.appName("{name}").getOrCreate()
    try:
        {name}(*_args, **_kwargs{spark})
    finally:
        _spark.stop()
'''


class SparkFunctionOperator(DecoratedOperator, ZeroRenameSparkSubmitOperator):
    """Submit a function of a DAG file as an application that writes one table.

    ``@task.zero_rename`` makes it, and takes every argument of
    :class:`ZeroRenameSparkSubmitOperator` except ``application`` and its arguments. Spark's driver
    runs the function's source, so the function must import all that it uses. A parameter ``spark``
    gets the session. A parameter with the name of a member of the task's context (``ds``,
    ``params``, ``partition_key``) gets that member.
    """

    custom_operator_name = "@task.zero_rename"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if inspect.iscoroutinefunction(python_callable):
            raise InvalidInputError(
                f"{python_callable.__name__}() is a coroutine function, and a driver calls plain "
                "functions; nothing was submitted.",
                remedy="Write it with def. It may call asyncio.run() itself.",
            )
        self._takes_session = _SESSION in inspect.signature(python_callable).parameters
        session = {_SESSION: None} if self._takes_session else {}
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs={**(op_kwargs or {}), **session},
            kwargs_to_upstream={"application": f"{python_callable.__name__}.py"},
            **kwargs,
        )

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        given = {name: _plain(value) for name, value in self.op_kwargs.items() if name != _SESSION}
        with private_folder() as folder:
            with final_where_refused():
                self.application = self._written(folder, {**self._of_context(context), **given})
            return super()._load(context, load)

    def _of_context(self, context: Context) -> dict[str, Any]:
        """Return the members of a task's context for which the function has parameters."""
        signature = inspect.signature(self.python_callable)
        positional = list(signature.parameters)[: len(list(self.op_args))]
        known: Mapping[str, Any] = context
        return {
            name: _plain(known[name])
            for name in signature.parameters
            if name in known and name not in positional
        }

    def _check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that the function can be called with these arguments: Spark takes long to start.

        :raises InvalidInputError: one is missing, such as a member of the context that this run
            does not have.
        """
        session = {_SESSION: None} if self._takes_session else {}
        try:
            inspect.signature(self.python_callable).bind(*args, **kwargs, **session)
        except TypeError as error:
            raise InvalidInputError(
                f"{self.python_callable.__name__}() cannot be called: {error}; nothing was "
                "submitted.",
                remedy="Give it all arguments. If the one that is missing is a member of the "
                "task's context, such as ds, then this run has no date: give the parameter a "
                "default, or load a day of the past by `airflow backfill create --dag-id … "
                "--from-date … --to-date …`.",
            ) from error

    def _written(self, folder: Path, kwargs: Mapping[str, Any]) -> str:
        """Write a Spark application that calls the function, and return its path.

        The file contains the arguments, so that they are on no command line. Only its owner can
        read it.

        :raises InvalidInputError: an argument that cannot be passed to another process, or is
            missing.
        """
        name, args = self.python_callable.__name__, [_plain(value) for value in self.op_args]
        self._check_call(args, kwargs)
        try:
            arguments = base64.b64encode(pickle.dumps((args, kwargs))).decode()
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"The arguments of {name}() cannot be taken to Spark's driver: {error}; nothing "
                "was submitted.",
                remedy="Give it texts, numbers, dates, and lists or dictionaries of them.",
            ) from error
        text = _SCRIPT.format(
            name=name,
            source=_without_annotations(self.get_python_source().strip()),
            arguments=arguments,
            spark=", spark=_spark" if self._takes_session else "",
        )
        target = folder / f"{name}.py"
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return str(target)


def _without_annotations(source: str) -> str:
    """Replace the annotations of a function's parameters and result by ``None``.

    Python evaluates annotations when it defines the function, but only the DAG file imports the
    names in them.
    """
    function = ast.parse(source).body[0]
    if not isinstance(function, ast.FunctionDef):
        return source
    annotations = [it.annotation for it in ast.walk(function.args) if isinstance(it, ast.arg)]
    found = [it for it in (*annotations, function.returns) if it is not None]
    starts = [0]  # Starts of lines in bytes, since positions in a syntax tree count bytes.
    text = source.encode()
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for it in sorted(found, key=lambda it: (it.lineno, it.col_offset), reverse=True):
        assert it.end_lineno is not None
        assert it.end_col_offset is not None
        begin = starts[it.lineno - 1] + it.col_offset
        end = starts[it.end_lineno - 1] + it.end_col_offset
        text = text[:begin] + b"None" + text[end:]
    return text.decode()


def _plain(value: Any) -> Any:
    """Return a member of a context, or an argument, without Airflow's and pendulum's own types.

    For example, the outputs of a mapped task are a sequence with a reference to its DAG. The types
    are replaced at any depth: a cluster's driver may not have pendulum.
    """
    if isinstance(value, datetime):
        return datetime.fromisoformat(value.isoformat())
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, timedelta) and type(value) is not timedelta:
        return timedelta(seconds=value.total_seconds())
    if isinstance(value, Mapping):
        return {key: _plain(it) for key, it in value.items()}
    if type(value) is tuple:
        return tuple(map(_plain, value))
    is_text = isinstance(value, str | bytes | bytearray | memoryview)
    is_plain = is_text or isinstance(value, tuple | range)
    return list(map(_plain, value)) if isinstance(value, Sequence) and not is_plain else value


def zero_rename_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Make a task of a function: the decorator ``@task.zero_rename``.

    :param kwargs: arguments of :class:`SparkFunctionOperator`.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=SparkFunctionOperator,
        **kwargs,
    )
