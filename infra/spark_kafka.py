"""Spark's own Kafka source, that the benchmarks compare with: its jars, fetched by Maven."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import CannotMake, Component, cache_folder, run_showing_progress, workshop

VERSION = "4.2.0"  # the newest on Maven Central; it runs in Spark 4.3
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # the newest; it does nothing without tokens
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""With their versions in Spark's own build. Each is asked for alone, since all else is in Spark already and Spark's
build file sends resolvers to a mirror that is not everywhere in reach."""

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


def folder() -> Path:
    """The folder that holds the jars."""
    return cache_folder() / "spark-jars" / f"spark-sql-kafka-{VERSION}"


def find() -> Path | None:
    """The folder, if it is there; it comes by one rename, so it is whole."""
    return folder() if folder().is_dir() else None


def make() -> None:
    """Fetch them: four jars, 11 MB."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotMake("there is no Maven here")
    with workshop(folder().parent) as draft:
        pom, target = draft / "pom.xml", draft / "jars"
        pom.write_text(_POM.format(dependencies="\n".join(_DEPENDENCY.format(*jar) for jar in JARS)))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        run_showing_progress("spark-kafka", command, {})
        target.replace(folder())


SPARK_KAFKA = Component(
    name="spark-kafka",
    purpose="Spark's Kafka source, for the benchmarks",
    how="install Java 17 or newer and Maven, then `python infra/components.py prepare spark-kafka`",
    find=find,
    make=make,
    seconds=20,
    megabytes=11,
    programs=("mvn",),
    on_demand=True,
)
