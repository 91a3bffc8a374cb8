package kvtest

import (
	"bytes"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

var readCases = []testCase{
	{"one snapshot for all reads", func(e *env) {
		e.set("a", "1", "b", "1")
		tx := e.begin()
		e.want(tx, "a", "1")
		e.set("a", "2", "b", "2", "c", "2")
		e.want(tx, "b", "1", "c", absent)
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "a=1 b=1", false)
	}},
	{"reads issued together", func(e *env) {
		e.set("a", "1", "b", "2")
		tx := e.begin()
		a, b, c := tx.Get(e.key("a")), tx.Get(e.key("b")), tx.Get(e.key("c"))
		all := tx.Range(e.all(), kv.RangeOptions{})
		for range 2 { // Wait may be called more than once
			rows, more, err := all.Wait()
			if err != nil || more || e.show(rows) != "a=1 b=2" {
				e.Fatalf("rows %q more %v err %v", e.show(rows), more, err)
			}
			for v, want := range map[kv.Value]string{a: "1", b: "2", c: ""} {
				got, ok, err := v.Wait()
				if string(got) != want || ok != (want != "") || err != nil {
					e.Fatalf("got %q %v %v, want %q", got, ok, err, want)
				}
			}
		}
	}},
	{"arguments are copied", func(e *env) {
		tx := e.begin()
		k, v := e.key("a"), []byte("1")
		tx.Set(k, v)
		r := e.rng("x", "y")
		tx.AddWriteConflict(r)
		k[len(k)-1], v[0], r.Begin[0] = 'z', 'z', 0xFF
		e.want(tx, "a", "1", "z", absent)
		e.commit(tx)
		e.stored("a", "1", "z", absent)
	}},
	{"own writes in order", func(e *env) {
		e.set("a", "0")
		tx := e.begin()
		tx.Set(e.key("a"), []byte("1"))
		e.want(tx, "a", "1")
		e.want(tx.Snapshot(), "a", "1")
		tx.Set(e.key("a"), []byte("2"))
		e.want(tx, "a", "2")
		tx.Clear(e.key("a"))
		e.want(tx, "a", absent)
		tx.Set(e.key("a"), []byte("3"))
		tx.ClearRange(e.rng("a", "b"))
		tx.Set(e.key("b"), []byte("4"))
		e.want(tx, "a", absent, "b", "4")
		e.commit(tx)
		e.stored("a", absent, "b", "4")
	}},
	{"clear-range then set merges in range reads", func(e *env) {
		e.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1")
		tx := e.begin()
		tx.ClearRange(e.rng("b", "e"))
		tx.Set(e.key("c"), []byte("2"))
		tx.Set(e.key("bb"), []byte("2"))
		tx.Set(e.key("f"), []byte("2"))
		tx.Clear(e.key("a"))
		for _, r := range []kv.Reader{tx, tx.Snapshot()} {
			e.wantRows(r, e.all(), kv.RangeOptions{}, "bb=2 c=2 e=1 f=2", false)
			e.wantRows(r, e.all(), kv.RangeOptions{Reverse: true}, "f=2 e=1 c=2 bb=2", false)
			e.wantRows(r, e.all(), kv.RangeOptions{Limit: 2}, "bb=2 c=2", true)
			e.wantRows(r, e.all(), kv.RangeOptions{Limit: 3, Reverse: true}, "f=2 e=1 c=2", true)
			e.wantRows(r, e.rng("c", "f"), kv.RangeOptions{}, "c=2 e=1", false)
			e.wantRows(r, e.rng("b", "bb"), kv.RangeOptions{}, "", false)
		}
		e.commit(tx)
		e.wantRows(e.begin(), e.all(), kv.RangeOptions{}, "bb=2 c=2 e=1 f=2", false)
	}},
	{"overlapping clear ranges", func(e *env) {
		e.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1", "f", "1")
		tx := e.begin()
		tx.ClearRange(e.rng("d", "e"))
		tx.ClearRange(e.rng("b", "c"))
		tx.ClearRange(e.rng("bb", "dd"))
		tx.ClearRange(e.rng("c", "c"))
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "a=1 e=1 f=1", false)
		e.want(tx, "b", absent, "c", absent, "d", absent, "dd", absent, "e", "1")
		e.commit(tx)
		e.wantRows(e.begin(), e.all(), kv.RangeOptions{}, "a=1 e=1 f=1", false)
	}},
	{"empty value is not absent", func(e *env) {
		e.set("a", "")
		tx := e.begin()
		tx.Set(e.key("b"), nil)
		for _, name := range []string{"a", "b"} {
			if v, ok, err := tx.Get(e.key(name)).Wait(); len(v) != 0 || !ok || err != nil {
				e.Fatalf("%s: %q %v %v, want an empty value that is there", name, v, ok, err)
			}
		}
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "a= b=", false)
		e.commit(tx)
		if v, ok, err := e.begin().Get(e.key("b")).Wait(); len(v) != 0 || !ok || err != nil {
			e.Fatalf("b: %q %v %v, want an empty value that is there", v, ok, err)
		}
	}},
	{"keys are ordered as bytes", func(e *env) {
		e.set("b\x00", "2", "b", "1", "b\xff", "4", "b\x7f", "3", "a\xff\xff", "0")
		e.wantRows(e.begin(), e.all(), kv.RangeOptions{}, "a\xff\xff=0 b=1 b\x00=2 b\x7f=3 b\xff=4", false)
	}},
	{"key selectors by limited ranges", func(e *env) {
		// The contract offers no selectors; what they are needed for is the
		// nearest key on either side.
		e.set("b", "1", "d", "2", "f", "3")
		tx := e.begin()
		from := func(name string) kv.Range { return kv.Range{Begin: e.key(name), End: e.all().End} }
		below := func(name string) kv.Range { return kv.Range{Begin: e.all().Begin, End: e.key(name)} }
		first, last := kv.RangeOptions{Limit: 1}, kv.RangeOptions{Limit: 1, Reverse: true}
		e.wantRows(tx, from("d"), first, "d=2", true)                         // first at or after
		e.wantRows(tx, from("d\x00"), first, "f=3", true)                     // first after
		e.wantRows(tx, below("d"), last, "b=1", true)                         // last before
		e.wantRows(tx, below("d\x00"), last, "d=2", true)                     // last at or before
		e.wantRows(tx, from("f\x00"), first, "", false)                       // none after
		e.wantRows(tx, below("b"), last, "", false)                           // none before
		rows, _, err := tx.Range(from("b"), kv.RangeOptions{Limit: 2}).Wait() // offset by one
		if err != nil || len(rows) != 2 || !bytes.Equal(rows[1].Key, e.key("d")) {
			e.Fatalf("second key from b: %v %v", rows, err)
		}
	}},
	{"empty range", func(e *env) {
		e.set("a", "1")
		tx := e.reading()
		e.wantRows(tx, e.rng("a", "a"), kv.RangeOptions{}, "", false)
		tx.ClearRange(e.rng("a", "a"))
		tx.AddReadConflict(e.rng("a", "a"))
		tx.Set(e.key("b"), nil)
		e.set("a", "2")
		e.commit(tx)
		e.stored("a", "2")
	}},
}

var addCases = []testCase{
	{"clear then ADD", func(e *env) {
		e.set("a", "\x09\x09", "b", "\x09")
		tx := e.begin()
		tx.Clear(e.key("a"))
		tx.ClearRange(e.rng("b", "c"))
		for _, n := range []string{"a", "b"} {
			tx.Add(e.key(n), []byte{1, 2})
		}
		e.want(tx, "a", "\x01\x02", "b", "\x01\x02")
		e.wantRows(tx, e.all(), kv.RangeOptions{}, "a=\x01\x02 b=\x01\x02", false)
		e.commit(tx)
		e.stored("a", "\x01\x02", "b", "\x01\x02")
	}},
	{"ADD then clear, ADD then set", func(e *env) {
		e.set("a", "\x01", "b", "\x01")
		tx := e.begin()
		for _, n := range []string{"a", "b"} {
			tx.Add(e.key(n), []byte{1})
		}
		tx.Clear(e.key("a"))
		tx.Set(e.key("b"), []byte{7})
		tx.Add(e.key("b"), []byte{1})
		e.want(tx, "a", absent, "b", "\x08")
		e.commit(tx)
		e.stored("a", absent, "b", "\x08")
	}},
	{"ADD on absent key, wrap, truncation", func(e *env) {
		for _, c := range []struct{ base, operand, sum string }{
			{absent, "\x05\x00", "\x05\x00"},
			{absent, "", ""},
			{"", "\x05", "\x05"},
			{"\xff\xff", "\x01\x00", "\x00\x00"},                         // wraps
			{"\xff\x00", "\x01\x00", "\x00\x01"},                         // carries
			{"\xff\xff\xff", "\x02", "\x01"},                             // longer: cut to the operand
			{"\xff", "\x01\x00\x00", "\x00\x01\x00"},                     // shorter: extended by zeros
			{"\x00\x01\x00\x00", "\xff\xff\xff\xff", "\xff\x00\x00\x00"}, // minus one
			{"\x05\x06", "", ""},
		} {
			for _, seen := range []bool{false, true} { // also within the transaction
				tx := e.begin()
				if c.base == absent {
					tx.Clear(e.key("n"))
				} else {
					tx.Set(e.key("n"), []byte(c.base))
				}
				e.commit(tx)
				tx = e.begin()
				tx.Add(e.key("n"), []byte(c.operand))
				if seen {
					e.want(tx, "n", c.sum)
				}
				e.commit(tx)
				e.stored("n", c.sum)
			}
		}
	}},
	{"ADDs of one transaction add up", func(e *env) {
		e.set("n", "\xfe\x00\x00\x01")
		tx := e.begin()
		tx.Add(e.key("n"), []byte{1, 0, 0})
		tx.Add(e.key("n"), []byte{1, 0, 0, 0})
		tx.Add(e.key("n"), []byte{0xFF, 0})
		e.want(tx, "n", "\xff\x01")
		e.commit(tx)
		e.stored("n", "\xff\x01")
	}},
	{"ADD conflicts with a reader", func(e *env) {
		tx, other := e.reading(), e.begin()
		e.want(tx, "n", absent)
		tx.Set(e.key("x"), nil)
		other.Add(e.key("n"), []byte{1})
		e.commit(other)
		e.fails(tx, kv.ErrConflict)
		e.stored("n", "\x01")
	}},
}
