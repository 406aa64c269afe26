"""Deletes of S3 objects: one, or many in one request (DeleteObjects).

A DeleteObjects request must carry a hash of its body. botocore sends a CRC32; servers from before 2025, MinIO's among
them, want ``Content-MD5``. So a request carries both, and a server checks the one that it knows.

The answer is 200 even if some keys were not deleted. It lists them with S3's error codes, but without HTTP statuses.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.storage.stores.s3_answers import Refusal, error_of, refusal_of

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

_LACKING = {405, 501}
"""The statuses of a server that has no DeleteObjects."""
_STATUSES = {"AccessDenied": 403, "InternalError": 500, "ServiceUnavailable": 503, "OperationAborted": 503}


class S3Deletes:
    """DELETEs from `bucket`. Raises what the client raises, and errors of Tidelog for single keys of many."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)

    async def delete(self, name: str) -> None:
        await self._client.delete_object(Bucket=self._bucket, Key=name)

    async def delete_many(self, names: Sequence[str]) -> bool:
        """Delete up to 1,000 objects by one request. False: this server cannot; nothing was deleted."""
        try:
            answer = await self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True}
            )
        except ClientError as error:
            if refusal_of(error.response).status in _LACKING:
                return False
            raise
        if refused := [each for each in answer.get("Errors", ()) if each.get("Code") != "NoSuchKey"]:
            raise self._error(refused)
        return True

    def _error(self, refused: Sequence[Any]) -> TidelogError:
        """The error to raise: of a key that cannot be deleted by another try, if there is one."""
        errors = [error_of(_refusal(each), self._what(each, len(refused))) for each in refused]
        return next((error for error in errors if not isinstance(error, Unavailable)), errors[0])

    def _what(self, refused: Any, count: int) -> str:
        others = f" (and {count - 1} more of the request)" if count > 1 else ""
        return f"delete s3://{self._bucket}/{refused.get('Key', '')}{others}"


def _refusal(refused: Mapping[str, Any]) -> Refusal:
    code = str(refused.get("Code", ""))
    return Refusal(_STATUSES.get(code, 400), code, str(refused.get("Message", "")))


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    """Called by botocore with the request before it is signed."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()
