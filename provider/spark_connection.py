"""The Spark connection of a submission: where it leads, and whether a submission may go there."""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException

from ..committer.errors import InvalidInputError
from ..orchestration.submit.submission import Cluster

#: Types of a connection to a master; all but the first come of URIs such as ``yarn://``.
_TYPES = ("spark", "yarn", "k8s", "local", "mesos")


def find_cluster(conn_id: str, deploy_mode: str | None, binary: str | None) -> Cluster:
    """Where a Spark connection leads.

    :param deploy_mode: wins over the connection's.
    :param binary: so does this name of spark-submit.
    :raises InvalidInputError: no such connection (the apache-spark provider would go to YARN), one
        of another type (its host would be the master), or one that that provider refuses.
    """
    try:
        found = SparkSubmitHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise InvalidInputError(
            f"There is no Spark connection {conn_id!r}; nothing was submitted.",
            remedy=f"Add it: airflow connections add {conn_id} --conn-type spark "
            "--conn-host 'local[*]', or name another one as conn_id.",
        ) from error
    if found.conn_type not in _TYPES:
        raise InvalidInputError(
            f"The connection {conn_id!r} has the type {found.conn_type!r}, not 'spark'; "
            "nothing was submitted.",
            remedy="Name a Spark connection as conn_id; its host is the master.",
        )
    try:
        hook = SparkSubmitHook(conn_id=conn_id, deploy_mode=deploy_mode, spark_binary=binary)
    except (ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"The Spark connection {conn_id!r} cannot be used: {error}",
            remedy="Mend the connection or the task's arguments, or install what is missing.",
        ) from error
    known = hook._connection
    return Cluster(known["master"], known["deploy_mode"], known["spark_binary"])
