"""Load programs. Each runs in its own process with plain sockets, so that the load is not the bottleneck."""
