package fdbkv

import (
	"errors"
	"time"
)

// Options of Open.
type Options struct {
	// ClusterFile is the path of the cluster file.
	ClusterFile string
	// Datacenter is the id of the datacenter this process is in, as the
	// cluster's processes have it; reads then stay near in a cluster of several
	// regions. Empty: not told. The first Open of a cluster in a process decides.
	Datacenter string
	// Timeout bounds one transaction inside the client library. Default 4 s.
	Timeout time.Duration
	// SizeLimit bounds the bytes of one transaction. Default kv.MaxTxBytes.
	SizeLimit int64
	// MaxInFlight bounds the transactions open at one time. Default 128.
	MaxInFlight int
	// WatchPoll is how often a watch looks for itself. Default 1 s.
	WatchPoll time.Duration
}

// Errors of Open and Check, for errors.Is. Each says in its text what to do.
var (
	// ErrNotBuilt: this build has no FoundationDB engine.
	ErrNotBuilt = errors.New("this build has no FoundationDB engine; build coffer with -tags fdb on a machine " +
		"that has the FoundationDB client library libfdb_c and its headers, version 7.3 or later, or use an embedded store")
	// ErrClusterFile: the cluster file is missing or malformed.
	ErrClusterFile = errors.New("bad cluster file")
	// ErrAPIVersion: the client library does not speak API version 730.
	ErrAPIVersion = errors.New("the FoundationDB client library does not support API version 730; install version 7.3 or later")
	// ErrProtocol: the cluster runs a version that no client library here
	// speaks.
	ErrProtocol = errors.New("the FoundationDB client library and the cluster have different protocol versions")
	// ErrUnreachable: too few coordinators answer.
	ErrUnreachable = errors.New("the FoundationDB coordinators do not answer")
	// ErrUnavailable: the coordinators answer, but the database does not.
	ErrUnavailable = errors.New("the FoundationDB database is unavailable")
	// ErrLocked: the database is locked, as it is during a restore.
	ErrLocked = errors.New("the FoundationDB database is locked")
)

// Stats are counters of a store since it was opened, and gauges of now.
type Stats struct {
	Commits   uint64 // acknowledged, writing
	Conflicts uint64
	TooOld    uint64 // transactions that outlived their read version
	Unknown   uint64 // commits without a certain answer
	Throttled uint64 // answers that ask to wait
	// InFlight is how many transactions are open.
	InFlight int
	Watches  int
}
