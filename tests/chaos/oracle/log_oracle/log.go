package main

import "hash/fnv"

// A run stands for count values of a client, number first and following.
type run struct {
	client string
	first  int
	count  int
}

// A node is one append to a log, and the log before it. Nodes never change, so a node is a state of the model. The jump
// pointers lead back over the log in logarithmic time.
type node struct {
	base  int
	end   int
	runs  []run
	prev  *node
	jump  *node
	depth int
	hash  uint64
}

func newLog() *node {
	root := &node{hash: fnv.New64a().Sum64()}
	root.prev, root.jump = root, root
	return root
}

func (n *node) appended(runs []run) *node {
	next := &node{base: n.end, end: n.end + countOf(runs), runs: runs, prev: n, jump: n, depth: n.depth + 1}
	if n.depth-n.jump.depth == n.jump.depth-n.jump.jump.depth {
		next.jump = n.jump.jump
	}
	next.hash = n.hash
	for _, each := range runs {
		next.hash = mix(mix(mix(next.hash, hashOf(each.client)), uint64(each.first)), uint64(each.count))
	}
	return next
}

// holds says whether the values of runs are at offset and following. It compares from the last value back.
func (n *node) holds(offset int, runs []run) bool {
	end := offset + countOf(runs)
	if offset < 0 || end > n.end {
		return false
	}
	for at := end; at > offset; {
		n = n.containing(at - 1)
		wanted, left := lastOf(runs, at-offset)
		found, before := lastOf(n.runs, at-n.base)
		same := min(left, before)
		if wanted.client != found.client || wanted.first+left != found.first+before {
			return false
		}
		at -= same
	}
	return true
}

// containing is the append that put a value at offset, which is before the log's end.
func (n *node) containing(offset int) *node {
	for n.base > offset {
		if n.jump.base > offset {
			n = n.jump
		} else {
			n = n.prev
		}
	}
	return n
}

// lastOf is the run that holds the last of the first length values, and how many of the run's values these include.
func lastOf(runs []run, length int) (run, int) {
	for _, each := range runs {
		if length <= each.count {
			return each, length
		}
		length -= each.count
	}
	panic("a length beyond the runs")
}

func countOf(runs []run) int {
	count := 0
	for _, each := range runs {
		count += each.count
	}
	return count
}

func hashOf(text string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(text))
	return hash.Sum64()
}

func mix(hash, value uint64) uint64 {
	return (hash^value)*0x9E3779B97F4A7C15 ^ hash>>29
}
