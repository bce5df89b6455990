"""Script that runs a function of a DAG file in Spark's driver."""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...committer.errors import InvalidInputError

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


def write_function(
    folder: Path,
    name: str,
    source: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    takes_session: bool,
) -> Path:
    """Write a Spark application that calls a function.

    The arguments are in it, so that they are on no command line; only its owner can read it.

    :param source: of the function alone: what it needs it imports.
    :param takes_session: whether it is called with ``spark``, the session.
    :raises InvalidInputError: an argument that cannot be taken to another process.
    """
    try:
        arguments = base64.b64encode(pickle.dumps((list(args), dict(kwargs)))).decode()
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"The arguments of {name}() cannot be taken to Spark's driver: {error}; nothing was "
            "submitted.",
            remedy="Give it texts, numbers, dates, and lists or dictionaries of them.",
        ) from error
    text = _SCRIPT.format(
        name=name,
        source=source.strip(),
        arguments=arguments,
        spark=", spark=_spark" if takes_session else "",
    )
    target = folder / f"{name}.py"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return target
