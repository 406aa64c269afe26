"""The list of scenarios: requests that are sent to both brokers in each version of an API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.kafka.oracle.pair import Pair

from tidelog.services.kafka.protocol.api_table import API_TABLE

Steps = Callable[[Pair, int], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """`steps` runs once for each version of the API."""

    api_key: int
    steps: Steps

    @property
    def name(self) -> str:
        return self.steps.__name__

    async def run(self, pair: Pair) -> None:
        pair.scenario = self.name
        for version in self._versions():
            await self.steps(pair, version)

    def _versions(self) -> Iterator[int]:
        api = API_TABLE[self.api_key]
        yield from range(api.lowest, api.highest + 1)


SCENARIOS: list[Scenario] = []


def scenario(api_key: int) -> Callable[[Steps], Steps]:
    """Add the decorated function to the list, for all versions of the API."""

    def added(steps: Steps) -> Steps:
        SCENARIOS.append(Scenario(api_key, steps))
        return steps

    return added
