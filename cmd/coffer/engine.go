package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
)

// location is where a store is: an engine and what the engine calls a place.
type location struct {
	kind string // "embedded" or "fdb"
	path string
}

// parseStore reads embedded:DIR, fdb:FILE, or DIR alone for an embedded one.
func parseStore(s string) (location, error) {
	kind, path, found := strings.Cut(s, ":")
	switch {
	case s == "":
		return location{}, usagef("store is empty (allowed: embedded:DIR, DIR or fdb:FILE)")
	case !found, strings.ContainsAny(kind, "/."), len(kind) == 1: // a path, also one with a drive letter
		return location{"embedded", s}, nil
	case kind != "embedded" && kind != "fdb":
		return location{}, usagef("store %q has an unknown engine %q (allowed: embedded:DIR, DIR or fdb:FILE)", s, kind)
	case path == "":
		return location{}, usagef("store %q names no place (allowed: embedded:DIR, DIR or fdb:FILE)", s)
	}
	return location{kind, path}, nil
}

// check says what is wrong with a location that can never be opened.
func (l location) check(ctx context.Context) error {
	if l.kind == "fdb" {
		if err := fdbkv.Check(ctx, fdbkv.Options{ClusterFile: l.path}); err != nil {
			return fmt.Errorf("open store fdb:%s: %w", l.path, err)
		}
		return nil
	}
	if st, err := os.Stat(l.path); err == nil && !st.IsDir() {
		return fmt.Errorf("store %s is a file; name the directory of a store", l.path)
	}
	return nil
}

// open opens the engine. An embedded store is made where there is none,
// unless readOnly.
func (l location) open(ctx context.Context, readOnly bool) (kv.Store, error) {
	if l.kind == "fdb" {
		st, err := fdbkv.Open(ctx, fdbkv.Options{ClusterFile: l.path})
		if err != nil {
			return nil, fmt.Errorf("open store fdb:%s: %w", l.path, err)
		}
		return st, nil
	}
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	st, err := embedded.Open(embedded.Options{Dir: l.path, ReadOnly: readOnly})
	if err != nil {
		return nil, err // names the directory and what to do
	}
	return st, nil
}

// engineStats are the figures of the embedded engine.
var engineStats = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*embedded.Stats) float64
}{
	{kvDesc("commits_total", "Acknowledged writing transactions."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.Commits) }},
	{kvDesc("conflicts_total", "Transactions refused because another one changed what they read."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.Conflicts) }},
	{kvDesc("too_old_total", "Transactions refused at commit for their age."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.TooOld) }},
	{kvDesc("unknown_total", "Commits answered as unknown after a disk failure."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.Unknown) }},
	{kvDesc("groups_total", "Batches written and synced to disk."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.Groups) }},
	{kvDesc("written_bytes_total", "Bytes of those batches."), prometheus.CounterValue, func(s *embedded.Stats) float64 { return float64(s.Bytes) }},
	{kvDesc("live_versions", "Read versions kept for transactions."), prometheus.GaugeValue, func(s *embedded.Stats) float64 { return float64(s.LiveVersions) }},
	{kvDesc("recent_writes", "Keys the conflict check remembers."), prometheus.GaugeValue, func(s *embedded.Stats) float64 { return float64(s.RecentWrites) }},
	{kvDesc("watches", "Watches open."), prometheus.GaugeValue, func(s *embedded.Stats) float64 { return float64(s.Watches) }},
	{kvDesc("disk_bytes", "Size of the store's files."), prometheus.GaugeValue, func(s *embedded.Stats) float64 { return float64(s.DiskBytes) }},
}

func kvDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("coffer_kv_"+name, help, nil, nil)
}

// engineCollector reads an engine's figures when metrics are scraped.
type engineCollector struct{ store *embedded.Store }

// collectEngine gives the metrics of an engine, nil where it has none.
func collectEngine(st kv.Store) prometheus.Collector {
	if e, ok := st.(*embedded.Store); ok {
		return engineCollector{e}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range engineStats {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c engineCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.store.Stats()
	for _, s := range engineStats {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(&st))
	}
}
