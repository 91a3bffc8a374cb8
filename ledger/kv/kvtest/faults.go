package kvtest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

var faultCases = []testCase{
	{"injected conflict", func(e *env) {
		e.needsFaults()
		e.h.Inject(Conflict)
		tx := e.begin()
		tx.Set(e.key("a"), nil)
		e.fails(tx, kv.ErrConflict)
		e.stored("a", absent)
		e.set("a", "1") // one fault, one commit
	}},
	{"injected 1021 that landed", func(e *env) {
		e.needsFaults()
		e.h.Inject(UnknownLanded)
		tx := e.begin()
		tx.Set(e.key("a"), []byte("1"))
		e.fails(tx, kv.ErrCommitUnknown)
		e.stored("a", "1")
	}},
	{"injected 1021 that did not land", func(e *env) {
		e.needsFaults()
		e.h.Inject(UnknownLost)
		tx := e.begin()
		tx.Set(e.key("a"), []byte("1"))
		e.fails(tx, kv.ErrCommitUnknown)
		e.stored("a", absent)
	}},
	{"retry after 1021 takes effect once", func(e *env) {
		e.needsFaults()
		for i, f := range []Fault{UnknownLanded, UnknownLost} {
			// A receipt is read and written by every attempt, so the second
			// knows whether the first landed.
			e.h.Inject(f)
			receipt := fmt.Sprint("receipt", i)
			var doubts []bool
			_, err := kv.Transact(e.ctx, e.s, kv.Options{}, func(tx kv.Tx, a kv.Attempt) error {
				doubts = append(doubts, a.MayHaveCommitted)
				_, done, err := tx.Get(e.key(receipt)).Wait()
				if err != nil || done {
					return err
				}
				tx.Set(e.key(receipt), nil)
				tx.Add(e.key("n"), []byte{1})
				return nil
			})
			if err != nil || len(doubts) != 2 || doubts[0] || !doubts[1] {
				e.Fatalf("doubts of the attempts %v, error %v; want [false true], none", doubts, err)
			}
			e.stored("n", string([]byte{byte(i + 1)}))
		}
	}},
	{"late landing after 1031", func(e *env) {
		e.needsFaults()
		land := e.h.Inject(LateLanding)
		_, err := kv.Transact(e.ctx, e.s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			if _, _, err := tx.Get(e.key("receipt")).Wait(); err != nil {
				return err
			}
			tx.Set(e.key("receipt"), []byte("late"))
			return nil
		})
		e.wantErr(err, kv.ErrTimedOut)
		if kv.OutcomeOf(err) != kv.Unknown {
			e.Fatalf("outcome of %v must be unknown", err)
		}
		e.stored("receipt", absent)
		if err := land(); err != nil {
			e.Fatalf("late landing: %v", err)
		}
		e.stored("receipt", "late")
	}},
	{"late landing loses to who wrote the receipt first", func(e *env) {
		e.needsFaults()
		land := e.h.Inject(LateLanding)
		tx := e.begin()
		e.want(tx, "receipt", absent)
		tx.Set(e.key("receipt"), []byte("late"))
		e.fails(tx, kv.ErrTimedOut)
		e.set("receipt", "void")
		e.wantErr(land(), kv.ErrConflict)
		e.stored("receipt", "void")
	}},
	{"crash before sync", func(e *env) {
		if e.h.Crash == nil || e.h.HoldSync == nil {
			e.Skip("the engine's power cannot be cut here")
		}
		e.set("a", "1", "b", "1")
		release := e.h.HoldSync()
		defer release()
		results := make(chan error, 2)
		for _, n := range []string{"a", "c"} {
			tx := e.begin()
			tx.Set(e.key(n), []byte("2"))
			go func() {
				_, err := tx.Commit(e.ctx)
				results <- err
			}()
		}
		// Neither acknowledged nor visible while not durable.
		for range 100 {
			e.stored("a", "1", "c", absent)
		}
		select {
		case err := <-results:
			release()
			e.Fatalf("a commit was answered before its sync: %v", err)
		default:
		}
		old := e.s
		e.s = e.h.Crash(e.T)
		e.stored("a", "1", "b", "1", "c", absent)
		crashed := e.s
		e.s = old
		release()
		for range 2 {
			if err := <-results; err != nil {
				e.Fatalf("commit after the sync went on: %v", err)
			}
		}
		e.stored("a", "2", "c", "2")
		// And the other life goes on with stamps that were never given.
		e.s = crashed
		st := e.set("a", "3")
		e.s = e.h.Crash(e.T)
		e.s = crashed
		if next := e.set("a", "4"); next.Compare(st) <= 0 {
			e.Fatalf("stamp %v is not above %v", next, st)
		}
	}},
	{"crash at any point: acked survives, no partial batch", func(e *env) {
		if e.h.Crash == nil {
			e.Skip("the engine's power cannot be cut here")
		}
		var last kv.Stamp
		for round := range 4 {
			last = e.crashRound(round, last)
		}
	}},
}

func (e *env) needsFaults() {
	e.Helper()
	if e.h.Inject == nil {
		e.Skip("faults cannot be injected here")
	}
}

// crashRound lets writers commit pairs of rows, cuts the power in the middle
// and looks at what is left. It returns the highest stamp acknowledged; above
// are all that this round gives away.
func (e *env) crashRound(round int, above kv.Stamp) kv.Stamp {
	e.Helper()
	const workers = 4
	var mu sync.Mutex
	acked := map[string]kv.Stamp{}
	acks, stop := make(chan struct{}, 1), make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("%d/%d/%06d", round, w, i)
				st, err := e.commitPair(name)
				if err != nil {
					e.Errorf("commit: %v", err)
					return
				}
				mu.Lock()
				acked[name] = st
				mu.Unlock()
				select {
				case acks <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 5 + round*7 {
		select {
		case <-acks:
		case <-time.After(wakeLimit):
			e.Fatal("no commit was acknowledged")
		}
	}
	mu.Lock()
	before := map[string]kv.Stamp{}
	for k, v := range acked {
		before[k] = v
	}
	mu.Unlock()
	crashed := e.h.Crash(e.T)
	close(stop)
	wg.Wait()
	e.s = crashed
	return e.checkPairs(round, before, above)
}

// commitPair writes two rows with one stamp, and an index of a third.
func (e *env) commitPair(name string) (kv.Stamp, error) {
	tx, err := e.s.Begin(e.ctx)
	if err != nil {
		return kv.Stamp{}, err
	}
	defer tx.Cancel()
	tx.SetStampedValue(e.key("x/"+name), make([]byte, 12), 0)
	tx.SetStampedValue(e.key("y/"+name), make([]byte, 12), 0)
	tx.Add(e.key(fmt.Sprint("count/", name[0:1])), []byte{1, 0, 0, 0})
	return tx.Commit(e.ctx)
}

func (e *env) checkPairs(round int, acked map[string]kv.Stamp, above kv.Stamp) kv.Stamp {
	e.Helper()
	tx := e.reading()
	read := func(table string) map[string]string {
		prefix := e.key(fmt.Sprintf("%s/%d/", table, round))
		rows, _, err := tx.Range(kv.PrefixRange(prefix), kv.RangeOptions{}).Wait()
		if err != nil {
			e.Fatal(err)
		}
		out := map[string]string{}
		for _, r := range rows {
			out[string(bytes.TrimPrefix(r.Key, e.key(table+"/")))] = string(r.Value)
		}
		return out
	}
	xs, ys := read("x"), read("y")
	high := above
	for name, st := range acked {
		if xs[name] != string(st[:]) {
			e.Errorf("%s was acknowledged with stamp %v; after the crash it is %x", name, st, xs[name])
		}
		if st.Compare(above) <= 0 {
			e.Errorf("%s has stamp %v, not above %v from before the crash", name, st, above)
		}
	}
	for name, x := range xs {
		if ys[name] != x {
			e.Errorf("%s: half a batch: %x and %x", name, x, ys[name])
		}
		if st := kv.Stamp([]byte(x)); st.Compare(high) > 0 {
			high = st
		}
	}
	count := e.get(tx, fmt.Sprint("count/", round))
	want := string([]byte{byte(len(xs)), byte(len(xs) >> 8), 0, 0})
	if len(xs) != len(ys) || count != want && len(xs) > 0 {
		e.Errorf("%d and %d rows, counted %x", len(xs), len(ys), count)
	}
	if e.Failed() {
		e.FailNow()
	}
	return high
}
