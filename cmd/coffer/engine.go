package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// location is where a store is: an engine, what the engine calls a place, and
// the prefix of the ledger's keys there.
type location struct {
	kind   string // "embedded" or "fdb"
	path   string
	prefix string // empty: the ledger's own default
	// datacenter this process is in; empty: not told. Clusters only.
	datacenter string
}

const storeForms = "embedded:DIR, DIR, fdb:FILE or fdb:FILE?prefix=NAME"

// nameForm is what a prefix or datacenter may be. Its characters sort above
// those that end a prefix, so no prefix's keys lie among another's.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

// parseStore reads embedded:DIR, fdb:FILE, or DIR alone for an embedded one.
func parseStore(s string) (location, error) {
	kind, path, found := strings.Cut(s, ":")
	switch {
	case s == "":
		return location{}, usagef("store is empty (allowed: %s)", storeForms)
	case !found, strings.ContainsAny(kind, "/."), len(kind) == 1: // a path, also one with a drive letter
		return location{kind: "embedded", path: s}, nil
	case kind != "embedded" && kind != "fdb":
		return location{}, usagef("store %q has an unknown engine %q (allowed: %s)", s, kind, storeForms)
	case path == "":
		return location{}, usagef("store %q names no place (allowed: %s)", s, storeForms)
	}
	l := location{kind: kind, path: path}
	if kind == "fdb" {
		return l, l.options(s)
	}
	return l, nil
}

// options takes FILE?prefix=NAME&datacenter=ID apart.
func (l *location) options(s string) error {
	path, query, found := strings.Cut(l.path, "?")
	if !found {
		return nil
	}
	l.path = path
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "prefix":
			l.prefix = value
		case "datacenter":
			l.datacenter = value
		default:
			return usagef("store %q has the option %q (allowed: prefix, datacenter)", s, name)
		}
		if !nameForm.MatchString(value) {
			return usagef("store %q has the %s %q (allowed: 1 to 64 of letters, digits, and . _ / -)", s, name, value)
		}
	}
	return nil
}

func (l location) fdbOptions() fdbkv.Options {
	return fdbkv.Options{ClusterFile: l.path, Datacenter: l.datacenter}
}

// ledgerOptions are the options of the ledger at this place.
func (l location) ledgerOptions(writer string) store.Options {
	return store.Options{Writer: writer, Prefix: l.keyPrefix()}
}

func (l location) keyPrefix() []byte {
	if l.prefix == "" {
		return nil
	}
	return []byte(l.prefix)
}

func (l location) String() string {
	s := l.kind + ":" + l.path
	var query []string
	if l.prefix != "" {
		query = append(query, "prefix="+l.prefix)
	}
	if l.datacenter != "" {
		query = append(query, "datacenter="+l.datacenter)
	}
	if len(query) > 0 {
		s += "?" + strings.Join(query, "&")
	}
	return s
}

// open opens the engine. An embedded store is made where there is none,
// unless readOnly.
func (l location) open(ctx context.Context, readOnly bool) (kv.Store, error) {
	if l.kind == "fdb" {
		st, err := fdbkv.Open(ctx, l.fdbOptions())
		if err != nil {
			return nil, fmt.Errorf("open store fdb:%s: %w", l.path, err)
		}
		return st, nil
	}
	if st, err := os.Stat(l.path); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("store %s is a file; name the directory of a store", l.path)
	}
	st, err := embedded.Open(embedded.Options{Dir: l.path, ReadOnly: readOnly})
	if err != nil {
		return nil, err // names the directory and what to do
	}
	return st, nil
}

// engineFigures are the metrics of an engine: each engine gives those it has.
type engineFigures map[*engineStat]float64

// engineStat is one metric. Engines that count the same thing share it.
type engineStat struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func kvStat(kind prometheus.ValueType, name, help string) *engineStat {
	return &engineStat{prometheus.NewDesc("coffer_kv_"+name, help, nil, nil), kind}
}

const kvCounter, kvGauge = prometheus.CounterValue, prometheus.GaugeValue

var (
	kvCommits      = kvStat(kvCounter, "commits_total", "Acknowledged writing transactions.")
	kvConflicts    = kvStat(kvCounter, "conflicts_total", "Transactions refused because another one changed what they read.")
	kvTooOld       = kvStat(kvCounter, "too_old_total", "Transactions refused for their age.")
	kvUnknown      = kvStat(kvCounter, "unknown_total", "Commits that ended without a certain answer.")
	kvReadFaults   = kvStat(kvCounter, "read_faults_total", "Reads that the disk did not answer.")
	kvThrottled    = kvStat(kvCounter, "throttled_total", "Answers of the engine that ask to wait.")
	kvGroups       = kvStat(kvCounter, "groups_total", "Batches written and synced to disk.")
	kvWrittenBytes = kvStat(kvCounter, "written_bytes_total", "Bytes of those batches.")
	kvInFlight     = kvStat(kvGauge, "transactions", "Transactions open.")
	kvLive         = kvStat(kvGauge, "live_versions", "Read versions kept for transactions.")
	kvRecent       = kvStat(kvGauge, "recent_writes", "Keys the conflict check remembers.")
	kvWatches      = kvStat(kvGauge, "watches", "Watches open.")
	kvDiskBytes    = kvStat(kvGauge, "disk_bytes", "Size of the store's files.")
)

func embeddedFigures(s embedded.Stats) engineFigures {
	return engineFigures{
		kvCommits: float64(s.Commits), kvConflicts: float64(s.Conflicts), kvTooOld: float64(s.TooOld), kvUnknown: float64(s.Unknown),
		kvReadFaults: float64(s.ReadFaults), kvGroups: float64(s.Groups), kvWrittenBytes: float64(s.Bytes), kvLive: float64(s.LiveVersions), kvRecent: float64(s.RecentWrites),
		kvWatches: float64(s.Watches), kvDiskBytes: float64(s.DiskBytes),
	}
}

func fdbFigures(s fdbkv.Stats) engineFigures {
	return engineFigures{
		kvCommits: float64(s.Commits), kvConflicts: float64(s.Conflicts), kvTooOld: float64(s.TooOld), kvUnknown: float64(s.Unknown),
		kvThrottled: float64(s.Throttled), kvInFlight: float64(s.InFlight), kvWatches: float64(s.Watches),
	}
}

// engineCollector reads an engine's figures when metrics are scraped.
type engineCollector func() engineFigures

// collectEngine gives the metrics of an engine, nil where it has none.
func collectEngine(st kv.Store) prometheus.Collector {
	switch e := st.(type) {
	case interface{ Stats() embedded.Stats }:
		return engineCollector(func() engineFigures { return embeddedFigures(e.Stats()) })
	case interface{ Stats() fdbkv.Stats }:
		return engineCollector(func() engineFigures { return fdbFigures(e.Stats()) })
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for s := range c() {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c engineCollector) Collect(ch chan<- prometheus.Metric) {
	for s, v := range c() {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, v)
	}
}
