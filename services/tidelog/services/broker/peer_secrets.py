"""The secrets by which the brokers of a cluster prove to each other that they belong to it.

They come from the setting ``peer.secret``, otherwise from the cluster's key-value store (`follow`). The first one
signs. A replaced secret is accepted for `FORMER_S` more, because brokers learn of the new one at different times.
Secrets stay in memory, so peers are accepted while etcd is down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Clock

SECRET_CHARACTERS_MIN = 16
FORMER_S = 600.0


class PeerSecrets:
    """`given`: the value of ``peer.secret``, comma-separated, the signing one first. Raises `Invalid` if one is too
    short. Without `given` and before `follow` there is no secret."""

    def __init__(self, given: str | None, clock: Clock) -> None:
        self._given = () if given is None else _parsed(given)
        self._clock = clock
        self._stored: Callable[[], str | None] = lambda: None
        self._present: bytes | None = None
        self._former: bytes | None = None
        self._former_until_s = 0.0

    def __repr__(self) -> str:
        return "PeerSecrets()"

    def follow(self, first: str, stored: Callable[[], str | None]) -> None:
        """Use `first`, and from then on the secret that `stored` returns at each use; while that is None, the last one
        stays. A secret from the settings takes precedence."""
        self._present = first.encode()
        self._stored = stored

    def signing(self) -> bytes | None:
        """The signing secret; None if there is none yet."""
        return self._given[0] if self._given else self._follow()

    def accepted(self) -> Sequence[bytes]:
        """The secrets that peers may sign with, the current one first."""
        if self._given:
            return self._given
        present = self._follow()
        if present is None:
            return ()
        if self._former is None or self._clock.monotonic() > self._former_until_s:
            return (present,)
        return present, self._former

    def _follow(self) -> bytes | None:
        stored = self._stored()
        secret = None if stored is None else stored.encode()
        if secret is not None and secret != self._present:
            self._former, self._present = self._present, secret
            self._former_until_s = self._clock.monotonic() + FORMER_S
        return self._present


def _parsed(given: str) -> Sequence[bytes]:
    secrets = tuple(secret.strip().encode() for secret in given.split(","))
    if any(len(secret) < SECRET_CHARACTERS_MIN for secret in secrets):
        raise Invalid(f"each secret in peer.secret has {SECRET_CHARACTERS_MIN} characters or more", field="peer.secret")
    return secrets
