"""Checks one member of etcd over HTTP: its health, its clock, and the space that its database takes.

etcd does not report its auto-compaction setting. `judge_space` sees only the effect of compaction: how many revisions
the member still keeps. So it cannot judge an etcd with fewer than `REVISIONS_SEEN` changes.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from tidelog.services.cli.console import size_text
from tidelog.services.cli.doctor.check import Check, failed, ok, skipped, warning
from tidelog.services.cli.doctor.store_checks import SKEW_FAILED_MS, SKEW_WARNING_MS
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Clock

REACH = "check the endpoints (--etcd-endpoints), the network, and the certificates and user for etcd"
COMPACT = "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=5m (docs/deploy.md)"
REVISIONS_SEEN = 10_000
"""An etcd with fewer changes may not have been compacted yet, although auto-compaction is on."""
REVISIONS_KEPT_MAX = 1_000_000
QUOTA_SHARE_MAX = 0.8
ANSWER_BYTES_MAX = 1 << 20

_METRIC = re.compile(r"^(etcd_\w+) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Space:
    """The database of a member. `revision`: the newest one. `compacted`: the oldest one that is kept; -1 if no revision
    was ever removed."""

    size_bytes: float
    used_bytes: float
    quota_bytes: float
    revision: int
    compacted: int


def check_member(endpoint: str, settings: Settings, clock: Clock) -> Sequence[Check]:
    """Ask one member for its health and its space."""
    name = f"etcd member {endpoint}"
    try:
        before_ms = clock.now_ms()
        body, date = _answer(endpoint, "/health", settings)
        after_ms = clock.now_ms()
        healthy = json.loads(body).get("health") in ("true", True)
        metrics, _ = _answer(endpoint, "/metrics", settings)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return [failed(name, f"does not answer: {error}", REACH)]
    if not healthy:
        advice = "see its log: it has no leader, its disk is full (NOSPACE), or its data is corrupt"
        return [failed(name, "says that it is not healthy", advice)]
    return [_clock_check(name, before_ms, date, after_ms), judge_space(f"etcd space {endpoint}", space_of(metrics))]


def space_of(metrics: str) -> Space | None:
    """The space that a member reports in its metrics; None if it does not."""
    found = dict(_METRIC.findall(metrics))
    try:
        return Space(
            size_bytes=float(found["etcd_mvcc_db_total_size_in_bytes"]),
            used_bytes=float(found["etcd_mvcc_db_total_size_in_use_in_bytes"]),
            quota_bytes=float(found["etcd_server_quota_backend_bytes"]),
            revision=int(float(found["etcd_debugging_mvcc_current_revision"])),
            compacted=int(float(found["etcd_debugging_mvcc_compact_revision"])),
        )
    except KeyError:
        return None


def judge_space(name: str, space: Space | None) -> Check:
    """Whether the member removes old revisions, and how near its quota is."""
    if space is None:
        return skipped(
            name, "its metrics are not at this address: look at its database's size and auto-compaction there"
        )
    found = f"{size_text(space.size_bytes)} ({size_text(space.used_bytes)} in use) of {size_text(space.quota_bytes)}"
    kept = space.revision - max(space.compacted, 0)
    if space.size_bytes > QUOTA_SHARE_MAX * space.quota_bytes:
        return warning(name, f"{found}: at the quota etcd refuses all writes", f"compact and defragment it; {COMPACT}")
    if space.compacted <= 0 and space.revision >= REVISIONS_SEEN:
        return warning(name, f"{found}; never compacted: it keeps all {kept:,} revisions", COMPACT)
    if kept > REVISIONS_KEPT_MAX:
        return warning(name, f"{found}; compacted too rarely: it keeps {kept:,} revisions", COMPACT)
    if space.compacted <= 0:
        return ok(name, f"{found}; too few changes to see whether it compacts: {kept:,}")
    return ok(name, f"{found}; it compacts, and keeps {kept:,} revisions")


def _clock_check(name: str, before_ms: int, date: str | None, after_ms: int) -> Check:
    """Compare the time of the answer with the times before and after it. HTTP's Date has whole seconds."""
    if date is None:
        return ok(name, "is healthy")
    member_ms = int(parsedate_to_datetime(date).timestamp() * 1_000)
    skew_ms = max(member_ms - after_ms, before_ms - (member_ms + 1_000), 0)
    if skew_ms <= SKEW_WARNING_MS:
        return ok(name, "is healthy, and its clock agrees")
    found = f"is healthy; its clock and this machine's differ by {skew_ms / 1_000:,.0f} s"
    return (failed if skew_ms > SKEW_FAILED_MS else warning)(name, found, "set the clocks by NTP")


def _answer(endpoint: str, path: str, settings: Settings) -> tuple[str, str | None]:
    """The body and the Date of an answer."""
    url, timeout_s = urlsplit(endpoint), settings.etcd_timeout_ms / 1_000
    host, port = url.hostname or "", url.port
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=settings.etcd_ca_file)
        if settings.etcd_cert_file:
            tls.load_cert_chain(settings.etcd_cert_file, settings.etcd_key_file)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read(ANSWER_BYTES_MAX).decode(errors="replace"), answer.headers.get("date")
    finally:
        connection.close()
