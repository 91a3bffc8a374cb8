package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
)

type storeCmd struct {
	Check       storeCheck       `cmd:"" help:"Say whether a store can be used, and if not, why."`
	Incarnation storeIncarnation `cmd:"" help:"Show or raise a store's incarnation, as after a restore."`
}

// atStore is the store a command works on.
type atStore struct {
	Store   string        `help:"The store: embedded:DIR, DIR, fdb:FILE or fdb:FILE?prefix=NAME (default: ${default}, as for serve)." default:"embedded:coffer-data" placeholder:"STORE" empty:"name a store, or leave the flag out to use the default"`
	Timeout time.Duration `help:"Time the store has to answer (default: ${default})." default:"10s" range:"more than 0s"`
}

type storeCheck struct {
	atStore `embed:""`
}

// Help is the long help.
func (storeCheck) Help() string {
	return `Opens the store, reads what it says of itself, and writes and reads one row that
means nothing to the ledger. A store that is not there is not made. An embedded
store must not be open in a server; a cluster may be in use. The last line is
"store: ok"; else the exit code is 1 and the error begins with one of these, and
says what to do:

  NOT_BUILT         this coffer was built without -tags fdb
  CLUSTER_FILE      the cluster file is missing, unreadable or malformed
  API_VERSION       the client library is older than version 7.3
  PROTOCOL_VERSION  no client library here speaks the cluster's version
  UNREACHABLE       half of the coordinators or more do not answer
  UNAVAILABLE       the database is not configured, or in recovery
  DATABASE_LOCKED   a restore or a switch-over has locked the database
  IN_USE            another process has the embedded store open
  NOT_A_STORE       the directory is no store
  NO_LEDGER         there is no ledger under the prefix
  FORMAT            a newer version of coffer wrote it
  DAMAGED           a file is damaged, or the data is missing
  DISK_FULL         there is no room on the disk
  DISK              the disk does not give a file
  READ_ONLY         the directory cannot be written
  PERMISSION        this user may not read a file
  TIMEOUT           no answer within --timeout

Whatever else is wrong stands there alone, and is OTHER with --json.

Of an embedded store it first reads every table of rows, whole, and compares all
checksums. That takes as long as the disk needs for it, and --timeout does not
bound it. Its log is read as at every start, and damage is found there but for the
last 32 KiB, where it reads as the torn end that a loss of power leaves. A cluster
checks its own files. Whether the rows add up to a ledger is what "coffer audit --store"
checks.

One fault comes before coffer runs: a build with -tags fdb on a machine without
the client library ends with the system's "error while loading shared libraries:
libfdb_c.so" and exit code 127. Install the FoundationDB client package there.

Examples:
  coffer store check --store /var/lib/coffer/store
  coffer store check --store fdb:/etc/foundationdb/fdb.cluster --timeout 5s --json`
}

// storeReport is what a check found.
type storeReport struct {
	Store   string `json:"store"`
	OK      bool   `json:"ok"`
	Engine  string `json:"engine"`
	Version string `json:"version,omitempty"`
	*store.Info
	// VerifiedBytes is the size of the files whose checksums are right;
	// embedded stores only.
	VerifiedBytes *int64  `json:"verified_bytes,omitempty"`
	WriteMS       float64 `json:"write_ms,omitempty"`
	ReadMS        float64 `json:"read_ms,omitempty"`
	Problem       string  `json:"problem,omitempty"`
	Error         string  `json:"error,omitempty"`
}

// Run checks.
func (s *storeCheck) Run(c *cli) error {
	loc, err := s.location()
	if err != nil {
		return err
	}
	rep := &storeReport{Store: loc.String(), Engine: loc.kind}
	// A damaged store must not be opened for writing: the engine would begin to
	// merge its tables.
	if err = s.verify(c, loc, rep); err == nil {
		err = s.bounded(c, func(c *cli, step func(string)) error { return loc.inspect(c, rep, step) })
	}
	if err = loc.explain(err); err != nil {
		if !c.JSON {
			return err
		}
		rep.Problem, rep.Error = storeProblem(err), err.Error()
		c.notef("coffer: %v\n", err)
		return errors.Join(c.printJSON(rep), errFailed)
	}
	rep.OK = true
	if c.JSON {
		return c.printJSON(rep)
	}
	c.printf(" store        %s\n engine       %s\n format       %d\n incarnation  %d\n", rep.Store, rep.Version, rep.Format, rep.Incarnation)
	if rep.VerifiedBytes != nil {
		c.printf(" checksums    right, in all %d bytes of tables\n", *rep.VerifiedBytes)
	}
	c.printf(" write        %.2f ms\n read         %.2f ms\nstore: ok\n", rep.WriteMS, rep.ReadMS)
	return nil
}

// verify reads the files of an embedded store and compares their checksums.
func (s *storeCheck) verify(c *cli, loc location, rep *storeReport) error {
	if loc.kind != "embedded" {
		return nil
	}
	var engine kv.Store
	err := s.bounded(c, func(c *cli, _ func(string)) (err error) {
		_, engine, err = c.openLedger(loc, true)
		return err
	})
	if err != nil {
		return err
	}
	v, ok := engine.(interface {
		Verify(ctx context.Context, progress func(done, total int64)) error
	})
	if !ok {
		return engine.Close()
	}
	progress := c.progress()
	var read int64
	err = v.Verify(c.ctx, func(done, total int64) {
		read = done
		progress(fmt.Sprintf("checksums, KiB of %d:", total>>10), uint64(done>>10))
	})
	progress("", 0)
	rep.VerifiedBytes = &read
	return errors.Join(err, engine.Close())
}

func (s *atStore) location() (location, error) { return parseStore(s.Store) }

// hangGrace is how long after the timeout a step may still come to its end.
const hangGrace = time.Second

// bounded runs work within the timeout. Work that does not end although it was
// told to, such as on a file system that hangs, is left behind.
func (s *atStore) bounded(c *cli, work func(c *cli, step func(string)) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, s.Timeout)
	defer cancel()
	inner := *c
	inner.ctx = ctx
	var at atomic.Value
	at.Store("open")
	done := make(chan error, 1)
	go func() { done <- work(&inner, func(step string) { at.Store(step) }) }()
	hang := time.NewTimer(s.Timeout + hangGrace)
	defer hang.Stop()
	select {
	case err := <-done:
		return err
	case <-hang.C:
		return fmt.Errorf("store %s does not answer within %s: it hangs at: %s: %w", s.Store, s.Timeout, at.Load(), context.DeadlineExceeded)
	}
}

// inspect opens the ledger, asks it about itself and makes a round trip.
func (l location) inspect(c *cli, rep *storeReport, step func(string)) (err error) {
	st, engine, err := c.openLedger(l, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	rep.Version = engineVersion(l.kind, engine)
	step("read what the store says of itself")
	in, err := st.Info(c.ctx)
	if err != nil {
		return err
	}
	rep.Info = &in
	step("write and read a row")
	write, read, err := st.Probe(c.ctx)
	if err != nil {
		return err
	}
	rep.WriteMS, rep.ReadMS = millis(write), millis(read)
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// engineVersion is the version of the software below the ledger.
func engineVersion(kind string, engine kv.Store) string {
	if v, ok := engine.(interface{ Version() string }); ok {
		return v.Version()
	}
	const module = "github.com/cockroachdb/pebble/v2"
	if info, ok := debug.ReadBuildInfo(); ok && kind == "embedded" {
		for _, d := range info.Deps {
			if d.Path == module {
				return "embedded, Pebble " + d.Version
			}
		}
	}
	return kind
}

type storeIncarnation struct {
	atStore `embed:""`
	Set     uint64 `help:"Raise it to N. The present value changes nothing, so that a repetition is safe; a lower one is refused." placeholder:"N" range:"1 to 4294967296"`
}

// Help is the long help.
func (storeIncarnation) Help() string {
	return `The incarnation leads the order of all events. The engine's stamps order them
within one incarnation, but they may begin again at lower ones in a store that
was restored from a backup or copied to another cluster. Raise the incarnation
there, before the first node starts, above every value the ledger ever had, also
after the backup was taken: whatever follows stands after all that was before.

Examples:
  coffer store incarnation --store fdb:/etc/foundationdb/fdb.cluster
  coffer store incarnation --store fdb:/etc/foundationdb/fdb.cluster --set 2`
}

// Run shows or raises the incarnation.
func (s *storeIncarnation) Run(c *cli) error {
	loc, err := s.location()
	if err != nil {
		return err
	}
	var was, now uint64
	err = s.bounded(c, func(c *cli, step func(string)) (err error) {
		st, engine, err := c.openLedger(loc, s.Set == 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, engine.Close()) }()
		step("read the incarnation")
		in, err := st.Info(c.ctx)
		if was, now = in.Incarnation, in.Incarnation; err != nil || s.Set == 0 {
			return err
		}
		step("set the incarnation")
		was, err = st.SetIncarnation(c.ctx, s.Set)
		now = s.Set
		return err
	})
	switch {
	case kv.OutcomeOf(err) == kv.Unknown:
		return fmt.Errorf("%w; the incarnation may have been set: run the same command again", err)
	case err != nil:
		return loc.explain(err)
	case c.JSON:
		return c.printJSON(map[string]any{"store": loc.String(), "incarnation": now, "was": was})
	case now != was:
		c.printf("incarnation raised from %d to %d\n", was, now)
	default:
		c.printf("incarnation is %d\n", now)
	}
	return nil
}
