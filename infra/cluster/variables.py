"""``eval "$(python infra/cluster/variables.py)"``: sets the settings of broker-1 of `make cluster` in a shell.

For commands that need a broker's settings and contact no broker, such as `tidelog cluster recover`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file: the root of the repo is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.cluster.local_cluster import LocalCluster


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("artifacts/cluster"))
    folder = parser.parse_args().folder
    if not (folder / "cluster.json").exists():
        print(f"there is no cluster in {folder}: run run `make cluster` first", file=sys.stderr)
        return 1
    for name, value in LocalCluster(folder)["broker-1"].service.environment.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
