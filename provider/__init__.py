"""Provider information for Airflow: the connection and its hook, triggers, links.

This module is imported by every Airflow process that lists providers, so it imports nothing
but the standard library.
"""

from __future__ import annotations

from typing import Any

#: Must equal the distribution's name, or Airflow refuses the provider.
PACKAGE_NAME = "airflow-provider-zero-rename"
#: The connection type, and the name of its configuration section.
CONNECTION_TYPE = "zero_rename"
_INTEGRATION = "Zero Rename"


def get_provider_info() -> dict[str, Any]:
    """Return the provider information, for Airflow's entry point ``apache_airflow_provider``.

    :return: a dictionary valid against ``airflow/provider_info.schema.json``; its connection
        types are valid against the stricter ``airflow/provider.yaml.schema.json`` too.
    """
    return {
        "package-name": PACKAGE_NAME,
        "name": _INTEGRATION,
        "description": (
            "Load partitioned tables on S3 with PySpark, committed without renames: "
            "each job becomes visible once, whole, or not at all."
        ),
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": f"https://pypi.org/project/{PACKAGE_NAME}/",
                "tags": ["aws", "apache"],
            }
        ],
        "operators": _modules(
            "operators.spark_submit",
            "operators.spark_function",
            "operators.emr_serverless",
            "operators.emr_steps",
            "operators.emr_containers",
            "operators.glue",
            "operators.spark_kubernetes",
            "operators.databricks",
            "operators.checkpoint",
            "operators.conflicts",
            "operators.maintenance",
            "operators.restoring",
            "operators.publishing",
            "operators.s3a_maintenance",
            "operators.recompute",
        ),
        "task-decorators": [
            {
                "name": "zero_rename",
                "class-name": "zero_rename.operators.spark_function.zero_rename_task",
            }
        ],
        "sensors": _modules("sensors.success_manifest"),
        "hooks": _modules("provider.hooks"),
        "triggers": _modules(
            "provider.triggers", "provider.assets.commit_trigger", "provider.cancelling_triggers"
        ),
        "extra-links": [
            f"zero_rename.provider.links.{name}"
            for name in ("PartitionPageLink", "ManifestLink", "TableConsoleLink")
        ],
        "connection-types": [_connection_type()],
        "config": {CONNECTION_TYPE: _config_section()},
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [
        {
            "integration-name": _INTEGRATION,
            "python-modules": [f"zero_rename.{name}" for name in names],
        }
    ]


def _connection_type() -> dict[str, Any]:
    """Describe the connection type. It holds policy only; keys stay in the AWS connection.

    Airflow's form saves the default of each field, even if the user has not touched it. So no
    policy has a default in the form: a load that cannot keep that policy would be refused, although
    nobody chose it.
    """
    return {
        "connection-type": CONNECTION_TYPE,
        "hook-class-name": "zero_rename.provider.hooks.ZeroRenameHook",
        "hook-name": _INTEGRATION,
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "login", "password", "schema", "extra"],
            "relabeling": {},
            "placeholders": {"table_root": "s3://lake/warehouse", "aws_conn_id": "aws_default"},
        },
        "conn-fields": {
            "table_root": _field(
                "Table root",
                "Root of tables that are named without s3://, such as s3://lake/warehouse",
            ),
            "aws_conn_id": _field(
                "AWS connection",
                "Id of the connection that holds the credentials and the endpoint",
                default="aws_default",
            ),
            "committer": _field(
                "Committer",
                "Committer of Spark's output, unless the operator names another",
                enum=["zero_rename", "magic", "directory", "partitioned"],
                default="zero_rename",
            ),
            "on_conflict": _field(
                "On conflict",
                "What to do if another job changed a partition meanwhile: fail, commit after it "
                "(last_wins), or keep the rows of the newer run (newest_run). If empty: fail",
                enum=["fail", "last_wins", "newest_run"],
            ),
            "success_markers": _field(
                "_SUCCESS markers",
                "Where _SUCCESS markers are written. If empty: in partition and table; in Delta "
                "tables none. Must be empty for loads by Hadoop's committers",
                enum=["partition_and_table", "table", "none"],
            ),
            "data_root": _field(
                "Data root",
                "Where the files of new Delta tables lie first, such as "
                "s3://fast/lake?endpoint=https://host:port; never with a password. Loads into "
                "tables of directories are refused. Before a checkpoint, Spark is the only other "
                "engine that reads these files",
            ),
            "encryption": _field(
                "Encryption",
                "Encryption by the store of all that is written for tables whose records name "
                "none: SSE-S3, or SSE-KMS, a blank and the key's id, ARN or alias",
            ),
            "s3a_options": _field(
                "S3A options",
                "Options of Hadoop's committers, as a JSON object: threads, encryption, "
                "encryption_key, storage_class, buffer_dir, staging_dir …",
            ),
            "catalog": _field(
                "Catalog",
                "Catalog in which tables are registered after a load, such as glue://database, "
                "unless the operator names another",
            ),
            "max_recompute": _field(
                "Recompute at most (seconds)",
                "Maintenance reports partitions that are not durable and would take longer to make "
                "again",
                "number",
                minimum=1,
            ),
            "purge_older_than_hours": _field(
                "Purge foreign uploads older than (hours)",
                "Used if the purge operator is to abort foreign uploads and gives no age",
                "number",
                minimum=1,
            ),
        },
    }


def _field(label: str, description: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    schema = {"type": [kind, "null"], **more}
    return {"label": label, "description": description, "schema": schema}


def _config_section() -> dict[str, Any]:
    """Describe the section ``[zero_rename]``; :mod:`.connection` reads its defaults from here."""
    return {
        "description": "Defaults of the Zero Rename provider.",
        "options": {
            "purge_older_than_hours": _number(
                "Age in hours from which the purge operator aborts multipart uploads that no "
                "job of this package made, if a task asks for those and gives no age.",
                "168",
            ),
            "purge_floor_hours": _number(
                "No task may purge foreign uploads that are younger, in hours: another tool's "
                "upload may still be under way.",
                "24",
            ),
        },
    }


def _number(description: str, default: str) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "float",
        "example": None,
        "default": default,
    }
