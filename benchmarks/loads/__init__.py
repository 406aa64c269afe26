"""Load programs, each a process of its own with plain sockets, so that the load is not the bottleneck."""
