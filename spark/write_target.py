"""Table, mode, partitions and committer of one call of :func:`zero_rename.spark.save`.

They come from the call's arguments and from the application's submitter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..committer.commit.failures import failures_told
from ..committer.errors import InvalidInputError, first_few
from ..committer.format.code_version import checked_code_version
from ..committer.format.handoff import HANDOFF, HANDOFF_SETTING, Handoff
from ..committer.format.job_spec import Distribute, Mode, TableLayout, choice, texts_in
from ..committer.format.layout import TableRoot
from ..committer.format.read_base import ReadBase
from ..committer.format.records.run_conflict import is_dagsters
from ..committer.format.text_values import NAMES
from ..committer.rival_wait import RivalWait
from ..s3a.hadoop.settings import NATIVE, check_committer
from ..s3a.policies import (
    ABOUT_RUNS,
    UNKEPT_ALONE,
    check_kept,
    check_unwatched,
    check_writer_options,
)
from .option_table import plain, read_base, texts_of
from .options import is_given, native_only
from .startup.preflight import warn_of_overwrites
from .submitters import argument, instruction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ..committer.commit.snapshot import Snapshot


@dataclass(frozen=True)
class WriteTarget:
    """Target of a write, from the call's arguments and the application's submitter.

    :param partition_by: partition columns, outermost first.
    :param partitions: the only partitions that may be written, as Hive-escaped paths; ``None`` for
        any.
    :param layout: of the table.
    :param base: the state that the rows were computed from, if the options do not have it as text.
    :param distribute: the call's value; ``None`` for that of the options or the submitter.
    :param wait_for_other_runs: seconds that the write waits for other runs; ``None``: not at all.
    :param code_version: of the program; ``None`` for that of the options or the submitter.
    :param publish: whether its rows become visible when it ends.
    :param options: options of Spark's writer, as texts.
    """

    root: TableRoot
    committer: str
    mode: Mode
    partition_by: tuple[str, ...]
    partitions: tuple[str, ...] | None
    layout: TableLayout = TableLayout.DIRECTORY
    base: ReadBase | None = None
    distribute: Distribute | None = None
    wait_for_other_runs: timedelta | float | None = None
    code_version: str | None = None
    publish: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def among(self) -> tuple[str, ...]:
        """The named partitions, for one of Hadoop's committers; empty for any."""
        return self.partitions or ()

    @property
    def named_options(self) -> dict[str, Any]:
        """The call's values, by the names of fields of :class:`.options.WriterOptions`."""
        replaces = self.mode is Mode.REPLACE
        named = {
            "path": self.root.url,
            "partition_by": self.partition_by,
            "fail_if_exists": self.mode is Mode.FAIL_IF_EXISTS,
            "base": self.base,
            "distribute": self.distribute,
            "code_version": self.code_version,
        }
        named = {name: value for name, value in named.items() if value}
        named["publish"] = self.publish
        if self.partitions is not None:
            named["replace_partitions" if replaces else "only_partitions"] = self.partitions
        return named


def resolve(
    table: str | None,
    handoff: Handoff,
    *,
    partition_by: Sequence[str] = (),
    mode: str | None = None,
    partitions: Sequence[str] | None = None,
    committer: str | None = None,
    layout: str | None = None,
    base: Snapshot | ReadBase | str | None = None,
    distribute: str | None = None,
    wait_for_other_runs: timedelta | float | None = None,
    code_version: str | None = None,
    publish: bool | None = None,
    options: Mapping[str, str] | None = None,
    columns: Callable[[Sequence[str]], pa.Schema] | None = None,
) -> WriteTarget:
    """Check the arguments of ``save()``, and complete them by the submitter's for its table.

    :param columns: returns the columns of the frame as a table partitioned by these columns has
        them. By their types two spellings name one partition (``day=01``, ``day=1``).
    :raises InvalidInputError: an invalid call, or one that contradicts the submitter.
    """
    root = TableRoot.parse(table) if table else handoff.table
    if root is None:
        raise InvalidInputError(
            "No table is named; nothing was written.",
            remedy="Give save() a table, s3://bucket/prefix; or submit by Airflow's operator or "
            "Dagster's asset, which name it.",
        )
    said = handoff.about(root)
    word = chosen_committer(root, committer, handoff)
    options = texts_of(options or {})
    _check_path(root, options)
    if isinstance(base, str):
        options, base = _with_base(root, base, options), None
    state = base if base is None or isinstance(base, ReadBase) else base.base
    kept = _layout(root, layout, word, handoff)
    RivalWait.of(wait_for_other_runs)  # Refuses an invalid duration.
    if word != NATIVE:
        check_unwatched(word, {"wait_for_other_runs": wait_for_other_runs})
        _check_policies(word, said, options, state, code_version)
    publishes = _publishes(root, publish, options, handoff, kept)
    by = _partition_by(partition_by, options)

    def spelled(names: Sequence[str]) -> list[str]:
        if columns is None or not by or word != NATIVE:
            return [*names]
        # Imported on use: a session that only names its table loads no Arrow here.
        from ..committer.format.schema.hive_paths import spelled_as_stored

        schema = columns(by)
        return [spelled_as_stored(it, schema, by) for it in names]

    return WriteTarget(
        root=root,
        committer=word,
        mode=_mode(mode, said),
        partition_by=by,
        partitions=_partitions(partitions, said.partitions, spelled),
        layout=kept,
        base=state,
        distribute=None if distribute is None else choice("distribute", Distribute, distribute),
        wait_for_other_runs=wait_for_other_runs,
        code_version=None if code_version is None else checked_code_version(code_version),
        publish=publishes,
        options=options,
    )


def _check_path(root: TableRoot, options: Mapping[str, str]) -> None:
    """Refuse an option ``path`` that names another table than the write's.

    :raises InvalidInputError: it does.
    """
    path = next((it for name, it in options.items() if plain(name) == "path"), None)
    try:
        named = root if path is None else TableRoot.parse(path)
    except InvalidInputError:
        return  # Refused with the other options, where no password is shown.
    if named != root:
        raise InvalidInputError(
            f"The option path names {named.url}, and the write's table is another; nothing was "
            "written.",
            table=root.url,
            remedy="Leave path out of options=, or name that table by the call's table.",
        )


def _with_base(root: TableRoot, base: str, options: Mapping[str, str]) -> dict[str, str]:
    """Add the text of a read base to options.

    :raises InvalidInputError: an option names another base.
    """
    own = {name: it for name, it in options.items() if plain(name) == "base"}
    for name, text in own.items():
        try:
            differs = read_base(text) != read_base(base)
        except ValueError:
            differs = text != base  # Else refused with the other options.
        if differs:
            raise InvalidInputError(
                f"The option {name} is {text[:200]!r}, and the call has another base=; nothing was "
                "written.",
                table=root.url,
                remedy="Leave the option out, or give base= the same value.",
            )
    others = {name: it for name, it in options.items() if name not in own}
    return others | {"base": base}


def _publishes(
    root: TableRoot,
    given: bool | None,
    options: Mapping[str, str],
    handoff: Handoff,
    layout: TableLayout,
) -> bool:
    """Return whether a write's rows become visible when it ends.

    :raises InvalidInputError: the call publishes rows that its submitter holds back, or holds back
        rows that the submitter waits for; or the table is not a Delta table, which cannot hold rows
        back.
    """
    said = handoff.about(root)
    text = next((it for name, it in options.items() if plain(name) == "publish"), None)
    if given is None and text is not None:
        given = text.strip().lower() != "false"
    if given and said.publish is False:
        raise InvalidInputError(
            "The application publishes what it writes, and its rows are to be held back "
            f"({instruction(handoff, 'publish')}); nothing was written.",
            table=root.url,
            remedy=f"Leave the application's publish= out, or {argument(handoff, 'publish')}.",
        )
    publishes = said.publish is not False if given is None else given
    own_key = is_given(options, "idempotency_key")  # It is another write than that of the run.
    waits = said.publish is None and said.idempotency_key is not None and not own_key
    if not publishes and waits and handoff.table == root:
        raise InvalidInputError(
            "The application holds its rows back, and the task that submitted it waits for them to "
            "be seen; nothing was written.",
            table=root.url,
            remedy="Leave the application's publish= out."
            if is_dagsters(handoff.owner, handoff.idempotency_key)
            else "Leave the application's publish= out; or give Airflow's operator "
            "publish=False, too.",
        )
    if not publishes and layout is not TableLayout.DELTA:
        raise InvalidInputError(
            "publish=False is given for a table of directories, whose files are there for whoever "
            "lists them; nothing was written.",
            table=root.url,
            remedy="Write a Delta table, by layout='delta', or leave publish out.",
        )
    return publishes


def chosen_committer(root: TableRoot, given: str | None, handoff: Handoff) -> str:
    """Return the committer that a write or its submitter names.

    :raises InvalidInputError: no committer has that name; or the two name different committers for
        the table that the submitter waits for.
    """
    said = handoff.committer
    word = check_committer(given or said or NATIVE)
    if handoff.table == root and said not in (None, word):
        raise InvalidInputError(
            f"The application writes by the committer {word}, and {said} is asked for "
            f"({instruction(handoff, 'committer')}); nothing was written.",
            table=root.url,
            remedy="Leave the application's committer= out, or mend "
            f"{argument(handoff, 'committer')}.",
        )
    return word


def _layout(root: TableRoot, given: str | None, committer: str, handoff: Handoff) -> TableLayout:
    """Return the layout of the table that a write or its submitter names.

    :raises InvalidInputError: the two name different layouts, so that the submitter would not see
        the commit; or the committer does not write this layout.
    """
    said = handoff.about(root).layout or TableLayout.DIRECTORY
    kept = said if given is None else choice("layout", TableLayout, given)
    what = ""
    if kept is TableLayout.DELTA and committer != NATIVE:
        what = f"the committer {committer} writes directories"
    elif handoff.table == root and kept is not said:
        what = f"the task that submitted the application waits for a table of layout={said.value}"
    if what:
        raise InvalidInputError(
            f"The application writes with layout={kept.value}, and {what}; nothing was written.",
            table=root.url,
            remedy=f"Leave the application's layout= out, or mend {argument(handoff, 'layout')}.",
        )
    return kept


def _check_policies(
    committer: str,
    said: Handoff,
    options: Mapping[str, str],
    base: ReadBase | None,
    code_version: str | None,
) -> None:
    """Refuse policies of the call and its submitter that one of Hadoop's committers cannot keep.

    :raises InvalidInputError: there is one; the error names it.
    """
    given = {**vars(said), "code_version": code_version or said.code_version}
    given["base"] = options.get("base") if base is None else base.encode()[:200]
    undone = "Nothing was written"
    check_kept(committer, given, undone)
    if said.s3a_run is None:
        check_kept(committer, given, undone, UNKEPT_ALONE)
    spelt = {plain(name): it for name, it in options.items()}
    about_runs = {name: spelt.get(plain(name)) or getattr(said, name) for name in ABOUT_RUNS}
    check_unwatched(committer, about_runs)
    # last_wins is accepted: Hadoop's committers behave so anyway.
    taken = [name for name in options if plain(name) == plain("on_conflict")]
    check_writer_options(committer, (it for it in native_only(options) if it not in taken))


def _mode(given: str | None, said: Handoff) -> Mode:
    expected = said.mode
    if given is None:
        return expected or Mode.APPEND
    mode = Mode.parse(given)
    if expected not in (None, mode):
        raise InvalidInputError(
            f"The application writes with mode {given!r}, and {expected} is asked for "
            f"({instruction(said, 'mode')}); nothing was written.",
            remedy=f"Change the application's mode=, or leave out {argument(said, 'mode')}.",
        )
    return mode


def _partition_by(given: Sequence[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partition columns that the call names, or else its option."""
    named = _listed("partition_by", "columns", given)
    text = next((it for name, it in options.items() if plain(name) == plain("partition_by")), None)
    if named or text is None:
        return named
    try:
        return NAMES.decode(text)
    except ValueError:
        return ()  # Refused with the other options.


def _partitions(
    given: Sequence[str] | None,
    allowed: tuple[str, ...] | None,
    spelled: Callable[[Sequence[str]], Sequence[str]],
) -> tuple[str, ...] | None:
    """Return the partitions that the call names, or else its submitter.

    :param spelled: returns names as the table would spell them.
    :raises InvalidInputError: the call names partitions that the submitter does not.
    """
    if given is None:
        return allowed
    wanted = tuple(dict.fromkeys(_listed("partitions", "paths", given)))
    others = [] if allowed is None else sorted(set(wanted) - set(allowed))
    if others and allowed:
        others = sorted(set(spelled(others)) - set(spelled(allowed)))
    if others:
        raise InvalidInputError(
            f"The application writes {first_few(others)}, and its task is about "
            f"{first_few(allowed) if allowed else 'none'}; nothing was written.",
            remedy="Mend the application's partitions= or the task's partition.",
        )
    return wanted


def _listed(name: str, what: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidInputError(
            f"{name} is a list of {what}, not a string; nothing was written.",
            remedy=f"Give {name}=[{given!r}].",
        )
    texts = texts_in(given)
    if texts is None:
        raise InvalidInputError(
            f"{name}={given!r} is not a list of texts; nothing was written.",
            remedy=f"Give {name} the {what} as texts.",
        )
    if not all(texts):
        raise InvalidInputError(
            f"{name} has an empty item; nothing was written.", remedy=f"Leave it out of {name}=."
        )
    return texts


def require_spark_frame(frame: Any) -> None:
    """Check that a frame is one of Spark's, classic or Connect.

    :raises InvalidInputError: it is another library's; nothing was written.
    """
    if not hasattr(frame, "sparkSession"):
        kind = type(frame)
        is_pandas_on_spark = kind.__module__.startswith("pyspark.pandas.")
        raise InvalidInputError(
            f"frame is a {kind.__module__}.{kind.__name__}, and no data frame of Spark's; nothing "
            "was written.",
            remedy="Give frame.to_spark(); or frame.to_spark(index_col='day'), which keeps the "
            "index as a column."
            if is_pandas_on_spark
            else "Make one of it by spark.createDataFrame(…); or write it without Spark: rows of "
            "pandas, Polars and Arrow are taken by Table(…).job() and Table(…).merge().",
        )


@contextmanager
def submitted(session: SparkSession) -> Iterator[Handoff]:
    """Read the submitter's instructions for a write in the block, and report its failure back."""
    warn_of_overwrites(session)
    take_handoff(session)
    said = Handoff.decode(os.environ)
    its = said.table, said.idempotency_key, said.owner, said.partitions or (), said.encryption
    with failures_told(*its):
        yield said


def take_handoff(spark: SparkSession) -> None:
    """Copy the submitter's instructions from the Spark setting to this process's environment.

    A submitter uses the setting on AWS Glue and on EMR in client mode. An existing variable is
    kept.
    """
    if not os.environ.get(HANDOFF):
        told = spark.conf.get(HANDOFF_SETTING, None)
        if told:
            os.environ[HANDOFF] = told
