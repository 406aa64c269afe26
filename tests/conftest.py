"""Fixtures that every folder may use: the real components (`tests/components/`)."""

pytest_plugins = ["tests.components.etcd", "tests.components.minio", "tests.components.moto"]
