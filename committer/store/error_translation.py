"""Translation of a store's errors: a refusal with a remedy, an unreachable store, or an answer.

Messages are this package's. For known refusals the server's own message is left out: the one of
``SignatureDoesNotMatch`` quotes the signed request. For an unknown refusal the store's sentence is
shown, since it alone gives the reason.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Any

from botocore import exceptions as boto

from ..errors import (
    InvalidInputError,
    StoreFullError,
    StoreRefusedError,
    StoreUnreachableError,
    ZeroRenameError,
)
from .retries import Trouble

_CREDENTIALS = (
    "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role of this host, "
    "and that they belong to this endpoint."
)
_EXPIRED = (
    "Renew the session (aws sso login, or a fresh AWS_SESSION_TOKEN) and run again. Keys that "
    "Airflow has handed over of a role are not renewed: give the application's machines a role "
    "(pass_credentials=False), or raise DurationSeconds in the connection's assume_role_kwargs."
)
_RIGHTS = (
    "Grant s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, "
    "s3:ListBucketMultipartUploads and s3:AbortMultipartUpload on the table's prefix; without "
    "s3:ListBucket even a missing key looks like a refusal. Where a KMS key is in use, grant "
    "kms:GenerateDataKey and kms:Decrypt on it. Where these rights are there, the bucket's policy "
    "may demand an encryption: zero-rename doctor names it."
)
#: Remedies for requests that need other rights than the rest.
_RIGHTS_OF = {
    "PutLifecycleRule": "Grant s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration on "
    "the bucket; or have whoever may change its rules add the one that zero-rename lifecycle "
    "prints.",
    "ListParts": "Grant s3:ListMultipartUploadParts on the table's prefix; or do without the sizes "
    "of uploads: zero-rename uploads list --no-sizes.",
}
_MAKE_ROOM = (
    "Make room, or have the quota raised. Uploads that nobody will complete take room too: "
    "zero-rename doctor names them, zero-rename purge --apply aborts them, which needs none."
)
_REGION = (
    "Set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL to its endpoint; in Airflow "
    "region_name or endpoint_url of the AWS connection."
)

#: By S3 error code: its meaning and the remedy. These codes are about the request, never about the
#: key's state, so no step of the protocol can go on after one.
_REFUSALS: dict[str, tuple[str, str]] = {
    "InvalidAccessKeyId": ("the access key is unknown to it", _CREDENTIALS),
    "SignatureDoesNotMatch": ("the secret key does not fit the access key", _CREDENTIALS),
    "InvalidSecurity": ("the credentials are not valid", _CREDENTIALS),
    "AccessDenied": ("these credentials lack a right", _RIGHTS),
    "AllAccessDisabled": ("all access to the bucket is disabled", _RIGHTS),
    "AccountProblem": ("there is a problem with the account", "Ask the store's operator."),
    "NoSuchBucket": (
        "there is no such bucket",
        "Create the bucket, or correct the table's root. If this is the wrong store, correct "
        "AWS_ENDPOINT_URL, or in Airflow endpoint_url of the AWS connection.",
    ),
    "InvalidBucketName": ("the bucket's name is not valid there", "Correct the table's root."),
    "ExpiredToken": ("the session token has expired", _EXPIRED),
    "ExpiredTokenException": ("the session token has expired", _EXPIRED),
    "TokenRefreshRequired": ("the session token must be renewed", _EXPIRED),
    "InvalidToken": ("the session token is not valid", _EXPIRED),
    "RequestExpired": ("the request was dated too long ago", "Set this host's clock."),
    "RequestTimeTooSkewed": ("this host's clock is wrong", "Set this host's clock."),
    "PermanentRedirect": ("the bucket is in another region", _REGION),
    "AuthorizationHeaderMalformed": ("the request was signed for another region", _REGION),
    "IllegalLocationConstraintException": ("the bucket is in another region", _REGION),
}
_ARCHIVED = (
    "the object lies in an archive, where it cannot be read at once",
    "Restore it (aws s3api restore-object), and exclude the table's prefix from the lifecycle rule "
    "that moved it: zero-rename doctor names the rule.",
)
_REFUSALS |= {"InvalidObjectState": _ARCHIVED}
#: Codes for a used up quota of the bucket, its user or the server: the first is Ceph's, with 403;
#: the others are MinIO's, with 507 and 400.
_FULL = ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded")
_REFUSALS |= dict.fromkeys(_FULL, ("the store is full: a quota is used up", _MAKE_ROOM))
#: Statuses that have one meaning, with any code of the store.
_CODES = {412: "PreconditionFailed", 416: "InvalidRange"}
_BY_STATUS = {401: "InvalidSecurity", 403: "AccessDenied", 301: "PermanentRedirect"}

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
    boto.SSOTokenLoadError,
    boto.NoAuthTokenError,
)
#: Operations by which boto3 gets a client's keys, within a request of the client.
_OF_ROLES = {"AssumeRole", "AssumeRoleWithWebIdentity", "AssumeRoleWithSAML", "GetRoleCredentials"}
_NOT_SENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
#: 4xx answers after which the request may still have been carried out, or be tried again.
_THROTTLING = {"SlowDown", "TooManyRequests", "Throttling", "RequestLimitExceeded"}
_THROTTLING |= {"ThrottlingException", "KMS.ThrottlingException"}
_UNSURE_CODES = {"RequestTimeout", "ServiceUnavailable"} | _THROTTLING


#: Statuses of requests that can never be carried out.
_FINAL = {400, 403, 405, 411, 413}
#: Exceptions: answers about the key's state, about bytes damaged on their way, or about a condition
#: that the store does not know. The steps that sent the request go on after them.
_ANSWER_CODES = {
    *("BadDigest", "IncompleteBody", "InvalidDigest", "XAmzContentSHA256Mismatch"),
    *("InvalidPart", "InvalidPartOrder", "EntityTooSmall", "NoSuchKey", "NoSuchUpload"),
    *("PreconditionFailed", "ConditionalRequestConflict", "InvalidRange", "NotImplemented"),
}
#: Codes of a store that does not know the conditions of a write.
_UNKNOWN_CONDITION = {"InvalidArgument", "MethodNotAllowed"}
#: Words of sentences that may quote a signed request.
_SECRETIVE = re.compile(r"(?i)sign|secret|token|credential|access.?key")


def code_of(error: boto.ClientError) -> str:
    """Return the S3 error code; for a HEAD, whose answer has no body, from the status."""
    code = str(error.response.get("Error", {}).get("Code") or "")
    status = status_of(error)
    if status in _CODES:
        return _CODES[status]
    if code.isdigit() or not code:
        return _BY_STATUS.get(status, code or str(status))
    return code


def status_of(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def date_of(answer: Any) -> float:
    """Return the Date header in Unix seconds; 0.0: missing.

    With 0.0 every age is negative, so nothing is ever taken for old.
    """
    header = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(header).timestamp()
    except (TypeError, ValueError):
        return 0.0


def is_unsure(error: boto.ClientError) -> bool:
    """Return whether the outcome is unknown after this answer: 5xx, throttling, a broken upload."""
    status = status_of(error)
    if status == 501 or code_of(error) in _FULL:
        return False
    return status >= 500 or status in (408, 429, 0) or code_of(error) in _UNSURE_CODES


def refusal_of(error: Exception, endpoint: str, bucket: str, request: Any) -> Exception | None:
    """Build the error that ends the step; ``None``: the request's own answer reports it.

    :param endpoint: URL of the endpoint, without user or password.
    """
    context: dict[str, Any] = {"key": getattr(request, "key", None)}
    asked = f"{type(request).__name__} in bucket {bucket!r} at {endpoint}"
    if isinstance(error, boto.ClientError):
        code = code_of(error)
        if error.operation_name in _OF_ROLES and not is_unsure(error):
            return StoreRefusedError(
                f"No usable credentials for {asked}: {error.operation_name} was refused "
                f"({describe(error)}). Nothing was sent to the store.",
                remedy=f"The identity that asks must be allowed to assume the role. {_CREDENTIALS}",
                **context,
            )
        known = _REFUSALS.get(code)
        if known is None and status_of(error) in _BY_STATUS and not is_unsure(error):
            known = _REFUSALS[_BY_STATUS[status_of(error)]]
        if known is None:
            return None
        meaning, remedy = known
        if known is _REFUSALS["AccessDenied"]:
            remedy = _RIGHTS_OF.get(type(request).__name__, remedy)
        said = f"The store refused {asked}: {meaning} ({code}). That request did nothing."
        if code in _FULL:
            return StoreFullError(said, remedy=remedy, **context)
        return StoreRefusedError(
            said,
            lacks_right=known is _REFUSALS["AccessDenied"],
            no_bucket=code == "NoSuchBucket",
            no_keys=remedy is _CREDENTIALS,
            remedy=remedy,
            **context,
        )
    if isinstance(error, _NO_CREDENTIALS):
        return StoreRefusedError(
            f"No usable credentials for {asked} ({type(error).__name__}). Nothing was sent.",
            no_keys=True,
            remedy=_CREDENTIALS,
            **context,
        )
    if isinstance(error, boto.ParamValidationError):
        reason = " ".join(str(error).split())
        return InvalidInputError(f"{asked} is not a request S3 can take: {reason}", **context)
    return None


def final_refusal(
    error: Exception, endpoint: str, bucket: str, request: Any, *, conditional: bool
) -> StoreRefusedError | None:
    """Build the error for a request that would be refused again in any state of its key.

    ``None``: another answer.

    :param endpoint: URL of the endpoint, without user or password.
    :param conditional: the request has a condition, which the store may not know.
    """
    if not isinstance(error, boto.ClientError) or is_unsure(error):
        return None
    code = code_of(error)
    unknown_condition = conditional and code in _UNKNOWN_CONDITION
    if status_of(error) not in _FINAL or code in _ANSWER_CODES or unknown_condition:
        return None
    remedy = (
        "Mend what the store says: the bucket's settings (Object Lock, encryption, policy) "
        "or the job's options. zero-rename doctor looks at the bucket."
    )
    if code == "400":
        # The answer to a HEAD has no body, and so no code.
        remedy = (
            "The store gives no reason for it. AWS answers so where the session has expired, or "
            f"the bucket is in another region. {_EXPIRED} {_REGION}"
        )
    return StoreRefusedError(
        f"The store refused {type(request).__name__} in bucket {bucket!r} at {endpoint} for good "
        f"({describe(error)}){_sentence(error)} That request did nothing, and would be refused "
        "again.",
        key=getattr(request, "key", None),
        remedy=remedy,
    )


def demands_digest(error: Exception) -> bool:
    """Return whether a write was refused for lack of a checksum, as in a bucket with Object Lock.

    S3 and MinIO have different codes for this.
    """
    if not isinstance(error, boto.ClientError) or status_of(error) != 400:
        return False
    said = str(error.response.get("Error", {}).get("Message") or "")
    code = code_of(error)
    return code == "MissingContentMD5" or (code == "InvalidRequest" and "Content-MD5" in said)


def _sentence(error: boto.ClientError) -> str:
    """Return the store's message as one line; only a full stop if it may hold secrets."""
    said = " ".join(str(error.response.get("Error", {}).get("Message") or "").split())
    if not said or _SECRETIVE.search(said):
        return "."
    return f": {said[:300].rstrip('.')}."


def trouble_of(error: Exception) -> Trouble | None:
    """Return why a request got no usable answer; ``None``: it got one, though an error."""
    if isinstance(error, boto.ClientError):
        if not is_unsure(error):
            return None
        slow = status_of(error) == 429 or code_of(error) in _THROTTLING
        # A HEAD's answer has no code, and 503 is what S3 throttles with.
        return Trouble.THROTTLED if slow or status_of(error) == 503 else Trouble.FAILED
    return Trouble.UNREACHED if was_not_sent(error) else Trouble.UNANSWERED


def is_lasting(error: Exception) -> bool:
    """Return whether another try cannot help.

    The host does not trust the store's certificate, or cannot read its file of trusted ones.
    """
    return isinstance(error, boto.SSLError) and was_not_sent(error)


def was_not_sent(error: Exception) -> bool:
    """Return whether there was no connection, so the request cannot have been carried out."""
    if isinstance(error, boto.SSLError):
        told = str(error)
        failed = "CERTIFICATE_VERIFY_FAILED" in told or "WRONG_VERSION_NUMBER" in told
        return failed or lacks_certificates(error)
    return isinstance(error, _NOT_SENT)


def lacks_certificates(error: Exception) -> bool:
    """Return whether the file of trusted certificates cannot be read, or is empty."""
    if not isinstance(error, boto.SSLError):
        return False
    given = error.kwargs.get("error")
    causes = (given, *getattr(given, "args", ()))  # urllib3's error holds the system's error.
    unread = (FileNotFoundError, IsADirectoryError, PermissionError)
    return any(isinstance(it, unread) for it in causes) or "NO_CERTIFICATE" in str(error)


def unreachable(error: Exception, endpoint: str, bucket: str, request: Any) -> ZeroRenameError:
    """Build the error for a request without an answer.

    The request changes nothing, was never sent, or may be repeated.
    """
    cause = describe(error)
    if lacks_certificates(error):
        happened = "The CA file by which the store's certificate is checked cannot be read"
        remedy = (
            "Let verify of the AWS connection, or AWS_CA_BUNDLE, name a PEM file that this host "
            'has. In JSON, false without quotes checks no certificate; "false" is a file\'s name.'
        )
    elif was_not_sent(error):
        happened = "No connection to the store came about"
        remedy = (
            "See that the endpoint is up, and that AWS_ENDPOINT_URL, or in Airflow endpoint_url of "
            "the AWS connection, names it; for a certificate the host does not know, set "
            "AWS_CA_BUNDLE."
        )
    else:
        happened = "The store did not give a usable answer"
        remedy = "Try again once the store answers."
    return StoreUnreachableError(
        f"{happened}: {type(request).__name__} in bucket {bucket!r} at {endpoint} ({cause}). "
        "That request changed nothing that needs cleaning up.",
        key=getattr(request, "key", None),
        remedy=remedy,
    )


def describe(error: Exception) -> str:
    """Describe an error in a few words, without URLs and secrets."""
    if isinstance(error, boto.ClientError):
        status, code = str(status_of(error)), code_of(error)
        return status if code == status else f"{status} {code}"
    return type(error).__name__
