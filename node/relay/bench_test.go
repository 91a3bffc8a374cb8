package relay

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
	"github.com/coffer-ledger/coffer/shard"
)

// disk is a store on a disk with fsync, and an executor over it.
type disk struct {
	st   *store.Store
	exec *shard.Executor
}

func newDisk(b *testing.B) *disk {
	b.Helper()
	engine, err := embedded.Open(embedded.Options{Dir: b.TempDir(), FS: vfs.Default})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	d := &disk{st: openStore(b, engine, nil)}
	if d.exec, err = shard.New(shard.DefaultConfig(), d.st); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.exec.Drain(context.Background()) })
	d.do(b, ledger.Command{Op: ledger.OpCreate, Budget: budget, Currency: "BRL", Buckets: 16})
	d.do(b, ledger.Command{Op: ledger.OpFund, Budget: budget, ID: "f", Amount: 1 << 40, Currency: "BRL"})
	return d
}

func (d *disk) do(b *testing.B, c ledger.Command) {
	b.Helper()
	if _, err := d.exec.Do(context.Background(), c); err != nil {
		b.Error(err)
	}
}

// transitions reserves n/2 orders and commits them, from several callers with
// batches of 100.
func (d *disk) transitions(b *testing.B, run string, n int) {
	b.Helper()
	var wg sync.WaitGroup
	callers := 8
	for caller := range callers {
		wg.Go(func() {
			for batch := range n / 200 / callers {
				var reserves, commits []ledger.Command
				for i := range 100 {
					k := ledger.OrderKey{Tenant: "t1", Order: fmt.Sprintf("%s-%d-%d-%d", run, caller, batch, i), Benefit: "coupon"}
					reserves = append(reserves, ledger.Command{Op: ledger.OpReserve, Key: k, Budget: budget, Amount: 5, Currency: "BRL", TTL: time.Hour})
					commits = append(commits, ledger.Command{Op: ledger.OpCommit, Key: k})
				}
				for _, cmds := range [][]ledger.Command{reserves, commits} {
					for _, r := range d.exec.DoAll(context.Background(), cmds) {
						if r.Err != nil {
							b.Error(r.Err)
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
}

// measure is a sink that takes everything and notes when.
type measure struct {
	mu    sync.Mutex
	n     int
	want  int
	done  chan struct{}
	delay []time.Duration
}

func (m *measure) Deliver(_ context.Context, events []*event.Event) []error {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range events {
		if m.delay != nil {
			m.delay = append(m.delay, now.Sub(e.Time))
		}
	}
	if m.n += len(events); m.n >= m.want && m.done != nil {
		close(m.done)
		m.done = nil
	}
	return make([]error, len(events))
}

func (*measure) Ping(context.Context) error { return nil }
func (*measure) Close() error               { return nil }

// relay runs a relay with the sink until the benchmark ends.
func (d *disk) relay(b *testing.B, cfg Config, m *measure) {
	b.Helper()
	if _, _, err := d.st.CreateSink(context.Background(), store.Sink{SinkID: hook}, store.From{}); err != nil {
		b.Fatal(err)
	}
	signals := NewSignals(d.st, cfg.Poll, cfg.Watch)
	r, err := New(cfg, d.st, signals, func(context.Context, *store.Sink) (sink.Sink, error) { return m, nil }, "n1", zerolog.New(io.Discard))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	wg.Go(func() { _ = signals.Run(ctx) })
	b.Cleanup(func() { cancel(); wg.Wait() })
}

// BenchmarkThroughput compares the rate at which the executor takes commands with
// the rate at which the relay empties the outbox behind them, one after the other
// on the same disk: ratio must be above 1.5 for a relay to follow and to catch up.
func BenchmarkThroughput(b *testing.B) {
	const n = 96_000
	for b.Loop() {
		d := newDisk(b)
		start := time.Now()
		d.transitions(b, "o", n)
		commands := float64(n) / time.Since(start).Seconds()
		m := &measure{want: n + 17, done: make(chan struct{})}
		done := m.done
		runtime.GC()
		start = time.Now()
		d.relay(b, DefaultConfig(), m)
		<-done
		events := float64(n) / time.Since(start).Seconds()
		b.ReportMetric(commands, "commands/s")
		b.ReportMetric(events, "events/s")
		b.ReportMetric(events/commands, "ratio")
	}
}

// BenchmarkDelay measures the time from the ledger's time of an event, which is
// before its commit, to its delivery, at a moderate load: a command every two
// milliseconds.
func BenchmarkDelay(b *testing.B) {
	for _, watch := range []bool{true, false} {
		b.Run(fmt.Sprintf("watch=%v", watch), func(b *testing.B) {
			for b.Loop() {
				const n = 2000
				d := newDisk(b)
				m := &measure{want: n + 17, done: make(chan struct{}), delay: []time.Duration{}}
				done := m.done
				cfg := DefaultConfig()
				cfg.Watch = watch
				d.relay(b, cfg, m)
				time.Sleep(2 * time.Second) // the leases are taken, the first events delivered
				m.mu.Lock()
				m.delay = []time.Duration{}
				m.mu.Unlock()
				tick := time.NewTicker(2 * time.Millisecond)
				var wg sync.WaitGroup
				for i := range n {
					<-tick.C
					wg.Go(func() {
						k := ledger.OrderKey{Tenant: "t1", Order: fmt.Sprint("o-", i), Benefit: "coupon"}
						d.do(b, ledger.Command{Op: ledger.OpReserve, Key: k, Budget: budget, Amount: 5, Currency: "BRL", TTL: time.Hour})
					})
				}
				wg.Wait()
				tick.Stop()
				<-done
				m.mu.Lock()
				slices.Sort(m.delay)
				b.ReportMetric(float64(m.delay[len(m.delay)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(m.delay[len(m.delay)*99/100].Microseconds())/1000, "p99-ms")
				m.mu.Unlock()
			}
		})
	}
}
