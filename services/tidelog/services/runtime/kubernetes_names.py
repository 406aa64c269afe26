"""Variables that Kubernetes makes of the Services of a namespace, told apart from settings.

A Service named ``tidelog`` gives every container of its namespace, unless ``enableServiceLinks`` is false:

    TIDELOG_SERVICE_HOST=10.0.0.1        TIDELOG_PORT=tcp://10.0.0.1:8080
    TIDELOG_SERVICE_PORT=8080            TIDELOG_PORT_8080_TCP=tcp://10.0.0.1:8080
    TIDELOG_SERVICE_PORT_HTTP=8080       TIDELOG_PORT_8080_TCP_PROTO, _PORT, _ADDR

One named ``tidelog-compactor`` gives ``TIDELOG_COMPACTOR_SERVICE_HOST`` and so on. ``TIDELOG_PORT`` is also the setting
`port`, so the value decides: a URL is Kubernetes', a number is the setting. A name with ``_SERVICE_`` is Kubernetes'
only if both host and port of the same service are there; one alone is a misspelling.
https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

_log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"[0-9a-fA-F.:]+")
_NUMBER = re.compile(r"\d+")
_URL = re.compile(r"(tcp|udp|sctp)://.+:\d+")
_PORT = re.compile(r"TIDELOG(_[A-Z0-9_]+)?_PORT(_\d+_(TCP|UDP|SCTP))?")
_PART_OF_A_PORT = re.compile(r"TIDELOG(_[A-Z0-9_]+)?_PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)")
_OF_A_SERVICE = re.compile(r"(?P<service>TIDELOG(_[A-Z0-9_]+?)?)_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)")


def service_links(variables: Mapping[str, str]) -> frozenset[str]:
    """The names among `variables` that are Kubernetes'."""
    return frozenset(name for name in variables if _is_link(name, variables))


def log_ignored(names: Collection[str]) -> None:
    """One line for all of them, once logs are configured."""
    if names:
        fields = {"variables": sorted(names)}
        _log.info("ignored variables that Kubernetes made of Services", extra={"fields": fields})


def _is_link(name: str, variables: Mapping[str, str]) -> bool:
    if _PART_OF_A_PORT.fullmatch(name) or (_PORT.fullmatch(name) and _URL.fullmatch(variables[name])):
        return True
    found = _OF_A_SERVICE.fullmatch(name)
    return found is not None and _has_service(found["service"], variables)


def _has_service(service: str, variables: Mapping[str, str]) -> bool:
    host, port = variables.get(f"{service}_SERVICE_HOST", ""), variables.get(f"{service}_SERVICE_PORT", "")
    return _ADDRESS.fullmatch(host) is not None and _NUMBER.fullmatch(port) is not None
