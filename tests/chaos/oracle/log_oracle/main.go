// The log oracle judges histories of a partitioned log for linearizability with Porcupine's search. It shares no code
// with the judge in tests/chaos/checker, so that the two check each other.
//
// It reads operations as JSON lines from standard input (see operation) and writes one verdict for each partition:
//
//	{"place": "t/0", "verdict": "linearizable", "operations": 812, "windows": 3}
//
// Exit code 0: all partitions are linearizable. 1: some are "violated". 2: a partition is "undecided", because the search
// took longer than -timeout; or the input is not a history. Undecided means that the oracle failed, not that the log holds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	linearizable = "linearizable"
	violated     = "violated"
	undecided    = "undecided"
	stuckMax     = 5
)

type verdict struct {
	Place      string   `json:"place"`
	Verdict    string   `json:"verdict"`
	Operations int      `json:"operations"`
	Windows    int      `json:"windows"`
	Stuck      []string `json:"stuck,omitempty"`
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long the search may take for one window of operations")
	flag.Parse()
	places, err := readHistory(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := 0
	for _, place := range sortedKeys(places) {
		found := judge(place, places[place], *timeout)
		line, _ := json.Marshal(found)
		fmt.Println(string(line))
		switch {
		case found.Verdict == undecided:
			code = 2
		case found.Verdict == violated && code == 0:
			code = 1
		}
	}
	os.Exit(code)
}

// judge checks one partition, window by window. Each window begins with the log that the one before it left.
func judge(place string, operations []*operation, timeout time.Duration) verdict {
	told := verdict{Place: place, Verdict: linearizable, Operations: len(operations)}
	state := newLog()
	for _, window := range windows(resolve(operations)) {
		told.Windows++
		result := porcupine.CheckOperationsTimeout(model(state), window, timeout)
		switch result {
		case porcupine.Unknown:
			told.Verdict = undecided
			return told
		case porcupine.Illegal:
			told.Verdict, told.Stuck = violated, stuck(state, window, timeout)
			return told
		}
		state = stateAfter(state, window)
	}
	return told
}

// stateAfter is the log at the end of a window. All its appends are over then, and the offset of each is known.
func stateAfter(state *node, window []porcupine.Operation) *node {
	var appends []*operation
	for _, each := range window {
		if one := each.Input.(*operation); one.Kind == "append" {
			appends = append(appends, one)
		}
	}
	sort.Slice(appends, func(a, b int) bool { return *appends[a].Offset < *appends[b].Offset })
	for _, each := range appends {
		state = state.appended(each.runs)
	}
	return state
}

// stuck returns the first operations, by their return, that the longest linearization does not include.
func stuck(state *node, window []porcupine.Operation, timeout time.Duration) []string {
	_, info := porcupine.CheckOperationsVerbose(model(state), window, timeout)
	longest := map[*operation]bool{}
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			clear(longest)
			for _, each := range partial {
				longest[each.Input.(*operation)] = true
			}
		}
	}
	sort.Slice(window, func(a, b int) bool { return window[a].Return < window[b].Return })
	var told []string
	for _, each := range window {
		if one := each.Input.(*operation); !longest[one] && len(told) < stuckMax {
			told = append(told, fmt.Sprintf("%s (%s, %.3f to %.3f)", one.Told, one.Kind, one.Call, *one.Return))
		}
	}
	return told
}

func sortedKeys(places map[string][]*operation) []string {
	keys := make([]string, 0, len(places))
	for key := range places {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool { return strings.Compare(keys[a], keys[b]) < 0 })
	return keys
}
