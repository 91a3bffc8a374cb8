package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// padded is a key under the prefix of exactly n bytes.
func (e *env) padded(n int) []byte {
	return append(e.key(""), bytes.Repeat([]byte{'k'}, n-len(e.h.Prefix))...)
}

// writesSized are all ways to write a key of n bytes. The offset of a stamp counts
// as part of the key it stands in.
func writesSized(e *env, n int) map[string]func(kv.Tx) {
	return writesKey(e.padded(n), e.padded(n-kv.StampOffsetBytes))
}

func writesKey(key, stamped []byte) map[string]func(kv.Tx) {
	return map[string]func(kv.Tx){
		"set":           func(tx kv.Tx) { tx.Set(key, []byte("v")) },
		"clear":         func(tx kv.Tx) { tx.Clear(key) },
		"add":           func(tx kv.Tx) { tx.Add(key, []byte{1}) },
		"stamped key":   func(tx kv.Tx) { tx.SetStampedKey(stamped, len(stamped)-10, nil) },
		"stamped value": func(tx kv.Tx) { tx.SetStampedValue(key, make([]byte, 10), 0) },
	}
}

var limitCases = []testCase{
	{"key size at and over its edge", func(e *env) {
		for name, write := range writesSized(e, kv.MaxKeyBytes) {
			tx := e.begin()
			write(tx)
			if _, err := tx.Commit(e.ctx); err != nil {
				e.Fatalf("%s at the edge: %v", name, err)
			}
		}
		key := e.padded(kv.MaxKeyBytes)
		e.set(string(key[len(e.h.Prefix):]), "v")
		if v, ok, err := e.begin().Get(key).Wait(); string(v) != "v" || !ok || err != nil {
			e.Fatalf("get at the edge: %q %v %v", v, ok, err)
		}
		for name, write := range writesSized(e, kv.MaxKeyBytes+1) {
			if name == "clear" {
				continue // engines may clear a key that cannot exist
			}
			tx := e.begin()
			tx.Set(e.key("beside"), nil)
			write(tx)
			e.Log(name)
			e.fails(tx, kv.ErrKeyTooLarge)
		}
		e.stored("beside", absent)
	}},
	{"value size at and over its edge", func(e *env) {
		big := bytes.Repeat([]byte{7}, kv.MaxValueBytes+1)
		at := big[:kv.MaxValueBytes]
		tx := e.begin()
		tx.Set(e.key("a"), at)
		tx.Add(e.key("b"), at)
		stamped := big[:kv.MaxValueBytes-kv.StampOffsetBytes] // its offset counts as part of it
		tx.SetStampedValue(e.key("c"), stamped, 0)
		st := e.commit(tx)
		e.stored("a", string(at), "b", string(at), "c", string(st[:10])+string(stamped[10:]))
		for _, write := range []func(kv.Tx){
			func(tx kv.Tx) { tx.Set(e.key("d"), big) },
			func(tx kv.Tx) { tx.Add(e.key("d"), big) },
			func(tx kv.Tx) { tx.SetStampedValue(e.key("d"), big[:len(stamped)+1], 0) },
			func(tx kv.Tx) { tx.SetStampedKey(append(e.key("d"), make([]byte, 10)...), len(e.key("d")), big) },
		} {
			tx := e.begin()
			write(tx)
			e.fails(tx, kv.ErrValueTooLarge)
		}
	}},
	{"transaction size at and over its edge", func(e *env) {
		// Engines count keys and conflict ranges a little differently, so the
		// edge is met from 1% on either side.
		value := bytes.Repeat([]byte{7}, kv.MaxValueBytes)
		write := func(n int) kv.Tx {
			tx := e.begin()
			for i := range n {
				tx.Set(e.key(fmt.Sprintf("%03d", i)), value)
			}
			return tx
		}
		e.commit(write(kv.MaxTxBytes/kv.MaxValueBytes - 1))
		rows, _, err := e.begin().Range(e.all(), kv.RangeOptions{}).Wait()
		if err != nil || len(rows) != kv.MaxTxBytes/kv.MaxValueBytes-1 {
			e.Fatalf("%d rows, %v", len(rows), err)
		}
		for _, row := range rows {
			if !bytes.Equal(row.Value, value) {
				e.Fatal("a value is not what was written")
			}
		}
		e.fails(write(kv.MaxTxBytes/kv.MaxValueBytes+1), kv.ErrTxTooLarge)
		e.stored("100", absent)
	}},
	{"system keys rejected", func(e *env) {
		for _, key := range []string{"\xff", "\xff0123456789", "\xff\xff/0123456789"} {
			for name, write := range writesKey([]byte(key), []byte(key)) {
				if name == "stamped key" && len(key) < 11 {
					continue
				}
				tx := e.begin()
				tx.Set(e.key("beside"), nil)
				write(tx)
				e.Log(name)
				e.fails(tx, kv.ErrKeyOutside)
			}
			_, _, err := e.begin().Get([]byte(key)).Wait()
			e.wantErr(err, kv.ErrKeyOutside)
		}
		over := kv.Range{Begin: e.key("a"), End: []byte("\xff\x00")}
		_, _, err := e.begin().Range(over, kv.RangeOptions{}).Wait()
		e.wantErr(err, kv.ErrKeyOutside)
		tx := e.begin()
		tx.ClearRange(over)
		e.fails(tx, kv.ErrKeyOutside)
		// The end of the users' keys is a legal end.
		end := kv.Range{Begin: []byte{0xFE, 0xFF, 0xFF}, End: []byte{0xFF}}
		if _, _, err := e.begin().Range(end, kv.RangeOptions{Limit: 1}).Wait(); err != nil {
			e.Fatalf("range to the end of the keys: %v", err)
		}
		e.stored("beside", absent)
	}},
	{"inverted range rejected", func(e *env) {
		bad := e.rng("b", "a")
		_, _, err := e.begin().Range(bad, kv.RangeOptions{}).Wait()
		e.wantErr(err, kv.ErrInvertedRange)
		_, _, err = e.begin().Snapshot().Range(bad, kv.RangeOptions{}).Wait()
		e.wantErr(err, kv.ErrInvertedRange)
		for _, write := range []func(kv.Tx){
			func(tx kv.Tx) { tx.ClearRange(bad) },
			func(tx kv.Tx) { tx.AddReadConflict(bad) },
			func(tx kv.Tx) { tx.AddWriteConflict(bad) },
		} {
			tx := e.begin()
			tx.Set(e.key("beside"), nil)
			write(tx)
			e.fails(tx, kv.ErrInvertedRange)
		}
		e.stored("beside", absent)
	}},
}

var lifeCases = []testCase{
	{"use after commit rejected", func(e *env) {
		e.set("a", "1")
		for _, end := range []func(kv.Tx){
			func(tx kv.Tx) { e.commit(tx) },
			func(tx kv.Tx) { tx.Cancel() },
			func(tx kv.Tx) { tx.AddReadConflict(e.rng("z", "y")); _, _ = tx.Commit(e.ctx) },
		} {
			tx := e.begin()
			e.want(tx, "a", "1")
			tx.Set(e.key("b"), nil)
			end(tx)
			_, _, err := tx.Get(e.key("a")).Wait()
			e.wantErr(err, kv.ErrUsedTx)
			_, _, err = tx.Snapshot().Range(e.all(), kv.RangeOptions{}).Wait()
			e.wantErr(err, kv.ErrUsedTx)
			_, err = tx.ReadVersion()
			e.wantErr(err, kv.ErrUsedTx)
			tx.Set(e.key("late"), nil)
			e.fails(tx, kv.ErrUsedTx)
			tx.Cancel()
			tx.Cancel()
		}
		e.stored("late", absent)
	}},
	{"cancelled transaction writes nothing", func(e *env) {
		tx := e.begin()
		tx.Set(e.key("a"), nil)
		tx.Cancel()
		e.stored("a", absent)
	}},
	{"context that ended", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		tx, err := e.s.Begin(ctx)
		if err != nil {
			e.Fatal(err)
		}
		defer tx.Cancel()
		cancel()
		_, _, err = tx.Get(e.key("a")).Wait()
		e.wantErr(err, kv.ErrCancelled)
		_, err = e.s.Begin(ctx)
		e.wantErr(err, kv.ErrCancelled)
		tx.Set(e.key("a"), nil)
		_, err = tx.Commit(ctx)
		e.wantErr(err, kv.ErrCancelled)
	}},
	{"read version older than 5 s fails on read", func(e *env) {
		e.needsClock()
		e.set("a", "1")
		tx := e.begin()
		e.want(tx, "a", "1")
		e.h.Advance(kv.MaxTxAge - 100*time.Millisecond)
		e.want(tx, "a", "1")
		e.h.Advance(200 * time.Millisecond)
		e.set("b", "other") // engines may notice at the next version
		_, _, err := tx.Get(e.key("a")).Wait()
		e.wantErr(err, kv.ErrTooOld)
		_, _, err = tx.Snapshot().Range(e.all(), kv.RangeOptions{}).Wait()
		e.wantErr(err, kv.ErrTooOld)
	}},
	{"read version older than 5 s fails on commit", func(e *env) {
		e.needsClock()
		young, old := e.reading(), e.reading()
		for _, tx := range []kv.Tx{young, old} {
			e.want(tx, "a", absent)
			tx.Set(e.key("b"), []byte("b"))
		}
		e.h.Advance(kv.MaxTxAge - 100*time.Millisecond)
		e.commit(young)
		e.h.Advance(200 * time.Millisecond)
		e.set("c", "other")
		e.fails(old, kv.ErrTooOld)
		// One that read nothing has no read version to be too old.
		blind := e.begin()
		blind.Set(e.key("d"), nil)
		e.h.Advance(2 * kv.MaxTxAge)
		e.commit(blind)
		e.stored("d", "")
	}},
	{"old reader conflicts until it is too old", func(e *env) {
		e.needsClock()
		tx := e.begin()
		e.want(tx, "a", absent)
		tx.Set(e.key("b"), nil)
		e.set("a", "1")
		e.h.Advance(kv.MaxTxAge / 2)
		for range 20 { // the log of writes must reach back that far
			e.set("c", "")
		}
		e.h.Advance(kv.MaxTxAge/2 - time.Second) // a slow disk may take of that
		e.set("c", "")
		e.fails(tx, kv.ErrConflict)
	}},
}

func (e *env) needsClock() {
	e.Helper()
	if e.h.Advance == nil {
		e.Skip("the engine's clock cannot be moved here")
	}
}
