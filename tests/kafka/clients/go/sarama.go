package main

import (
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaSent = 0

func saramas() object {
	admin := must(sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig()))
	defer admin.Close()
	seen := object{"topics": saramaTopics(admin), "acknowledged": saramaProduce()}
	client := must(sarama.NewClient([]string{bootstrap}, saramaConfig()))
	defer client.Close()
	consumer := must(sarama.NewConsumerFromClient(client))
	rows := []row{}
	for partition := range int32(partitions) {
		rows = append(rows, saramaRead(client, consumer, partition, sarama.OffsetOldest, saramaSent/partitions)...)
	}
	seen["records"] = rows
	offset := must(client.GetOffset(topic, 0, baseMs+40))
	seen["by_time"] = saramaRead(client, consumer, 0, offset, 1)[0]
	seen["group"] = saramaMembers()
	seen["groups"] = saramaGroups(admin)
	seen["removal"] = saramaRemoval(admin, client)
	return seen
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func saramaTopics(admin sarama.ClusterAdmin) object {
	day, size := "86400000", "2000000"
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &day}}
	check(admin.CreateTopic(topic, detail, false))
	again := admin.CreateTopic(topic, detail, false)
	check(admin.CreatePartitions(topic, morePartitions, nil, false))
	set := map[string]sarama.IncrementalAlterConfigsEntry{"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size}}
	check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))
	configs := object{}
	for _, entry := range must(admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})) {
		if entry.Source == sarama.SourceTopic {
			configs[entry.Name] = entry.Value
		}
	}
	return object{
		"created again": errors.Is(again, sarama.ErrTopicAlreadyExists),
		"partitions":    must(admin.ListTopics())[topic].NumPartitions,
		"configs":       configs,
	}
}

func saramaProduce() object {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	acknowledged := object{}
	for _, codec := range codecs {
		for name, acks := range map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll} {
			config := saramaConfig()
			config.Producer.Compression = codec
			config.Producer.RequiredAcks = acks
			acknowledged[codec.String()+" "+name] = saramaSend(config)
		}
	}
	config := saramaConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1 // as sarama demands
	acknowledged["idempotent"] = saramaSend(config)
	return acknowledged
}

func saramaSend(config *sarama.Config) int {
	producer := must(sarama.NewAsyncProducer([]string{bootstrap}, config))
	for range each {
		next := record(saramaSent)
		saramaSent++
		message := &sarama.ProducerMessage{Topic: topic, Partition: next.partition, Timestamp: next.time}
		if next.key != nil {
			message.Key = sarama.ByteEncoder(next.key)
		}
		if next.value != nil {
			message.Value = sarama.ByteEncoder(next.value)
		}
		message.Headers = []sarama.RecordHeader{{Key: []byte("n"), Value: next.number}, {Key: []byte("empty")}}
		producer.Input() <- message
	}
	acknowledged := 0
	for range each {
		select {
		case <-producer.Successes():
			acknowledged++
		case failure := <-producer.Errors():
			panic(failure)
		}
	}
	check(producer.Close())
	return acknowledged
}

func saramaRead(client sarama.Client, consumer sarama.Consumer, partition int32, offset int64, count int) []row {
	reader := must(consumer.ConsumePartition(topic, partition, offset))
	defer reader.Close()
	rows := []row{}
	for range count {
		select {
		case found := <-reader.Messages():
			headers := []any{}
			for _, header := range found.Headers {
				headers = append(headers, string(header.Key), text(header.Value))
			}
			rows = append(rows, row{found.Partition, found.Offset, found.Timestamp.UnixMilli(), text(found.Key), text(found.Value), headers})
		case failure := <-reader.Errors():
			panic(failure)
		case <-time.After(wait):
			panic("no record")
		}
	}
	return rows
}

// saramaMembers lets a second member join and leave a group while the first one reads.
func saramaMembers() object {
	first := newSaramaMember()
	seen := object{}
	until("one member has all", first.holds(morePartitions))
	seen["alone"] = first.count()
	second := newSaramaMember()
	until("two members share", func() bool { return first.holds(3)() && second.holds(3)() })
	seen["both"] = []int{first.count(), second.count()}
	until("all is read", func() bool { return first.total()+second.total() >= saramaSent })
	second.close()
	until("one member has all again", first.holds(morePartitions))
	seen["again"] = first.count()
	first.close()
	seen["read"] = first.total() + second.total()
	return seen
}

type saramaMember struct {
	group sarama.ConsumerGroup
	lock  sync.Mutex
	has   int
	read  int
	ended chan struct{}
}

func newSaramaMember() *saramaMember {
	member := &saramaMember{group: must(sarama.NewConsumerGroup([]string{bootstrap}, "billing", saramaConfig())), ended: make(chan struct{})}
	go func() {
		for failure := range member.group.Errors() {
			panic(failure)
		}
	}()
	go func() {
		defer close(member.ended)
		for {
			err := member.group.Consume(ctx, []string{topic}, member)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			check(err)
		}
	}()
	return member
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.change(func() { m.has = len(session.Claims()[topic]) })
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	m.change(func() { m.has = 0 })
	session.Commit()
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.change(func() { m.read++ })
		session.MarkMessage(message, "")
	}
	return nil
}

func (m *saramaMember) change(act func()) {
	m.lock.Lock()
	defer m.lock.Unlock()
	act()
}

func (m *saramaMember) count() (has int)   { m.change(func() { has = m.has }); return }
func (m *saramaMember) total() (total int) { m.change(func() { total = m.read }); return }

func (m *saramaMember) holds(count int) func() bool {
	return func() bool { time.Sleep(time.Millisecond); return m.count() == count }
}

func (m *saramaMember) close() {
	check(m.group.Close())
	<-m.ended
}

func saramaGroups(admin sarama.ClusterAdmin) object {
	listed := must(admin.ListConsumerGroups())
	all := map[string][]int32{topic: {0, 1, 2, 3}}
	sum := int64(0)
	for _, block := range must(admin.ListConsumerGroupOffsets("billing", all)).Blocks[topic] {
		sum += block.Offset
	}
	moved := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 7, LeaderEpoch: -1, Metadata: "back"}}}
	must(admin.AlterConsumerGroupOffsets("billing", moved, nil))
	back := must(admin.ListConsumerGroupOffsets("billing", all)).Blocks[topic][0]
	state := must(admin.DescribeConsumerGroups([]string{"billing"}))[0].State
	check(admin.DeleteConsumerGroup("billing"))
	return object{
		"listed": listed, "offsets": sum, "moved": []any{back.Offset, back.Metadata}, "state": state,
		"after": len(must(admin.ListConsumerGroups())),
	}
}

func saramaRemoval(admin sarama.ClusterAdmin, client sarama.Client) object {
	check(admin.DeleteRecords(topic, map[int32]int64{0: 5}))
	earliest := must(client.GetOffset(topic, 0, sarama.OffsetOldest))
	check(admin.DeleteTopic(topic))
	return object{"earliest": earliest}
}
