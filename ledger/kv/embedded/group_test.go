package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/coffer-ledger/coffer/ledger/kv"
)

// TestGroupMembersMeet makes many transactions share few groups by holding
// the disk's sync, and then replays them by stamp: members of one group and
// groups not yet synced must count for each other as if one by one.
func TestGroupMembersMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := memOptions(vfs.NewMem())
		opt.Faults = &Faults{}
		s := mustOpen(t, opt)
		if err := put(t, s, "seen"); err != nil {
			t.Fatal(err)
		}
		release := opt.Faults.HoldSync()
		defer release()
		const n = 60
		type result struct {
			stamp kv.Stamp
			err   error
			kind  int
		}
		results := make([]result, n)
		var wg sync.WaitGroup
		start := func(from, to int) {
			for i := from; i < to; i++ {
				wg.Go(func() {
					results[i].kind = i % 6
					tx, err := s.Begin(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					memberOp(tx, i)
					results[i].stamp, results[i].err = tx.Commit(context.Background())
				})
			}
			synctest.Wait()
		}
		// Some are in groups that wait for their sync. Then the pipeline is
		// filled, so that all others gather in one group.
		start(0, n/3)
		for i := range maxSyncing + 1 {
			wg.Go(func() {
				if err := put(t, s, fmt.Sprint("filler", i)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		start(n/3, n)
		if got := s.Stats().Commits; got != 1 {
			t.Errorf("%d commits acknowledged while the sync is held, want the one before", got)
		}
		release()
		wg.Wait()
		if st := s.Stats(); st.LargestGroup < n/2 {
			t.Errorf("largest group has %d members: the test shows nothing", st.LargestGroup)
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return results[a].stamp.Compare(results[b].stamp) })
		var sum, value byte
		readers := 0
		for _, i := range order {
			r := results[i]
			if r.kind == 5 {
				if r.err == nil {
					readers++
				} else if !errors.Is(r.err, kv.ErrConflict) {
					t.Error(r.err)
				}
				continue
			}
			if r.err != nil {
				t.Error(r.err)
			}
			switch r.kind {
			case 0, 1:
				sum++
			case 2:
				sum = byte(i)
			case 3, 4:
				sum = 0
			}
			value = sum
		}
		if readers != 1 {
			t.Errorf("%d of the transactions that read and write one key committed, want one", readers)
		}
		tx, _ := s.Begin(context.Background())
		got, ok, err := tx.Get([]byte("sum")).Wait()
		if err != nil || (ok && got[0] != value) || (!ok && value != 0) {
			t.Errorf("sum is %v (%v, %v), want %d", got, ok, err, value)
		}
		tx.Cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// memberOp is what transaction i does: it adds, sets, clears one way or the
// other, or reads and writes one key that all of its kind do.
func memberOp(tx kv.Tx, i int) {
	sum := []byte("sum")
	switch i % 6 {
	case 0, 1:
		tx.Add(sum, []byte{1})
	case 2:
		tx.Set(sum, []byte{byte(i)})
	case 3:
		tx.Clear(sum)
	case 4:
		tx.ClearRange(kv.Range{Begin: []byte("s"), End: []byte("t")})
		tx.Set([]byte("seen"), nil)
	case 5:
		tx.Get([]byte("unique")).Wait()
		tx.Set([]byte("unique"), fmt.Append(nil, i))
	}
}
