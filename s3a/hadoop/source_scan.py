"""Writes of a PySpark application, as far as its text tells before it runs.

A hint, not a proof: what is called by another name, in another module or through SQL text that is
put together is not seen here, and is left to the checks in the job and to the tripwires.
"""

from __future__ import annotations

import ast
import re

#: ``RDD`` methods that save through the old MapReduce API, which no factory reaches.
_RDD_SAVES = {
    "saveAsTextFile",
    "saveAsSequenceFile",
    "saveAsHadoopFile",
    "saveAsHadoopDataset",
    "saveAsPickleFile",
}
_WRITER_METHODS = {"parquet", "orc", "csv", "json", "text"}
_ENDS = {*_WRITER_METHODS, "save", "saveAsTable", "insertInto"}
_FORMATS = {*_WRITER_METHODS, "avro", "delta", "iceberg", "hudi", "hive", "zero_rename"}
_STORED_AS = re.compile(r"\bCREATE\b.+?\bTABLE\b.+?\bSTORED\s+AS\b", re.IGNORECASE | re.DOTALL)


def written_formats(source: str) -> tuple[str, ...]:
    """The formats an application's text writes, ``rdd`` and ``hive`` among them, sorted.

    :param source: Python. Empty for what cannot be parsed: Spark will say so itself.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {"hive"} if _STORED_AS.search(node.value) else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= _of_call(node, node.func)
    return tuple(sorted(found))


def plain_writes(source: str) -> int:
    """How many writes of ``DataFrameWriter`` an application's text makes; one in a loop counts
    as two, since a UUID that is handed in would be shared by them.

    :param source: Python. 0 for what cannot be parsed.
    """
    try:
        return _count(ast.parse(source), 1)
    except (SyntaxError, ValueError):
        return 0


def _count(node: ast.AST, each: int) -> int:
    if isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.comprehension):
        each = 2
    own = 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        ends = node.func.attr in _ENDS and _is_write(node.func.value)
        own = each if ends else 0
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        each = 2
    return own + sum(_count(child, each) for child in ast.iter_child_nodes(node))


def _of_call(call: ast.Call, method: ast.Attribute) -> set[str]:
    if method.attr in _RDD_SAVES:
        return {"rdd"}
    if not _is_write(method.value):
        return set()
    if method.attr in _WRITER_METHODS:
        return {method.attr}
    named = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "format")]
    if method.attr in ("format", "save", "saveAsTable"):
        return {
            name.value.lower()
            for name in named
            if isinstance(name, ast.Constant)
            and isinstance(name.value, str)
            and name.value.lower() in _FORMATS
        }
    return set()


def _is_write(node: ast.expr) -> bool:
    """Whether an expression is a chain that begins with ``….write``."""
    while True:
        if isinstance(node, ast.Attribute):
            if node.attr in ("write", "writeTo", "writeStream"):
                return True
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return False
