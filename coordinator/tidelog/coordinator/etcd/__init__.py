"""The key-value store on etcd; the only package that imports gRPC."""
