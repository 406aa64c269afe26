"""Fixtures that every folder may use: the real components (`tests/components/`)."""

import signal

pytest_plugins = ["tests.components.etcd", "tests.components.minio", "tests.components.moto"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background with SIGINT ignored, and programs hand that down: tests that press
    # Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
