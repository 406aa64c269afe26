// Clients of Kafka for Go, each with everything that a program does with Kafka.
//
//	kafka-clients franz|sarama|segmentio BOOTSTRAP BASE_MS
//
// prints what the client saw as one JSON object.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	topic          = "events"
	partitions     = 4
	morePartitions = 6
	each           = 20
	wait           = 30 * time.Second
)

type object = map[string]any

// row is a record as it is printed: partition, offset, timestamp, key, value, headers.
type row = []any

// sent is record n as it is produced.
type sent struct {
	partition  int32
	time       time.Time
	key, value []byte
	number     []byte
}

var (
	bootstrap string
	baseMs    int64
)

func main() {
	circles := map[string]func() object{"franz": franz, "sarama": saramas, "segmentio": segmentio}
	bootstrap = os.Args[2]
	baseMs = must(strconv.ParseInt(os.Args[3], 10, 64))
	seen := circles[os.Args[1]]()
	fmt.Println(string(must(json.Marshal(seen))))
}

func record(n int) sent {
	found := sent{partition: int32(n % partitions), time: time.UnixMilli(baseMs + int64(n)), number: []byte(strconv.Itoa(n))}
	if n%5 != 0 {
		found.key = []byte(fmt.Sprintf("k%d", n))
	}
	if n%7 != 0 {
		found.value = []byte(fmt.Sprintf("v%d", n))
	}
	return found
}

func text(given []byte) any {
	if given == nil {
		return nil
	}
	return string(given)
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// until calls step until it returns true.
func until(what string, step func() bool) {
	for giveUpAt := time.Now().Add(wait); !step(); {
		if time.Now().After(giveUpAt) {
			panic("it did not happen: " + what)
		}
	}
}
