package kvtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// stamped is a key template: name, ten bytes for the stamp and a user version.
func (e *env) stamped(name string, user uint16) (key []byte, offset int) {
	key = e.key(name)
	offset = len(key)
	key = append(key, make([]byte, 10)...)
	return binary.BigEndian.AppendUint16(key, user), offset
}

// stamps reads the stamps in keys that start with name.
func (e *env) stamps(r kv.Reader, name string) []kv.Stamp {
	e.Helper()
	rows, _, err := r.Range(kv.PrefixRange(e.key(name)), kv.RangeOptions{}).Wait()
	if err != nil {
		e.Fatalf("range: %v", err)
	}
	var out []kv.Stamp
	for _, row := range rows {
		rest := bytes.TrimPrefix(row.Key, e.key(name))
		if len(rest) != kv.StampBytes {
			e.Fatalf("stamped key has %d bytes after its name", len(rest))
		}
		out = append(out, kv.Stamp(rest))
	}
	return out
}

var stampCases = []testCase{
	{"stamped ops of one transaction share 10 bytes", func(e *env) {
		tx := e.begin()
		for _, user := range []uint16{7, 1} {
			k, at := e.stamped("k/", user)
			tx.SetStampedKey(k, at, fmt.Appendf(nil, "v%d", user))
		}
		tx.SetStampedValue(e.key("v"), []byte("<0123456789\x00\x09>"), 1)
		st := e.commit(tx)
		if st == (kv.Stamp{}) || st.Version() == 0 || st[10] != 0 || st[11] != 0 {
			e.Fatalf("commit returned stamp %v", st)
		}
		one, seven := st, st
		one[11], seven[11] = 1, 7
		e.wantRows(e.begin(), e.rng("k/", "k0"), kv.RangeOptions{},
			fmt.Sprintf("k/%s=v1 k/%s=v7", one[:], seven[:]), false)
		e.stored("v", "<"+string(st[:10])+"\x00\x09>")
	}},
	{"stamp of a commit is its version", func(e *env) {
		st := e.set("a", "1")
		tx := e.reading()
		v, err := tx.ReadVersion()
		if err != nil || v < st.Version() {
			e.Fatalf("read version %d, %v; below the commit's %d", v, err, st.Version())
		}
		if next := e.set("a", "2"); next.Version() <= v {
			e.Fatalf("commit version %d is not above the read version %d before it", next.Version(), v)
		}
	}},
	{"stamp at either end", func(e *env) {
		// The stamp may fill the key from its first byte only where no prefix
		// is shared, so values show the first byte and keys the last.
		tx := e.begin()
		tx.SetStampedValue(e.key("v"), make([]byte, 10), 0)
		tx.SetStampedKey(append(e.key("k"), make([]byte, 10)...), len(e.key("k")), nil)
		st := e.commit(tx)
		e.stored("v", string(st[:10]), "k"+string(st[:10]), "")
	}},
	{"reading a stamped key in its transaction is an error", func(e *env) {
		e.set("v", "old", "k", "before", "l", "after")
		tx := e.reading()
		version, _ := tx.ReadVersion()
		k, at := e.stamped("k/", 0)
		tx.SetStampedKey(k, at, nil)
		tx.SetStampedValue(e.key("v"), make([]byte, 12), 0)
		land := bytes.Clone(k) // a place it may land in
		binary.BigEndian.PutUint64(land[at:], uint64(version)+1)
		for _, r := range []kv.Reader{tx, tx.Snapshot()} {
			for _, key := range [][]byte{land, e.key("v")} {
				_, _, err := r.Get(key).Wait()
				e.wantErr(err, kv.ErrUnreadable)
			}
			_, _, err := r.Range(e.rng("k/", "k0"), kv.RangeOptions{}).Wait()
			e.wantErr(err, kv.ErrUnreadable)
			_, _, err = r.Range(e.rng("v", "w"), kv.RangeOptions{}).Wait()
			e.wantErr(err, kv.ErrUnreadable)
			// Beside it all is well.
			e.want(r, "k", "before", "l", "after")
			e.wantRows(r, e.rng("l", "m"), kv.RangeOptions{}, "l=after", false)
		}
		e.fails(tx, kv.ErrUnreadable) // it decided without what it asked for
		e.stored("v", "old")
	}},
	{"bad offset is an error", func(e *env) {
		ten := make([]byte, 10)
		key := append(e.key("k"), ten...)
		n := len(e.key("k"))
		for _, write := range []func(kv.Tx){
			func(tx kv.Tx) { tx.SetStampedKey(key, n+1, nil) },
			func(tx kv.Tx) { tx.SetStampedKey(key, -1, nil) },
			func(tx kv.Tx) { tx.SetStampedKey(key, 1<<30, nil) },
			func(tx kv.Tx) { tx.SetStampedKey(e.key("")[:1], 0, nil) },
			func(tx kv.Tx) { tx.SetStampedValue(e.key("v"), ten, 1) },
			func(tx kv.Tx) { tx.SetStampedValue(e.key("v"), ten, -1) },
			func(tx kv.Tx) { tx.SetStampedValue(e.key("v"), ten[:9], 0) },
			func(tx kv.Tx) { tx.SetStampedValue(e.key("v"), nil, 0) },
		} {
			tx := e.begin()
			tx.Set(e.key("a"), []byte("beside it"))
			write(tx)
			e.fails(tx, kv.ErrBadStampOffset)
		}
		e.wantRows(e.begin(), e.all(), kv.RangeOptions{}, "", false)
	}},
	{"stamped-key write conflicts with a reader of that range", func(e *env) {
		tx, beside, other := e.reading(), e.reading(), e.begin()
		e.wantRows(tx, e.rng("k/", "k0"), kv.RangeOptions{}, "", false)
		e.wantRows(beside, e.rng("k0", "l"), kv.RangeOptions{}, "", false)
		tx.Set(e.key("x"), nil)
		beside.Set(e.key("y"), nil)
		k, at := e.stamped("k/", 0)
		other.SetStampedKey(k, at, nil)
		e.commit(other)
		e.fails(tx, kv.ErrConflict)
		e.commit(beside)
	}},
	{"stamped-value write conflicts with a reader of its key", func(e *env) {
		tx, other := e.reading(), e.begin()
		e.want(tx, "v", absent)
		tx.Set(e.key("x"), nil)
		other.SetStampedValue(e.key("v"), make([]byte, 10), 0)
		e.commit(other)
		e.fails(tx, kv.ErrConflict)
	}},
}

var stampOrderCases = []testCase{
	{"stamp order = commit order", func(e *env) {
		last := kv.Stamp{}
		for i := range 50 {
			st := e.set("a", fmt.Sprint(i))
			if st.Compare(last) <= 0 {
				e.Fatalf("stamp %v is not above %v, which was acknowledged before", st, last)
			}
			last = st
		}
	}},
	{"stamp order = commit order, across restart", func(e *env) {
		if e.h.Reopen == nil {
			e.Skip("the engine cannot be reopened here")
		}
		last := kv.Stamp{}
		for i := range 3 {
			tx := e.begin()
			k, at := e.stamped("k/", 0)
			tx.SetStampedKey(k, at, nil)
			st := e.commit(tx)
			if st.Compare(last) <= 0 {
				e.Fatalf("stamp %v is not above %v, from before the restart", st, last)
			}
			last = st
			e.s = e.h.Reopen(e.T)
			tx = e.reading()
			if v, _ := tx.ReadVersion(); v < last.Version() {
				e.Fatalf("read version %d after a restart is below the commit's %d", v, last.Version())
			}
			got := e.stamps(tx, "k/")
			if len(got) != i+1 || got[i] != last {
				e.Fatalf("after restart %d: stamps %v, the last must be %v", i, got, last)
			}
		}
	}},
	{"same-batch order", func(e *env) {
		// Whoever commits together still commits one after the other: the
		// last stamp's writes win, everywhere.
		const n = 64
		stamps := make([]kv.Stamp, n)
		var wg sync.WaitGroup
		for i := range n {
			tx := e.begin()
			tx.Set(e.key("a"), fmt.Append(nil, i))
			tx.SetStampedValue(e.key("v"), make([]byte, 10), 0)
			tx.ClearRange(e.rng("c/", "c0"))
			tx.Set(e.key(fmt.Sprint("c/", i)), nil)
			wg.Go(func() {
				var err error
				if stamps[i], err = tx.Commit(e.ctx); err != nil {
					e.Errorf("commit %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if e.Failed() {
			return
		}
		last := 0
		seen := map[kv.Stamp]bool{}
		for i, st := range stamps {
			seen[st] = true
			if st.Compare(stamps[last]) > 0 {
				last = i
			}
		}
		if len(seen) != n {
			e.Fatalf("%d different stamps for %d commits", len(seen), n)
		}
		e.stored("a", fmt.Sprint(last), "v", string(stamps[last][:10]))
		e.wantRows(e.begin(), e.rng("c/", "c0"), kv.RangeOptions{}, fmt.Sprintf("c/%d=", last), false)
	}},
	{"a tail reader misses no stamp at or below its read version", func(e *env) {
		const writers, each = 6, 40
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() { e.append(each) })
		}
		go func() { wg.Wait(); close(done) }()
		type poll struct {
			at   kv.Version
			seen map[kv.Stamp]bool
		}
		var polls []poll
		seen := map[kv.Stamp]bool{}
		after := e.key("k/") // a cursor: what is behind it is not read again
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			tx := e.reading()
			at, _ := tx.ReadVersion()
			rows, _, err := tx.Snapshot().Range(kv.Range{Begin: after, End: e.key("k0")}, kv.RangeOptions{}).Wait()
			if err != nil {
				e.Fatalf("range: %v", err)
			}
			p := poll{at, map[kv.Stamp]bool{}}
			for _, row := range rows {
				seen[kv.Stamp(bytes.TrimPrefix(row.Key, e.key("k/")))] = true
				after = kv.KeyRange(row.Key).End
			}
			for s := range seen {
				p.seen[s] = true
			}
			polls = append(polls, p)
			tx.Cancel()
		}
		all := e.stamps(e.begin(), "k/")
		if len(all) != writers*each {
			e.Fatalf("%d stamps stored, want %d", len(all), writers*each)
		}
		for _, p := range polls {
			for _, s := range all {
				if s.Version() <= p.at != p.seen[s] {
					e.Fatalf("reader at version %d: saw stamp of version %d: %v", p.at, s.Version(), p.seen[s])
				}
			}
		}
	}},
}

// append commits n stamped keys, one after the other.
func (e *env) append(n int) {
	for range n {
		_, err := kv.Transact(e.ctx, e.s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
			k, at := e.stamped("k/", 0)
			tx.SetStampedKey(k, at, nil)
			return nil
		})
		if err != nil {
			e.Errorf("append: %v", err)
			return
		}
	}
}
