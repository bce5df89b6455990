"""What tests and the demonstration ask of a bucket besides the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlainBucket:
    """A bucket nobody else uses."""

    name: str
    client: Any

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Bytes by key."""
        paginator = self.client.get_paginator("list_objects_v2")
        pages = paginator.paginate(Bucket=self.name, Prefix=prefix)
        return {it["Key"]: it["Size"] for page in pages for it in page.get("Contents", ())}

    def keys(self, prefix: str = "") -> list[str]:
        return list(self.sizes(prefix))

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=body)

    def delete(self, prefix: str = "") -> None:
        """Delete all objects below a prefix."""
        keys = [{"Key": key} for key in self.sizes(prefix)]
        for first in range(0, len(keys), 1000):
            part = {"Objects": keys[first : first + 1000], "Quiet": True}
            self.client.delete_objects(Bucket=self.name, Delete=part)

    def uploads(self, prefix: str = "") -> list[str]:
        """Keys of the uploads under way below a prefix."""
        return [key for key, _ in self._uploads() if key.startswith(prefix)]

    def abort_uploads(self) -> None:
        for key, upload_id in self._uploads():
            self.client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload_id)

    def _uploads(self) -> list[tuple[str, str]]:
        """Of the whole bucket: MinIO lists none by a prefix."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name)
        return [(it["Key"], it["UploadId"]) for page in pages for it in page.get("Uploads", ())]
