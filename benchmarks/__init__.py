"""Tidelog beside Kafka and s2 lite on one machine: `python -m benchmarks`, or `make bench`."""
