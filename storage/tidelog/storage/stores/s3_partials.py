"""S3's unfinished multipart uploads. Tidelog's store makes none, but jobs and other tools do. If they die, their parts
stay in the bucket: no listing of objects shows them, and they are paid for.

All uploads of the bucket are listed, since MinIO takes no prefix here except a whole key. Only uploads under the
store's prefix whose keys Tidelog writes (`layout.is_own_key`) are reported, so that a store without a prefix leaves the
uploads of other applications alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidelog.storage.errors import NotFound
from tidelog.storage.layout import is_own_key
from tidelog.storage.stores.partial_uploads import PartialUpload

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

T = TypeVar("T")


class Ask(Protocol):
    """Sends one request to the store. A failure is raised as an error of Tidelog."""

    async def __call__(self, verb: str, key: str, ask: Callable[[S3Client], Awaitable[T]]) -> T: ...


class S3PartialUploads:
    """Implements `PartialUploads` for Tidelog's own keys under `prefix` of `bucket`."""

    def __init__(self, ask: Ask, bucket: str, prefix: str) -> None:
        self._ask = ask
        self._bucket = bucket
        self._prefix = prefix

    async def pending(self) -> AsyncIterator[PartialUpload]:
        """Takes one request per thousand uploads, and one per upload of Tidelog's."""
        key_marker = id_marker = ""
        while True:
            page, key_marker, id_marker = await self._page(key_marker, id_marker)
            for name, upload_id, begun_ms in page:
                if self._is_own(name) and (upload := await self._described(name, upload_id, begun_ms)):
                    yield upload
            if not key_marker:
                return

    async def abort(self, upload: PartialUpload) -> None:
        async def abort(client: S3Client) -> None:
            name = self._prefix + upload.key
            await client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload.upload_id)

        try:
            await self._ask("abort", upload.key, abort)
        except NotFound:
            return

    def _is_own(self, name: str) -> bool:
        return name.startswith(self._prefix) and is_own_key(name.removeprefix(self._prefix))

    async def _page(self, key_marker: str, id_marker: str) -> tuple[Sequence[tuple[str, str, int]], str, str]:
        async def page(client: S3Client) -> tuple[Sequence[tuple[str, str, int]], str, str]:
            answer = await client.list_multipart_uploads(
                Bucket=self._bucket, KeyMarker=key_marker, UploadIdMarker=id_marker
            )
            found = [
                (each["Key"], each["UploadId"], int(each["Initiated"].timestamp() * 1_000))
                for each in answer.get("Uploads", ())
            ]
            more = answer["IsTruncated"] and bool(found)
            return found, answer["NextKeyMarker"] if more else "", answer["NextUploadIdMarker"] if more else ""

        return await self._ask("list uploads", "", page)

    async def _described(self, name: str, upload_id: str, begun_ms: int) -> PartialUpload | None:
        """None if the upload was finished or aborted meanwhile."""

        async def parts(client: S3Client) -> PartialUpload:
            size_bytes, touched_ms, marker = 0, begun_ms, 0
            while True:
                answer = await client.list_parts(
                    Bucket=self._bucket, Key=name, UploadId=upload_id, PartNumberMarker=marker
                )
                for part in answer.get("Parts", ()):
                    size_bytes += part["Size"]
                    touched_ms = max(touched_ms, int(part["LastModified"].timestamp() * 1_000))
                if not answer["IsTruncated"]:
                    return PartialUpload(name.removeprefix(self._prefix), upload_id, size_bytes, touched_ms)
                marker = answer["NextPartNumberMarker"]

        try:
            return await self._ask("list parts", name, parts)
        except NotFound:
            return None
