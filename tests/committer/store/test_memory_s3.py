"""The S3 of the test's own process answers boto3's clients as servers do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from torture.servers import of_moto, of_server

from support.memory_s3 import MemoryS3
from support.moto_server import S3Server
from support.shared_servers import shared_server

#: What must be alike. Owners, checksums and request ids are each store's own; and stores differ in
#: an If-Match of an object that is not there, which is therefore not asked for.
_COMPARED = ("ETag", "ContentLength", "ContentRange", "Metadata", "IsTruncated", "KeyCount")


def described(answer: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {name: answer[name] for name in _COMPARED if name in answer}
    if "Body" in answer:
        said["body"] = answer["Body"].read()
    for name, key in (("Contents", "Key"), ("CommonPrefixes", "Prefix"), ("Uploads", "Key")):
        said |= {name: [it[key] for it in answer[name]]} if answer.get(name) else {}
    if "Parts" in answer:
        said["Parts"] = [(it["PartNumber"], it["ETag"], it["Size"]) for it in answer["Parts"]]
    for name in ("CopyObjectResult", "CopyPartResult"):
        said |= {name: answer[name]["ETag"].strip('"')} if answer.get(name) else {}
    return said


def answers(client: Any) -> list[Any]:
    """What a store says to a fixed run of requests."""
    bucket, told = f"alike-{uuid.uuid4().hex}", list[Any]()
    client.create_bucket(Bucket=bucket)

    def ask(call: Callable[..., Any], **given: Any) -> Any:
        try:
            answer = call(Bucket=bucket, **given)
        except ClientError as error:
            said: Any = error.response
            status = said["ResponseMetadata"]["HTTPStatusCode"]
            told.append((call.__name__, said["Error"]["Code"], status))
            return {}
        assert answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        told.append((call.__name__, described(answer)))
        return answer

    first = ask(client.put_object, Key="a/1", Body=b"0123456789", Metadata={"job": "one"})
    ask(client.put_object, Key="a/1", Body=b"x", IfNoneMatch="*")
    ask(client.put_object, Key="a/1", Body=b"x", IfMatch="0" * 32)
    ask(client.put_object, Key="a/2", Body=b"", IfNoneMatch="*")
    ask(client.get_object, Key="a/1")
    ask(client.get_object, Key="a/1", Range="bytes=2-4")
    ask(client.get_object, Key="a/1", Range="bytes=20-24")
    ask(client.get_object, Key="a/1", IfMatch=first["ETag"])
    ask(client.get_object, Key="a/1", IfMatch=f'"{"0" * 32}"')
    ask(client.get_object, Key="a/none")
    ask(client.head_object, Key="a/1")
    ask(client.head_object, Key="a/none")
    copied = {"Bucket": bucket, "Key": "a/1"}
    ask(client.copy_object, Key="b/1", CopySource=copied, MetadataDirective="REPLACE")
    ask(client.head_object, Key="b/1")
    ask(client.list_objects_v2, Prefix="")
    ask(client.list_objects_v2, Prefix="a/", Delimiter="/")
    ask(client.list_objects_v2, Prefix="", Delimiter="/")
    ask(client.list_objects_v2, Prefix="c/")
    two = ask(client.create_multipart_upload, Key="c/1", Metadata={"job": "two"})["UploadId"]
    part = {"Key": "c/1", "UploadId": two}
    big = b"p" * (5 * 1024 * 1024)
    etags = [
        ask(client.upload_part, PartNumber=1, Body=big, **part)["ETag"],
        ask(
            client.upload_part_copy,
            PartNumber=2,
            CopySource=copied,
            CopySourceRange="bytes=0-4",
            **part,
        )["CopyPartResult"]["ETag"],
    ]
    ask(client.list_parts, **part)
    ask(client.list_multipart_uploads)
    ask(client.get_object, Key="c/1")
    ask(client.upload_part, Key="c/1", UploadId="none", PartNumber=1, Body=b"x")
    parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)]
    ask(client.complete_multipart_upload, MultipartUpload={"Parts": parts}, **part)
    told[-1][1].pop("ETag")  # Ceph's answer has none; the object does.
    ask(client.head_object, Key="c/1")
    three = ask(client.create_multipart_upload, Key="c/2")["UploadId"]
    ask(client.abort_multipart_upload, Key="c/2", UploadId=three)
    ask(client.list_multipart_uploads)
    ask(client.delete_object, Key="a/1")
    ask(client.delete_object, Key="a/1")
    named = [{"Key": "a/2"}, {"Key": "a/none"}, {"Key": "b/1"}]
    ask(client.delete_objects, Delete={"Objects": named, "Quiet": True})
    ask(client.list_objects_v2, Prefix="")
    bucket = "no-such-bucket"
    ask(client.get_object, Key="a/1")
    ask(client.list_objects_v2, Prefix="")
    return told


@pytest.fixture(params=["moto", "ceph"])
def served(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "moto":
        server: S3Server = request.getfixturevalue("s3_server")
        return of_moto(server).client()
    return of_server(shared_server(request.config, request.param)).client()


def test_it_answers_as_servers_do(served: Any, memory_s3: MemoryS3) -> None:
    for here, there in zip(answers(memory_s3.client()), answers(served), strict=True):
        assert here == there


def test_pages(memory_s3: MemoryS3) -> None:
    client = memory_s3.client()
    client.create_bucket(Bucket="pages")
    for n in range(250):
        client.put_object(Bucket="pages", Key=f"{n:03}", Body=b"")
        client.create_multipart_upload(Bucket="pages", Key=f"{n:03}")
    for listing, entries in (
        ("list_objects_v2", "Contents"),
        ("list_multipart_uploads", "Uploads"),
    ):
        pages = list(client.get_paginator(listing).paginate(Bucket="pages"))
        assert len(pages) == 3
        keys = [it["Key"] for page in pages for it in page[entries]]
        assert keys == [f"{n:03}" for n in range(250)]


def test_other_endpoints_are_not_answered_here(s3_server: S3Server, memory_s3: MemoryS3) -> None:
    memory_s3.client().create_bucket(Bucket="here")
    assert memory_s3.client().list_buckets()["Buckets"] == [{"Name": "here"}]
    assert "here" not in {it["Name"] for it in s3_server.client().list_buckets()["Buckets"]}
