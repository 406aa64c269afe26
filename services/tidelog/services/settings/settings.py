"""Every setting of Tidelog, declared once: name, type, group, default, bounds and meaning.

From this table come the flags of `tidelog serve`, the ``TIDELOG_*`` variables, the names in a TOML file, the output of
`tidelog config` and docs/settings.md. `settings_sources` reads the values. The dotted name of a setting
(``flush.interval.ms``) is the name of its field with dots. Sizes are in bytes, times in milliseconds. A setting without
a group is in the group of the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.topics.topic import PARTITIONS_MAX
from tidelog.services.settings.listeners import addresses_by_name, parse_listeners
from tidelog.services.settings.setting import count, duration, size, switch, text
from tidelog.storage.wal.floor_trust import GRACE_S_MIN

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The settings of one process, as an immutable value. None stands for ``auto``."""

    store: str = text(
        "file:./tidelog-data", "Where the log is stored: memory:, file:PATH or s3://BUCKET/PREFIX.", group="Store"
    )
    store_request_timeout_ms: int = duration(
        "5s",
        "100ms to 1m",
        "Time limit for a request to S3, plus 1 s per MiB of its body. After that it is sent again.",
    )
    store_connect_timeout_ms: int = duration("3s", "100ms to 1m", "Time limit for opening a connection to S3.")
    store_hedge_ms: int = duration(
        "1s", "0 to 1m", "A read or commit that S3 has not answered by then is sent a second time; 0 disables this."
    )

    host: str = text("127.0.0.1", "The address to listen on.", group="Network")
    port: int = count(8080, "0 to 65535", "The port to listen on; 0 takes a free one.")
    connections_max: int = count(
        10_000, "1 to 1000000", "Open connections, of which nine tenths may wait for records; beyond that, 503."
    )
    listeners: str | None = text(
        None,
        "Where to listen for clients of Kafka's protocol: NAME://HOST:PORT, several with commas, for example "
        "PLAINTEXT://0.0.0.0:9092; none is nowhere. An empty HOST is every address of the machine. auto is port 9092 "
        "of host if that port is free, otherwise nowhere.",
    )
    advertised_listeners: str | None = text(
        None,
        "The address of each of the listeners, by its NAME, that clients of Kafka's protocol are told; auto is that of "
        "listeners, or with listeners=auto the host of advertised.address.",
    )
    max_connections: int = count(
        20_000, "1 to 1000000", "Open connections of clients of Kafka's protocol; a further one is closed."
    )
    max_connections_per_ip: int = count(
        10_000, "1 to 1000000", "Those of one IP address, or of one /64 network of IPv6; a further one is closed."
    )
    connections_max_idle_ms: int = duration(
        "10m", "1s to 1d", "A connection of Kafka's protocol that is idle for this long is closed."
    )
    http_hosts_allowed: str | None = text(
        None,
        "Names that the Host header of a request may have besides localhost, IP addresses and the advertised address. "
        "Separate several with commas; `*.example.com` allows all names below one, `*` any; auto allows none.",
    )
    http_origins_allowed: str | None = text(
        None,
        "Origins of web pages that may call this broker, for example https://console.example.com. Separate several "
        "with commas; auto allows none.",
    )
    shutdown_timeout_ms: int = duration(
        "9s", "100ms to 1h", "Time limit for a graceful stop: commit and answer what is in progress."
    )

    log_level: str = text(
        "info", "The least severe lines to log.", choices=("debug", "info", "warning", "error"), group="Logging"
    )
    log_format: str = text("auto", "auto is text on a terminal and JSON elsewhere.", choices=("auto", "text", "json"))

    shards: int = count(
        4, "1 to 1024", "Write-ahead logs of a new bucket. An existing bucket keeps its own.", group="Topics"
    )
    num_partitions: int = count(1, "1 to 100000", "Partitions of a topic that is created without a number.")
    auto_create_topics_enable: bool = switch(True, "Create a topic when a producer first writes to it.")
    topics_max: int = count(10_000, "1 to 1000000", "Topics in the bucket; a further one is refused.")
    topic_partitions_max: int = count(10_000, f"1 to {PARTITIONS_MAX}", "Partitions of one topic.")
    partitions_max: int = count(100_000, "1 to 10000000", "Partitions of all topics together.")

    flush_interval_ms: int | None = duration(
        "auto",
        "0 to 1m",
        "Time between the starts of two PUTs of a busy shard; auto is 250 on S3, else 0.",
        group="Write path",
    )
    flush_max_bytes: int = size("8MiB", "64KiB to 1GiB", "A batch of this size is sent at once.")
    buffer_max_bytes: int = size(
        "256MiB", "1MiB to 1TiB", "Records that wait for their commit. Further produces get 503."
    )
    acks1_loss_max_ms: int | None = duration(
        "auto",
        "0 to 1h",
        "A crash loses at most this much of what was acknowledged with acks=1: once the oldest uncommitted record of a "
        "shard is older, produces with acks=1 wait for the store. auto is 750 more than flush.interval.ms.",
    )
    commit_timeout_ms: int = duration(
        "30s", "100ms to 1h", "How long a produce waits for its commit before it gets 503."
    )

    cache_max_bytes: int = size(
        "96MiB", "0 to 1TiB", "Recent records that are kept in memory for readers.", group="Read path"
    )
    fetch_max_bytes: int = size("16MiB", "1KiB to 1GiB", "Approximate size limit of the answer to one fetch.")
    fetch_max_records: int = count(500_000, "1 to 100000000", "Records in the answer to one fetch.")
    fetch_max_wait_ms: int = duration("1m", "0 to 1h", "The longest time a fetch may wait for records.")
    fetch_cold_concurrency: int = count(4, "1 to 1024", "Cold segments that are read at the same time.")

    request_max_bytes: int = size(
        "64MiB",
        "1KiB to 1GiB",
        "Size of one request body after decompression; a larger one gets 413.",
        group="Requests",
    )
    socket_request_max_bytes: int = size(
        "100MiB", "1KiB to 1GiB", "Size of one request of Kafka's protocol; a larger one ends its connection."
    )
    queued_max_request_bytes: int = size(
        "256MiB",
        "1MiB to 1TiB",
        "Requests of Kafka's protocol that are in memory; beyond that, their connections are read later.",
    )
    request_max_records: int = count(1_000_000, "1 to 100000000", "Records in one request body.")
    request_read_timeout_ms: int = duration("30s", "100ms to 1h", "Time limit for a request body to arrive.")
    request_head_timeout_ms: int = duration("10s", "100ms to 1h", "Time limit for the head of a request to arrive.")
    key_max_bytes: int = size("64KiB", "1 to 1GiB", "Size of the key of a record.")
    producer_id_expiration_ms: int = duration(
        "1d",
        "1m to 365d",
        "An idempotent producer is forgotten after this silence. A batch that it sends again is then in the log twice.",
    )
    producer_ids_max: int = count(
        100_000, "1 to 10000000", "Idempotent producers that a broker remembers, counted per partition."
    )

    offsets_retention_ms: int = duration(
        "7d",
        "1s to 3650d",
        "Committed offsets of a group are kept this long after its last member left.",
        group="Groups",
    )
    offsets_commit_timeout_ms: int = duration(
        "5s", "100ms to 10m", "How long a commit, or another call on a group, waits for the store before it gets 503."
    )
    offset_metadata_max_bytes: int = size("4KiB", "0 to 64KiB", "Size of the metadata of a committed offset.")
    group_consumer_session_timeout_ms: int = duration(
        "45s",
        "1s to 1h",
        "A member that sends no heartbeat for this time loses its partitions, unless it asks for another time.",
    )
    group_consumer_heartbeat_interval_ms: int = duration(
        "5s",
        "100ms to 10m",
        "The longest time between two heartbeats of a member. With few members they come twice a second.",
    )
    group_min_session_timeout_ms: int = duration("1s", "100ms to 1h", "The shortest session that a member may ask for.")
    group_max_session_timeout_ms: int = duration("30m", "1s to 1d", "The longest session that a member may ask for.")
    group_initial_rebalance_delay_ms: int = duration(
        "3s", "0 to 10m", "How long a new group of the classic protocol waits for more members."
    )
    group_max_size: int = count(10_000, "1 to 1000000", "Members of one group; a further one is refused.")
    group_instances_max: int = count(
        10_000, "1 to 1000000", "Instances of REST consumers of one group; a further one is refused."
    )
    group_loaded_max: int = count(
        20_000,
        "10 to 10000000",
        "Groups of one shard that a broker holds in memory; unused ones are dropped.",
    )
    group_requests_max: int = count(
        20_000, "10 to 10000000", "Requests to the groups of one shard that wait for an answer; beyond that, 503."
    )

    archiver_interval_ms: int = duration(
        "1m",
        "10ms to 1d",
        "An older write-ahead log is archived; with many topics and few entries, one ten times as old.",
        group="Archive",
    )
    archiver_min_bytes: int = size("64MiB", "1 to 1TiB", "A larger write-ahead log is archived.")
    archiver_batch_bytes: int = size(
        "64MiB", "1KiB to 1GiB", "Stored bytes of the write-ahead log that one pass of the archiver holds in memory."
    )
    archiver_debt_max_bytes: int = size(
        "1GiB",
        "1MiB to 1TiB",
        "Stored bytes of the write-ahead logs of a broker that are not archived. From three quarters on, produces are "
        "delayed; at the limit they get 503.",
    )
    archiver_upkeep: bool = switch(
        True,
        "Retention, merging, compaction, deletion, sweeps in this broker; false where `tidelog compactor` does them.",
    )
    archiver_bandwidth_bytes: int = size(
        "0", "0 to 1TiB", "Bytes per second that upkeep may read and write; 0 is unlimited."
    )
    archiver_memory_bytes: int = size("128MiB", "1MiB to 1TiB", "Raw records that one step of upkeep holds in memory.")
    archiver_spill_folder: str | None = text(
        None, "Folder for data that compaction does not hold in memory; auto is the system's temporary folder."
    )
    archiver_sweep_interval_ms: int = duration(
        "1d",
        "0 to 365d",
        "Time between two sweeps for orphans and unfinished uploads that are older than a day; 0 disables them.",
    )
    delete_grace_ms: int = duration(
        "15m",
        f"{GRACE_S_MIN:.0f}s to 30d",  # the commit protocol relies on it
        "How long an unneeded object is kept, for example an archived WAL entry or an old manifest. Segments have the "
        "topic config file.delete.delay.ms.",
    )

    etcd_endpoints: str | None = text(
        None,
        "Addresses of etcd, http://HOST:PORT, several with commas; auto is one broker without a cluster.",
        group="Cluster",
    )
    etcd_username: str | None = text(None, "User name, for an etcd with authentication.")
    etcd_password: str | None = text(
        None, "Password of that user. Give it by the variable: other users can see flags.", secret=True
    )
    etcd_ca_file: str | None = text(None, "PEM file of the authority that signed etcd's certificates.")
    etcd_cert_file: str | None = text(None, "PEM file of this broker's certificate for etcd.")
    etcd_key_file: str | None = text(None, "PEM file of the key of that certificate.")
    etcd_timeout_ms: int = duration("3s", "100ms to 1m", "Time limit for one call to etcd.")
    cluster_name: str = text("main", "Separates clusters that share an etcd.")
    broker_id: str | None = text(
        None,
        "This broker's name. If it restarts under the same name, it takes its shards back at once; auto is a new name, "
        "and a new node id for Kafka's clients.",
    )
    broker_zone: str = text("none", "Where this broker runs; shown to clients.")
    advertised_address: str | None = text(
        None, "http://HOST:PORT at which other brokers and clients reach this broker; auto is host and port."
    )
    lease_ttl_ms: int = duration(
        "6s", "1s to 1m", "A broker that does not renew its lease for this long loses its shards."
    )
    rebalance_delay_ms: int = duration("3s", "0 to 10m", "How long a broker must be up before it is given shards.")
    peer_secret: str | None = text(
        None,
        "Secret by which brokers prove to each other that they are peers, at least 16 characters. Of several with "
        "commas, the first one signs and all are accepted; auto is a secret that the cluster makes and keeps in etcd.",
        secret=True,
    )
    forward_timeout_ms: int = duration(
        "10s", "100ms to 1h", "How long a broker looks for the leader of the shard of a request."
    )

    @property
    def own_listeners(self) -> dict[str, str]:
        """Where clients of Kafka's protocol reach this broker: ``HOST:PORT`` by the name of the listener."""
        told = self.advertised_listeners if parse_listeners("listeners", self.listeners) else None
        return addresses_by_name("advertised.listeners", told)

    @property
    def own_address(self) -> str:
        """The address that peers and clients use; `port` is the one that is really bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.advertised_address or f"http://{host}:{self.port}"
