"""Two brokers on one bucket: the second fences the first, and no acknowledged record is lost."""

from dataclasses import replace

from tests.end_to_end.broker_process import wait_until
from tests.end_to_end.conftest import StartBroker
from tests.end_to_end.steady_load import OPTIONS, SteadyLoad

from tidelog.client import Admin, Producer
from tidelog.storage.errors import Fenced, Unavailable


def test_the_second_broker_fences_the_first_and_keeps_its_records(start_broker: StartBroker) -> None:
    first = start_broker()
    with Admin(first.url) as admin:
        admin.create_topic("load", partitions=3)
    with SteadyLoad(first.url, "load", replace(OPTIONS, delivery_timeout_s=1.0)) as load:
        load.await_acknowledged(3_000)
        second = start_broker()
        wait_until(lambda: load.failure is not None, 30.0, first.log)
        load.finish()
        assert isinstance(load.failure, Fenced | Unavailable)
        load.assert_whole(second.url, "load")
        with Producer(second.url, "after") as producer:
            producer.send(b"the second broker leads")
        with Admin(first.url) as admin:
            assert not admin.health().ready
