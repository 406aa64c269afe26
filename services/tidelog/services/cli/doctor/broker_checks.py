"""Checks the broker, if it runs: readiness, damaged objects, its store, and the versions in its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.doctor.check import Check, failed, ok, skipped, warning
from tidelog.storage.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client import ClusterDescription

DEADLINE_S = 5.0


def check_broker(broker: BrokerChoice, store_url: str | None) -> Sequence[Check]:
    """`store_url`: the store that the other checks look at; None if it could not be opened."""
    from tidelog.client import Admin

    try:
        with Admin(broker.access(), deadline_s=DEADLINE_S, connect_timeout_s=DEADLINE_S) as admin:
            health = admin.health()
            if not health.alive:
                return [skipped("broker", health.reason)]
            found = admin.cluster()
    except TidelogError as error:
        advice = "check the address, the authority (--ca-file) and the user: `tidelog profile show`"
        return [failed("broker", str(error), advice)]
    checks = [
        ok("broker", f"{broker.addresses} is ready")
        if health.ready
        else failed("broker", f"{broker.addresses} takes no requests: {health.reason}", "see the broker's log")
    ]
    return [*checks, *_damage(found), *_store(found, store_url), *check_cluster_versions(found)]


def check_cluster_versions(found: ClusterDescription) -> Sequence[Check]:
    """Brokers of different versions are right only while a cluster is being updated."""
    versions = {member.broker: member.version for member in found.cluster.brokers}
    running = sorted({found.version, *versions.values()})
    checks = [ok("brokers' versions", f"{len(versions) or 1} at {running[0]}")]
    if len(running) > 1:
        finding = ", ".join(f"{name} {one}" for name, one in sorted(versions.items()))
        checks = [warning("brokers' versions", finding, "update the older ones, unless an update is under way")]
    if version("tidelog") not in running:
        text = f"this command has {version('tidelog')}, the broker {found.version}"
        checks.append(warning("command's version", text, "use the command of the broker's version"))
    return checks


def _damage(found: ClusterDescription) -> Sequence[Check]:
    if not found.damage:
        return [ok("damage", "the broker knows of no damaged object")]
    finding = "; ".join(f"{damage.object} {damage.reason}. {damage.effect}" for damage in found.damage)
    return [failed("damage", finding, "`tidelog bucket verify` lists all damage, `tidelog bucket repair` repairs it")]


def _store(found: ClusterDescription, store_url: str | None) -> Sequence[Check]:
    if store_url is None or found.store.rstrip("/") == store_url.rstrip("/"):
        return []
    text = f"the broker uses {found.store}; the checks above are of {store_url}"
    return [warning("broker's store", text, "give the broker's settings: --store, --config or TIDELOG_STORE")]
