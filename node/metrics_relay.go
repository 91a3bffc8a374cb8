package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffer-ledger/coffer/node/relay"
)

// relayTimeout bounds what a scrape reads of the store for the lag of sinks.
const relayTimeout = 2 * time.Second

// sinkStat is one figure of each sink.
type sinkStat struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*relay.SinkStatus) float64
}

func ofSink(name, help string, kind prometheus.ValueType, get func(*relay.SinkStatus) float64) sinkStat {
	return sinkStat{prometheus.NewDesc(name, help, []string{"tenant", "sink"}, nil), kind, get}
}

var sinkStats = []sinkStat{
	ofSink("coffer_sink_delivered_total", "Events that the receiver of a sink took.", prometheus.CounterValue, func(s *relay.SinkStatus) float64 { return float64(s.Delivered) }),
	ofSink("coffer_sink_failed_total", "Tries to deliver an event that failed.", prometheus.CounterValue, func(s *relay.SinkStatus) float64 { return float64(s.Failed) }),
	ofSink("coffer_sink_parked_total", "Events that were put aside for a person.", prometheus.CounterValue, func(s *relay.SinkStatus) float64 { return float64(s.Parked) }),
	ofSink("coffer_sink_lag_blocks", "Blocks of entries before the sink in this node's partitions, counted up to 1000 in each.", prometheus.GaugeValue, func(s *relay.SinkStatus) float64 { return float64(s.Behind) }),
	ofSink("coffer_sink_lag_seconds", "Age of the oldest block before the sink in this node's partitions.", prometheus.GaugeValue, func(s *relay.SinkStatus) float64 { return s.Lag.Seconds() }),
}

var (
	relayPartitions = prometheus.NewDesc("coffer_relay_partitions", "Partitions whose events this node delivers.", nil, nil)
	relayTrimmed    = prometheus.NewDesc("coffer_relay_trimmed_total", "Outbox pointers that this node removed because every sink is past them.", nil, nil)
)

// relayCollector reads the figures of the relay.
type relayCollector struct{ relay *relay.Relay }

// Describe implements prometheus.Collector.
func (c relayCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range sinkStats {
		ch <- s.desc
	}
	ch <- relayPartitions
	ch <- relayTrimmed
}

// Collect implements prometheus.Collector.
func (c relayCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), relayTimeout)
	defer cancel()
	st := c.relay.Status(ctx)
	ch <- prometheus.MustNewConstMetric(relayPartitions, prometheus.GaugeValue, float64(st.Partitions))
	ch <- prometheus.MustNewConstMetric(relayTrimmed, prometheus.CounterValue, float64(st.Trimmed))
	for i := range st.Sinks {
		for _, s := range sinkStats {
			ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&st.Sinks[i]), st.Sinks[i].Tenant, st.Sinks[i].Name)
		}
	}
}
