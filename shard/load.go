package shard

import (
	"math"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// maxLoads bounds the buckets whose load is counted; when full it starts over.
const maxLoads = 16384

// rateSpan is the time over which a bucket's rate is an average: what happened
// that long ago counts 1/e of what happens now.
const rateSpan = 10 * time.Second

// BucketLoad is what this node did to one bucket since its counting began.
type BucketLoad struct {
	// Commands and Batches were sent to the store; Conflicts are batches that
	// had to be tried again, Retries how often in all.
	Commands, Batches, Conflicts, Retries uint64
	// Rate is the commands of a second, over the last ten or so.
	Rate float64
	// Queued is the number of commands that wait now.
	Queued int
}

// loads counts by bucket.
type loads struct {
	mu sync.Mutex
	of map[ledger.BucketID]*load
}

type load struct {
	BucketLoad
	at time.Time // Rate is as of then
}

// batch counts one batch.
func (l *loads) batch(id ledger.BucketID, commands, attempts int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.of[id]
	if k == nil {
		if l.of == nil || len(l.of) >= maxLoads {
			l.of = map[ledger.BucketID]*load{}
		}
		k = &load{at: now}
		l.of[id] = k
	}
	k.Commands += uint64(commands)
	k.Batches++
	if attempts > 1 {
		k.Conflicts++
		k.Retries += uint64(attempts - 1)
	}
	k.Rate = k.rate(now) + float64(commands)/rateSpan.Seconds()
	k.at = now
}

// rate is the rate as it has faded until now.
func (k *load) rate(now time.Time) float64 {
	return k.Rate * math.Exp(-max(0, now.Sub(k.at).Seconds())/rateSpan.Seconds())
}

// Loads tells what this node did to the buckets of a budget, by index. Buckets
// it has not met, or has forgotten, are not in it.
func (e *Executor) Loads(id ledger.BudgetID) map[uint16]BucketLoad {
	now := time.Now()
	out := map[uint16]BucketLoad{}
	e.loads.mu.Lock()
	for i := range uint16(ledger.MaxBuckets + 1) {
		if k := e.loads.of[ledger.BucketID{Budget: id, Index: i}]; k != nil {
			l := k.BucketLoad
			l.Rate = k.rate(now)
			out[i] = l
		}
	}
	e.loads.mu.Unlock()
	for i, l := range out {
		l.Queued = e.queued(ledger.BucketID{Budget: id, Index: i})
		out[i] = l
	}
	return out
}

// queued is the number of commands that wait for a bucket.
func (e *Executor) queued(id ledger.BucketID) int {
	e.mu.Lock()
	q := e.queues[id]
	e.mu.Unlock()
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks)
}
