package bench

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
)

// Shares of lifecycle's orders, in percent; what is left lapses. Of the paid
// ones refundPercent are refunded in part, and of those again as many in full.
const (
	paidPercent     = 75
	releasedPercent = 15
	refundPercent   = 30
)

// lapseTTL is how long the holds of lifecycle last that nobody settles.
const lapseTTL = 2 * time.Second

// lifecycle is what becomes of orders in the large: most are paid, some are
// cancelled, some are left, some are refunded; a share of all calls comes twice
// and of some the answer is lost.
type lifecycle struct{ plain }

func newLifecycle(cfg Config, round int) (workload, error) {
	return &lifecycle{newPlain(cfg, round, 16, ledger.Policy{})}, nil
}

func (l *lifecycle) task(i uint64) task {
	r := l.rand(i)
	minor := amount(r)
	fate := r.IntN(100)
	ttl := holdTTL
	if fate >= paidPercent+releasedPercent {
		ttl = lapseTTL
	}
	hold := l.reserve(l.specs[0].id, l.names.order(i), minor, ttl)
	t := task{l.step(r, "reserve", hold)}
	switch {
	case fate < paidPercent:
		t = append(t, l.step(r, "commit", after(ledger.OpCommit, hold)))
	case fate < paidPercent+releasedPercent:
		return append(t, l.step(r, "release", after(ledger.OpRelease, hold)))
	default:
		return t
	}
	if r.IntN(100) >= refundPercent {
		return t
	}
	part := 1 + r.Int64N(minor-1)
	t = append(t, l.refund(r, hold, 1, part))
	if r.IntN(100) < refundPercent {
		t = append(t, l.refund(r, hold, 2, minor-part))
	}
	return t
}

func (l *lifecycle) refund(r *rand.Rand, hold ledger.Command, n int, minor int64) step {
	c := after(ledger.OpReverse, hold)
	c.ID, c.Amount = "refund-"+strconv.Itoa(n), minor
	return l.step(r, "reverse", c)
}

func (l *lifecycle) step(r *rand.Rand, op string, c ledger.Command) step {
	return step{op: op, commands: []ledger.Command{c}, duplicate: r.Float64() < l.cfg.Duplicates, lost: r.Float64() < l.cfg.Lost}
}
