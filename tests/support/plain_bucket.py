"""What tests ask of a bucket besides the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlainBucket:
    """A bucket nobody else uses."""

    name: str
    client: Any

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=prefix
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=body)

    def uploads(self, prefix: str = "") -> list[str]:
        listed = self.client.list_multipart_uploads(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for entry in listed.get("Uploads", ())]
