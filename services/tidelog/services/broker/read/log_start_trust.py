"""How long a reader may go by what it knew of a log's beginning, so that delete-records can say when all readers know
it.

delete-records promises that once it is answered no broker gives out the deleted records any more. Brokers do not tell
each other; one that is cut off from etcd, or from its peers, could not be told. Instead what a reader knows has an
age:

1. A reader of segments elsewhere (`cluster.cold_reader`) goes by a manifest that was the newest at a moment at most
   `READERS_TRUST_S` before its call began. A leader goes by its own memory if it led the shard at such a moment
   (`ShardSet.prove_led_lately`). Both count from before they asked, on their own monotonic clock.
2. The leader appends the manifest with the new beginning, waits `DELETION_WAIT_S`, proves that it leads still, and
   answers.
3. So a call that begins after the answer goes by a manifest, or by a leadership, that was asked for after the append. A
   leader after this one began after the proof, and reads the manifest after its beginning.

The wait is twice the trust: the clock of one broker may run twice as fast as that of another. Both must run on while
their machine is suspended, as in `storage.floor_trust`.
"""

from __future__ import annotations

READERS_TRUST_S = 0.5
DELETION_WAIT_S = 2 * READERS_TRUST_S
