"""What an S3 answer means to the caller: a pure table from status and error code to Tidelog's errors.

412                          Conflict      the precondition did not hold
409                          Contended     another write of the key was under way; this one did nothing
404                          NoSuchObject  (a bucket that is not there is the operator's matter: Denied)
401, 403, 301, 307           Denied        credentials, permissions, the wrong region
429, 5xx, and some 400s      Unavailable   busy, broken, or the body was damaged on its way
any other 4xx                Invalid
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.storage.errors import Conflict, Contended, Denied, Invalid, NoSuchObject, TidelogError, Unavailable

RANGE_NOT_SATISFIABLE = 416

_TRANSIENT_CODES = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentChecksumMismatch", "SlowDown"}
"""Sent with status 400, though the same request may succeed when sent again."""

_CREDENTIAL_CODES = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed"}
"""Sent with status 400, though an operator has to act."""


@dataclass(frozen=True)
class Refusal:
    """An answer that is no success: the HTTP status, S3's error code and its message."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}" if self.message else f"{self.status} {self.code}"


def refusal_of(response: Mapping[str, Any]) -> Refusal:
    """From the S3 library's form of an error's answer. A HEAD's has no code, only a status."""
    told = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return Refusal(status, str(told.get("Code", "")), str(told.get("Message", "")))


def error_of(refusal: Refusal, what: str) -> TidelogError:
    """The error to raise for `refusal`; `what` says what was asked, as ``create s3://bucket/key``."""
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
