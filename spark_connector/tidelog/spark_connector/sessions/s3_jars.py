"""Downloads the jars of Hadoop's ``s3a`` from Maven Central once per machine: four jars, 674 MB.

    python -m tidelog.spark_connector.sessions.s3_jars

``spark.jars.packages`` downloads them too, but copies them for every session. `local_session` puts these jars on its
class path without copying them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidelog.spark_connector.sessions.java_runtime import cache_folder, use_java
from tidelog.spark_connector.sessions.jvm_start import start_session
from tidelog.spark_connector.sessions.s3_access import HADOOP_AWS_PACKAGE
from tidelog.storage.errors import NotFound, TidelogError

EXIT_FAILED = 1


def s3_jars(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The downloaded jars. Raises `NotFound` with the command that downloads them."""
    folder = _folder(os.environ if environ is None else environ)
    if not folder.is_dir():
        raise NotFound(
            f"the jars with which Spark reads s3:// are not in {folder}: download them (674 MB) with "
            "`python -m tidelog.spark_connector.sessions.s3_jars`"
        )
    return sorted(folder.glob("*.jar"))


def fetch_s3_jars(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Download the jars if they are missing. Spark's own resolver downloads them to a temporary folder beside the final
    one, which is renamed when it is complete. Raises `JavaNotFound`, and `JvmExited` with the resolver's output."""
    environ = os.environ if environ is None else environ
    folder = _folder(environ)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            _resolve(Path(draft))
            (Path(draft) / "jars").rename(folder)
    return s3_jars(environ)


def _folder(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ, "spark-jars") / HADOOP_AWS_PACKAGE.replace(":", "_")


def _resolve(ivy: Path) -> None:
    settings = {
        "spark.master": "local[1]",
        "spark.jars.packages": HADOOP_AWS_PACKAGE,
        "spark.jars.ivy": str(ivy),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(ivy / "local"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    start_session(use_java(), settings).stop()
    shutil.rmtree(ivy / "cache")


def main() -> int:
    """The program. It exits with code 1 and the reason on stderr if the download fails."""
    try:
        sys.stdout.write("".join(f"{jar}\n" for jar in fetch_s3_jars()))
    except TidelogError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
