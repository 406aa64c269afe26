"""What every route needs, as one value."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from tidelog.services.broker.api import Broker
from tidelog.services.http.body_reading import BodyReader
from tidelog.services.http.connections import Connections
from tidelog.services.settings import Settings
from tidelog.storage.runtime import Runtime


@dataclass(frozen=True)
class Service:
    """A broker with the bounds that HTTP puts around it."""

    broker: Broker
    settings: Settings
    runtime: Runtime
    bodies: BodyReader
    connections: Connections
    decoding: Executor
    problems: Counter[tuple[int, str]]


def open_service(broker: Broker, settings: Settings, runtime: Runtime) -> Service:
    """One thread decodes large bodies, one after the other: what a hostile one costs is paid once at a time."""
    return Service(
        broker=broker,
        settings=settings,
        runtime=runtime,
        bodies=BodyReader(
            settings.request_max_bytes, settings.buffer_max_bytes, settings.request_read_timeout_ms / 1000
        ),
        connections=Connections(settings.connections_max),
        decoding=ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidelog-decode"),
        problems=Counter(),
    )
