//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

const apiVersion = 730

// The client library has one network thread and wants each cluster opened
// once a process; handles share databases by cluster file.
var opened = struct {
	sync.Mutex
	dbs map[string]fdb.Database
}{dbs: map[string]fdb.Database{}}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 4 * time.Second
	}
	if o.SizeLimit <= 0 {
		o.SizeLimit = kv.MaxTxBytes
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 128
	}
	if o.WatchPoll <= 0 {
		o.WatchPoll = time.Second
	}
	return o
}

// Store is the FoundationDB engine. It is safe for concurrent use.
type Store struct {
	db      fdb.Database
	opt     Options
	slots   chan struct{}
	watches atomic.Int64
	closed  chan struct{}
	once    sync.Once
}

// Open connects to a cluster. It checks the cluster file and asks for a read
// version once, so that a cluster that does not answer is an error here, by
// the end of ctx or of Options.Timeout, and not a hang later.
func Open(ctx context.Context, opt Options) (kv.Store, error) {
	s, err := open(opt)
	if err != nil {
		return nil, err
	}
	if err := s.ping(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Check says whether the cluster can be used, and if not, why.
func Check(ctx context.Context, opt Options) error {
	_, err := Open(ctx, opt)
	return err
}

func open(opt Options) (*Store, error) {
	opt = opt.withDefaults()
	if _, err := readClusterFile(opt.ClusterFile); err != nil {
		return nil, err
	}
	if err := fdb.APIVersion(apiVersion); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAPIVersion, err)
	}
	opened.Lock()
	defer opened.Unlock()
	db, ok := opened.dbs[opt.ClusterFile]
	if !ok {
		var err error
		if db, err = fdb.OpenDatabase(opt.ClusterFile); err != nil {
			return nil, fmt.Errorf("open cluster file %s: %w", opt.ClusterFile, err)
		}
		if err := db.Options().SetMaxWatches(maxWatches); err != nil {
			return nil, fmt.Errorf("set watch limit: %w", err)
		}
		opened.dbs[opt.ClusterFile] = db
	}
	return &Store{db: db, opt: opt, slots: make(chan struct{}, opt.MaxInFlight), closed: make(chan struct{})}, nil
}

// ping asks the cluster for a read version.
func (s *Store) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	tx, err := s.Begin(ctx)
	if err == nil {
		defer tx.Cancel()
		_, err = tx.ReadVersion()
	}
	if err != nil {
		coordinators, _ := readClusterFile(s.opt.ClusterFile)
		return fmt.Errorf("%w within %s: check that fdbserver runs and that the coordinators %s of %s can be reached: %w",
			ErrUnreachable, s.opt.Timeout, strings.Join(coordinators, ", "), s.opt.ClusterFile, err)
	}
	return nil
}

// Begin waits for one of MaxInFlight slots, then starts a transaction.
func (s *Store) Begin(ctx context.Context) (kv.Tx, error) {
	select {
	case <-s.closed:
		return nil, &kv.Error{Code: kv.CodeClosed, Op: "begin"}
	case <-ctx.Done():
		return nil, kv.ContextError(ctx, "begin")
	case s.slots <- struct{}{}:
	}
	t, err := s.newTx(ctx)
	if err != nil {
		<-s.slots
		return nil, err
	}
	return t, nil
}

func (s *Store) newTx(ctx context.Context) (*tx, error) {
	tr, err := s.db.CreateTransaction()
	if err != nil {
		return nil, wrap("begin", err)
	}
	o := tr.Options()
	err = errors.Join(
		o.SetTimeout(s.opt.Timeout.Milliseconds()),
		o.SetRetryLimit(0),
		o.SetMaxRetryDelay(100),
		o.SetSizeLimit(s.opt.SizeLimit),
	)
	if err != nil {
		return nil, fmt.Errorf("set transaction options: %w", err)
	}
	t := &tx{s: s, tr: tr, ctx: ctx}
	// A blocked read of the binding does not know contexts: cancelling the
	// transaction makes it return.
	t.stop = context.AfterFunc(ctx, tr.Cancel)
	return t, nil
}

// Close refuses new transactions. The connection itself lives as long as the
// process, as the client library wants it.
func (s *Store) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// wrap turns the binding's error into the contract's. Codes that only ask to
// wait become CodeThrottled; those the contract does not know count as
// internal, and so as an unknown outcome when they come from a commit.
func wrap(op string, err error) error {
	var fe fdb.Error
	if !errors.As(err, &fe) {
		return &kv.Error{Code: kv.CodeInternal, Op: op, Cause: err}
	}
	e := &kv.Error{Code: kv.Code(fe.Code), Op: op}
	switch fe.Code {
	case 1007, 1009, 1020, 1021, 1025, 1031, 1032, 1037, 1038, 2000, 2004, 2005, 2017, 2036, 2101, 2102, 2103:
	case 1039: // cluster_version_changed: the commit may have been in flight
		e.Code, e.Cause = kv.CodeCommitUnknown, fe
	case 1042, 1051, 1078, 1213, 1223, 1235: // memory limits and throttling of the proxies
		e.Code, e.Cause = kv.CodeThrottled, fe
	default:
		e.Code, e.Cause = kv.CodeInternal, fe
	}
	return e
}
