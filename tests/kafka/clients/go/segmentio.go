package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

var segmentioSent = 0

func segmentio() object {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Transport: &kafka.Transport{MetadataTTL: time.Second}}
	seen := object{"topics": segmentioTopics(client), "acknowledged": segmentioProduce()}
	rows := []row{}
	for partition := range partitions {
		rows = append(rows, segmentioRead(partition, segmentioSent/partitions, nil)...)
	}
	seen["records"] = rows
	from := time.UnixMilli(baseMs + 40)
	seen["by_time"] = segmentioRead(0, 1, &from)[0]
	seen["group"] = segmentioMembers(client)
	seen["groups"] = segmentioGroups(client)
	seen["connection"] = segmentioConnection()
	seen["removal"] = segmentioRemoval(client)
	return seen
}

func segmentioTopics(client *kafka.Client) object {
	config := kafka.TopicConfig{
		Topic: topic, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "86400000"}},
	}
	create := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}}
	check(must(client.CreateTopics(ctx, create)).Errors[topic])
	again := must(client.CreateTopics(ctx, create)).Errors[topic]
	grown := kafka.TopicPartitionsConfig{Name: topic, Count: morePartitions}
	more := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{grown}}
	check(must(client.CreatePartitions(ctx, more)).Errors[topic])
	segmentioAlter(client)
	count := 0
	until("the client's next metadata", func() bool {
		time.Sleep(10 * time.Millisecond)
		count = len(must(client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})).Topics[0].Partitions)
		return count == morePartitions
	})
	return object{
		"created again": errors.Is(again, kafka.TopicAlreadyExists),
		"partitions":    count,
		"configs":       segmentioConfigs(client),
	}
}

func segmentioAlter(client *kafka.Client) {
	set := kafka.IncrementalAlterConfigsRequestConfig{Name: "max.message.bytes", Value: "2000000", ConfigOperation: kafka.ConfigOperationSet}
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{set},
	}
	request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
	for _, altered := range must(client.IncrementalAlterConfigs(ctx, request)).Resources {
		check(altered.Error)
	}
}

func segmentioConfigs(client *kafka.Client) object {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	configs := object{}
	for _, entry := range must(client.DescribeConfigs(ctx, request)).Resources[0].ConfigEntries {
		if entry.ConfigSource == 1 {
			configs[entry.ConfigName] = entry.ConfigValue
		}
	}
	return configs
}

func segmentioProduce() object {
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	acknowledged := object{}
	for _, codec := range codecs {
		for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
			writer := &kafka.Writer{
				Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec, RequiredAcks: acks, Balancer: byNumber{},
				BatchTimeout: time.Millisecond,
			}
			acknowledged[codec.String()+" "+acks.String()] = segmentioSend(writer)
		}
	}
	return acknowledged
}

// byNumber sends each record where its number, which is its first header, says.
type byNumber struct{}

func (byNumber) Balance(message kafka.Message, all ...int) int {
	var n int
	must(fmt.Sscan(string(message.Headers[0].Value), &n))
	return n % partitions
}

func segmentioSend(writer *kafka.Writer) int {
	batch := make([]kafka.Message, each)
	for n := range batch {
		next := record(segmentioSent)
		segmentioSent++
		headers := []kafka.Header{{Key: "n", Value: next.number}, {Key: "empty"}}
		batch[n] = kafka.Message{Time: next.time, Key: next.key, Value: next.value, Headers: headers}
	}
	check(writer.WriteMessages(ctx, batch...))
	check(writer.Close())
	return len(batch)
}

func segmentioRead(partition, count int, from *time.Time) []row {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, Partition: partition, MaxWait: 300 * time.Millisecond, // Close waits for the fetch
	})
	defer reader.Close()
	if from != nil {
		check(reader.SetOffsetAt(ctx, *from))
	}
	rows := []row{}
	for range count {
		found := must(reader.ReadMessage(ctx))
		headers := []any{}
		for _, header := range found.Headers {
			headers = append(headers, header.Key, text(header.Value))
		}
		rows = append(rows, row{found.Partition, found.Offset, found.Time.UnixMilli(), text(found.Key), text(found.Value), headers})
	}
	return rows
}

// segmentioMembers lets a second member join and leave a group while the first one reads.
func segmentioMembers(client *kafka.Client) object {
	first := newSegmentioMember()
	seen := object{}
	until("one member has all", shares(client, morePartitions))
	second := newSegmentioMember()
	until("two members share", shares(client, 3, 3))
	until("all is read", func() bool { return first.total()+second.total() >= segmentioSent })
	second.close()
	until("one member has all again", shares(client, morePartitions))
	first.close()
	seen["read"] = first.total() + second.total()
	return seen
}

// shares tells whether the members of the group have these numbers of partitions.
func shares(client *kafka.Client, wanted ...int) func() bool {
	return func() bool {
		time.Sleep(10 * time.Millisecond)
		group := must(client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{"billing"}})).Groups[0]
		if group.GroupState != "Stable" || len(group.Members) != len(wanted) {
			return false
		}
		for n, member := range group.Members {
			if len(member.MemberAssignments.Topics) != 1 || len(member.MemberAssignments.Topics[0].Partitions) != wanted[n] {
				return false
			}
		}
		return true
	}
}

type segmentioMember struct {
	reader *kafka.Reader
	lock   sync.Mutex
	read   int
	ended  chan struct{}
	cancel context.CancelFunc
}

func newSegmentioMember() *segmentioMember {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: "billing", Topic: topic, HeartbeatInterval: 200 * time.Millisecond,
		MaxWait: 300 * time.Millisecond, StartOffset: kafka.FirstOffset, JoinGroupBackoff: 200 * time.Millisecond,
	})
	reading, cancel := context.WithCancel(ctx)
	member := &segmentioMember{reader: reader, ended: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(member.ended)
		for {
			message, err := reader.FetchMessage(reading)
			if err != nil {
				return
			}
			member.lock.Lock()
			member.read++
			member.lock.Unlock()
			_ = reader.CommitMessages(ctx, message) // it fails during a rebalance; then the record is read again
		}
	}()
	return member
}

func (m *segmentioMember) total() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.read
}

func (m *segmentioMember) close() {
	m.cancel()
	<-m.ended
	check(m.reader.Close())
}

func segmentioGroups(client *kafka.Client) object {
	listed := []string{}
	for _, group := range must(client.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
		listed = append(listed, group.GroupID)
	}
	sum := int64(0)
	for _, offset := range must(client.ConsumerOffsets(ctx, kafka.TopicAndGroup{Topic: topic, GroupId: "billing"})) {
		sum += max(offset, 0)
	}
	deleted := must(client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{"billing"}}))
	check(deleted.Errors["billing"])
	after := must(client.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups
	return object{"listed": listed, "offsets": sum, "after": len(after)}
}

// segmentioConnection uses the low-level connection, which speaks old versions of few requests.
func segmentioConnection() object {
	connection := must(kafka.DialLeader(ctx, "tcp", bootstrap, topic, 1))
	defer connection.Close()
	first, last, err := connection.ReadOffsets()
	check(err)
	must(connection.WriteMessages(kafka.Message{Value: []byte("by the connection")}))
	must(connection.Seek(last, kafka.SeekAbsolute))
	found := must(connection.ReadMessage(1 << 20))
	return object{"first": first, "last": last, "value": string(found.Value), "controller": must(connection.Controller()).ID}
}

func segmentioRemoval(client *kafka.Client) object {
	offsets := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0)}}}
	earliest := must(client.ListOffsets(ctx, offsets)).Topics[topic][0].FirstOffset
	check(must(client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})).Errors[topic])
	return object{"earliest": earliest}
}
