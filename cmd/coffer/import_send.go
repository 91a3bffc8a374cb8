package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// maxWaiting bounds the rows that wait because their key is in flight.
const maxWaiting = 10_000

// maxKeys bounds the keys that a wave remembers.
const maxKeys = 1 << 20

// importer sends rows in batches, several at once.
//
//	file ─▶ key new? ─yes─▶ batch ─▶ Execute(reserves) ─▶ Execute(commits of what was taken)
//	            └─no: waits until everything before it is answered
//
// So the first row of a key always wins, and a batch never holds a key twice.
type importer struct {
	cmd     *importCmd
	s       *server
	timeout time.Duration
	start   time.Time
	seed    maphash.Seed

	mu      sync.Mutex
	sum     summary
	rejects *rejectLog
	// sent and answered count rows that went to the server, and taken those
	// that it took.
	sent, answered, taken int
	// paid are the keys of those, by hash: some ten bytes each. Two keys of one
	// hash, of which even a billion rows hardly have any, would cost the total one
	// of them and the ledger nothing.
	paid map[uint64]struct{}
}

func newImporter(m *importCmd, c *cli, s *server, rejects *rejectLog) *importer {
	return &importer{
		cmd: m, s: s, timeout: c.Timeout, start: time.Now(), seed: maphash.MakeSeed(), rejects: rejects,
		sum: summary{Totals: map[string]int64{}}, paid: map[uint64]struct{}{},
	}
}

// run sends all rows of the file.
func (imp *importer) run(ctx context.Context, src *rows) error {
	w := imp.wave(ctx)
	var waiting []row
	for {
		r, rej, err := src.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, w.wait())
		}
		imp.seen()
		if rej != nil {
			imp.reject(*rej)
			continue
		}
		if !w.add(r) {
			waiting = append(waiting, r)
		}
		if len(waiting) >= maxWaiting {
			if err := w.wait(); err != nil {
				return err
			}
			if waiting, err = imp.again(ctx, waiting); err != nil {
				return err
			}
			w = imp.wave(ctx)
			w.seenBefore(waiting)
		}
		if w.failed() {
			break
		}
		if len(w.keys) >= maxKeys { // begin to remember anew
			if err := w.wait(); err != nil {
				return err
			}
			w = imp.wave(ctx)
			w.seenBefore(waiting)
		}
	}
	err := w.wait()
	for err == nil && len(waiting) > 0 {
		waiting, err = imp.again(ctx, waiting)
	}
	return err
}

// skipRest counts the rows that an import which stopped early has not sent.
// What is broken in them is for the next run to say.
func (imp *importer) skipRest(src *rows) {
	for {
		if _, _, err := src.next(); err != nil {
			return
		}
		imp.seen()
	}
}

// again sends rows whose key was in the file before, and returns those whose
// key is among them twice.
func (imp *importer) again(ctx context.Context, rows []row) (waiting []row, err error) {
	w := imp.wave(ctx)
	for _, r := range rows {
		if !w.add(r) {
			waiting = append(waiting, r)
		}
	}
	return waiting, w.wait()
}

// wave is a run of rows with different keys.
type wave struct {
	imp   *importer
	ctx   context.Context
	group *errgroup.Group
	keys  map[uint64]struct{}
	batch []row
}

func (imp *importer) wave(ctx context.Context) *wave {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(imp.cmd.Concurrency)
	return &wave{imp: imp, ctx: ctx, group: g, keys: map[uint64]struct{}{}}
}

// add takes a row unless its key is in the wave already. A hash that collides
// only makes a row wait.
func (w *wave) add(r row) bool {
	k := w.imp.key(r)
	if _, ok := w.keys[k]; ok {
		return false
	}
	w.keys[k] = struct{}{}
	w.batch = append(w.batch, r)
	if len(w.batch) == w.imp.cmd.Batch {
		w.flush()
	}
	return true
}

func (imp *importer) key(r row) uint64 { return maphash.String(imp.seed, r.order+"\x00"+r.benefit) }

// seenBefore keeps the keys of rows that still wait out of the wave, so that
// a row never overtakes one of the same key.
func (w *wave) seenBefore(rows []row) {
	for _, r := range rows {
		w.keys[w.imp.key(r)] = struct{}{}
	}
}

func (w *wave) failed() bool { return w.ctx.Err() != nil }

func (w *wave) flush() {
	batch := w.batch
	w.batch = nil
	w.group.Go(func() error { return w.imp.send(w.ctx, batch) })
}

// wait sends what is left and returns when everything is answered.
func (w *wave) wait() error {
	if len(w.batch) > 0 {
		w.flush()
	}
	return w.group.Wait()
}

// send reserves a batch and commits what was taken.
func (imp *importer) send(ctx context.Context, batch []row) error {
	cmds := make([]*cofferv1.Command, len(batch))
	for i, r := range batch {
		cmds[i] = &cofferv1.Command{Command: &cofferv1.Command_Reserve{Reserve: &cofferv1.ReserveRequest{
			OrderId: r.order, BenefitKey: r.benefit, Attempt: imp.cmd.Attempt, Budget: imp.cmd.Budget,
			AmountMinor: r.amount, Currency: r.currency, Ttl: durationpb.New(imp.cmd.TTL),
		}}}
	}
	imp.count(func(*summary) { imp.sent += len(batch) })
	res, err := imp.execute(ctx, cmds)
	if err != nil {
		return fmt.Errorf("rows from line %d: %w", batch[0].line, err)
	}
	var taken []row
	var replayed []bool
	for i, r := range batch {
		o := res[i].GetOutcome()
		switch {
		case o == nil:
			imp.refused(r, res[i].GetError())
		case o.GetSkipped():
			imp.count(func(s *summary) { s.Skipped++; imp.answered++ })
		default:
			taken = append(taken, r)
			replayed = append(replayed, o.GetReplayed())
		}
	}
	if !imp.cmd.Commit {
		for i, r := range taken {
			imp.took(r, !replayed[i], false)
		}
		return nil
	}
	return imp.commit(ctx, taken, replayed)
}

// commit commits rows that are reserved. Only rows whose reserve was taken get
// here: a commit is of the order, and would spend whatever was reserved for it
// before.
func (imp *importer) commit(ctx context.Context, taken []row, replayed []bool) error {
	if len(taken) == 0 {
		return nil
	}
	cmds := make([]*cofferv1.Command, len(taken))
	for i, r := range taken {
		cmds[i] = &cofferv1.Command{Command: &cofferv1.Command_Commit{Commit: &cofferv1.CommitRequest{
			OrderId: r.order, BenefitKey: r.benefit, Attempt: imp.cmd.Attempt, Budget: imp.cmd.Budget,
		}}}
	}
	res, err := imp.execute(ctx, cmds)
	if err != nil {
		return fmt.Errorf("rows from line %d: %w", taken[0].line, err)
	}
	for i, r := range taken {
		o := res[i].GetOutcome()
		if o == nil {
			imp.refused(r, res[i].GetError())
			continue
		}
		imp.took(r, !replayed[i], !o.GetReplayed())
	}
	return nil
}

func (imp *importer) execute(ctx context.Context, cmds []*cofferv1.Command) ([]*cofferv1.CommandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, imp.timeout)
	defer cancel()
	res, err := imp.s.Execute(ctx, cmds)
	return res, imp.s.explain(err)
}

func (imp *importer) count(fn func(*summary)) {
	imp.mu.Lock()
	defer imp.mu.Unlock()
	fn(&imp.sum)
}

func (imp *importer) seen() { imp.count(func(s *summary) { s.Rows++ }) }

// took counts a row that the server took: what of it was new.
func (imp *importer) took(r row, reserved, committed bool) {
	key := imp.key(r)
	imp.count(func(s *summary) {
		if _, twice := imp.paid[key]; twice {
			s.Doubles++
		} else {
			imp.paid[key] = struct{}{}
			s.Totals[r.currency] += r.amount
		}
		imp.answered++
		imp.taken++
		if reserved {
			s.Reserved++
		}
		if committed {
			s.Committed++
		}
		if !reserved && !committed {
			s.Replayed++
		}
	})
}

func (imp *importer) reject(r reject) {
	imp.mu.Lock()
	defer imp.mu.Unlock()
	imp.sum.Rejected++
	imp.rejects.add(r)
}

// refused counts a row that the server refused.
func (imp *importer) refused(r row, e *cofferv1.CommandError) {
	d := e.GetDetail()
	field := d.GetField()
	if i := strings.LastIndexByte(field, '.'); i >= 0 && strings.HasPrefix(field, "commands[") {
		field = field[i+1:] // the row is named by its line
	}
	imp.count(func(*summary) { imp.answered++ })
	imp.reject(reject{Line: r.line, Field: field, Code: d.GetReason(), Reason: sentence(d, field), Order: r.order, Key: r.benefit, record: r.record})
}

// totals writes sums by currency.
func totals(m map[string]int64) string {
	var out []string
	for cur, v := range m {
		out = append(out, money(v, cur))
	}
	sort.Strings(out)
	if len(out) == 0 {
		return "0"
	}
	return strings.Join(out, " + ")
}
