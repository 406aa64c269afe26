"""Tools over a whole bucket. They need no broker, and brokers may run at the same time.

shared by the tools
  listing           walks over keys: folders, shards, pages of segments
  shard_look        the newest manifest of a shard, and a topic in it with its list
  topic_walk        the pages of all segments, beside their topics      (verify, sweep)
  replay            the history of a shard's manifest, step by step     (verify, attest, repair)
  segment_reading   segments byte by byte; which records an upload has  (verify, sweep, repair)
  finding           what tools report
  known_topics      what the coordinator's journal tells them of topics

verify    wal_check and index_check, then manifest_check, then segments_check with topic_rules, then topic_check;
          verify_state is its position
sweep     sweep_orphans finds uploads that nothing names; sweep_report
attest
repair    repair_survey reads a shard, repair_plan plans purely, list_restore makes a lost list again
copy      copy_shard and copy_groups, by copy_transfer
"""
