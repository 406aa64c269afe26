"""Names of headers. The first four say who makes a request and how long the client waits."""

from __future__ import annotations

REQUEST_ID = "X-Request-Id"
"""Id of the request: the client's, or the broker's. It is in the answer, in problems and in the broker's log."""
CLIENT_ID = "Tidelog-Client-Id"
"""How the client names itself."""
TIMEOUT_MS = "Tidelog-Timeout-Ms"
"""How many milliseconds the client waits for the answer, from when the broker has the request's head."""
PRINCIPAL = "Tidelog-Principal"
"""Who makes a forwarded request. A broker reads it from a proved peer only."""

PRODUCER_ID = "Tidelog-Producer-Id"
PRODUCER_EPOCH = "Tidelog-Producer-Epoch"
SEQUENCE = "Tidelog-Sequence"
"""The sequence number of the first record that an idempotent producer sends."""
NEXT_OFFSET = "Tidelog-Next-Offset"
HIGH_WATERMARK = "Tidelog-High-Watermark"
LOG_START_OFFSET = "Tidelog-Log-Start-Offset"
LEADER = "Tidelog-Leader"
"""In an answer: the address of the leader of the partition's shard."""
POSITION = "Tidelog-Position"
"""In an answer that follows a topic: where each partition begins."""
