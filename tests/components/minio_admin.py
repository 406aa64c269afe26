"""Users and policies of a MinIO server through its admin API, like `mc admin`.

Bodies are encrypted with the caller's secret key, like in github.com/minio/madmin-go: a key by PBKDF2, then AES-GCM
over numbered pieces (github.com/secure-io/sio-go). One piece is enough for the bodies here.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import pbkdf2_hmac
from typing import Any
from urllib.parse import urlencode

import httpx
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.components.s3_endpoint import REGION, S3Bucket, S3Endpoint

PBKDF2_AES_GCM = b"\x02"
PIECE_BYTES = 16 * 1024


@dataclass(frozen=True)
class MinioAdmin:
    """The administration of `endpoint` as its root user."""

    endpoint: S3Endpoint

    def user(self, policy: Mapping[str, Any]) -> S3Endpoint:
        """The same server for a new user who has only the permissions of `policy`."""
        name, secret = f"user-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
        self._call("PUT", "add-user", {"accessKey": name}, {"secretKey": secret, "status": "enabled"})
        self.set_policy(name, policy)
        return replace(self.endpoint, access_key_id=name, secret_access_key=secret)

    def set_policy(self, user: str, policy: Mapping[str, Any]) -> None:
        """Give `user` the permissions of `policy` from now on."""
        self._call("PUT", "add-canned-policy", {"name": f"of-{user}"}, policy, encrypted=False)
        named = {"policyName": f"of-{user}", "userOrGroup": user, "isGroup": "false"}
        self._call("PUT", "set-user-or-group-policy", named, None)

    def remove(self, user: str) -> None:
        """Refuse the credentials of `user` from now on."""
        self._call("DELETE", "remove-user", {"accessKey": user}, None)

    def _call(
        self,
        method: str,
        call: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        *,
        encrypted: bool = True,
    ) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        if data and encrypted:
            data = _encrypted(data, self.endpoint.secret_access_key)
        url = f"{self.endpoint.url}/minio/admin/v3/{call}?{urlencode(query)}"
        request = AWSRequest(method, url, data=data)
        caller = Credentials(self.endpoint.access_key_id, self.endpoint.secret_access_key)
        S3SigV4Auth(caller, "s3", REGION).add_auth(request)
        answer = httpx.request(method, url, content=data, headers=dict(request.headers), trust_env=False)
        assert answer.status_code == 200, answer.text


def policy_of(bucket: S3Bucket, actions: Sequence[str]) -> Mapping[str, Any]:
    """`actions` on `bucket` and the objects in it."""
    arn = f"arn:aws:s3:::{bucket.name}"
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": [arn, f"{arn}/*"]}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _encrypted(data: bytes, secret: str) -> bytes:
    assert len(data) <= PIECE_BYTES
    salt, nonce = os.urandom(32), os.urandom(8)
    cipher = AESGCM(pbkdf2_hmac("sha256", secret.encode(), salt, 8192, 32))
    head = cipher.encrypt(nonce + (0).to_bytes(4, "little"), b"", b"")
    last_piece = cipher.encrypt(nonce + (1).to_bytes(4, "little"), data, b"\x80" + head)
    return salt + PBKDF2_AES_GCM + nonce + last_piece
