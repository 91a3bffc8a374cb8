package embedded

import (
	"errors"
	"sync/atomic"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// Stats are counters of a store since it was opened, and gauges of now.
type Stats struct {
	Commits   uint64 // acknowledged, writing
	Conflicts uint64
	TooOld    uint64 // refused at commit for their age
	Unknown   uint64 // answered as unknown after a disk failure
	// ReadFaults are reads that the disk did not answer.
	ReadFaults uint64
	Groups     uint64 // batches written and synced
	Bytes      uint64 // in those batches

	// LargestGroup is the most transactions that one group held.
	LargestGroup uint64
	// LiveVersions is how many read versions are kept for transactions.
	LiveVersions int
	// RecentWrites is how many keys the conflict check remembers.
	RecentWrites int
	Watches      int
	// DiskBytes is the size of the store's files, as the engine counts it.
	DiskBytes uint64
}

// counters are the live form of Stats.
type counters struct {
	commits, conflicts, tooOld, unknown, readFaults, groups, bytes, largest atomic.Uint64
	recent                                                                  atomic.Int64
}

// count adds a finished group. Only the sync goroutine calls it.
func (c *counters) count(g *group) {
	var commits uint64
	for _, r := range g.requests {
		if r.err == nil {
			commits++
			continue
		}
		var e *kv.Error
		if !errors.As(r.err, &e) {
			continue
		}
		switch e.Code {
		case kv.CodeConflict:
			c.conflicts.Add(1)
		case kv.CodeTooOld:
			c.tooOld.Add(1)
		case kv.CodeIO:
			c.unknown.Add(1)
		}
	}
	if commits == 0 {
		return
	}
	c.commits.Add(commits)
	c.groups.Add(1)
	c.bytes.Add(uint64(g.bytes))
	if commits > c.largest.Load() {
		c.largest.Store(commits)
	}
}

// Stats returns the store's counters. It is safe for concurrent use, cheap
// enough to be scraped, and answers zero gauges after Close.
func (s *Store) Stats() Stats {
	c := &s.stats
	st := Stats{
		Commits: c.commits.Load(), Conflicts: c.conflicts.Load(), TooOld: c.tooOld.Load(),
		Unknown: c.unknown.Load(), ReadFaults: c.readFaults.Load(), Groups: c.groups.Load(), Bytes: c.bytes.Load(),
		LargestGroup: c.largest.Load(), RecentWrites: int(c.recent.Load()),
		LiveVersions: s.versions.count(), Watches: s.watches.count(),
	}
	s.closing.RLock()
	defer s.closing.RUnlock()
	if !s.closed && s.Failure() == nil {
		st.DiskBytes = s.db.Metrics().DiskSpaceUsage()
	}
	return st
}
