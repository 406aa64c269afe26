"""The Python client: `Producer`, `Consumer` and `Admin`, synchronous, over HTTP.

What goes wrong is raised as the errors of `tidelog.storage.errors`.
"""

from tidelog.client.admin import Admin
from tidelog.client.consumer import Batch, Consumer, ConsumerOptions, Record
from tidelog.client.delivery import Delivered
from tidelog.client.producer import Producer
from tidelog.client.producer_options import ProducerOptions
from tidelog.client.refusals import Refused

__all__ = [
    "Admin",
    "Batch",
    "Consumer",
    "ConsumerOptions",
    "Delivered",
    "Producer",
    "ProducerOptions",
    "Record",
    "Refused",
]
