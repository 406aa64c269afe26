package main

import (
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

const (
	// A window is closed at the first moment without an operation in progress, after this many operations.
	windowOperations = 500
	nanoseconds      = 1e9
)

// model is a log as a sequential object. A state is a *node.
func model(initial *node) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			fits, next := step(state.(*node), input.(*operation))
			return fits, next
		},
		Equal: func(one, other any) bool {
			a, b := one.(*node), other.(*node)
			return a.end == b.end && a.hash == b.hash
		},
		Hash: func(state any) uint64 { return state.(*node).hash },
	}
}

func step(log *node, o *operation) (bool, *node) {
	switch o.Kind {
	case "append":
		if o.Offset != nil && *o.Offset != log.end {
			return false, log
		}
		return true, log.appended(o.runs)
	case "read":
		if len(o.runs) == 0 {
			return *o.Offset == log.end, log
		}
		return log.holds(*o.Offset, o.runs), log
	case "end":
		return *o.Offset == log.end, log
	case "beyond":
		return log.end < *o.Offset, log
	default: // final
		return countOf(o.runs) == log.end && log.holds(0, o.runs), log
	}
}

// windows cuts a history where no operation is in progress, so that a long history costs no more memory than a short one.
func windows(operations []*operation) [][]porcupine.Operation {
	all := make([]porcupine.Operation, 0, len(operations))
	for _, each := range operations {
		all = append(all, interval(each))
	}
	sort.SliceStable(all, func(a, b int) bool { return all[a].Call < all[b].Call })
	var cut [][]porcupine.Operation
	begin, over := 0, int64(math.MinInt64)
	for n, each := range all {
		if n-begin >= windowOperations && each.Call > over {
			cut = append(cut, all[begin:n])
			begin = n
		}
		over = max(over, each.Return)
	}
	return append(cut, all[begin:])
}

// interval says when an operation may take effect. A read with values fits every later state of the log too, since a log
// only grows: so the moment of its return is as good as any earlier one.
func interval(o *operation) porcupine.Operation {
	returned := int64(math.MaxInt64)
	if o.Return != nil {
		returned = int64(*o.Return * nanoseconds)
	}
	called := int64(o.Call * nanoseconds)
	if o.Kind == "read" && len(o.runs) > 0 {
		called = returned
	}
	return porcupine.Operation{Input: o, Call: called, Return: returned}
}
