"""etcd as the key-value store of a cluster; the only package that imports gRPC."""
