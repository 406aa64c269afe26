"""Counts the connections of each client's address, so that one client cannot take all of them.

IPv6 gives every site 2**64 addresses or more, so there a network of that size counts as one address.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address

_SITE_BITS = 64


class ClientNetworks:
    """Open connections by the address they come from; at most `per_address_max` from each."""

    def __init__(self, per_address_max: int) -> None:
        self._per_address_max = per_address_max
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, host: str) -> bool:
        """Count a connection from `host`, if it may be open."""
        network = network_of(host)
        if self._counts[network] >= self._per_address_max:
            return False
        self._counts[network] += 1
        return True

    def give_back(self, host: str) -> None:
        """A connection from `host` that was taken is closed."""
        network = network_of(host)
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or 2**64 addresses of IPv6."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _SITE_BITS << _SITE_BITS))
