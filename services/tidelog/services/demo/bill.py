"""What the demo's requests would have cost on S3: counted by the broker, priced by `client.prices`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tidelog.client.prices import S3_STANDARD
from tidelog.storage.stores.counting import RequestCounts
from tidelog.storage.stores.wrapping import Verb

REQUESTS = "tidelog_store_requests"
HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Bill:
    """Requests by verb; bills of several brokers add up."""

    requests: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Bill) -> Bill:
        return Bill(dict(Counter(self.requests) + Counter(other.requests)))

    @property
    def usd(self) -> float:
        """By S3 Standard's list prices, storage and traffic left out."""
        return sum(_usd(verb, count) for verb, count in self.requests.items())

    def rows(self) -> list[tuple[str, int, str]]:
        """Verb, requests, dollars; most requests first."""
        order = sorted(self.requests.items(), key=lambda item: -item[1])
        return [(verb, count, f"${_usd(verb, count):.6f}") for verb, count in order]


def _usd(verb: str, count: int) -> float:
    return S3_STANDARD.requests_usd(RequestCounts.of({Verb(verb): count}))


def bill_of(url: str) -> Bill:
    """What this broker has asked of its store since it started. Raises `httpx.HTTPError` if it does not answer."""
    answer = httpx.get(f"{url}/metrics", timeout=10, trust_env=False).raise_for_status()
    return parse_bill(answer.text)


def parse_bill(metrics: str) -> Bill:
    """The bill in a broker's `/metrics`."""
    counts: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == f"{REQUESTS}_total":
                counts[sample.labels["verb"]] += int(sample.value)
    return Bill(dict(counts))
