"""Prices of requests and of storage: S3 Standard's, or those of a TOML file.

    name = "S3 Standard, eu-central-1"
    put_usd_per_1000 = 0.0054
    get_usd_per_1000 = 0.00043
    list_usd_per_1000 = 0.0054
    stored_usd_per_gb_month = 0.0245

A price that the file leaves out is 0. If it leaves out the price of HEAD, a HEAD costs as much as a GET.
"""

from __future__ import annotations

import tomllib
from dataclasses import astuple, dataclass
from pathlib import Path

import msgspec

from tidelog.storage.errors import Invalid
from tidelog.storage.stores.counting import RequestCounts

BILLED_GB_BYTES = 1 << 30
"""A gigabyte of storage as price lists count it."""


@dataclass(frozen=True)
class PriceTable:
    """US dollars per request, and per month for each 2^30 bytes stored."""

    put_usd: float = 0.0
    get_usd: float = 0.0
    list_usd: float = 0.0
    head_usd: float = 0.0
    delete_usd: float = 0.0
    stored_gb_month_usd: float = 0.0
    name: str = ""

    def requests_usd(self, requests: RequestCounts) -> float:
        """The price of `requests`."""
        return (
            requests.puts * self.put_usd
            + requests.gets * self.get_usd
            + requests.lists * self.list_usd
            + requests.heads * self.head_usd
            + requests.deletes * self.delete_usd
        )

    def stored_month_usd(self, size_bytes: float) -> float:
        """The price of storing `size_bytes` for a month."""
        return self.stored_gb_month_usd * size_bytes / BILLED_GB_BYTES


S3_STANDARD = PriceTable(
    put_usd=0.005 / 1_000,
    get_usd=0.0004 / 1_000,
    list_usd=0.005 / 1_000,
    head_usd=0.0004 / 1_000,
    stored_gb_month_usd=0.023,
    name="S3 Standard, us-east-1",
)
"""S3 Standard's list prices in us-east-1 as of November 2026: 0.005 USD per 1,000 PUT, COPY, POST or LIST requests,
0.0004 USD per 1,000 GET and all other requests, DELETE free, 0.023 USD per GB and month for the first 50 TB
(https://aws.amazon.com/s3/pricing/). Traffic out of the region is not included; traffic within the region is free."""


class _PriceFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    put_usd_per_1000: float = 0.0
    get_usd_per_1000: float = 0.0
    list_usd_per_1000: float = 0.0
    head_usd_per_1000: float | None = None
    delete_usd_per_1000: float = 0.0
    stored_usd_per_gb_month: float = 0.0


def read_prices(path: Path) -> PriceTable:
    """Read a price file. Raises `Invalid` with the reason if the file is missing or does not have the format above."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), _PriceFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"{path} is no price table: {error}", field="prices") from error
    head_per_1000 = found.get_usd_per_1000 if found.head_usd_per_1000 is None else found.head_usd_per_1000
    prices = PriceTable(
        put_usd=found.put_usd_per_1000 / 1_000,
        get_usd=found.get_usd_per_1000 / 1_000,
        list_usd=found.list_usd_per_1000 / 1_000,
        head_usd=head_per_1000 / 1_000,
        delete_usd=found.delete_usd_per_1000 / 1_000,
        stored_gb_month_usd=found.stored_usd_per_gb_month,
        name=found.name or path.name,
    )
    if not all(0 <= price < float("inf") for price in astuple(prices)[:-1]):
        raise Invalid(f"{path} is no price table: a price is not negative", field="prices")
    return prices
