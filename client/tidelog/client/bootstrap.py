"""The brokers that a client was told of: any of them takes any request, so one that fails is left for the next.

>>> brokers = Brokers("http://10.0.0.7:8080,http://10.0.0.8:8080")
>>> brokers.current
'http://10.0.0.7:8080'
>>> brokers.leave("http://10.0.0.7:8080")
>>> brokers.current
'http://10.0.0.8:8080'
"""

from __future__ import annotations

import threading

import httpx

from tidelog.storage.errors import Invalid


class Brokers:
    """Addresses (``http://HOST:PORT``, several with commas) and the one in use, shared by threads. Raises `Invalid`
    for what is no address."""

    def __init__(self, addresses: str) -> None:
        self._addresses = tuple(checked_broker(address.strip()) for address in addresses.split(","))
        self._place = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def current(self) -> str:
        return self._addresses[self._place]

    def leave(self, address: str) -> None:
        """Go on to the next address, unless another thread has left this one already."""
        with self._lock:
            if self.current == address:
                self._place = (self._place + 1) % len(self._addresses)


def checked_broker(url: str) -> str:
    """`url` without a slash at its end, if it is one of a broker; else `Invalid`."""
    text = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Invalid(f"{url!r} is not a broker's URL ({error}): say http://HOST:PORT", field="broker") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Invalid(f"{url!r} is not a broker's URL: say http://HOST:PORT", field="broker")
    return text.rstrip("/")
