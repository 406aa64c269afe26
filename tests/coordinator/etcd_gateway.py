"""etcd's HTTP gateway, for operators' actions that the key-value interface does not have: compaction, users, roles."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping

from tests.components.etcd_server import EtcdServer


async def compact(server: EtcdServer, revision: int) -> None:
    """Discard history before `revision`; return when it is done."""
    await asyncio.to_thread(post, server, "kv/compaction", {"revision": str(revision), "physical": True})


def enable_users(server: EtcdServer, password: str) -> None:
    """From now on only `root` may connect."""
    post(server, "auth/user/add", {"name": "root", "password": password})
    post(server, "auth/role/add", {"name": "root"})
    post(server, "auth/user/grant", {"user": "root", "role": "root"})
    post(server, "auth/enable", {})


def post(server: EtcdServer, path: str, body: Mapping[str, object]) -> None:
    """Make one call of the gateway."""
    request = urllib.request.Request(f"{server.url}/v3/{path}", json.dumps(body).encode())
    urllib.request.urlopen(request, timeout=10).close()
