"""`tidelog cluster info | health`."""

from __future__ import annotations

import typer

from tidelog.services.cli.console import complain, print_facts, print_json, print_table, size_text
from tidelog.services.cli.exit_codes import UNAVAILABLE
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption


def info(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the broker's version, its store and its shards."""
    from tidelog.client import Admin

    with Admin(broker) as admin:
        cluster = admin.cluster()
    if as_json:
        print_json(cluster)
        return
    print_facts([("broker", broker), ("version", cluster.version), ("store", cluster.store)])
    print()
    rows = [
        (
            shard.shard,
            shard.leading,
            shard.epoch,
            shard.partitions,
            shard.wal_floor,
            shard.wal_next,
            size_text(shard.wal_bytes),
            size_text(shard.buffered_bytes),
        )
        for shard in cluster.shards
    ]
    print_table(("shard", "leading", "epoch", "partitions", "wal floor", "wal next", "wal size", "buffered"), rows)


def health(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Say whether the broker lives and takes requests; exit code 3 if not."""
    from tidelog.client import Admin

    with Admin(broker) as admin:
        found = admin.health()
    if as_json:
        print_json(found)
    elif found.ready:
        print(f"{broker} is ready")
    else:
        complain(found.reason)
    if not found.ready:
        raise typer.Exit(UNAVAILABLE)
