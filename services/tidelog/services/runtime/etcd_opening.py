"""The key-value store that the settings name."""

from __future__ import annotations

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.services.runtime.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime


def open_etcd(settings: Settings, runtime: Runtime) -> EtcdKeyValueStore:
    """The store at `settings.etcd_endpoints`, on the running event loop; it connects when it is first used. Raises
    `Invalid`."""
    if settings.etcd_endpoints is None:
        raise Invalid("no etcd is named: give etcd.endpoints, as http://HOST:2379", field="etcd.endpoints")
    endpoints = (endpoint.strip() for endpoint in settings.etcd_endpoints.split(","))
    return EtcdKeyValueStore(
        EtcdSettings(
            tuple(endpoint for endpoint in endpoints if endpoint),
            username=settings.etcd_username,
            password=settings.etcd_password,
            ca_file=settings.etcd_ca_file,
            cert_file=settings.etcd_cert_file,
            key_file=settings.etcd_key_file,
            timeout_s=settings.etcd_timeout_ms / 1_000,
        ),
        runtime,
    )
