"""Credentials of a profile, which are read again when the store refuses them.

botocore renews by itself the credentials that carry an expiry: those of roles, SSO, containers and instances. It reads
once those in a profile's files, or from a `credential_process` that names no expiry. A program that rotates them writes
the file anew and revokes the old ones; the store then answers 403, and `look_again` takes the new ones over. Clients
sign by the same credentials object, so a request that is made after that is signed by the new ones.

Credentials from variables or from `S3Settings` are fixed while the process lives.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aioboto3
import aiobotocore.session
from botocore.exceptions import BotoCoreError

_READ_ONCE = frozenset({"shared-credentials-file", "config-file", "custom-process"})
"""botocore's names of the sources that it does not look at again."""

LOOK_EVERY_S = 1.0
"""A look reads some small files; many requests may be refused at the same time."""

_log = logging.getLogger(__name__)


class ProfileCredentials:
    """The credentials of `session`, to be used on one event loop."""

    def __init__(self, session: aioboto3.Session) -> None:
        self._session = session
        self._looked_s = float("-inf")

    async def look_again(self) -> None:
        """Take over what the profile says now. Does nothing within `LOOK_EVERY_S` of the last look."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        session: Any = self._session  # the stubs do not know that its calls are asynchronous
        used = await session.get_credentials()  # botocore keeps it: the object that clients sign by
        if used is None or used.method not in _READ_ONCE:
            return
        try:
            found: Any = await aiobotocore.session.AioSession(profile=self._session.profile_name).get_credentials()
        except BotoCoreError as error:  # as a file that is being written
            _log.warning("the profile's credentials cannot be read again: %s", error)
            return
        if found is None or (renewed := await found.get_frozen_credentials()) == await used.get_frozen_credentials():
            return
        used.access_key, used.secret_key, used.token = renewed.access_key, renewed.secret_key, renewed.token
        _log.warning("the store refused the credentials, and the profile has new ones: they are used from now on")
