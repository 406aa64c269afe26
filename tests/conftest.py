"""Fixtures that every folder may use: the real components (`tests/components/`)."""

import signal

from hypothesis import settings

pytest_plugins = [
    "tests.components.etcd",
    "tests.components.minio",
    "tests.components.missing_summary",
    "tests.components.moto",
]

settings.register_profile("tidelog", deadline=None)  # a deadline fails tests on a busy machine, and there alone
settings.load_profile("tidelog")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background with SIGINT ignored, and programs hand that down: tests that press
    # Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
