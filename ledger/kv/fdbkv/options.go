package fdbkv

import (
	"errors"
	"time"
)

// Options of Open.
type Options struct {
	// ClusterFile is the path of the cluster file.
	ClusterFile string
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
	// ErrUnreachable: no answer from the cluster.
	ErrUnreachable = errors.New("the FoundationDB cluster does not answer")
)
