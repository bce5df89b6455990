"""Configuration of a submission that writes by one of Hadoop's S3A committers, and its checks."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...committer.errors import SettingsRefusedError
from ...committer.format.job_spec import Mode
from ...committer.format.layout import TableRoot
from ...committer.store.encryption import Encryption
from ...committer.upkeep.access_policy import Service
from ...s3a.checks import JobFacts, inspect, is_placed, refuse
from ...s3a.hadoop import effective_settings as layers
from ...s3a.hadoop.effective_settings import hadoop_layer, read_properties
from ...s3a.hadoop.settings import (
    COMMIT_PROTOCOL_KEY,
    CONFLICT_MODE_OF,
    PARQUET_COMMITTER_KEY,
    PARTITION_OVERWRITE_KEY,
    STAGING,
    Committer,
    S3ASettings,
    check_options,
)
from ...s3a.policies import check_conf
from ...s3a.runs import ledger
from ...s3a.services import RULES, ServiceJob, ServiceRules, check_job, check_shared_staging
from ...s3a.write_plan import PlannedWrite, check_destination, plan
from ...spark.startup.installation import hadoop_version
from ..submit.open_folders import warn_of_open_folders
from ..submit.preflight import find_spark, submitting_home
from ..submit.properties import default_properties
from ..submit.shared_volumes import pods_mounts
from ..submit.submission import Cluster

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)
#: The AWS SDK's provider that reads ``AWS_ACCESS_KEY_ID`` and so on, as ``pass_credentials`` sets.
ENVIRONMENT_PROVIDER = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
)
PROVIDER_KEY = "spark.hadoop.fs.s3a.aws.credentials.provider"


#: Prefixes of the settings that select and configure a committer. None of these holds a secret.
_STEERING = (
    *("fs.s3a.committer.", "fs.s3a.buffer.dir", "fs.s3a.fast.upload.buffer", "fs.s3a.multipart."),
    *("mapreduce.outputcommitter.", "mapreduce.fileoutputcommitter."),
    *(COMMIT_PROTOCOL_KEY, PARQUET_COMMITTER_KEY, PARTITION_OVERWRITE_KEY),
)


def committer_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that select and configure a committer, as a load's report has them.

    Hadoop's settings have their own names, without ``spark.hadoop.``.
    """
    bare = {name.removeprefix("spark.hadoop."): value for name, value in settings.items()}
    return {name: bare[name] for name in sorted(bare) if name.startswith(_STEERING)}


@dataclass(frozen=True)
class SparkCall:
    """The arguments of a submission that the checks need.

    :param application: the application's file, as spark-submit gets it.
    :param conf: of the operator.
    :param env_vars: of the operator, on top of the worker's environment.
    """

    application: str
    cluster: Cluster
    conf: Mapping[str, Any]
    env_vars: Mapping[str, Any]
    properties_file: str | None = None


@dataclass(frozen=True)
class LoadRequest:
    """The destination, the mode, the partitions and the committer of a load.

    :param mode: ``None`` leaves it to the application.
    """

    committer: Committer
    root: TableRoot
    mode: Mode | None
    partitions: tuple[str, ...]

    @property
    def first_write(self) -> PlannedWrite | None:
        """The first write of the application's ``save()``; ``None`` if it is not known here."""
        columns = tuple(p.partition("=")[0] for p in "".join(self.partitions[:1]).split("/") if p)
        if self.mode is None or (self.mode is not Mode.APPEND and not self.partitions):
            return None
        return plan(self.committer, self.mode, self.root, columns, self.partitions)[0]


def asked_options(encryption: Encryption | None, *given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the committer.

    :param encryption: the default for all tables; an option ``encryption`` wins over it.
    :param given: options by name; each dictionary wins over those before it.
    """
    options = {name: value for said in given for name, value in said.items()}
    if encryption is None or "encryption" in options:
        return options
    key = {} if encryption.key is None else {"encryption_key": encryption.key}
    return {"encryption": str(encryption.algorithm), **key, **options}


def encryption_of(options: Mapping[str, Any]) -> Encryption | None:
    """Return the encryption of a load's files; the records beside them have the same.

    :param options: as for :func:`render`.
    :raises InvalidInputError: an invalid value.
    """
    return Encryption.named(options.get("encryption"), options.get("encryption_key"))


def render(
    load: LoadRequest,
    options: Mapping[str, Any],
    store: Mapping[str, Any],
    run: str,
    passes_keys: bool,
) -> dict[str, str]:
    """Return the Spark settings of a load, without credentials.

    :param options: members of :class:`~.s3a.hadoop.settings.S3ASettings`, as users give them.
    :param store: the members that locate the store.
    :param run: the attempt's UUID.
    :param passes_keys: the application gets keys by AWS's environment variables.
    :raises InvalidInputError: an option that does not exist, or an invalid value.
    """
    check_options(options)
    # An application without save() leaves the report of its one write here.
    reports = f"s3a://{load.root.bucket}/{ledger.report_prefix(load.root, run, 0)}"
    given: dict[str, Any] = {"summary_report_dir": reports, **options}
    # The mode wins over a connection's default: an append that replaced rows would not keep off
    # other runs. But with directory an application without save() would replace the whole table.
    is_said = load.committer is Committer.PARTITIONED or load.mode is Mode.APPEND
    if load.committer in STAGING and load.mode is not None and is_said:
        given["conflict_mode"] = CONFLICT_MODE_OF[load.mode]
    conf = S3ASettings(load.committer, uuid=run, **store, **given).spark_conf()
    return conf | ({PROVIDER_KEY: ENVIRONMENT_PROVIDER} if passes_keys else {})


def check_submission(
    load: LoadRequest, call: SparkCall, conf: Mapping[str, str], table: Table
) -> dict[str, str]:
    """Check the settings that will be in force, before anything is submitted. Log the warnings.

    :param conf: the result of :func:`render`.
    :return: those of :func:`committer_settings`, with the values in force.
    :raises SettingsRefusedError: the load would lose or double rows, or cannot work.
    :raises InvalidInputError: a setting contradicts the mode.
    :raises ZeroRenameError: as :func:`.write_plan.check_destination`.
    """
    check_destination(table, load.committer)
    check_conf(load.committer, load.mode, call.conf)
    cluster, named = call.cluster, call.properties_file
    environ = {**os.environ, **{k: str(v) for k, v in call.env_vars.items()}}
    environ |= find_spark(environ, cluster.binary)
    base = Path(named) if named else default_properties(environ)
    first = load.first_write
    # Settings of each write of save(). The first, how it overwrites, is always given.
    said = {PARTITION_OVERWRITE_KEY: "static", **(first.settings if first else {})}
    prefixed = {k if k.startswith("spark.") else f"spark.hadoop.{k}": v for k, v in said.items()}
    in_force = [
        ("save()", prefixed),
        (layers.DAG_CONF, {key: str(value) for key, value in call.conf.items()}),
        (f"settings of committer={load.committer}", conf),
        (layers.SPARK_DEFAULTS, {} if base is None else read_properties(base)),
        *([] if cluster.runs_driver else [hadoop_layer(environ)]),
    ]
    # If the driver runs elsewhere, its Spark is there, too: save() checks the version there.
    home = None if cluster.runs_driver else submitting_home(environ, cluster.binary)
    facts = JobFacts(
        committer=load.committer,
        settings=layers.effective(in_force, load.root.bucket),
        destination=first.path if first else f"s3a://{load.root.bucket}/{load.root.prefix}",
        is_cluster=not cluster.is_local,
        save_mode=first.save_mode if first else None,
        overwrites_alone=bool(load.partitions) and _overwrites_alone(call.application),
        hadoop="" if home is None else hadoop_version(home),
    )
    on_pods = cluster.runs_driver and cluster.master.startswith("k8s")
    if load.committer in STAGING and on_pods and not is_placed(facts):
        said_by_hand = {key: it for _, layer in reversed(in_force) for key, it in layer.items()}
        check_shared_staging(RULES[Service.KUBERNETES], facts, pods_mounts(said_by_hand))
    refuse(inspect(facts))
    if not cluster.runs_driver:
        warn_of_open_folders(load.committer, facts.settings)
    return committer_settings({name: it.value for name, it in facts.settings.items()})


def check_on_service(
    load: LoadRequest,
    row: ServiceRules,
    seen: ServiceJob,
    conf: Mapping[str, str],
    table: Table,
    strict: bool,
) -> dict[str, str]:
    """Check the settings of a service's job, before it is submitted. Log the warnings.

    :param conf: the result of :func:`render`.
    :param strict: refuse the load if a setting cannot be read; otherwise this is logged.
    :return: the settings that the request gets.
    :raises SettingsRefusedError: the load would lose or double rows, or cannot work.
    :raises InvalidInputError: a setting contradicts the mode.
    :raises ZeroRenameError: as :func:`.write_plan.check_destination`.
    """
    check_destination(table, load.committer)
    check_conf(load.committer, load.mode, seen.said)
    if seen.unseen and strict:
        raise SettingsRefusedError(
            f"strict: {' '.join(seen.unseen)} Nothing was submitted.",
            table=load.root.url,
            remedy=f"Grant the rights of `zero-rename policy airflow --operator {row.service}`; or "
            "leave strict out: save() looks in the job, before it writes.",
        )
    for what in seen.unseen:
        _log.warning("Not checked before the submission: %s", what)
    return check_job(row, seen, conf, load.committer, load.root, load.first_write)


def _overwrites_alone(application: str) -> bool:
    """Return whether an application's text overwrites by Spark's own writer, not by :func:`save`.

    False also if the text cannot be read here, for example if it is on a cluster's storage.
    """
    try:
        text = Path(application).read_text("utf-8") if application.endswith(".py") else ""
    except (OSError, UnicodeDecodeError):
        return False
    own = re.search(r"\.write\b", text) and re.search(r"""["']overwrite["']""", text)
    return own is not None and "zero_rename" not in text
