"""Whether a request comes from another broker of this cluster: only a proof says so (`peers.proof`).

A request without `Tidelog-Peer` is a client's. A proof that does not hold is refused, and not treated as a client's:
two brokers whose secrets or clocks differ would send a request on to each other again and again.
"""

from __future__ import annotations

from tidelog.services.http.answers.verdicts import PeerUnproved
from tidelog.services.http.front.request_context import named_principal
from tidelog.services.http.front.request_head import RequestHead
from tidelog.services.peers.proof import PEER_HEADER, PeerProofs

_HEADER = PEER_HEADER.lower().encode()


def proved_peer(head: RequestHead, proofs: PeerProofs) -> bool:
    """True for a peer's request, False for a client's. Raises `PeerUnproved`."""
    proof = head.headers.get(_HEADER)
    if proof is None:
        return False
    if fault := proofs.fault(proof.decode("latin-1"), head.method, head.target, named_principal(head)):
        raise PeerUnproved(f"{PEER_HEADER} does not prove that a broker of this cluster sent the request: {fault}")
    return True
