package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
)

// formatVersion is the version of the key layout and of what the tables mean.
const formatVersion = 1

// Options of a Store.
type Options struct {
	// Prefix is put before every key. Default "coffer".
	Prefix []byte
	// Writer is the id of this node; it stands in every block it writes.
	Writer string
	// Now is the server's clock. Default time.Now.
	Now func() time.Time
	// Tx bounds one transaction.
	Tx kv.Options
	// ReadOnly opens a store that exists and writes nothing at all.
	ReadOnly bool
	// EventSource is the Source of all events that are read, empty for
	// event.DefaultSource.
	EventSource string
	// Work bounds the queues of one tenant; fields that are zero have their
	// default.
	Work WorkLimits
}

// Store runs commands on a kv.Store and reads what they wrote. It is safe for
// concurrent use, also together with other Stores, in other processes, over
// the same data: correctness comes from the transactions alone.
type Store struct {
	kv      kv.Store
	opt     Options
	retries atomic.Uint64
	gates   *leaseGates
	// currencies of budgets whose events were read.
	currencies currencies
	// hook, if not nil, sees each command before it is decided; tests make it
	// panic.
	hook func(*ledger.Command)
}

// Retries counts the attempts of command transactions that followed a first
// one: conflicts with other writers, and what the engine asked to repeat.
func (s *Store) Retries() uint64 { return s.retries.Load() }

// Reasons why Open refuses what is under the prefix.
var (
	// ErrFormat says that the data was written by another version of the layout.
	ErrFormat = errors.New("store has another format")
	// ErrNoLedger says that a read-only Open found no ledger.
	ErrNoLedger = errors.New("there is no ledger in the store")
)

// Open prepares the data under the prefix, making an empty ledger where there
// is none. The kv.Store stays the caller's to close.
func Open(ctx context.Context, engine kv.Store, opt Options) (*Store, error) {
	if opt.Prefix == nil {
		opt.Prefix = []byte("coffer")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Writer == "" {
		opt.Writer = "node"
	}
	if len(opt.Writer) > ledger.MaxIDBytes || len(opt.Prefix) > 64 {
		return nil, fmt.Errorf("open ledger store: writer has %d bytes (allowed: %d), prefix %d (allowed: 64)",
			len(opt.Writer), ledger.MaxIDBytes, len(opt.Prefix))
	}
	def := DefaultWorkLimits()
	if opt.Work.OpenJobs <= 0 {
		opt.Work.OpenJobs = def.OpenJobs
	}
	if opt.Work.Leases <= 0 {
		opt.Work.Leases = def.Leases
	}
	s := &Store{kv: engine, opt: opt, gates: newLeaseGates()}
	_, err := kv.Transact(ctx, engine, opt.Tx, func(tx kv.Tx, _ kv.Attempt) error {
		_, err := s.prepare(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open ledger store: %w", err)
	}
	return s, nil
}

// now is the clock in whole milliseconds, the ledger's resolution.
func (s *Store) now() time.Time { return s.opt.Now().UTC().Truncate(time.Millisecond) }

// corrupt is the answer to a row that cannot be what it should.
func corrupt(what string, err error) *ledger.Rejection {
	return &ledger.Rejection{Code: ledger.Corrupt, Message: "stored " + what + " cannot be read", Cause: err}
}

// infra turns an engine's error into the rejection callers get: certainly not
// done, or unknown. What a damaged store did not do is not to be sent again. A
// rejection passes as it is.
func infra(err error) *ledger.Rejection {
	var r *ledger.Rejection
	if kv.OutcomeOf(err) == kv.Unknown {
		return &ledger.Rejection{Code: ledger.OutcomeUnknown, Message: "the store did not say whether the command took effect", Cause: err, RetryAfter: 50 * time.Millisecond}
	}
	if errors.As(err, &r) {
		return r
	}
	if errors.Is(err, kv.ErrTxTooLarge) || errors.Is(err, kv.ErrValueTooLarge) || errors.Is(err, kv.ErrKeyTooLarge) {
		return &ledger.Rejection{Code: ledger.OperationLimit, Message: "the command does not fit one transaction of the store", Cause: err}
	}
	if errors.Is(err, kv.ErrDamaged) {
		return &ledger.Rejection{Code: ledger.Corrupt, Message: "the store is damaged, and nothing was done", Cause: err}
	}
	return &ledger.Rejection{Code: ledger.Unavailable, Message: "the store did not take the command", Cause: err, RetryAfter: 50 * time.Millisecond}
}

// read runs a read-only transaction.
func (s *Store) readTx(ctx context.Context, fn func(kv.Reader) error) error {
	if err := kv.Read(ctx, s.kv, s.opt.Tx, fn); err != nil {
		return infra(err)
	}
	return nil
}
