"""Lists, fetches and builds the real components that tests and benchmarks use.

    python infra/components.py prepare            make all that is possible on this machine
    python infra/components.py prepare minio ...  make make those named, also the ones made only on demand
    python infra/components.py list               only list them

Both begin with a table of the components: ready, to be made and how long that takes, or missing (`infra.outlook`).
``prepare --dry-run`` ends there. With ``TIDELOG_REQUIRE_ALL=1``, as in CI, the exit code is 1 if a component is
missing. To add a component, write a module beside this one that creates a `Component`, and add it to `COMPONENTS`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # run as a file: the root of the repo is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from infra.component import CannotMake, Component, only_one_process, say
from infra.etcd import ETCD, ETCD34
from infra.haproxy import HAPROXY
from infra.kafka import KAFKA
from infra.kafka_go_clients import KAFKA_GO_CLIENTS
from infra.kcat import KCAT
from infra.kustomize import KUSTOMIZE
from infra.log_oracle import LOG_ORACLE
from infra.minio import MINIO
from infra.outlook import State, outlook, table
from infra.promtool import PROMTOOL
from infra.s2_lite import S2_LITE
from infra.spark_kafka import SPARK_KAFKA
from infra.spark_s3 import SPARK_S3

COMPONENTS: tuple[Component, ...] = (
    MINIO,
    ETCD,
    ETCD34,
    LOG_ORACLE,
    HAPROXY,
    KUSTOMIZE,
    PROMTOOL,
    SPARK_S3,
    KAFKA,
    KAFKA_GO_CLIENTS,
    KCAT,
    SPARK_KAFKA,
    S2_LITE,
)


def component(name: str) -> Component:
    """The component of that name. Raises an error with the known names."""
    for known in COMPONENTS:
        if known.name == name:
            return known
    raise argparse.ArgumentTypeError(
        f"{name!r} is no component; known are {', '.join(known.name for known in COMPONENTS)}"
    )


def prepare(wanted: Component) -> bool:
    """Make `wanted` unless it is ready, and print the result. Returns whether it is ready."""
    if wanted.find() is not None:
        return True
    try:
        with only_one_process(wanted.name):
            if wanted.find() is None:  # another process may have made it meanwhile
                say(f"{wanted.name}: making it")
                wanted.make()
    except (CannotMake, OSError) as error:
        say(f"{wanted.name}: MISSING: {error}; {wanted.how}")
        return False
    say(f"{wanted.name}: ready ({wanted.find()})")
    return True


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="components.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("prepare", "list"))
    parser.add_argument("names", nargs="*", metavar="NAME", type=component)
    parser.add_argument("--dry-run", action="store_true", help="show the table, make nothing")
    chosen = parser.parse_args(arguments)
    preparing = chosen.command == "prepare"
    wanted = chosen.names or [known for known in COMPONENTS if not (preparing and known.on_demand)]
    outlooks = [outlook(each, may_make=preparing and not chosen.dry_run) for each in wanted]
    say(table(outlooks))
    to_make = [each.component for each in outlooks if each.state is State.TO_MAKE]
    made = [prepare(each) for each in to_make]
    all_here = all(made) and all(each.state in (State.READY, State.TO_MAKE) for each in outlooks)
    return 0 if all_here or os.environ.get("TIDELOG_REQUIRE_ALL") != "1" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
