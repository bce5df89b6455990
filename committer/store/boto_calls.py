"""Calls of boto3 for the protocol's requests; boto3's answers become those of :mod:`.requests`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from ..errors import InvalidInputError, StoreRefusedError
from . import requests as store
from .clients import S3Clients, content_md5
from .copies import CopyFile, CopyPart, copy, object_options
from .encryption import Encryption
from .error_translation import (
    code_of,
    date_of,
    demands_digest,
    describe,
    final_refusal,
    is_lasting,
    is_unsure,
    refusal_of,
    status_of,
    trouble_of,
    unreachable,
)
from .lifecycle import LifecycleRule, configuration_of, in_older_form
from .listing import decoded_keys
from .quick_aborts import QuickAborts
from .retries import RetryBudget, Trouble
from .tiering import tierings_of
from .upload_parts import PartBody

_GONE = {"NoSuchKey", "404", "NotFound"}
#: Error codes of stores for an upload that does not exist.
_NO_UPLOAD = {"NoSuchUpload", "404", "NotFound", "NoSuchKey"}
_CHECKSUMS = {"CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"}
_REFUSED_READS = {"PreconditionFailed", "InvalidRange"}
#: Requests that change the store, so it matters whether they were carried out.
_CHANGES = (
    *(store.Put, store.Delete, store.DeleteMany, store.CompleteUpload, store.AbortUpload),
    store.PutLifecycleRule,
)
#: Requests for advice only. Their failure ends no step: the answer is then *unknown*.
_ADVICE = (store.ListLifecycleRules, store.ListTieringRules, store.DefaultEncryption)
#: Requests that their callers send again by themselves, or can do without.
_ASKED_AGAIN = (store.AbortUpload, *_ADVICE)
_USUAL, _BRIEF = RetryBudget(), RetryBudget(total=20.0, tries=4)
#: Requests that write data that is not read yet: sent again until they are answered.
_DATA = (store.PutFile, store.UploadPart, CopyFile, CopyPart)
#: Requests whose callers cannot go on after a final refusal.
_PLAIN = (*_DATA, store.Put, store.CreateUpload, store.Get, store.Head, store.ListObjects)
#: Errors of a call: an S3 error, boto3's own, or a body that breaks off.
FAILURES = (ClientError, BotoCoreError, HTTPError)


class S3Requests:
    """Sender of single requests, in the calling thread. May be used by many threads.

    :mod:`.requests` says which requests are sent again after a trouble
    (:class:`.retries.Trouble`). The :class:`.retries.ConcurrencyLimit` bounds the number of
    requests under way.

    :param bucket: the one bucket of all keys.
    :param clock: the monotonic clock, in seconds.
    :param budget: how long a request is repeated; ``None``: the usual budget.
    """

    def __init__(
        self,
        bucket: str,
        clients: S3Clients,
        clock: Callable[[], float],
        budget: RetryBudget | None = None,
    ) -> None:
        self.bucket = bucket
        self.clients = clients
        self._budget = budget
        self._client = clients.client
        self._clock = clock
        #: Set by the first write that was refused without a checksum.
        self._sends_digests = False
        self._calls: dict[type, Callable[[Any], Any]] = {
            store.Get: self._get,
            store.Head: self._head,
            store.Put: self._put,
            store.Delete: self._delete,
            store.DeleteMany: self._delete_many,
            store.ListObjects: self._list_objects,
            store.ListUploads: self._list_uploads,
            store.ListParts: self._list_parts,
            store.ListLifecycleRules: self._list_lifecycle_rules,
            store.ListTieringRules: lambda _: tuple(tierings_of(self._client, bucket)),
            store.PutLifecycleRule: self._put_lifecycle_rule,
            store.DefaultEncryption: self._default_encryption,
            store.PutFile: self._put_file,
            CopyFile: partial(copy, clients.client, bucket),
            CopyPart: partial(copy, clients.client, bucket),
            store.CreateUpload: self._create_upload,
            store.UploadPart: self._upload_part,
            store.CompleteUpload: self._complete_upload,
            store.AbortUpload: QuickAborts(bucket, clients).abort,
        }

    def carry_out(self, request: Any, pause: Callable[[float], bool]) -> Any:
        """Carry out one request, and return its answer, as :mod:`.requests` describes it.

        :param pause: waits for a number of seconds; ``False``: the answer is no longer needed.
        :raises StoreRefusedError: a missing right, or wrong credentials, bucket or region.
        :raises StoreUnreachableError: no answer to a request that may be repeated, or no connection
            for one that may not.
        """
        retries, began, sent = self.clients.retries, self._clock(), False
        tries = 0
        while True:
            tries += 1
            signed, digested = self.clients.clock.ahead, self._sends_digests
            answer, error = self._send(request)
            if error is None:
                return answer
            trouble = self._trouble(error, request)
            if trouble is None:
                if self._was_misdated(error, signed):
                    continue
                if not digested and demands_digest(error):
                    self._sends_digests = True
                    continue
                break
            sent = sent or trouble is not Trouble.UNREACHED
            if is_lasting(error) or (sent and store.is_sent_once(request)):
                break
            usual = self._budget or _USUAL
            budget = _BRIEF if isinstance(request, _ASKED_AGAIN) else usual
            wait = retries.pause(budget, began, self._clock(), tries)
            if wait is None or not pause(wait):
                break
        return self._meaning(error, request, sent)

    def _send(self, request: Any) -> tuple[Any, Exception | None]:
        """Send a request once, and return its answer, or the error that came instead."""
        retries = self.clients.retries
        turn = retries.concurrency.begin()
        trouble: Trouble | None = None
        try:
            answer, error = self._calls[type(request)](request), None
        except FAILURES as failure:
            answer, error = None, failure
            trouble = self._trouble(failure, request)
        finally:
            retries.concurrency.end(turn, throttled=trouble is Trouble.THROTTLED)
        if trouble is not None:
            retries.troubled(trouble, self._clock())
        elif error is None or isinstance(error, ClientError):
            retries.answered()
        return answer, error

    def _trouble(self, error: Exception, request: Any) -> Trouble | None:
        """Return why there is no usable answer; ``None``: answered, or refused before sending."""
        return None if self._refusal(error, request) is not None else trouble_of(error)

    def _refusal(self, error: Exception, request: Any) -> Exception | None:
        """Return the error that ends the step; ``None``: the request's own answer reports it."""
        about = (error, self.clients.endpoint, self.bucket, request)
        known = refusal_of(*about)
        if known is not None or not isinstance(request, _PLAIN):
            return known
        return final_refusal(*about, conditional=store.is_sent_once(request))

    def _was_misdated(self, error: Exception, signed: float) -> bool:
        """Return whether a request was refused for its date, and the clock is corrected now.

        The status is tested, since the refusal of a HEAD has no code.
        """
        if not isinstance(error, ClientError) or status_of(error) != 403:
            return False
        return self.clients.clock.heed(date_of(error.response), signed)

    def _meaning(self, error: Exception, request: Any, sent: bool) -> Any:
        """Convert the last error to the request's answer, or raise the error that ends the step.

        :param sent: a try of the request may have reached the store.
        """
        endpoint = self.clients.endpoint
        if isinstance(request, _ADVICE):
            return store.Unknown(describe(error))
        refusal = self._refusal(error, request)
        if refusal is not None:
            raise refusal from error
        if isinstance(error, ClientError) and not is_unsure(error):
            if isinstance(request, store.DeleteMany):
                return store.Deleted({key: code_of(error) for key, _ in request.items})
            if isinstance(request, (*_CHANGES, *_DATA)):
                return store.Refused(code_of(error))
        elif isinstance(request, _CHANGES) and (sent or not store.is_sent_once(request)):
            return store.Unknown(describe(error))
        raise unreachable(error, endpoint, self.bucket, request) from error

    def _digest(self, body: bytes | memoryview) -> dict[str, Any]:
        """Return the checksum of a body, if the bucket has refused a body without one."""
        return {"ContentMD5": content_md5(body)} if self._sends_digests else {}

    def _get(self, request: store.Get) -> store.Found | store.Absent | store.Refused:
        options: dict[str, str] = {}
        if request.part is not None:
            options["Range"] = f"bytes={request.part.first}-{request.part.last}"
        if request.if_match is not None:
            # Quoted, unlike the ETags of writes: stores differ over quotes only in conditions of
            # PUT.
            options["IfMatch"] = f'"{request.if_match}"'
        try:
            answer = self._client.get_object(Bucket=self.bucket, Key=request.key, **options)
        except ClientError as error:
            code = code_of(error)
            if code in _GONE:
                return store.Absent(date_of(error.response))
            if code in _REFUSED_READS:
                return store.Refused(code)
            raise
        return _found(request.key, answer, _body(answer, request))

    def _head(self, request: store.Head) -> store.Found | store.Absent:
        try:
            answer = self._client.head_object(Bucket=self.bucket, Key=request.key)
        except ClientError as error:
            if code_of(error) in _GONE:
                return store.Absent(date_of(error.response))
            raise
        return _found(request.key, answer, b"")

    def _put(self, request: store.Put) -> store.Done:
        given = _condition(request.if_match, request.if_none_match)
        given |= {"Body": request.body, "ContentType": request.content_type}
        given |= self._digest(request.body)
        given |= {} if request.encryption is None else request.encryption.arguments
        answer = self._client.put_object(Bucket=self.bucket, Key=request.key, **given)
        return _done(answer)

    def _delete(self, request: store.Delete) -> store.Done:
        conditions = _condition(request.if_match, False)
        try:
            answer = self._client.delete_object(Bucket=self.bucket, Key=request.key, **conditions)
        except ClientError as error:
            if code_of(error) in _GONE:
                return store.Done()
            raise
        return store.Done(date=date_of(answer))

    def _delete_many(self, request: store.DeleteMany) -> store.Deleted:
        if not request.items:
            return store.Deleted()
        objects = [{"Key": k, **({"ETag": e} if e else {})} for k, e in request.items]
        answer = self._client.delete_objects(
            Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True}
        )
        failed = {e.get("Key", ""): e.get("Code", "") for e in answer.get("Errors", ())}
        return store.Deleted({k: code for k, code in failed.items() if code not in _GONE})

    def _list_objects(self, request: store.ListObjects) -> store.ObjectPage:
        options = {"Delimiter": "/"} if request.delimiter else {}
        if request.token is not None:
            options["ContinuationToken"] = request.token
        elif request.after is not None:
            options["StartAfter"] = request.after
        answer = self._client.list_objects_v2(Bucket=self.bucket, Prefix=request.prefix, **options)
        objects = tuple(
            store.ListedObject(
                entry["Key"],
                entry["ETag"].strip('"'),
                entry["Size"],
                entry["LastModified"].timestamp(),
                _class_of(entry),
            )
            for entry in answer.get("Contents", ())
        )
        prefixes = tuple(entry["Prefix"] for entry in answer.get("CommonPrefixes", ()))
        token = answer.get("NextContinuationToken") if answer.get("IsTruncated") else None
        return store.ObjectPage(objects, prefixes, token, date_of(answer))

    def _list_uploads(self, request: store.ListUploads) -> store.UploadPage:
        """List one page. With a store that pages badly an upload may come twice; none is skipped.

        versitygw refuses an UploadIdMarker. A KeyMarker alone would skip the other uploads of the
        marker's own key, and attempts of a task share their keys. So the marker is shortened by one
        character, and that key comes again.
        """
        # boto3 asks for encoded keys in listings of objects by itself, but not here. A key with a
        # control character would make the answer invalid XML.
        options: dict[str, Any] = {"EncodingType": "url"}
        if request.prefix:
            options["Prefix"] = request.prefix
        if request.marker is None:
            answer = self._client.list_multipart_uploads(Bucket=self.bucket, **options)
        else:
            key, upload_id = request.marker
            try:
                answer = self._client.list_multipart_uploads(
                    Bucket=self.bucket, KeyMarker=key, UploadIdMarker=upload_id, **options
                )
            except ClientError as error:
                if code_of(error) not in ("InvalidArgument", "NotImplemented"):
                    raise
                answer = self._client.list_multipart_uploads(
                    Bucket=self.bucket, KeyMarker=key[:-1], **options
                )
                if answer.get("IsTruncated") and decoded_keys(answer, request.prefix)[1] <= key:
                    raise
        keys, following = decoded_keys(answer, request.prefix)
        uploads = tuple(
            store.ListedUpload(key, entry["UploadId"], entry["Initiated"].timestamp() // 1)
            for key, entry in zip(keys, answer.get("Uploads", ()), strict=True)
        )
        marker = _next_uploads(answer, following, request.marker)
        return store.UploadPage(uploads, marker, date_of(answer))

    def _list_parts(self, request: store.ListParts) -> store.PartsPage | store.Refused:
        after = {} if request.marker is None else {"PartNumberMarker": request.marker}
        try:
            answer = self._client.list_parts(
                Bucket=self.bucket, Key=request.key, UploadId=request.upload_id, **after
            )
        except ClientError as error:
            if code_of(error) in _NO_UPLOAD:
                return store.Refused("NoSuchUpload")
            raise
        sizes = [int(part.get("Size", 0)) for part in answer.get("Parts", ())]
        following = int(answer.get("NextPartNumberMarker") or 0)
        more = answer.get("IsTruncated") and following and following != request.marker
        return store.PartsPage(len(sizes), sum(sizes), following if more else None)

    def _list_lifecycle_rules(self, request: store.ListLifecycleRules) -> store.LifecycleRules:
        rules = configuration_of(self._client, self.bucket).rules
        enabled = (rule for rule in rules if rule.get("Status") == "Enabled")
        return store.LifecycleRules(tuple(LifecycleRule.of(rule) for rule in enabled))

    def _put_lifecycle_rule(self, request: store.PutLifecycleRule) -> store.Done:
        own = request.rule.document()
        former = configuration_of(self._client, self.bucket)
        others = [it for it in former.rules if it.get("ID") != own["ID"]]
        try:
            answer = self._client.put_bucket_lifecycle_configuration(
                Bucket=self.bucket,
                LifecycleConfiguration={"Rules": [*others, own]},
                **former.defaults,
            )
        except ClientError as error:
            older = in_older_form(others)
            if not older or is_unsure(error) or status_of(error) != 400:
                raise
            raise StoreRefusedError(
                f"The bucket {self.bucket!r} has lifecycle rules of the older form, with Prefix "
                f"outside of Filter ({', '.join(map(repr, older))}), and the store takes no rule "
                f"beside them ({describe(error)}). Nothing was changed.",
                remedy="Write those rules anew with Filter, and run this again; or put the rule "
                "that is printed without --apply into the bucket by hand.",
            ) from error
        return _done(answer)

    def _default_encryption(self, request: store.DefaultEncryption) -> Encryption | None:
        answer = self._client.get_bucket_encryption(Bucket=self.bucket)
        rules = answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", ())
        default = next(iter(rules), {}).get("ApplyServerSideEncryptionByDefault", {})
        return Encryption.of_default(default)

    def _put_file(self, request: store.PutFile) -> store.Done:
        given = object_options(request.settings) | {"Body": PartBody(request.body)}
        given |= self._digest(request.body)
        return _done(self._client.put_object(Bucket=self.bucket, Key=request.key, **given))

    def _create_upload(self, request: store.CreateUpload) -> store.Created:
        names = {"Bucket": self.bucket, "Key": request.key}
        made = self._client.create_multipart_upload(**names, **object_options(request.settings))
        return store.Created(made["UploadId"])

    def _upload_part(self, request: store.UploadPart) -> store.Done:
        part = {"UploadId": request.upload_id, "PartNumber": request.number}
        part |= self._digest(request.body)
        answer = self._client.upload_part(
            Bucket=self.bucket, Key=request.key, Body=PartBody(request.body), **part
        )
        return _done(answer)

    def _complete_upload(self, request: store.CompleteUpload) -> store.Done:
        # Quoted, as every client sends them here; stores differ over quotes only in If-Match.
        parts = [
            {"PartNumber": number, "ETag": f'"{etag}"', **_checksum(said)}
            for number, (etag, said) in enumerate(
                zip_longest(request.etags, request.checksums, fillvalue=""), start=1
            )
        ]
        answer = self._client.complete_multipart_upload(
            Bucket=self.bucket,
            Key=request.key,
            UploadId=request.upload_id,
            MultipartUpload={"Parts": parts},
        )
        return _done(answer)


def _checksum(said: str) -> dict[str, str]:
    """Return a part's checksum as an argument of boto3; empty for an unknown algorithm."""
    algorithm, _, value = said.partition(" ")
    name = algorithm.upper().replace("_", "")
    return {f"Checksum{name}": value} if name in _CHECKSUMS else {}


def _condition(if_match: str | None, if_none_match: bool) -> dict[str, Any]:
    if if_match is not None and (if_none_match or not if_match.strip('"')):
        raise InvalidInputError("A write takes one condition, and an ETag that is not empty.")
    if if_match is not None:
        # Without quotes: Ceph RGW and DigitalOcean refuse the quoted form with 412; AWS, MinIO,
        # moto and versitygw accept both (versity/versitygw#1715, block/buzz#3002).
        return {"IfMatch": if_match.strip('"')}
    return {"IfNoneMatch": "*"} if if_none_match else {}


def _class_of(entry: Any) -> str | None:
    """Return the storage class of a listed object, as one shared text for many objects."""
    said = entry.get("StorageClass")
    return None if said in (None, "STANDARD") else sys.intern(said)


def _found(key: str, answer: dict[str, Any], body: bytes) -> store.Found:
    return store.Found(
        key,
        answer.get("ETag", "").strip('"'),
        _size(answer),
        answer["LastModified"].timestamp(),
        date_of(answer),
        body,
        # Names are parts of headers, whose case does not count: stores and proxies change it.
        {name.lower(): value for name, value in answer.get("Metadata", {}).items()},
        Encryption.of_answer(answer),
    )


def _body(answer: dict[str, Any], request: store.Get) -> bytes:
    stream = answer["Body"]
    if request.part is not None or answer["ContentLength"] <= request.most:
        return stream.read()
    try:
        return stream.read(request.most + 1)
    finally:
        stream.close()  # The rest is never read.


def _size(answer: dict[str, Any]) -> int:
    """Return the bytes of the whole object; an answer with a part has them in Content-Range."""
    total = str(answer.get("ContentRange", "")).rpartition("/")[2]
    return int(total) if total.isdigit() else answer["ContentLength"]


def _done(answer: dict[str, Any]) -> store.Done:
    return store.Done(answer.get("ETag", "").strip('"'), date_of(answer))


def _next_uploads(
    answer: dict[str, Any], next_key: str, marker: tuple[str, str] | None
) -> tuple[str, str] | None:
    if not answer.get("IsTruncated"):
        return None
    following = (next_key, answer.get("NextUploadIdMarker") or "")
    # If a store says "truncated" without a new marker, the same page would be requested for ever.
    return following if following[0] and following != marker else None
