"""Reads the segments in a bucket with DuckDB, pandas and plain Spark, as an analyst would.

Nothing here imports Tidelog. Each reader takes a filter on offset or timestamp (a half-open range) and returns a table,
sorted by partition and offset, with the columns partition, offset, timestamp in ms, key, value.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import S3FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "timestamp", "key", "value")
ROWS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Between:
    """``low <= column < high``, of ``offset`` or ``timestamp`` (ms since 1970), in one partition; None: in all."""

    column: str
    low: int
    high: int
    partition: int | None = None

    def edges(self) -> tuple[int | datetime, int | datetime]:
        if self.column == "offset":
            return self.low, self.high
        return datetime.fromtimestamp(self.low / 1_000, UTC), datetime.fromtimestamp(self.high / 1_000, UTC)


@dataclass(frozen=True)
class Archive:
    """The segments of a topic that count, as `tidelog topic segments` lists them: `keys` in `bucket` at `endpoint`.
    Their column `partition` says whose each record is."""

    endpoint: str
    key_id: str
    secret: str
    bucket: str
    keys: tuple[str, ...]

    def urls(self, scheme: str) -> list[str]:
        return [f"{scheme}{self.bucket}/{key}" for key in self.keys]


class OpenReader(Protocol):
    """One reader. It caches nothing between calls."""

    name: str

    def read(self, archive: Archive, wanted: Between | None) -> pa.Table:
        """Return the rows with the schema `ROWS`; all rows if there is no filter."""
        ...


class DuckDb:
    """DuckDB with httpfs, its own extension for S3."""

    name = "DuckDB"

    def read(self, archive: Archive, wanted: Between | None) -> pa.Table:
        with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
            connection.load_extension(str(_httpfs()))
            connection.execute(
                "CREATE SECRET (TYPE s3, KEY_ID $key, SECRET $secret, ENDPOINT $endpoint, REGION 'us-east-1', "
                "URL_STYLE 'path', USE_SSL false)",
                {"key": archive.key_id, "secret": archive.secret, "endpoint": urlsplit(archive.endpoint).netloc},
            )
            query = f"SELECT {_quoted(COLUMNS)} FROM read_parquet($files)"
            named: dict[str, object] = {"files": archive.urls("s3://")}
            if wanted is not None:
                named["low"], named["high"] = wanted.edges()
                query += f' WHERE "{wanted.column}" >= $low AND "{wanted.column}" < $high'
                if wanted.partition is not None:
                    named["partition"] = wanted.partition
                    query += " AND partition = $partition"
            return _rows(connection.execute(query, named).to_arrow_table())


class Pandas:
    """``pandas.read_parquet`` with filters, on pyarrow."""

    name = "pandas"

    def read(self, archive: Archive, wanted: Between | None) -> pa.Table:
        files = S3FileSystem(
            endpoint_override=archive.endpoint,
            region="us-east-1",
            access_key=archive.key_id,
            secret_key=archive.secret,
            force_virtual_addressing=False,
        )
        filters: list[tuple[str, str, object]] | None = None
        if wanted is not None:
            low, high = wanted.edges()
            filters = [(wanted.column, ">=", low), (wanted.column, "<", high)]
            if wanted.partition is not None:
                filters.append(("partition", "==", wanted.partition))
        frame = pd.read_parquet(
            archive.urls(""),
            engine="pyarrow",
            partitioning=None,
            filesystem=files,
            columns=list(COLUMNS),
            filters=filters,
            dtype_backend="pyarrow",
        )
        return _rows(pa.Table.from_pandas(frame, preserve_index=False))


class PlainSpark:
    """``spark.read.parquet`` by s3a."""

    name = "Spark"

    def __init__(self, spark: SparkSession, options: Mapping[str, str] | None = None) -> None:
        self._spark = spark
        self._options = options or {}

    def read(self, archive: Archive, wanted: Between | None) -> pa.Table:
        import pyspark.sql.functions as f

        options = {
            **self._options,
            f"fs.s3a.bucket.{archive.bucket}.endpoint": archive.endpoint,
            f"fs.s3a.bucket.{archive.bucket}.path.style.access": "true",
            "fs.s3a.impl.disable.cache": "true",  # otherwise Spark reuses a file system of another endpoint
        }
        frame = self._spark.read.options(**options).parquet(*archive.urls("s3a://"))
        if wanted is not None:
            low, high = wanted.edges()
            frame = frame.where((f.col(wanted.column) >= f.lit(low)) & (f.col(wanted.column) < f.lit(high)))
            if wanted.partition is not None:
                frame = frame.where(f.col("partition") == wanted.partition)
        chosen = frame.select("partition", "offset", f.unix_millis("timestamp").alias("timestamp"), "key", "value")
        return _rows(chosen.toArrow())


def _httpfs() -> Path:
    """The path of the extension in its PyPI package, in the version of DuckDB, so that DuckDB need not fetch it."""
    found = importlib.util.find_spec("duckdb_extension_httpfs")
    if found is None or found.origin is None:
        raise FileNotFoundError("DuckDB's extension for S3 is missing: pip install duckdb-extension-httpfs")
    return Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _rows(table: pa.Table) -> pa.Table:
    """Return `table` with the schema `ROWS`, sorted."""
    times = table["timestamp"]
    if pa.types.is_timestamp(times.type):
        table = table.set_column(2, "timestamp", times.cast(pa.timestamp("ms", times.type.tz)).cast(pa.int64()))
    sizes = {name: pc.cast(table[name], ROWS.field(name).type) for name in COLUMNS}
    return pa.table(sizes, schema=ROWS).sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()
