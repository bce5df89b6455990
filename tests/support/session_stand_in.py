"""Stand-in for a Spark session, as far as the checks look at one: settings, and classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zero_rename.s3a.hadoop.settings import S3ASettings

CIRCUMSTANCES = {"committer": "magic", "destination": "s3a://bucket/t", "save_mode": "append"}


class Session:
    """Holds what it is given, and is no other, whatever both hold."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


class Conf:
    """A session's settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.getAll = settings

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.getAll.get(key, default)


class Hadoop:
    """Hadoop's configuration, as py4j shows it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def get(self, key: str) -> str | None:
        return self.settings.get(key)

    def getPassword(self, key: str) -> list[str] | None:
        found = self.settings.get(key)
        return None if found is None else list(found)

    def getPropsWithPrefix(self, prefix: str) -> dict[str, str]:
        return {
            key.removeprefix(prefix): value
            for key, value in self.settings.items()
            if key.startswith(prefix)
        }


def session(
    sql: dict[str, str],
    hadoop: dict[str, str] | None = None,
    missing: tuple[str, ...] = (),
    version: str = "3.5.0",
) -> Any:
    """A session on a Hadoop of a version; one of Spark Connect where that one's configuration is
    ``None``."""
    given: dict[str, Any] = {"conf": Conf({"spark.master": "local[2]", **sql}), "version": "4.3.0"}
    if hadoop is None:
        return Session(**given)
    loads = SimpleNamespace(classIsLoadable=lambda name: name not in missing)
    info = SimpleNamespace(getVersion=lambda: version)
    classes = {"org.apache.spark.util.Utils": loads, "org.apache.hadoop.util.VersionInfo": info}
    jvm = SimpleNamespace(**classes)
    configuration = Hadoop(hadoop)
    context = SimpleNamespace(
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: configuration),
        _jvm=jvm,
        getConf=lambda: SimpleNamespace(getAll=lambda: list(sql.items())),
    )
    return Session(**given, _jsparkSession=object(), sparkContext=context)


def configured(**changes: str) -> tuple[dict[str, str], dict[str, str]]:
    """Spark's and Hadoop's settings of magic, with changes by Hadoop's names."""
    conf = S3ASettings("magic").spark_conf()  # type: ignore[arg-type]
    hadoop = {k.removeprefix("spark.hadoop."): v for k, v in conf.items() if "hadoop." in k[:13]}
    return conf, hadoop | {key.replace("__", "."): value for key, value in changes.items()}
