"""The Python client: `Producer`, `Consumer` and `Admin`, synchronous, over HTTP.

What goes wrong is raised as the errors of `tidelog.storage.errors`. A class is loaded when it is first used, so that a
broker that imports `tidelog.client.prices` does not load httpx (8 MB).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.consumer import Batch, Consumer, ConsumerOptions, Record
    from tidelog.client.delivery import Delivered
    from tidelog.client.producer import Producer
    from tidelog.client.producer_options import ProducerOptions
    from tidelog.client.refusals import Refused

__all__ = [
    "Admin",
    "Batch",
    "Consumer",
    "ConsumerOptions",
    "Delivered",
    "Producer",
    "ProducerOptions",
    "Record",
    "Refused",
]

_MODULES = {
    "Admin": "admin",
    "Batch": "consumer",
    "Consumer": "consumer",
    "ConsumerOptions": "consumer",
    "Delivered": "delivery",
    "Producer": "producer",
    "ProducerOptions": "producer_options",
    "Record": "consumer",
    "Refused": "refusals",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
