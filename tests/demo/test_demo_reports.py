"""The comparison of numbers, the bill and the objects by kind."""

import pyarrow as pa
import pytest
from demo.agreement import Agreement, Fingerprint, compare_fingerprints, compare_rows
from demo.bucket_report import Bill, kinds_of

from tidelog.storage.object_store import ObjectInfo
from tidelog.storage.stores.counting import RequestCounts


def fingerprint(*values: bytes) -> Fingerprint:
    made = Fingerprint()
    made.update(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()))
    return made


def test_equal_fingerprints_agree() -> None:
    assert all(one.agree for one in compare_fingerprints([fingerprint(b"a")], [fingerprint(b"a")]))


def test_a_lost_record_shows_in_number_and_fingerprint() -> None:
    found = compare_fingerprints([fingerprint(b"a", b"b")], [fingerprint(b"a")])
    assert [one.agree for one in found] == [False, False]


def test_a_missing_result_does_not_disagree() -> None:
    assert Agreement("records", 3, http=3).agree
    assert not Agreement("records", 3, http=3, spark=2).agree


@pytest.mark.parametrize(
    ("found", "agree"),
    [
        ([["a", 1], ["b", 2]], True),
        ([["a", 1], ["b", 3]], False),
        ([["a", 1]], False),
        ([["a", 1], ["b", 2], ["c", 3]], False),
        ([["b", 2], ["a", 1]], False),
    ],
    ids=["same", "another number", "one missing", "one too many", "another order"],
)
def test_rows_agree_only_if_all_are_the_same(found: list[list[object]], agree: bool) -> None:
    assert compare_rows("query", [("a", 1), ("b", 2)], found).agree is agree


def test_a_bill_is_priced_as_s3_does() -> None:
    bill = Bill(RequestCounts(puts=2003, gets=10_000))
    assert bill.usd == pytest.approx(2003 * 0.005 / 1000 + 10000 * 0.0004 / 1000)
    assert bill.rows() == [("gets", 10_000, "$0.004000"), ("puts", 2003, "$0.010015")]


def test_bills_of_two_brokers_add_up() -> None:
    assert Bill(RequestCounts(gets=1)) + Bill(RequestCounts(puts=3, gets=2)) == Bill(RequestCounts(puts=3, gets=3))


def test_objects_are_distinguished_by_kind() -> None:
    objects = [
        ObjectInfo("wal/0000/00000000000000000000.parquet", 10, "", 0),
        ObjectInfo("topics/t/0123456789abcdef0123456789abcdef/0000-x.parquet", 100, "", 0),
        ObjectInfo("manifests/0000/00000000000000000000.json", 5, "", 0),
        ObjectInfo("meta/0.json", 2, "", 0),
        ObjectInfo("strange", 3, "", 0),
    ]
    found = {kind.name: (kind.objects, kind.size_bytes) for kind in kinds_of(objects)}
    assert found == {
        "write-ahead log entries": (1, 10),
        "cold segments": (1, 100),
        "manifests": (1, 5),
        "journal of topics": (1, 2),
        "other": (1, 3),
    }
