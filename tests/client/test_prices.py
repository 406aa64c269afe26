"""Price tables: what requests cost, and tables from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.client.prices import S3_STANDARD, PriceTable, read_prices
from tidelog.storage.errors import Invalid
from tidelog.storage.stores.counting import CountingObjectStore, RequestCounts
from tidelog.storage.stores.memory import MemoryObjectStore


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.toml"
    file.write_text(text)
    return file


def test_a_file_prices_requests_and_storage(tmp_path: Path) -> None:
    prices = read_prices(
        written(
            tmp_path,
            'name = "elsewhere"\nput_usd_per_1000 = 0.01\nget_usd_per_1000 = 0.001\nlist_usd_per_1000 = 0.02\n'
            "stored_usd_per_gb_month = 0.05\n",
        )
    )
    asked = RequestCounts(puts=1_000, gets=1_000, lists=1_000, heads=1_000, deletes=1_000)
    assert prices.requests_usd(asked) == pytest.approx(0.01 + 0.001 + 0.02 + 0.001)
    assert prices.stored_month_usd(2 << 30) == pytest.approx(0.10)
    assert prices.name == "elsewhere"


def test_prices_that_a_file_leaves_out_are_zero(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, "head_usd_per_1000 = 3\n"))
    assert prices.requests_usd(RequestCounts(puts=5, gets=5, lists=5, deletes=5)) == 0
    assert prices.head_usd == 0.003
    assert prices.name == "prices.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("put_usd = 1\n", "put_usd"),
        ('get_usd_per_1000 = "cheap"\n', "get_usd_per_1000"),
        ("get_usd_per_1000 = -1\n", "not negative"),
        ("put_usd_per_1000 = nan\n", "not negative"),
        ("= 3", "TOML|Invalid|line"),
    ],
)
def test_an_invalid_price_table_is_refused_with_the_mistake(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        read_prices(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no price table"):
        read_prices(tmp_path / "none.toml")


async def test_dollars_follow_the_price_table() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    for number in range(10):
        await store.create(f"topics/web/id/partition=0/{number}", b"")
        await store.get(f"topics/web/id/partition=0/{number}")
    await store.list("wal/")
    await store.delete("topics/web/id/partition=0/0")
    usage = store.usage()
    assert S3_STANDARD.requests_usd(usage.counts()) == pytest.approx((10 * 0.005 + 10 * 0.0004 + 0.005) / 1_000)
    assert S3_STANDARD.requests_usd(usage.counts(topic="web")) == pytest.approx((10 * 0.005 + 10 * 0.0004) / 1_000)
    assert PriceTable().requests_usd(usage.counts()) == 0.0
