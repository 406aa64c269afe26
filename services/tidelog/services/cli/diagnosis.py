"""`tidelog doctor`: checks the store, etcd, the machine and the broker, and says what to do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.exit_codes import FAILED
from tidelog.services.cli.options import JsonOption
from tidelog.services.settings.settings_sources import LoadedSettings

if TYPE_CHECKING:
    from tidelog.services.cli.doctor.check import Check
    from tidelog.services.settings.settings import Settings
    from tidelog.storage.object_store import ObjectStore
    from tidelog.storage.runtime import Runtime

SETTING_GROUPS = ("Store", "Archive", "Cluster")
_COLOURS = {"ok": "32", "warning": "33", "failed": "31", "skipped": "2"}


def doctor(broker: BrokerChoice, loaded: LoadedSettings, as_json: JsonOption = False) -> None:
    """Check the store, its permissions and conditional writes, clocks, etcd, disks, versions and the broker.

    Give the broker's settings (--store, --etcd-endpoints, --config), as for `serve`. The broker need
    not run. Each failed check prints what to do. Exit code 1 if a check failed.
    The checks write small objects under _staging/ and two keys in etcd, and delete them again.

    [dim]tidelog doctor --store s3://my-bucket/log
    tidelog doctor --config tidelog.toml --json[/dim]
    """
    checks = asyncio.run(_checks(loaded.settings, broker))
    sound = all(check.status != "failed" for check in checks)
    if as_json:
        print_json({"sound": sound, "checks": checks})
    else:
        _print_checks(checks)
        warnings = sum(check.status == "warning" for check in checks)
        failures = sum(check.status == "failed" for check in checks)
        complain(f"{len(checks)} checks: {failures} failed, {warnings} warnings")
    if not sound:
        raise typer.Exit(FAILED)


async def _checks(settings: Settings, broker: BrokerChoice) -> Sequence[Check]:
    from tidelog.services.cli.doctor.broker_checks import check_broker
    from tidelog.services.cli.doctor.etcd_checks import check_identity
    from tidelog.services.cli.doctor.machine_checks import check_disk, check_versions
    from tidelog.storage.runtime import Runtime

    runtime = Runtime()
    spill = Path(settings.archiver_spill_folder or gettempdir())
    checks = [check_versions(), *check_disk("spill folder", spill, "--archiver-spill-folder")]
    store, found = _opened(settings, runtime)
    checks += found
    try:
        readable = False
        if store is not None:
            stored = await _store_checks(store, runtime)
            readable = any(check.name == "store" and check.status == "ok" for check in stored)
            checks += stored
        checks += await check_identity(store if readable else None, settings, runtime)
        checks += await asyncio.to_thread(check_broker, broker, None if store is None else store.url)
    finally:
        if store is not None:
            await store.aclose()
    return checks


async def _store_checks(store: ObjectStore, runtime: Runtime) -> Sequence[Check]:
    from tidelog.services.cli.doctor.store_checks import check_store

    return await check_store(store, runtime)


def _opened(settings: Settings, runtime: Runtime) -> tuple[ObjectStore | None, Sequence[Check]]:
    """The store that the settings name; None if there is none yet. A folder is not created."""
    from tidelog.services.cli.bucket import check_there
    from tidelog.services.cli.doctor.check import failed, warning
    from tidelog.services.cli.doctor.machine_checks import check_disk
    from tidelog.services.runtime.opening import open_named_store
    from tidelog.storage.errors import Invalid, NotFound

    try:
        check_there(settings.store)
        store = open_named_store(settings, runtime)
    except NotFound:
        finding = f"{settings.store} does not exist yet: `tidelog serve` creates it"
        return None, [warning("store", finding, "if a broker has run before, give its --store")]
    except Invalid as error:
        return None, [failed("store", str(error), "correct --store or TIDELOG_STORE")]
    if settings.store == "memory:":
        return store, [warning("store", "records are lost when the broker stops", "use memory: for tests only")]
    if settings.store.startswith("file:"):
        return store, check_disk("store's disk", Path(store.url.removeprefix("file://")), "--store")
    return store, []


def _print_checks(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        word = check.status.upper() if check.status == "failed" else check.status
        mark = f"{word:<7}"
        if sys.stdout.isatty():
            mark = f"\x1b[{_COLOURS[check.status]}m{mark}\x1b[0m"
        print(f"{mark}  {check.name.ljust(width)}  {check.found}")
        if check.advice:
            print(f"{' ' * 9}{' ' * width}  -> {check.advice}")
