"""etcd's HTTP gateway, for operators' actions that the key-value interface does not have: compaction, users, roles."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Mapping, Sequence

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


def add_user(server: EtcdServer, name: str, password: str, prefixes: Sequence[str]) -> None:
    """A user that may read and write the keys under `prefixes`, with a role of the same name. Call it before
    `enable_users`."""
    post(server, "auth/user/add", {"name": name, "password": password})
    post(server, "auth/role/add", {"name": name})
    for prefix in prefixes:
        key, end = (
            base64.b64encode(text.encode()).decode() for text in (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        )
        permission = {"permType": "READWRITE", "key": key, "range_end": end}
        post(server, "auth/role/grant", {"name": name, "perm": permission})
    post(server, "auth/user/grant", {"user": name, "role": name})


def post(server: EtcdServer, path: str, body: Mapping[str, object]) -> None:
    """Make one call of the gateway."""
    request = urllib.request.Request(f"{server.url}/v3/{path}", json.dumps(body).encode())
    urllib.request.urlopen(request, timeout=10).close()
