package kvtest

import "github.com/coffer-ledger/coffer/ledger/kv"

var conflictCases = []testCase{
	{"disjoint commits", func(e *env) {
		e.set("a", "1", "b", "2")
		one, two := e.reading(), e.reading()
		e.want(one, "a", "1")
		e.want(two, "b", "2")
		one.Set(e.key("a"), []byte("3"))
		two.Set(e.key("b"), []byte("4"))
		e.commit(one)
		e.commit(two)
		e.stored("a", "3", "b", "4")
	}},
	{"read-write conflict leaves nothing", func(e *env) {
		e.set("a", "1", "gone", "x", "sum", "\x01")
		tx := e.begin()
		e.want(tx, "a", "1")
		tx.Set(e.key("b"), []byte("b"))
		tx.Clear(e.key("gone"))
		tx.Add(e.key("sum"), []byte{1})
		tx.SetStampedKey(e.key("s/0123456789"), len(e.key("s/")), []byte("s"))
		e.set("a", "2")
		e.fails(tx, kv.ErrConflict)
		e.stored("a", "2", "b", absent, "gone", "x", "sum", "\x01")
		e.wantRows(e.begin(), e.rng("s/", "s0"), kv.RangeOptions{}, "", false)
	}},
	{"conflict only with later commits", func(e *env) {
		e.set("a", "1")
		tx := e.begin()
		e.want(tx, "a", "1")
		tx.Set(e.key("b"), nil)
		e.commit(tx)
		// A write back to the value that was read conflicts all the same.
		tx = e.begin()
		e.want(tx, "a", "1")
		tx.Set(e.key("b"), nil)
		e.set("a", "1")
		e.fails(tx, kv.ErrConflict)
	}},
	{"conflict by clear", func(e *env) {
		for _, whole := range []bool{false, true} {
			e.set("a", "1")
			tx, other := e.reading(), e.begin()
			e.want(tx, "a", "1")
			tx.Set(e.key("b"), nil)
			if whole {
				other.ClearRange(e.rng("", "zz"))
			} else {
				other.Clear(e.key("a"))
			}
			e.commit(other)
			e.fails(tx, kv.ErrConflict)
			e.stored("a", absent, "b", absent)
		}
	}},
	{"conflict by clear of absent keys", func(e *env) {
		tx, other := e.reading(), e.begin()
		e.want(tx, "m", absent)
		tx.Set(e.key("b"), nil)
		other.ClearRange(e.rng("l", "n"))
		e.commit(other)
		e.fails(tx, kv.ErrConflict)
	}},
	{"blind write-write never conflicts", func(e *env) {
		one, two, three := e.begin(), e.begin(), e.begin()
		one.Set(e.key("a"), []byte("1"))
		two.Set(e.key("a"), []byte("2"))
		three.ClearRange(e.rng("", "b"))
		e.commit(two)
		e.commit(one)
		e.stored("a", "1")
		e.commit(three)
		e.stored("a", absent)
		// Having read something else changes nothing.
		one = e.begin()
		e.want(one, "other", absent)
		one.Set(e.key("a"), []byte("3"))
		e.set("a", "4")
		e.commit(one)
		e.stored("a", "3")
	}},
	{"write skew prevented", func(e *env) {
		e.set("a", "on", "b", "on")
		one, two := e.reading(), e.reading()
		for _, tx := range []kv.Tx{one, two} {
			e.want(tx, "a", "on", "b", "on")
		}
		one.Set(e.key("a"), []byte("off"))
		two.Set(e.key("b"), []byte("off"))
		e.commit(one)
		e.fails(two, kv.ErrConflict)
		e.stored("a", "off", "b", "on")
	}},
	{"phantom into an empty range", func(e *env) {
		one, two := e.reading(), e.reading()
		for _, tx := range []kv.Tx{one, two} {
			e.wantRows(tx, e.rng("p/", "p0"), kv.RangeOptions{}, "", false)
		}
		one.Set(e.key("p/1"), nil)
		two.Set(e.key("p/2"), nil)
		e.commit(one)
		e.fails(two, kv.ErrConflict)
		e.wantRows(e.begin(), e.rng("p/", "p0"), kv.RangeOptions{}, "p/1=", false)
	}},
	{"range ends are exact", func(e *env) {
		tx := e.reading()
		e.wantRows(tx, e.rng("b", "d"), kv.RangeOptions{}, "", false)
		tx.Set(e.key("x"), nil)
		e.set("a\xff", "", "d", "")
		e.commit(tx)
		for _, at := range []string{"b", "c\xff\xff"} {
			tx = e.reading()
			e.rows(tx, e.rng("b", "d"), kv.RangeOptions{})
			tx.Set(e.key("x"), nil)
			e.set(at, "")
			e.fails(tx, kv.ErrConflict)
		}
	}},
	{"absent-key read vs creation", func(e *env) {
		one, two := e.reading(), e.reading()
		for _, tx := range []kv.Tx{one, two} {
			e.want(tx, "id", absent)
		}
		one.Set(e.key("id"), []byte("one"))
		two.Set(e.key("id"), []byte("two"))
		e.commit(one)
		e.fails(two, kv.ErrConflict)
		e.stored("id", "one")
	}},
	{"snapshot read adds no conflict", func(e *env) {
		e.set("a", "1")
		tx := e.begin()
		e.want(tx.Snapshot(), "a", "1", "none", absent)
		e.wantRows(tx.Snapshot(), e.all(), kv.RangeOptions{}, "a=1", false)
		tx.Set(e.key("b"), []byte("b"))
		e.set("a", "2", "none", "x")
		// The snapshot stays where it was.
		e.want(tx.Snapshot(), "a", "1", "none", absent)
		e.commit(tx)
		e.stored("a", "2", "b", "b")
	}},
	{"explicit read conflict does", func(e *env) {
		for _, r := range []kv.Range{kv.KeyRange(e.key("a")), e.rng("0", "b")} {
			tx := e.reading()
			e.get(tx.Snapshot(), "a")
			tx.AddReadConflict(r)
			tx.Set(e.key("b"), []byte("b"))
			e.set("a", "2")
			e.fails(tx, kv.ErrConflict)
		}
		tx := e.reading()
		tx.AddReadConflict(kv.KeyRange(e.key("a")))
		tx.Set(e.key("b"), []byte("b"))
		e.set("a\x00", "beside it")
		e.commit(tx)
	}},
	{"explicit write conflict does", func(e *env) {
		for _, r := range []kv.Range{kv.KeyRange(e.key("a")), e.rng("0", "b")} {
			tx, other := e.reading(), e.begin()
			e.get(tx, "a")
			tx.Set(e.key("x"), nil)
			other.AddWriteConflict(r)
			e.commit(other)
			e.fails(tx, kv.ErrConflict)
		}
		e.stored("a", absent)
	}},
	{"reading one's own set adds none", func(e *env) {
		e.set("a", "1", "c", "1")
		tx := e.reading()
		tx.Set(e.key("a"), []byte("mine"))
		tx.Clear(e.key("c"))
		e.want(tx, "a", "mine", "c", absent)
		e.set("a", "other", "c", "other")
		e.commit(tx)
		e.stored("a", "mine", "c", absent)
	}},
	{"own set within a range read adds none", func(e *env) {
		e.set("a", "1", "b", "1", "d", "1")
		for _, other := range []string{"b", "d"} {
			tx := e.reading()
			tx.Set(e.key("b"), []byte("mine"))
			tx.ClearRange(e.rng("c", "e"))
			e.wantRows(tx, e.rng("a", "f"), kv.RangeOptions{}, "a=1 b=mine", false)
			e.set(other, "other")
			e.commit(tx)
		}
		for _, other := range []string{"a", "a1", "b\x00", "bb", "e"} {
			tx := e.reading()
			tx.Set(e.key("b"), []byte("mine"))
			tx.ClearRange(e.rng("c", "e"))
			e.rows(tx, e.rng("a", "f"), kv.RangeOptions{})
			e.set(other, "other")
			e.fails(tx, kv.ErrConflict)
		}
	}},
	{"reading one's own ADD adds one", func(e *env) {
		e.set("n", "\x05")
		tx := e.reading()
		tx.Add(e.key("n"), []byte{2})
		e.want(tx, "n", "\x07")
		e.set("n", "\x10")
		e.fails(tx, kv.ErrConflict)
		// Through a range read as well.
		tx = e.reading()
		tx.Add(e.key("n"), []byte{2})
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "n=\x12", false)
		e.set("n", "\x20")
		e.fails(tx, kv.ErrConflict)
		e.stored("n", "\x20")
	}},
	{"read-only never conflicts", func(e *env) {
		e.set("a", "1")
		tx := e.begin()
		e.want(tx, "a", "1")
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "a=1", false)
		e.set("a", "2")
		e.want(tx, "a", "1")
		if st := e.commit(tx); st != (kv.Stamp{}) {
			e.Fatalf("read-only commit has stamp %v", st)
		}
	}},
}

// limited are the reads of the limited range cases: five rows r1 to r5.
type limited struct {
	reverse bool
	limit   int
	rows    string
	more    bool
	// conflict and free are names whose write must, and must not, conflict.
	conflict, free []string
}

var rangeConflictCases = []testCase{
	{"limited range read conflicts through the last key returned, forward", func(e *env) {
		e.limitedConflicts(limited{
			limit: 2, rows: "r1=1 r2=2", more: true,
			conflict: []string{"r", "r1", "r1x", "r2"}, free: []string{"r2\x00", "r3", "r9", "q"},
		})
	}},
	{"limited range read conflicts through the last key returned, reverse", func(e *env) {
		e.limitedConflicts(limited{
			reverse: true, limit: 2, rows: "r5=5 r4=4", more: true,
			conflict: []string{"r4", "r4x", "r5", "r9"}, free: []string{"r", "r1", "r3", "r3\xff", "s"},
		})
	}},
	{"limit that is not reached conflicts with the whole range", func(e *env) {
		e.limitedConflicts(limited{
			limit: 6, rows: "r1=1 r2=2 r3=3 r4=4 r5=5",
			conflict: []string{"r", "r6", "r9"}, free: []string{"q", "s"},
		})
		e.limitedConflicts(limited{
			limit: 6, reverse: true, rows: "r5=5 r4=4 r3=3 r2=2 r1=1",
			conflict: []string{"r", "r6", "r9"}, free: []string{"q", "s"},
		})
	}},
}

func (e *env) limitedConflicts(l limited) {
	e.Helper()
	try := func(name string) kv.Tx {
		reset := e.begin()
		reset.ClearRange(e.all())
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			reset.Set(e.key("r"+n), []byte(n))
		}
		e.commit(reset)
		tx := e.reading()
		e.wantRows(tx, e.rng("r", "s"), kv.RangeOptions{Limit: l.limit, Reverse: l.reverse}, l.rows, l.more)
		tx.Set(e.key("out"), nil)
		e.set(name, "other")
		return tx
	}
	for _, name := range l.conflict {
		_, err := try(name).Commit(e.ctx)
		if err == nil {
			e.Fatalf("write of %q did not conflict", name)
		}
		e.wantErr(err, kv.ErrConflict)
	}
	for _, name := range l.free {
		if _, err := try(name).Commit(e.ctx); err != nil {
			e.Fatalf("write of %q: %v", name, err)
		}
	}
}
