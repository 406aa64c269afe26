"""Proves to another broker that a broker of the same cluster sent a request: an HMAC over the request.

    Tidelog-Peer: <unix time in ms> <HMAC-SHA256 of "time method target principal", in hex>

The key is the cluster's secret. The target is path and query, encoded. A captured proof is useless for another
principal. The secret itself is never sent: addresses of peers come from etcd, and an outdated one may belong to another
process (ADR 0016). A proof is valid for `AGE_MS_MAX`, which bounds replays and the
difference between the clocks of two brokers.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.storage.errors import LeaderUnknown
from tidelog.storage.runtime import Clock

PEER_HEADER = "Tidelog-Peer"
AGE_MS_MAX = 300_000
_RETRY_AFTER_S = 0.1


class PeerProofs:
    """Makes and checks proofs with the cluster's `secrets`."""

    def __init__(self, secrets: PeerSecrets, clock: Clock) -> None:
        self._secrets = secrets
        self._clock = clock

    def sign(self, method: str, target: str, principal: str) -> str:
        """The value of `PEER_HEADER` for a request. Raises `LeaderUnknown` while this broker has no secret."""
        secret = self._secrets.signing()
        if secret is None:
            raise LeaderUnknown("this broker has not joined its cluster yet", retry_after_s=_RETRY_AFTER_S)
        time = str(self._clock.now_ms())
        return f"{time} {_digest(secret, time, method, target, principal)}"

    def fault(self, proof: str, method: str, target: str, principal: str) -> str:
        """Why `proof` is not valid for this request; empty if it is."""
        time, _, digest = proof.partition(" ")
        if not time.isascii() or not time.isdecimal() or len(time) > 16:
            return "it must be a time in ms and an HMAC"
        age_ms = self._clock.now_ms() - int(time)
        if abs(age_ms) > AGE_MS_MAX:
            return f"its time differs by {age_ms} ms from this broker's clock; {AGE_MS_MAX} are allowed"
        if not _signed(self._secrets.accepted(), digest, time, method, target, principal):
            return "it was not made with the secret of this cluster"
        return ""


def _signed(secrets: Sequence[bytes], digest: str, time: str, method: str, target: str, principal: str) -> bool:
    given = digest.encode()
    return any(
        hmac.compare_digest(given, _digest(secret, time, method, target, principal).encode()) for secret in secrets
    )


def _digest(secret: bytes, time: str, method: str, target: str, principal: str) -> str:
    return hmac.digest(secret, f"{time} {method} {target} {principal}".encode(), "sha256").hex()
