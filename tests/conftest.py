"""Fixtures that every folder may use: the real components (`tests/components/`). The order of the files."""

import os
import signal

from hypothesis import settings

pytest_plugins = [
    "tests.components.botocore_files",
    "tests.components.etcd",
    "tests.components.minio",
    "tests.components.missing_summary",
    "tests.components.moto",
    "tests.worker_order",
]

os.environ["TIDELOG_LISTENERS"] = "none"  # brokers of many tests run at once, and only one of them would get port 9092

settings.register_profile("tidelog", deadline=None)  # a deadline would fail tests on a busy machine, and only there
settings.load_profile("tidelog")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background programs with SIGINT ignored, and they pass that on to their children: tests that press
    # Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
