package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// warnings is a logger that keeps warnings and errors.
type warnings struct {
	lock  sync.Mutex
	lines []string
}

func (w *warnings) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (w *warnings) Log(_ kgo.LogLevel, message string, fields ...any) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.lines = append(w.lines, fmt.Sprint(message, fields))
}

var (
	ctx       = context.Background()
	franzLog  = &warnings{lines: []string{}}
	franzSent = 0
)

func franz() object {
	client := franzClient()
	defer client.Close()
	admin := kadm.NewClient(client)
	seen := object{"topics": franzTopics(admin), "acknowledged": franzProduce()}
	seen["records"] = franzRead(franzSent, kgo.NewOffset().AtStart(), morePartitions)
	seen["by_time"] = franzRead(1, kgo.NewOffset().AfterMilli(baseMs+40), 1)[0]
	seen["classic"] = franzMembers("by-classic")
	seen["consumer"] = franzMembers("by-consumer", kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	seen["warnings"] = franzLog.lines
	seen["groups"] = franzGroups(admin)
	seen["removal"] = franzRemoval(admin)
	return seen
}

func franzClient(options ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap), kgo.WithLogger(franzLog))...))
}

func franzTopics(admin *kadm.Client) object {
	day := "86400000"
	must(admin.CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": &day}, topic))
	_, again := admin.CreateTopic(ctx, partitions, 1, nil, topic)
	check(must(admin.UpdatePartitions(ctx, morePartitions, topic)).Error())
	size := "2000000"
	alter := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &size}}
	for _, altered := range must(admin.AlterTopicConfigs(ctx, alter, topic)) {
		check(altered.Err)
	}
	configs := object{}
	for _, config := range must(must(admin.DescribeTopicConfigs(ctx, topic)).On(topic, nil)).Configs {
		if config.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			configs[config.Key] = config.MaybeValue()
		}
	}
	return object{
		"created again": again.Error(),
		"partitions":    len(must(admin.ListTopics(ctx))[topic].Partitions),
		"configs":       configs,
	}
}

func franzProduce() object {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string][]kgo.Opt{
		"0":          {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
		"1":          {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"idempotent": {},
	}
	acknowledged := object{}
	for codec, compression := range codecs {
		for name, options := range acks {
			options = append([]kgo.Opt{kgo.ProducerBatchCompression(compression), kgo.RecordPartitioner(kgo.ManualPartitioner())}, options...)
			acknowledged[codec+" "+name] = franzSend(options)
		}
	}
	return acknowledged
}

func franzSend(options []kgo.Opt) int {
	client := franzClient(options...)
	defer client.Close()
	batch := make([]*kgo.Record, each)
	for n := range batch {
		next := record(franzSent)
		franzSent++
		headers := []kgo.RecordHeader{{Key: "n", Value: next.number}, {Key: "empty"}}
		batch[n] = &kgo.Record{
			Topic: topic, Partition: next.partition, Timestamp: next.time, Key: next.key, Value: next.value, Headers: headers,
		}
	}
	acknowledged := 0
	for _, result := range client.ProduceSync(ctx, batch...) {
		check(result.Err)
		acknowledged++
	}
	return acknowledged
}

// franzRead reads count records of the first partitions.
func franzRead(count int, from kgo.Offset, first int32) []row {
	offsets := map[int32]kgo.Offset{}
	for n := range first {
		offsets[n] = from
	}
	client := franzClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	defer client.Close()
	rows := []row{}
	until("all records", func() bool {
		rows = append(rows, franzRows(client.PollRecords(ctx, count-len(rows)))...)
		return len(rows) >= count
	})
	return rows
}

func franzRows(fetches kgo.Fetches) []row {
	rows := []row{}
	for _, each := range fetches.Errors() {
		check(each.Err)
	}
	fetches.EachRecord(func(found *kgo.Record) {
		headers := []any{}
		for _, header := range found.Headers {
			headers = append(headers, header.Key, text(header.Value))
		}
		rows = append(rows, row{found.Partition, found.Offset, found.Timestamp.UnixMilli(), text(found.Key), text(found.Value), headers})
	})
	return rows
}

// franzMembers lets a second member join and leave a group while the first one reads.
func franzMembers(group string, options ...kgo.Opt) object {
	first, second := newFranzMember(group, options), (*franzMember)(nil)
	seen := object{}
	until("one member has all", func() bool { first.poll(); return first.held() == morePartitions })
	seen["alone"] = first.held()
	second = newFranzMember(group, options)
	until("two members share", func() bool {
		first.poll()
		second.poll()
		return first.held() == 3 && second.held() == 3
	})
	seen["both"] = []int{first.held(), second.held()}
	until("all is read", func() bool { first.poll(); second.poll(); return first.read+second.read >= franzSent })
	second.close()
	until("one member has all again", func() bool { first.poll(); return first.held() == morePartitions })
	seen["again"] = first.held()
	first.close()
	seen["read"] = first.read + second.read
	return seen
}

type franzMember struct {
	client *kgo.Client
	lock   sync.Mutex
	has    map[int32]bool
	read   int
}

func newFranzMember(group string, options []kgo.Opt) *franzMember {
	member := &franzMember{has: map[int32]bool{}}
	gone := func(_ context.Context, client *kgo.Client, lost map[string][]int32) {
		check(client.CommitUncommittedOffsets(ctx))
		member.change(lost, false)
	}
	options = append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { member.change(got, true) }),
	}, options...)
	member.client = franzClient(options...)
	return member
}

func (m *franzMember) change(partitions map[string][]int32, has bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range partitions[topic] {
		if has {
			m.has[partition] = true
		} else {
			delete(m.has, partition)
		}
	}
}

func (m *franzMember) held() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.has)
}

func (m *franzMember) poll() {
	turn, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fetches := m.client.PollFetches(turn)
	m.read += fetches.NumRecords()
	m.client.AllowRebalance()
}

func (m *franzMember) close() {
	check(m.client.CommitUncommittedOffsets(ctx))
	m.client.CloseAllowingRebalance()
}

func franzGroups(admin *kadm.Client) object {
	listed := must(admin.ListGroups(ctx)).Groups()
	offsets := must(admin.FetchOffsets(ctx, "by-classic"))
	sum := int64(0)
	offsets.Each(func(each kadm.OffsetResponse) { sum += each.At })
	moved := kadm.Offsets{}
	moved.Add(kadm.Offset{Topic: topic, Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "back"})
	check(admin.CommitAllOffsets(ctx, "by-classic", moved))
	back, _ := must(admin.FetchOffsets(ctx, "by-classic")).Lookup(topic, 0)
	state := must(admin.DescribeGroups(ctx, "by-classic"))["by-classic"].State
	must(admin.DeleteGroups(ctx, listed...))
	return object{
		"listed": listed, "offsets": sum, "moved": []any{back.At, back.Metadata}, "state": state,
		"after": len(must(admin.ListGroups(ctx))),
	}
}

func franzRemoval(admin *kadm.Client) object {
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: topic, Partition: 0, At: 5})
	must(admin.DeleteRecords(ctx, before))
	first, _ := must(admin.ListStartOffsets(ctx, topic)).Lookup(topic, 0)
	check(must(admin.DeleteTopics(ctx, topic)).Error())
	return object{"earliest": first.Offset}
}
