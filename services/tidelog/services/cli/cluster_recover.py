"""`tidelog cluster recover`: what etcd has lost, written again from the bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import check_there
from tidelog.services.cli.console import complain, print_facts, print_json, print_table
from tidelog.services.cli.exit_codes import FAILED
from tidelog.services.cli.options import JsonOption
from tidelog.services.runtime.settings_sources import LoadedSettings

if TYPE_CHECKING:
    from tidelog.coordinator.recovery.recover import RecoveryPlan
    from tidelog.services.runtime.settings import Settings


def recover(
    loaded: LoadedSettings,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Bind the bucket of a broker without etcd. Stop that broker first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the cluster's keys in etcd again from the bucket, after etcd was wiped, set back or replaced.

    It needs --store, --etcd-endpoints and --cluster-name as `serve` has them. Nothing in etcd is
    lowered, and another cluster's keys are left alone. Leader keys that would outlive their
    brokers are deleted. Brokers may run meanwhile.

    [dim]tidelog cluster recover --store s3://my-bucket/log --etcd-endpoints http://10.0.0.5:2379 --dry-run[/dim]
    """
    plan = asyncio.run(_recover(loaded.settings, dry_run=dry_run, yes=yes))
    if as_json:
        print_json(plan)
    else:
        _show(plan)
    if dry_run:
        complain("nothing was written")
    elif plan.binds and not yes:
        complain("the bucket is a broker's without etcd: stop that broker, then say --yes to bind it to this etcd")
        raise typer.Exit(FAILED)


async def _recover(settings: Settings, *, dry_run: bool, yes: bool) -> RecoveryPlan:
    from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
    from tidelog.coordinator.journal import Journal
    from tidelog.coordinator.recovery.recover import apply_recovery, plan_recovery
    from tidelog.services.runtime.etcd_opening import open_etcd
    from tidelog.services.runtime.store_opening import open_named_store
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
            await apply_recovery(plan, journal, kv, keys, runtime.entropy)
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
        ]
    )
    if rising := [(epoch.shard, epoch.in_log, epoch.in_store) for epoch in plan.epochs if epoch.rises]:
        print()
        print_table(("shard", "epoch", "etcd had"), rising)
    if plan.stale_leaders:
        print()
        print_table(("shard", "led by a process that is gone"), [(s.shard, s.broker_id) for s in plan.stale_leaders])
    if plan.writes_nothing:
        complain("etcd has all of it already")
