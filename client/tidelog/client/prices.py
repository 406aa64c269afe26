"""A price table from a TOML file, for a store that is not S3 Standard in us-east-1.

    name = "S3 Standard, eu-central-1"
    put_usd_per_1000 = 0.0054
    get_usd_per_1000 = 0.00043
    list_usd_per_1000 = 0.0054
    stored_usd_per_gb_month = 0.0245

What a file leaves out costs nothing, but for a HEAD, which is priced as a GET.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from tidelog.storage.errors import Invalid
from tidelog.storage.stores.counting import PriceTable


class _PriceFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    put_usd_per_1000: float = 0.0
    get_usd_per_1000: float = 0.0
    list_usd_per_1000: float = 0.0
    head_usd_per_1000: float | None = None
    delete_usd_per_1000: float = 0.0
    stored_usd_per_gb_month: float = 0.0


def read_prices(path: Path) -> PriceTable:
    """Raises `Invalid` for a file that is not there or not as above, naming what is wrong."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), _PriceFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"{path} is no price table: {error}", field="prices") from error
    given = (
        found.put_usd_per_1000,
        found.get_usd_per_1000,
        found.list_usd_per_1000,
        found.delete_usd_per_1000,
        found.head_usd_per_1000 or 0.0,
        found.stored_usd_per_gb_month,
    )
    if not all(0 <= price < float("inf") for price in given):
        raise Invalid(f"{path} is no price table: a price is not negative", field="prices")
    head_usd = found.get_usd_per_1000 if found.head_usd_per_1000 is None else found.head_usd_per_1000
    return PriceTable(
        put_usd=found.put_usd_per_1000 / 1_000,
        get_usd=found.get_usd_per_1000 / 1_000,
        list_usd=found.list_usd_per_1000 / 1_000,
        head_usd=head_usd / 1_000,
        delete_usd=found.delete_usd_per_1000 / 1_000,
        stored_gb_month_usd=found.stored_usd_per_gb_month,
        name=found.name or path.name,
    )
