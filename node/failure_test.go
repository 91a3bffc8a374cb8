package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// When the disk fails the log says why, once, before the node drains; the node's
// own error says it once, too, in words for a process that has ended.
func TestDiskFails(t *testing.T) {
	testengine.OnlyEmbedded(t, "it breaks the disk")
	var log bytes.Buffer
	faults := &embedded.Faults{}
	deps := testDeps(t, faults)
	deps.Log = zerolog.New(zerolog.SyncWriter(&log))
	n, err := New(testConfig(), deps)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	client := rpc.NewClient(r.url, rpc.WithMaxAttempts(1))
	defer client.Close()
	faults.BreakDisk()
	if _, err := client.CreateBudget(t.Context(), &cofferv1.CreateBudgetRequest{Budget: "B", Currency: "BRL", Buckets: 1}); err == nil {
		t.Fatal("a command succeeded on a broken disk")
	}
	err = r.ended(t)
	const words = "; what was acknowledged is on disk: make room there, or repair it, then start the node again"
	if !errors.Is(err, embedded.ErrFailed) || !strings.HasPrefix(err.Error(), "store failed: store stopped after a disk failure: ") || !strings.HasSuffix(err.Error(), words) {
		t.Errorf("ended with %v", err)
	}
	if strings.Contains(err.Error(), "refused until") || strings.Count(err.Error(), "disk failure") != 1 {
		t.Errorf("ended with %v", err)
	}
	type record struct{ Level, Message, Error string }
	var failed []record
	drains := 0
	for line := range bytes.Lines(log.Bytes()) {
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		switch {
		case rec.Message == "draining":
			drains++
		case rec.Level == "error" && drains == 0:
			failed = append(failed, rec)
		}
	}
	if want := (record{"error", "failed", err.Error()}); len(failed) != 1 || failed[0] != want || drains != 1 {
		t.Errorf("logged before the drain: %+v\nwant %+v, then one drain, not %d", failed, want, drains)
	}
}

// What is damaged is not on disk, and a start does not help.
func TestStoreFailedOfDamage(t *testing.T) {
	err := storeFailed{fmt.Errorf("%w: %w; more words", embedded.ErrFailed, fmt.Errorf("%w: 000005.sst", kv.ErrDamaged))}
	if want := "store failed: store stopped after a disk failure: store is damaged: 000005.sst"; err.Error() != want || !errors.Is(err, kv.ErrDamaged) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
