package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

const lineBytesMax = 64 << 20

// An operation is a line of the input. Times are seconds. A null return time means that the outcome is unknown.
//
//	append   the runs were appended; at offset, unless that is null
//	read     the runs were at offset and following; without runs: the log ended at offset
//	end      the log ended at offset
//	beyond   the log ended before offset
//	final    as read from offset 0, of the whole log, after everything else
type operation struct {
	Place  string   `json:"place"`
	Kind   string   `json:"kind"`
	Call   float64  `json:"call"`
	Return *float64 `json:"return"`
	Offset *int     `json:"offset"`
	Runs   [][]any  `json:"runs"`
	Told   string   `json:"told"`
	runs   []run
}

// readHistory returns the operations of each partition.
func readHistory(input io.Reader) (map[string][]*operation, error) {
	places := map[string][]*operation{}
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 1<<16), lineBytesMax)
	for lines.Scan() {
		each := &operation{}
		if err := json.Unmarshal(lines.Bytes(), each); err != nil {
			return nil, err
		}
		if err := each.check(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, lines.Text())
		}
		places[each.Place] = append(places[each.Place], each)
	}
	return places, lines.Err()
}

func (o *operation) check() error {
	switch o.Kind {
	case "append":
		if (o.Return == nil) != (o.Offset == nil) || len(o.Runs) == 0 {
			return fmt.Errorf("an append has values, and a time and an offset or neither")
		}
	case "read", "end", "beyond", "final":
		if o.Return == nil || o.Offset == nil {
			return fmt.Errorf("an answer without a time or an offset")
		}
	default:
		return fmt.Errorf("no such kind of operation")
	}
	for _, each := range o.Runs {
		if len(each) != 3 {
			return fmt.Errorf("a run is [client, first, count]")
		}
		client, isText := each[0].(string)
		first, isFirst := each[1].(float64)
		count, isCount := each[2].(float64)
		if !isText || !isFirst || !isCount {
			return fmt.Errorf("a run is [client, first, count]")
		}
		o.runs = append(o.runs, run{client, int(first), int(count)})
	}
	return nil
}

// resolve finds the outcome of appends without an answer from the whole history. Values are unique and the final read
// shows the whole log. So an append whose values are not in it never took effect, and is left out. One that is in it
// took effect at the place of its values, and before the first read that saw them returned. This changes no verdict; it
// keeps the search small and gives the windows their ends.
func resolve(operations []*operation) []*operation {
	seen := newSightings(operations)
	resolved := operations[:0:0]
	for _, each := range operations {
		if each.Kind == "append" && each.Return == nil {
			offset, by, found := seen.of(each.runs[0])
			if !found {
				continue
			}
			known := *each
			known.Offset, known.Return = &offset, &by
			each = &known
		}
		resolved = append(resolved, each)
	}
	return resolved
}

type sighting struct {
	run
	offset int
	by     float64
}

// sightings are the runs that readers saw, by client, in the order of their values.
type sightings map[string][]sighting

func newSightings(operations []*operation) sightings {
	seen := sightings{}
	for _, each := range operations {
		if each.Kind != "read" && each.Kind != "final" {
			continue
		}
		offset := *each.Offset
		for _, one := range each.runs {
			seen[one.client] = append(seen[one.client], sighting{one, offset, *each.Return})
			offset += one.count
		}
	}
	for _, all := range seen {
		sort.Slice(all, func(a, b int) bool { return all[a].first < all[b].first })
	}
	return seen
}

// of finds the first value of a run. The final read's offset counts, since it comes last: an earlier read that saw the
// value elsewhere contradicts it.
func (s sightings) of(wanted run) (offset int, by float64, found bool) {
	by = math.Inf(1)
	latest := math.Inf(-1)
	for _, each := range s[wanted.client] {
		if each.first > wanted.first {
			break
		}
		if wanted.first >= each.first+each.count {
			continue
		}
		found = true
		by = math.Min(by, each.by)
		if each.by > latest {
			latest, offset = each.by, each.offset+wanted.first-each.first
		}
	}
	return offset, by, found
}
