//go:build fdb

package fdbkv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
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
	dbs     map[string]fdb.Database
	network bool // its options are set
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
	db                                             fdb.Database
	opt                                            Options
	slots                                          chan struct{}
	watches                                        atomic.Int64
	commits, conflicts, tooOld, unknown, throttled atomic.Uint64
	closed                                         chan struct{}
	once                                           sync.Once

	// held counts objects of the client library that only Go's garbage
	// collector frees, since it was last run for them.
	held       atomic.Int64
	collecting atomic.Bool
}

// Open connects to a cluster. It checks the cluster file and asks for a read
// version once, so that a cluster that does not answer is an error here, by
// the end of ctx or of Options.Timeout, and not a hang later. The error then
// says what is wrong, as far as that can be found out in a few seconds more.
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
		if db, err = connect(opt); err != nil {
			return nil, fmt.Errorf("open cluster file %s: %w", opt.ClusterFile, err)
		}
		opened.dbs[opt.ClusterFile] = db
	}
	return &Store{db: db, opt: opt, slots: make(chan struct{}, opt.MaxInFlight), closed: make(chan struct{})}, nil
}

// connect opens a cluster for the first time in this process. The client
// library is told to watch the cluster's protocol version, also where it is
// the only one: a mismatch is then an error, and not silence.
func connect(opt Options) (fdb.Database, error) {
	if len(opened.dbs) == 0 && !opened.network {
		n := fdb.Options()
		if err := errors.Join(n.SetDisableClientBypass(), n.SetFailIncompatibleClient()); err != nil {
			return fdb.Database{}, fmt.Errorf("set network options: %w", err)
		}
		opened.network = true
	}
	db, err := fdb.OpenDatabase(opt.ClusterFile)
	if err != nil {
		return db, err
	}
	if err := db.Options().SetMaxWatches(maxWatches); err != nil {
		return db, fmt.Errorf("set watch limit: %w", err)
	}
	if opt.Datacenter != "" {
		if err := db.Options().SetDatacenterId(opt.Datacenter); err != nil {
			return db, fmt.Errorf("set datacenter id: %w", err)
		}
	}
	return db, nil
}

// Bounds of finding out why a cluster does not answer.
const (
	diagnosisTime = 3 * time.Second
	dialTime      = time.Second
)

// ping asks the cluster for a read version. Where ctx ends, that gets two
// thirds of its time and the search for the reason the rest.
func (s *Store) ping(ctx context.Context) error {
	limit := s.opt.Timeout
	end := time.Now().Add(limit + diagnosisTime)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end, limit = d, min(limit, 2*time.Until(d)/3)
	}
	pctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The first contact with a cluster ends what waited for it with "the version
	// of the cluster has changed", which means: ask again.
	err := s.readVersion(pctx)
	for again := (*kv.Error)(nil); errors.As(err, &again) && again.Retryable() && pctx.Err() == nil; {
		err = s.readVersion(pctx)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &kv.Error{Code: kv.CodeDatabaseLocked}):
		return fmt.Errorf("%w: wait for the end of the restore or switch-over that locked it; fdbcli -C %s shows the lock with status and lifts it with unlock", ErrLocked, s.opt.ClusterFile)
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	}
	dctx, stop := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer stop()
	return fmt.Errorf("%w (no read version within %s: %w)", s.diagnose(dctx).explain(), limit.Round(time.Millisecond), err)
}

func (s *Store) readVersion(ctx context.Context) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	_, err = tx.ReadVersion()
	return err
}

// diagnose collects what is known about a cluster that gives no read version.
func (s *Store) diagnose(ctx context.Context) diagnosis {
	d := diagnosis{file: s.opt.ClusterFile}
	addresses, _ := readClusterFile(s.opt.ClusterFile)
	d.coordinators = make([]coordinator, len(addresses))
	var wg sync.WaitGroup
	for i, a := range addresses {
		wg.Go(func() {
			dctx, cancel := context.WithTimeout(ctx, dialTime)
			defer cancel()
			conn, err := (&net.Dialer{}).DialContext(dctx, "tcp", strings.TrimSuffix(a, ":tls"))
			if err == nil {
				_ = conn.Close()
			}
			d.coordinators[i] = coordinator{a, err}
		})
	}
	status := make(chan []byte, 1) // its goroutine may outlive ctx: nothing can cancel it
	go func() {
		b, err := s.db.GetClientStatus()
		if err != nil {
			b = nil
		}
		status <- b
	}()
	select {
	case d.client = <-status:
	case <-ctx.Done():
	}
	var cl clientStatus
	if json.Unmarshal(d.client, &cl) == nil && cl.State == "created" {
		d.cluster = s.clusterStatus(ctx)
	}
	wg.Wait()
	return d
}

// clusterStatus reads the cluster's status, which its controller gives also
// where the database is not available.
func (s *Store) clusterStatus(ctx context.Context) []byte {
	tr, err := s.db.CreateTransaction()
	if err != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, tr.Cancel)
	defer stop()
	b, err := tr.Get(fdb.Key("\xff\xff/status/json")).Get()
	if err != nil {
		return nil
	}
	return b
}

// Version names the client library's release and the cluster's.
func (s *Store) Version() string {
	var cl clientStatus
	if b, err := s.db.GetClientStatus(); err != nil || json.Unmarshal(b, &cl) != nil || len(cl.AvailableClients) == 0 {
		return "FoundationDB"
	}
	return fmt.Sprintf("FoundationDB, client library %s, cluster of release %s", cl.AvailableClients[0].ReleaseVersion, release(cl.ProtocolVersion))
}

// Stats returns the store's counters. It is cheap enough to be scraped.
func (s *Store) Stats() Stats {
	return Stats{
		Commits: s.commits.Load(), Conflicts: s.conflicts.Load(), TooOld: s.tooOld.Load(),
		Unknown: s.unknown.Load(), Throttled: s.throttled.Load(),
		InFlight: len(s.slots), Watches: int(s.watches.Load()),
	}
}

// count adds an error of a transaction to the counters.
func (s *Store) count(err error, inCommit bool) {
	var e *kv.Error
	if !errors.As(err, &e) {
		return
	}
	switch {
	case e.Code == kv.CodeConflict:
		s.conflicts.Add(1)
	case e.Code == kv.CodeTooOld:
		s.tooOld.Add(1)
	case e.Code == kv.CodeThrottled, e.Code == kv.CodeProcessBehind:
		s.throttled.Add(1)
	case inCommit && e.CommitOutcome() == kv.Unknown:
		s.unknown.Add(1)
	}
}

// Begin waits for one of MaxInFlight slots, then starts a transaction.
func (s *Store) Begin(ctx context.Context) (kv.Tx, error) {
	if ctx.Err() != nil { // select would take a free slot as well
		return nil, kv.ContextError(ctx, "begin")
	}
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
	// Until the client library has met the cluster it does not know a cancelled
	// transaction, only its timeout.
	timeout := s.opt.Timeout
	if d, ok := ctx.Deadline(); ok {
		timeout = max(time.Millisecond, min(timeout, time.Until(d)))
	}
	o := tr.Options()
	err = errors.Join(
		o.SetTimeout(timeout.Milliseconds()),
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

// collectAfter is how many objects of the client library, each of a few
// kilobytes, may wait for the garbage collector. It does not see their memory,
// and in a process with a large heap would run far too rarely.
const collectAfter = 10_000

// collect counts n objects that are no longer used.
func (s *Store) collect(n int64) {
	if s.held.Add(n) < collectAfter || !s.collecting.CompareAndSwap(false, true) {
		return
	}
	s.held.Store(0)
	go func() {
		runtime.GC()
		s.collecting.Store(false)
	}()
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
	case 1007, 1009, 1020, 1021, 1025, 1031, 1032, 1036, 1037, 1038, 2000, 2004, 2005, 2017, 2101, 2102, 2103:
	case 1039: // cluster_version_changed: the commit may have been in flight
		e.Code, e.Cause = kv.CodeCommitUnknown, fe
	case 1042, 1051, 1078, 1213, 1223, 1235: // memory limits and throttling of the proxies
		e.Code, e.Cause = kv.CodeThrottled, fe
	default:
		e.Code, e.Cause = kv.CodeInternal, fe
	}
	return e
}
