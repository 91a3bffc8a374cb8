package node

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/node/election"
	"github.com/coffer-ledger/coffer/node/members"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/shard"
)

// metered counts what an executor answers, by operation and outcome.
type metered struct {
	next     rpc.Executor
	commands *prometheus.CounterVec
	seconds  prometheus.Histogram
	// applied are the counters of what nearly every answer is, by operation.
	applied [math.MaxUint8 + 1]prometheus.Counter
}

func newMetered(next rpc.Executor) *metered {
	m := &metered{
		next: next,
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coffer_commands_total",
			Help: "Answered commands by operation and outcome: applied, replayed, skipped, void, or the reason of the refusal.",
		}, []string{"op", "outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "coffer_execute_seconds",
			Help:    "Time from a call's commands entering the executor to the last answer.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}),
	}
	for op := range m.applied {
		if op := ledger.Op(op); op.Valid() { // their numbers have gaps
			m.applied[op] = m.commands.WithLabelValues(strings.ToLower(op.String()), "applied")
		}
	}
	return m
}

// Do runs one command.
func (m *metered) Do(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	start := time.Now()
	r, err := m.next.Do(ctx, c)
	m.seconds.Observe(time.Since(start).Seconds())
	m.count(c.Op, ledger.Reply{Result: r, Err: err})
	return r, err
}

// DoAll runs many commands.
func (m *metered) DoAll(ctx context.Context, cmds []ledger.Command) []ledger.Reply {
	start := time.Now()
	replies := m.next.DoAll(ctx, cmds)
	m.seconds.Observe(time.Since(start).Seconds())
	for i := range replies {
		m.count(cmds[i].Op, replies[i])
	}
	return replies
}

func (m *metered) count(op ledger.Op, r ledger.Reply) {
	if o := outcome(r); o != "applied" || !op.Valid() {
		m.commands.WithLabelValues(strings.ToLower(op.String()), o).Inc()
		return
	}
	m.applied[op].Inc()
}

// outcome is the label of a reply. The set is closed: ledger's codes and a
// few words.
func outcome(r ledger.Reply) string {
	var rej *ledger.Rejection
	switch {
	case errors.As(r.Err, &rej):
		return strings.ToLower(string(rej.Code))
	case r.Err != nil:
		return "internal"
	case r.Result.Replayed:
		return "replayed"
	case r.Result.Skipped:
		return "skipped"
	case r.Result.Void:
		return "void"
	}
	return "applied"
}

// Describe implements prometheus.Collector.
func (m *metered) Describe(ch chan<- *prometheus.Desc) {
	m.commands.Describe(ch)
	m.seconds.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metered) Collect(ch chan<- prometheus.Metric) {
	m.commands.Collect(ch)
	m.seconds.Collect(ch)
}

// stat is one figure that is read from its owner when metrics are scraped.
type stat[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*T) float64
}

func counter[T any](name, help string, get func(*T) float64) stat[T] {
	return stat[T]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, get}
}

func gauge[T any](name, help string, get func(*T) float64) stat[T] {
	return stat[T]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, get}
}

var shardStats = []stat[shard.Stats]{
	gauge("coffer_queue_depth", "Commands accepted and not yet answered.", func(s *shard.Stats) float64 { return float64(s.Pending) }),
	gauge("coffer_queues", "Buckets with work waiting.", func(s *shard.Stats) float64 { return float64(s.Queues) }),
	counter("coffer_batch_splits_total", "Batches that were halved.", func(s *shard.Stats) float64 { return float64(s.Splits) }),
	counter("coffer_reroutes_total", "Commands that changed bucket queue.", func(s *shard.Stats) float64 { return float64(s.Reroutes) }),
	counter("coffer_batch_conflicts_total", "Batches that another writer got in the way of.", func(s *shard.Stats) float64 { return float64(s.Conflicts) }),
	counter("coffer_batch_retries_total", "Further attempts at batches after a conflict, or where the store asked for one.", func(s *shard.Stats) float64 { return float64(s.Retries) }),
	gauge("coffer_buckets_active", "Buckets that this node worked on in the last minute or so.", func(s *shard.Stats) float64 { return float64(s.Active) }),
	counter("coffer_forwards_total", "Calls that took commands to other nodes.", func(s *shard.Stats) float64 { return float64(s.Forwards) }),
	counter("coffer_forwards_failed_total", "Calls to other nodes that brought no answer.", func(s *shard.Stats) float64 { return float64(s.ForwardFailed) }),
	counter("coffer_forwarded_commands_total", "Commands that other nodes answered.", func(s *shard.Stats) float64 { return float64(s.Forwarded) }),
	counter("coffer_forwarded_ran_here_total", "Commands of other nodes' buckets that ran here, since the node did not answer or was leaving.", func(s *shard.Stats) float64 { return float64(s.RanHere) }),
	counter("coffer_overloaded_total", "Commands refused because a queue or the node was full, or their tenant at its limit.", func(s *shard.Stats) float64 { return float64(s.Overloaded) }),
	counter("coffer_tenant_limited_total", "Commands refused because their tenant had its part of the node's places, or was above its rate.", func(s *shard.Stats) float64 { return float64(s.TenantLimited) }),
	gauge("coffer_tenants_pending", "Tenants with commands accepted and not yet answered.", func(s *shard.Stats) float64 { return float64(s.Tenants) }),
	gauge("coffer_tenant_pending_max", "Commands accepted and not yet answered of the tenant that has most of them.", func(s *shard.Stats) float64 { return float64(s.TenantMost) }),
	counter("coffer_skipped_benefits_total", "Reserves answered with no benefit under SKIP_BENEFIT.", func(s *shard.Stats) float64 { return float64(s.Skipped) }),
}

var expiryStats = []stat[scan.Status]{
	gauge("coffer_expiry_oldest_overdue_seconds", "Age of the oldest reservation that is due and not yet expired.", func(s *scan.Status) float64 { return s.OldestOverdue.Seconds() }),
	gauge("coffer_expiry_last_pass_seconds", "Time since the expiry scanner last completed a pass.", func(s *scan.Status) float64 { return s.SincePass.Seconds() }),
	counter("coffer_expiry_passes_total", "Completed passes of the expiry scanner.", func(s *scan.Status) float64 { return float64(s.Passes) }),
	counter("coffer_expiry_failed_passes_total", "Failed passes of the expiry scanner.", func(s *scan.Status) float64 { return float64(s.Failed) }),
	counter("coffer_expired_total", "Reservations expired by this node.", func(s *scan.Status) float64 { return float64(s.Expired) }),
	counter("coffer_expiry_skipped_total", "Due reservations that were settled or extended before.", func(s *scan.Status) float64 { return float64(s.Skipped) }),
	counter("coffer_expiry_deferred_total", "Due reservations left for a later pass.", func(s *scan.Status) float64 { return float64(s.Deferred) }),
}

var workStats = []stat[scan.WorkStatus]{
	gauge("coffer_facts_pending", "Facts that wait for what they need.", func(s *scan.WorkStatus) float64 { return float64(s.Facts.Pending) }),
	gauge("coffer_facts_oldest_pending_seconds", "Age of the oldest fact that waits.", func(s *scan.WorkStatus) float64 { return s.OldestPending.Seconds() }),
	gauge("coffer_facts_exceptions", "Facts that cannot be applied and wait for a person.", func(s *scan.WorkStatus) float64 { return float64(s.Facts.Exceptions) }),
	gauge("coffer_facts_applied", "Facts that are in the ledger.", func(s *scan.WorkStatus) float64 { return float64(s.Facts.Applied) }),
	gauge("coffer_work_last_pass_seconds", "Time since the work scanner last completed a pass.", func(s *scan.WorkStatus) float64 { return s.SincePass.Seconds() }),
	counter("coffer_work_passes_total", "Completed passes of the work scanner.", func(s *scan.WorkStatus) float64 { return float64(s.Passes) }),
	counter("coffer_work_failed_passes_total", "Failed passes of the work scanner.", func(s *scan.WorkStatus) float64 { return float64(s.Failed) }),
	counter("coffer_work_lapsed_leases_total", "Leases that this node found run out.", func(s *scan.WorkStatus) float64 { return float64(s.Lapsed) }),
	counter("coffer_work_forgotten_jobs_total", "Finished jobs whose time to be kept had passed.", func(s *scan.WorkStatus) float64 { return float64(s.Forgotten) }),
	counter("coffer_facts_settled_total", "Looks of this node's scanner at orders whose facts waited.", func(s *scan.WorkStatus) float64 { return float64(s.Settled) }),
	counter("coffer_facts_deferred_total", "Orders that could not be looked at and stayed due.", func(s *scan.WorkStatus) float64 { return float64(s.Deferred) }),
}

var levelStats = []stat[scan.RebalanceStatus]{
	gauge("coffer_rebalance_last_pass_seconds", "Time since the rebalance scanner last completed a pass.", func(s *scan.RebalanceStatus) float64 { return s.SincePass.Seconds() }),
	gauge("coffer_rebalance_widest_skew", "Largest distance between buckets of a budget in the last round, in equal shares.", func(s *scan.RebalanceStatus) float64 { return s.WidestSkew }),
	counter("coffer_rebalance_passes_total", "Completed passes of the rebalance scanner.", func(s *scan.RebalanceStatus) float64 { return float64(s.Passes) }),
	counter("coffer_rebalance_failed_passes_total", "Failed passes of the rebalance scanner.", func(s *scan.RebalanceStatus) float64 { return float64(s.Failed) }),
	counter("coffer_rebalance_budgets_total", "Looks of this node's rebalance scanner at budgets.", func(s *scan.RebalanceStatus) float64 { return float64(s.Budgets) }),
	counter("coffer_rebalance_moves_total", "Moves between buckets that this node's scanner made.", func(s *scan.RebalanceStatus) float64 { return float64(s.Moves) }),
	counter("coffer_rebalance_refused_total", "Moves that the budget's state no longer allowed.", func(s *scan.RebalanceStatus) float64 { return float64(s.Refused) }),
	counter("coffer_rebalance_deferred_total", "Moves that were not taken, and are planned again.", func(s *scan.RebalanceStatus) float64 { return float64(s.Deferred) }),
	counter("coffer_resharded_total", "Budgets that this node's scanner gave another number of buckets.", func(s *scan.RebalanceStatus) float64 { return float64(s.Resharded) }),
}

var proofStats = []stat[scan.IntegrityStatus]{
	gauge("coffer_integrity_differences", "Places where a ledger does not agree with itself; anything above 0 is for a person.", func(s *scan.IntegrityStatus) float64 { return float64(s.Differences) }),
	gauge("coffer_integrity_lag_entries", "Entries that were not yet replayed when the last round over all budgets ended.", func(s *scan.IntegrityStatus) float64 { return float64(s.Lag) }),
	gauge("coffer_integrity_last_pass_seconds", "Time since the integrity scanner last completed a pass.", func(s *scan.IntegrityStatus) float64 { return s.SincePass.Seconds() }),
	counter("coffer_integrity_passes_total", "Completed passes of the integrity scanner.", func(s *scan.IntegrityStatus) float64 { return float64(s.Passes) }),
	counter("coffer_integrity_failed_passes_total", "Failed passes of the integrity scanner.", func(s *scan.IntegrityStatus) float64 { return float64(s.Failed) }),
	counter("coffer_integrity_looks_total", "Looks of this node's integrity scanner at buckets.", func(s *scan.IntegrityStatus) float64 { return float64(s.Looks) }),
	counter("coffer_integrity_entries_total", "Entries that this node's integrity scanner replayed.", func(s *scan.IntegrityStatus) float64 { return float64(s.Entries) }),
	counter("coffer_integrity_frozen_total", "Budgets that this node's integrity scanner froze.", func(s *scan.IntegrityStatus) float64 { return float64(s.Frozen) }),
	counter("coffer_integrity_freeze_failed_total", "Attempts to freeze a budget that were not taken.", func(s *scan.IntegrityStatus) float64 { return float64(s.FreezeFailed) }),
}

var leaderStats = []stat[election.Status]{
	gauge("coffer_leader", "1 while this node leads and runs the scanners, else 0.", func(s *election.Status) float64 {
		if s.Leading {
			return 1
		}
		return 0
	}),
	gauge("coffer_leader_term", "The newest term of a leader that this node knows of.", func(s *election.Status) float64 { return float64(s.Term) }),
	counter("coffer_leader_gained_total", "Terms in which this node led.", func(s *election.Status) float64 { return float64(s.Gained) }),
	counter("coffer_leader_lost_total", "Terms of this node that ended while it ran.", func(s *election.Status) float64 { return float64(s.Lost) }),
}

var memberCount = prometheus.NewDesc("coffer_cluster_nodes", "Nodes that take commands, as this one sees them; 1 where it shares no buckets.", nil, nil)

var batchSizes = prometheus.NewDesc("coffer_batch_size", "Commands in one transaction.", nil, nil)

// collector reads the figures of a node's parts.
type collector struct {
	exec   *shard.Executor
	expiry *scan.Expiry
	work   *scan.Work
	level  *scan.Rebalance
	proof  *scan.Integrity
	leader election.Elector
	// members is nil where the node shares no buckets.
	members *members.Members
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range shardStats {
		ch <- s.desc
	}
	for _, s := range expiryStats {
		ch <- s.desc
	}
	for _, s := range workStats {
		ch <- s.desc
	}
	for _, s := range levelStats {
		ch <- s.desc
	}
	for _, s := range proofStats {
		ch <- s.desc
	}
	for _, s := range leaderStats {
		ch <- s.desc
	}
	ch <- memberCount
	ch <- batchSizes
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.exec.Stats()
	for _, s := range shardStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&st))
	}
	buckets := map[float64]uint64{}
	var sum uint64
	for i, n := range st.BatchSizes {
		sum += n
		buckets[float64(uint64(1)<<i)] = sum
	}
	ch <- prometheus.MustNewConstHistogram(batchSizes, sum, float64(st.Commands), buckets)
	ex := c.expiry.Status(context.Background())
	for _, s := range expiryStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&ex))
	}
	lv := c.level.Status()
	for _, s := range levelStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&lv))
	}
	pr := c.proof.Status()
	for _, s := range proofStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&pr))
	}
	le := c.leader.Status()
	for _, s := range leaderStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&le))
	}
	live := 1
	if c.members != nil {
		live = c.members.Live()
	}
	ch <- prometheus.MustNewConstMetric(memberCount, prometheus.GaugeValue, float64(live))
	wk := c.work.Status(context.Background())
	for _, s := range workStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&wk))
	}
}

// newRegistry makes the node's own registry: nothing global is in it.
func newRegistry(version, kind, nodeID string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "coffer_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "store": kind, "node_id": nodeID},
	})
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
