package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	"pgregory.net/rapid"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// model is the naive store: a map.
type model map[string]string

func (m model) clone() model {
	c := make(model, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// show is a range of the model in the form of env.show.
func (m model) show(from, to string, opt kv.RangeOptions) string {
	var keys []string
	for k := range m {
		if from <= k && k < to {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	if opt.Reverse {
		slices.Reverse(keys)
	}
	if opt.Limit > 0 && len(keys) > opt.Limit {
		keys = keys[:opt.Limit]
	}
	for i, k := range keys {
		keys[i] = k + "=" + m[k]
	}
	return strings.Join(keys, " ")
}

// step is one operation of a random transaction and, for a read, its answer.
type step struct {
	op       string
	a, b     string
	opt      kv.RangeOptions
	snapshot bool
	got      string
}

// source draws the numbers a step is made of: from a seed, or from rapid.
type source func(n int) int

// draw makes a random step over few short names, so that steps meet.
func draw(n source) step {
	name := func() string { return string(rune('a'+n(6))) + []string{"", "", "1", "\x00"}[n(4)] }
	s := step{a: name(), b: name(), snapshot: n(4) == 0}
	if s.a > s.b {
		s.a, s.b = s.b, s.a
	}
	s.op = []string{"get", "get", "get", "range", "range", "set", "set", "set", "add", "add", "clear", "clear range"}[n(12)]
	switch s.op {
	case "range":
		s.opt = kv.RangeOptions{Limit: n(4), Reverse: n(2) == 0}
	case "set":
		s.b = fmt.Sprintf("%03d", n(1000))[:n(4)]
	case "add":
		s.b = string(binary.LittleEndian.AppendUint32(nil, uint32(n(1<<20)))[:1+n(4)])
	}
	return s
}

// run does the step in tx and keeps the answer.
func (s *step) run(e *env, tx kv.Tx) error {
	var r kv.Reader = tx
	if s.snapshot {
		r = tx.Snapshot()
	}
	switch s.op {
	case "get":
		v, ok, err := r.Get(e.key(s.a)).Wait()
		s.got = string(v)
		if !ok {
			s.got = absent
		}
		return err
	case "range":
		rows, more, err := r.Range(e.rng(s.a, s.b), s.opt).Wait()
		s.got = e.show(rows)
		if err == nil && more && len(rows) != s.opt.Limit {
			return fmt.Errorf("%d rows at limit %d and more of them", len(rows), s.opt.Limit)
		}
		return err
	case "set":
		tx.Set(e.key(s.a), []byte(s.b))
	case "add":
		tx.Add(e.key(s.a), []byte(s.b))
	case "clear":
		tx.Clear(e.key(s.a))
	case "clear range":
		tx.ClearRange(e.rng(s.a, s.b))
	}
	return nil
}

// replay does the step on the model; for a read it returns the right answer.
func (s *step) replay(m model) (want string, isRead bool) {
	switch s.op {
	case "get":
		if v, ok := m[s.a]; ok {
			return v, true
		}
		return absent, true
	case "range":
		return m.show(s.a, s.b, s.opt), true
	case "set":
		m[s.a] = s.b
	case "add":
		sum := make([]byte, len(s.b))
		base, carry := m[s.a], 0
		for i := range sum {
			carry += int(s.b[i])
			if i < len(base) {
				carry += int(base[i])
			}
			sum[i] = byte(carry)
			carry >>= 8
		}
		m[s.a] = string(sum)
	case "clear":
		delete(m, s.a)
	case "clear range":
		for k := range m {
			if s.a <= k && k < s.b {
				delete(m, k)
			}
		}
	}
	return "", false
}

// history is one transaction that ran.
type history struct {
	at    kv.Version
	stamp kv.Stamp // zero for one that only read
	steps []step
}

var oracleCases = []testCase{
	{"random operations of one transaction against a map", func(e *env) {
		rapid.Check(e.T, func(t *rapid.T) {
			e.wipe()
			m := model{}
			for range rapid.IntRange(1, 4).Draw(t, "transactions") {
				tx, err := e.s.Begin(e.ctx)
				if err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 12).Draw(t, "steps") {
					s := draw(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") })
					if err := s.run(e, tx); err != nil {
						t.Fatalf("%+v: %v", s, err)
					}
					if want, isRead := s.replay(m); isRead && s.got != want {
						t.Fatalf("%+v: want %q", s, want)
					}
				}
				if _, err := tx.Commit(e.ctx); err != nil {
					t.Fatal(err)
				}
			}
			got, _, err := e.begin().Range(e.all(), kv.RangeOptions{}).Wait()
			if want := m.show("", "zz", kv.RangeOptions{}); err != nil || e.show(got) != want {
				t.Fatalf("stored %q (%v), want %q", e.show(got), err, want)
			}
		})
	}},
	{"random operations against a serial oracle", func(e *env) {
		for range 3 {
			e.serialOracle(rand.Uint64())
		}
	}},
}

// serialOracle lets workers run random transactions at the same time, and
// then replays those that committed one by one in the order of their stamps:
// every answer must be what the replay says.
func (e *env) serialOracle(seed uint64) {
	e.Logf("seed %d", seed)
	e.wipe()
	const workers, each = 5, 60
	var mu sync.Mutex
	var done []history
	conflicts := 0
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range each {
				h, err := e.randomTx(rng)
				mu.Lock()
				switch {
				case err == nil:
					done = append(done, h)
				case errors.Is(err, kv.ErrConflict):
					conflicts++
				default:
					e.Errorf("seed %d: %v", seed, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	e.Logf("%d committed, %d conflicts", len(done), conflicts)
	if conflicts == 0 || conflicts > workers*each*9/10 {
		e.Logf("the workers hardly met: the case shows little")
	}
	e.checkSerial(seed, done)
}

// randomTx runs one random transaction.
func (e *env) randomTx(rng *rand.Rand) (history, error) {
	var h history
	tx, err := e.s.Begin(e.ctx)
	if err != nil {
		return h, err
	}
	defer tx.Cancel()
	if h.at, err = tx.ReadVersion(); err != nil {
		return h, err
	}
	readOnly := rng.IntN(4) == 0
	for range 1 + rng.IntN(8) {
		s := draw(rng.IntN)
		if readOnly && s.op != "get" && s.op != "range" {
			continue
		}
		if err := s.run(e, tx); err != nil {
			return h, fmt.Errorf("%+v: %w", s, err)
		}
		h.steps = append(h.steps, s)
		if rng.IntN(2) == 0 {
			runtime.Gosched()
		}
	}
	h.stamp, err = tx.Commit(e.ctx)
	return h, err
}

func (e *env) checkSerial(seed uint64, done []history) {
	sort.Slice(done, func(i, j int) bool { return done[i].stamp.Compare(done[j].stamp) < 0 })
	type state struct {
		stamp kv.Stamp
		m     model
	}
	states := []state{{m: model{}}}
	// at is the state that a read version stands for.
	at := func(v kv.Version) model {
		i := sort.Search(len(states), func(i int) bool { return states[i].stamp.Version() > v })
		return states[i-1].m
	}
	check := func(h history, m model, snapshots bool, order string) {
		for _, s := range h.steps {
			want, isRead := s.replay(m)
			if isRead && (!s.snapshot || snapshots) && s.got != want {
				e.Fatalf("seed %d: transaction with read version %d, stamp %v, replayed %s: %+v: want %q",
					seed, h.at, h.stamp, order, s, want)
			}
		}
	}
	var readers []history
	for _, h := range done {
		if h.stamp == (kv.Stamp{}) {
			readers = append(readers, h)
			continue
		}
		check(h, at(h.at).clone(), true, "at its read version")
		m := states[len(states)-1].m.clone()
		check(h, m, false, "at its place in the order")
		states = append(states, state{h.stamp, m})
	}
	for _, h := range readers {
		check(h, at(h.at).clone(), true, "at its read version")
	}
	got, _ := e.rows(e.begin(), e.all(), kv.RangeOptions{})
	if want := states[len(states)-1].m.show("", "zz", kv.RangeOptions{}); got != want {
		e.Fatalf("seed %d: stored %q, want %q", seed, got, want)
	}
}
