package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// TestReceiptsUnderFaults lets workers count under random conflicts, unknown
// outcomes, late landings and latency. Each command has a receipt, read and
// written by every attempt: whatever is reported, it takes effect at most
// once, what is acknowledged took effect, and what is reported as not
// committed did not.
func TestReceiptsUnderFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		opt := memOptions(vfs.NewMem())
		opt.Faults = &Faults{OnCommit: RandomFaults(seed, FaultRates{
			Conflict: 100, UnknownLanded: 100,
			UnknownLost: 100, Late: 100, LateBy: 3 * time.Second, Latency: 20 * time.Millisecond,
		})}
		s := mustOpen(t, opt)
		outcome := make(map[string]error)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 50 {
					key := fmt.Sprintf("receipt/%d/%d", w, i)
					var err error
					for range 3 { // the caller asks again while in doubt
						if err = count(s, key); kv.OutcomeOf(err) != kv.Unknown {
							break
						}
					}
					mu.Lock()
					outcome[key] = err
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second) // all that is late lands
		synctest.Wait()
		opt.Faults.OnCommit = nil
		tx, _ := s.Begin(context.Background())
		defer tx.Cancel()
		rows, _, err := tx.Range(kv.PrefixRange([]byte("receipt/")), kv.RangeOptions{}).Wait()
		if err != nil {
			t.Fatal(err)
		}
		landed := make(map[string]bool)
		for _, r := range rows {
			landed[string(r.Key)] = true
		}
		for key, err := range outcome {
			if err == nil && !landed[key] {
				t.Errorf("%s was acknowledged and is not there", key)
			}
		}
		n, _, err := tx.Get([]byte("n")).Wait()
		if err != nil || binary.LittleEndian.Uint64(n) != uint64(len(rows)) {
			t.Errorf("counted %x for %d receipts: %v", n, len(rows), err)
		}
		tx.Cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func count(s *Store, receipt string) error {
	_, err := kv.Transact(context.Background(), s, kv.Options{}, func(tx kv.Tx, _ kv.Attempt) error {
		_, done, err := tx.Get([]byte(receipt)).Wait()
		if err != nil || done {
			return err
		}
		tx.Set([]byte(receipt), nil)
		tx.Add([]byte("n"), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return nil
	})
	return err
}

// The engine writes into logs that it used before, once it has flushed them:
// faults of the disk must befall those as well.
func TestFaultsOfLogsUsedAgain(t *testing.T) {
	if !runsAlone(t) { // tables are merged while the disk breaks
		return
	}
	opt := memOptions(vfs.NewMem())
	opt.Faults = &Faults{}
	s := mustOpen(t, opt)
	for i := range 10 {
		if err := put(t, s, fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	opt.Faults.BreakDisk()
	if err := put(t, s, "lost"); !errors.Is(err, ErrFailed) {
		t.Fatalf("commit on a broken disk: %v", err)
	}
}
