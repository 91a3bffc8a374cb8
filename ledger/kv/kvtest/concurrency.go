package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

var concurrencyCases = []testCase{
	{"concurrent ADDs both apply", func(e *env) {
		one, two := e.begin(), e.begin()
		one.Add(e.key("n"), []byte{1, 0, 0, 0})
		two.Add(e.key("n"), []byte{2, 0, 0, 0})
		e.commit(one)
		e.commit(two)
		e.stored("n", "\x03\x00\x00\x00")

		const workers, each = 8, 25
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				for range each {
					tx, err := e.s.Begin(e.ctx)
					if err != nil {
						e.Error(err)
						return
					}
					tx.Add(e.key("n"), []byte{1, 0, 0, 0})
					tx.Add(e.key(fmt.Sprint("n", i%2)), []byte{1, 0, 0, 0})
					if _, err := tx.Commit(e.ctx); err != nil {
						e.Errorf("an ADD failed: %v", err)
					}
				}
			})
		}
		wg.Wait()
		sum := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
		e.stored("n", sum(3+workers*each), "n0", sum(workers*each/2), "n1", sum(workers*each/2))
	}},
	{"concurrent read-modify-writes lose nothing", func(e *env) {
		const workers, each = 6, 15
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range each {
					opt := kv.Options{Timeout: time.Minute, Retries: 10_000, MaxBackoff: 2 * time.Millisecond}
					_, err := kv.Transact(e.ctx, e.s, opt, func(tx kv.Tx, _ kv.Attempt) error {
						v, _, err := tx.Get(e.key("n")).Wait()
						if err != nil {
							return err
						}
						var n uint64
						if len(v) == 8 {
							n = binary.BigEndian.Uint64(v)
						}
						tx.Set(e.key("n"), binary.BigEndian.AppendUint64(nil, n+1))
						return nil
					})
					if err != nil {
						e.Error(err)
					}
				}
			})
		}
		wg.Wait()
		e.stored("n", string(binary.BigEndian.AppendUint64(nil, workers*each)))
	}},
	{"external consistency after an ack", func(e *env) {
		// Readers that begin after an acknowledgement must see it: a number
		// that only grows is never seen below what was acknowledged before.
		const writes, readers = 150, 3
		var acked atomic.Uint64
		var wg sync.WaitGroup
		wg.Go(func() {
			defer acked.Store(writes + 1)
			for i := uint64(1); i <= writes; i++ {
				tx, err := e.s.Begin(e.ctx)
				if err != nil {
					e.Error(err)
					return
				}
				tx.Set(e.key("n"), binary.BigEndian.AppendUint64(nil, i))
				if _, err := tx.Commit(e.ctx); err != nil {
					e.Errorf("commit: %v", err)
					return
				}
				acked.Store(i)
			}
		})
		for range readers {
			wg.Go(func() {
				for {
					floor := acked.Load()
					if floor > writes {
						return
					}
					tx, err := e.s.Begin(e.ctx)
					if err != nil {
						e.Error(err)
						return
					}
					v, ok, err := tx.Get(e.key("n")).Wait()
					tx.Cancel()
					if err != nil {
						e.Error(err)
						return
					}
					if ok && binary.BigEndian.Uint64(v) < floor || !ok && floor > 0 {
						e.Errorf("saw %x (%v) after %d was acknowledged", v, ok, floor)
						return
					}
				}
			})
		}
		wg.Wait()
	}},
	{"retry limit survives retries", func(e *env) {
		attempts := 0
		_, err := kv.Transact(e.ctx, e.s, kv.Options{Retries: 3, Timeout: time.Minute, MaxBackoff: time.Millisecond},
			func(tx kv.Tx, a kv.Attempt) error {
				attempts++
				if a.Number != attempts || a.MayHaveCommitted {
					e.Errorf("attempt %+v, want number %d and no doubt", a, attempts)
				}
				return e.losing(tx)
			})
		e.wantErr(err, kv.ErrRetriesExhausted)
		e.wantErr(err, kv.ErrConflict)
		var te *kv.TxError
		if !errors.As(err, &te) || te.Attempts != 4 || attempts != 4 || te.Outcome != kv.NotCommitted {
			e.Fatalf("after %d attempts: %#v", attempts, te)
		}
		e.stored("out", absent)
	}},
	{"timeout survives retries", func(e *env) {
		_, err := kv.Transact(e.ctx, e.s, kv.Options{Retries: 1 << 30, Timeout: time.Second, MaxBackoff: time.Millisecond},
			func(tx kv.Tx, _ kv.Attempt) error { return e.losing(tx) })
		var te *kv.TxError
		if !errors.As(err, &te) {
			e.Fatalf("got %v, want a *kv.TxError", err)
		}
		if te.Attempts < 2 {
			e.Fatalf("gave up after %d attempts", te.Attempts)
		}
		e.stored("out", absent)
	}},
}

// losing makes tx lose a conflict: another transaction writes what it read.
func (e *env) losing(tx kv.Tx) error {
	if _, _, err := tx.Get(e.key("hot")).Wait(); err != nil {
		return err
	}
	tx.Set(e.key("out"), nil)
	other, err := e.s.Begin(e.ctx)
	if err != nil {
		return err
	}
	other.Add(e.key("hot"), []byte{1})
	_, err = other.Commit(e.ctx)
	return err
}
