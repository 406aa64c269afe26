"""Credentials that are revoked, renewed and restricted while a store is open, on MinIO."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.components.minio_admin import MinioAdmin, policy_of
from tests.components.s3_endpoint import S3Bucket, S3Endpoint

from tidelog.storage.errors import Denied
from tidelog.storage.stores import s3_credentials
from tidelog.storage.stores.s3 import S3ObjectStore

READ_AND_WRITE = ("s3:GetObject", "s3:PutObject")


def write_profile(path: Path, user: S3Endpoint) -> None:
    path.write_text(
        f"[default]\naws_access_key_id = {user.access_key_id}\naws_secret_access_key = {user.secret_access_key}\n"
    )


async def test_a_profile_that_was_rotated_is_read_again_when_the_old_credentials_are_refused(
    minio_bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_credentials, "RELOAD_EVERY_S", 0.0)
    profile = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    admin, policy = MinioAdmin(minio_bucket.endpoint), policy_of(minio_bucket, READ_AND_WRITE)
    old = admin.user(policy)
    write_profile(profile, old)
    fixed = minio_bucket.endpoint.settings(access_key_id=None, secret_access_key=None)
    store = S3ObjectStore(minio_bucket.name, settings=fixed)
    try:
        await store.create("a", b"1")
        assert (await store.get("a")).data == b"1"
        admin.remove(old.access_key_id)
        profile.write_text("[default]\naws_access_key_id = half-writ")
        for _ in range(2):
            with pytest.raises(Denied):
                await store.create("b", b"2")
        write_profile(profile, admin.user(policy))
        with pytest.raises(Denied):
            await store.create("b", b"2")
        await store.create("b", b"2")
        assert (await store.get("b")).data == b"2"
    finally:
        await store.aclose()


async def test_a_permission_that_is_taken_and_given_back_needs_no_new_store(minio_bucket: S3Bucket) -> None:
    admin = MinioAdmin(minio_bucket.endpoint)
    user = admin.user(policy_of(minio_bucket, READ_AND_WRITE))
    store = S3ObjectStore(minio_bucket.name, settings=user.settings())
    try:
        await store.create("a", b"1")
        admin.set_policy(user.access_key_id, policy_of(minio_bucket, ["s3:GetObject"]))
        with pytest.raises(Denied, match="AccessDenied"):
            await store.create("b", b"2")
        admin.set_policy(user.access_key_id, policy_of(minio_bucket, READ_AND_WRITE))
        await store.create("b", b"2")
    finally:
        await store.aclose()
