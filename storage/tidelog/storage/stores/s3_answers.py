"""From the status and error code of an S3 answer to an error of Tidelog.

412                          Conflict      the precondition did not hold
409                          Contended     another write of the key was under way; this one did nothing
404                          NoSuchObject  (Denied if the bucket is missing: an operator has to act)
401, 403, 301, 307           Denied        credentials, permissions, the wrong region
429, 5xx, and some 400s      Unavailable   busy, broken, or the body was damaged on the way
any other 4xx                Invalid
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.storage.errors import Conflict, Contended, Denied, Invalid, NoSuchObject, TidelogError, Unavailable

RANGE_NOT_SATISFIABLE = 416

_TRANSIENT_CODES = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentChecksumMismatch", "SlowDown"}
"""Sent with status 400, although the same request may succeed when it is sent again."""

_CREDENTIAL_CODES = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed"}
"""Sent with status 400, although an operator has to act."""


@dataclass(frozen=True)
class Refusal:
    """An unsuccessful answer: HTTP status, S3's error code, S3's message."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}" if self.message else f"{self.status} {self.code}"


def refusal_of(response: Mapping[str, Any]) -> Refusal:
    """From botocore's form of an error answer. The answer to a HEAD has a status only."""
    error = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return Refusal(status, str(error.get("Code", "")), str(error.get("Message", "")))


def error_of(refusal: Refusal, what: str) -> TidelogError:
    """The error to raise for `refusal`. `what` names the request, as in ``create s3://bucket/key``."""
    status, code = refusal.status, refusal.code
    if code == "NoSuchBucket":
        return Denied(f"{what}: there is no such bucket: create it, or correct the store's URL")
    if status == 412:
        return Conflict(f"{what}: the object is not as the write requires; read it to see whose it is")
    if status == 409:
        return Contended(f"{what}: another write of this key was under way ({refusal}): send it again")
    if status == 404:
        return NoSuchObject(f"{what}: there is no such object")
    if status in (401, 403) or code in _CREDENTIAL_CODES:
        return Denied(f"{what}: the store refused ({refusal}): check the credentials and their permissions")
    if status in (301, 307):
        return Denied(f"{what}: the bucket lies elsewhere ({refusal}): set AWS_REGION, or the endpoint")
    if status == 429 or status >= 500 or code in _TRANSIENT_CODES:
        return Unavailable(f"{what}: the store could not answer ({refusal}): try again")
    return Invalid(f"{what}: the store did not accept the request ({refusal})")
