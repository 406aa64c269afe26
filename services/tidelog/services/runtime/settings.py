"""Every setting of a broker, as values. Reading them from files, variables and flags is `settings_sources`.

Names are dotted as Kafka's are (``flush.interval.ms``); the field is the same with underscores.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """A broker's settings; sizes in bytes, times in milliseconds. `None` for an interval: the store's own default."""

    store: str = "file:./tidelog-data"
    store_request_timeout_ms: int = 5_000  # of one request to S3; more for its body, a second for each MiB
    store_connect_timeout_ms: int = 3_000
    store_hedge_ms: int = 1_000  # a request to S3 that takes longer is sent a second time; 0: never
    host: str = "127.0.0.1"
    port: int = 8080
    log_level: str = "info"
    log_format: str = "auto"  # auto: text on a terminal, else json

    shards: int = 4
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    topics_max: int = 10_000
    topic_partitions_max: int = 10_000
    partitions_max: int = 100_000  # of all topics

    flush_interval_ms: int | None = None  # between PUT starts of a busy shard: 0 on local stores, 250 on S3
    flush_max_bytes: int = 8 * MIB
    buffer_max_bytes: int = 256 * MIB
    cache_max_bytes: int = 96 * MIB
    acks1_loss_max_ms: int | None = None  # of a shard's records, in a crash; None: 750 more than the flush interval
    commit_timeout_ms: int = 30_000  # how long a produce waits for its commit before 503 "outcome unknown"

    request_max_bytes: int = 64 * MIB  # of one body, after decompression
    request_max_records: int = 1_000_000
    request_read_timeout_ms: int = 30_000
    request_head_timeout_ms: int = 10_000
    fetch_max_bytes: int = 16 * MIB
    fetch_max_records: int = 500_000
    fetch_max_wait_ms: int = 60_000
    fetch_cold_concurrency: int = 4
    key_max_bytes: int = 64 * 1024
    connections_max: int = 10_000
    producer_id_expiration_ms: int = 86_400_000  # an idempotent producer silent for longer is forgotten
    producer_ids_max: int = 100_000
    http_hosts_allowed: str | None = None  # further names by which browsers may call this broker, with commas
    http_origins_allowed: str | None = None  # web pages of other origins that may call this broker, with commas

    archiver_interval_ms: int = 60_000  # a WAL older than this is archived ...
    archiver_min_bytes: int = 64 * MIB  # ... or one larger than this
    archiver_batch_bytes: int = 32 * MIB  # raw records gathered in memory for one pass
    archiver_upkeep: bool = True  # False where a `tidelog compactor` looks after segments
    archiver_bandwidth_bytes: int = 0  # read and written by upkeep in a second; 0: as much as there is
    archiver_memory_bytes: int = 128 * MIB  # raw records held by one step of upkeep
    archiver_spill_folder: str | None = None  # where what compaction does not hold in memory lies; None: the system's
    archiver_sweep_interval_ms: int = 86_400_000  # between two sweeps for what nobody will ask for again; 0: never
    delete_grace_ms: int = 900_000  # between the floor's move and the deletion of WAL entries

    shutdown_timeout_ms: int = 9_000

    # the cluster: all of it unused without etcd.endpoints, where one broker leads every shard
    etcd_endpoints: str | None = None  # http://HOST:PORT or https://HOST:PORT, several with commas
    etcd_username: str | None = None
    etcd_password: str | None = None
    etcd_ca_file: str | None = None
    etcd_cert_file: str | None = None
    etcd_key_file: str | None = None
    etcd_timeout_ms: int = 3_000  # of one call
    cluster_name: str = "main"
    broker_id: str | None = None  # None: a new one each start
    broker_zone: str = "none"
    advertised_address: str | None = None  # for peers and clients; None: http://host:port as listened on
    lease_ttl_ms: int = 6_000
    rebalance_delay_ms: int = 3_000  # how long a broker is up before it is given shards
    peer_secret: str | None = None  # by which brokers know each other; None: the one that the cluster keeps in etcd
    forward_timeout_ms: int = 10_000  # how long a request looks for the leader of its shard

    @property
    def own_address(self) -> str:
        """Where peers and clients reach this broker; `port` is the one that is really bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.advertised_address or f"http://{host}:{self.port}"
