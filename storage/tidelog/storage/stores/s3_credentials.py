"""Credentials of an AWS profile, read again when the store refuses them.

botocore renews credentials with an expiry (roles, SSO, containers, instances). It reads the others once: those in a
profile's files, or from a `credential_process` without an expiry. When a program rotates them, it rewrites the file and
revokes the old ones, and the store answers 403. `reload` then takes over the new ones. All clients of the session sign
with the same credentials object, so the next request uses them.

Credentials from environment variables or from `S3Settings` stay fixed while the process lives.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aioboto3
import aiobotocore.session
from botocore.exceptions import BotoCoreError

_READ_ONCE = frozenset({"shared-credentials-file", "config-file", "custom-process"})
"""botocore's names of the sources that it reads once."""

RELOAD_EVERY_S = 1.0
"""Many requests may be refused at the same time, and a reload reads several files."""

_log = logging.getLogger(__name__)


class ProfileCredentials:
    """The credentials of `session`. Use it on one event loop."""

    def __init__(self, session: aioboto3.Session) -> None:
        self._session = session
        self._reloaded_at_s = float("-inf")

    async def reload(self) -> None:
        """Use the credentials that the profile has now. Does nothing within `RELOAD_EVERY_S` of the last call."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._reloaded_at_s < RELOAD_EVERY_S:
            return
        self._reloaded_at_s = now_s
        session: Any = self._session  # the stubs do not know that its calls are asynchronous
        used = await session.get_credentials()  # the object that clients sign with
        if used is None or used.method not in _READ_ONCE:
            return
        try:
            found: Any = await aiobotocore.session.AioSession(profile=self._session.profile_name).get_credentials()
        except BotoCoreError as error:  # the file may be half written
            _log.warning("the profile's credentials cannot be read again: %s", error)
            return
        if found is None or (renewed := await found.get_frozen_credentials()) == await used.get_frozen_credentials():
            return
        used.access_key, used.secret_key, used.token = renewed.access_key, renewed.secret_key, renewed.token
        _log.warning("the store refused the credentials; the profile has new ones, which are used from now on")
