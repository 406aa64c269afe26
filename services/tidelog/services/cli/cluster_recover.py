"""`tidelog cluster recover`: writes the keys that etcd has lost again, from the bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import check_there
from tidelog.services.cli.console import complain, print_answer, print_facts, print_table
from tidelog.services.cli.exit_codes import FAILED
from tidelog.services.cli.options import JsonOption
from tidelog.services.settings.settings_sources import LoadedSettings

if TYPE_CHECKING:
    from tidelog.coordinator.recovery.recover import RecoveryPlan
    from tidelog.services.settings.settings import Settings


def recover(
    loaded: LoadedSettings,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Stop the broker first: bind the bucket of a broker without etcd.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the cluster's keys in etcd again from the bucket, after etcd was wiped, restored or replaced.

    Give --store, --etcd-endpoints and --cluster-name as for `serve`. The command lowers no number
    in etcd and leaves the keys of other clusters alone. It deletes leader keys that would outlive
    their brokers. Brokers may run at the same time.

    [dim]tidelog cluster recover --store s3://my-bucket/log --etcd-endpoints http://10.0.0.5:2379 --dry-run[/dim]
    """
    plan = asyncio.run(_recover(loaded.settings, dry_run=dry_run, yes=yes))
    print_answer(plan, _show, as_json=as_json)
    if dry_run:
        complain("nothing was written")
    elif plan.binds and not yes:
        complain("a broker without etcd used this bucket: stop it, then add --yes to bind the bucket to this etcd")
        raise typer.Exit(FAILED)


async def _recover(settings: Settings, *, dry_run: bool, yes: bool) -> RecoveryPlan:
    from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
    from tidelog.coordinator.journal import Journal
    from tidelog.coordinator.recovery.recover import apply_recovery, plan_recovery
    from tidelog.services.runtime.opening import open_etcd, open_named_store
    from tidelog.storage.runtime import Runtime
    from tidelog.storage.stores.retrying import RetryingObjectStore

    check_there(settings.store)
    runtime, keys = Runtime(), ClusterKeys(settings.cluster_name)
    kv = open_etcd(settings, runtime)
    bucket = RetryingObjectStore(open_named_store(settings, runtime), runtime)
    try:
        journal = Journal(bucket, runtime)
        await journal.open()
        plan = await plan_recovery(bucket, journal, kv, keys, shards=settings.shards, runtime=runtime)
        if not dry_run and (yes or not plan.binds):
            await apply_recovery(plan, bucket, journal, kv, keys, runtime)
        return plan
    finally:
        await kv.aclose()
        await bucket.aclose()


def _show(plan: RecoveryPlan) -> None:
    identity = plan.identity
    print_facts(
        [
            ("cluster", f"{identity.name} ({identity.cluster_id})"),
            ("shards", identity.shards),
            ("identity", "to write" if plan.identity_missing else "there"),
            ("peer secret", "to write" if plan.peer_secret_missing else "there"),
            ("bucket", "to bind: a broker without etcd used it" if plan.binds else "the cluster's"),
            ("journal number", f"{plan.journal_number} (etcd had {plan.journal_number_in_store})"),
            ("groups", f"{plan.groups.groups} to write, with {plan.groups.offsets} offsets"),
        ]
    )
    if rising := [(epoch.shard, epoch.in_log, epoch.in_store) for epoch in plan.epochs if epoch.rises]:
        print()
        print_table(("shard", "epoch", "etcd had"), rising)
    if plan.stale_leaders:
        print()
        print_table(("shard", "led by a process that has ended"), [(s.shard, s.broker_id) for s in plan.stale_leaders])
    if plan.writes_nothing:
        complain("etcd already has all of it")
