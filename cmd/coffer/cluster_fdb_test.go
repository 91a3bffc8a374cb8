//go:build fdb

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger/kv/testengine"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// onCluster is a store of the test's own on the cluster that tests run on.
func onCluster(t *testing.T) string {
	t.Helper()
	file := testengine.Cluster()
	if file == "" {
		t.Skip("COFFER_TEST_FDB_CLUSTER names no cluster file")
	}
	prefix := fmt.Sprintf("test-cli/%016x", rand.Uint64())
	t.Cleanup(func() { testengine.Wipe(t, []byte(prefix)) })
	return "fdb:" + file + "?prefix=" + prefix
}

// Every command that takes a store works on a cluster.
func TestCommandsOnCluster(t *testing.T) {
	place := onCluster(t)
	fails(t, exitFailed, "there is no ledger in the store", "audit", "--store", place)
	fails(t, exitFailed, "there is no ledger in the store", "store", "check", "--store", place)
	fails(t, exitFailed, "there is no ledger in the store", "expiry", "rebuild", "--store", place)
	s := serve(t, place)
	s.cli(t, "budget", "create", "B", "--currency", "BRL", "--buckets", "4")
	s.cli(t, "budget", "fund", "B", "--amount", "100.00", "--key", "k")
	s.cli(t, "order", "reserve", "o1", "b", "--budget", "B", "--amount", "10.00")
	s.cli(t, "order", "commit", "o1", "b")
	checkAudit(t, s.cli(t, "audit"))
	checkAudit(t, must(t, "audit", "--store", place)) // a cluster may be in use
	contains(t, must(t, "store", "check", "--store", place), "FoundationDB, client library 7.3", "cluster of release 7.3", "incarnation  1\n", "store: ok\n")
	contains(t, must(t, "store", "incarnation", "--store", place, "--set", "5"), "raised from 1 to 5")
	s.cli(t, "order", "reserve", "o2", "b", "--budget", "B", "--amount", "1.00")
	contains(t, must(t, "store", "incarnation", "--store", place), "incarnation is 5\n")
	contains(t, must(t, "expiry", "rebuild", "--store", place), "2 reservations scanned")
	checkAudit(t, s.cli(t, "audit"))
	s.end(t)
	s = serve(t, place)
	contains(t, s.cli(t, "budget", "get", "B"), "89.00", "10.00")
}

// figure reads one of a node's metrics.
func figure(t *testing.T, url, name string) float64 {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(raw)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Two processes that know nothing of each other work on one hot bucket of one
// cluster at once, on orders of their own and on the same ones. Each command
// takes effect once.
func TestTwoProcessesOneCluster(t *testing.T) {
	place := onCluster(t)
	const orders, callers = 1500, 24
	var urls []string
	var clients []*rpc.Client
	for i := range 2 {
		cmd, url := child(t, place, fmt.Sprint("COFFER_NODE_ID=n", i+1))
		client := rpc.NewClient(url, rpc.WithAttemptTimeout(time.Minute))
		t.Cleanup(func() {
			client.Close()
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v:\n%s", err, cmd.Stderr)
			}
		})
		urls, clients = append(urls, url), append(clients, client)
	}
	if _, err := clients[0].CreateBudget(t.Context(), &cofferv1.CreateBudgetRequest{Budget: "hot", Currency: "BRL", Buckets: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "hot", AmountMinor: 1_000_000, Currency: "BRL", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	var first atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for n, client := range clients {
		var next atomic.Int64
		for range callers {
			wg.Go(func() {
				for i := next.Add(1); i <= orders; i = next.Add(1) {
					id := fmt.Sprintf("own-%d-%d", n, i)
					if i%3 == 0 { // both send it
						id = fmt.Sprintf("same-%d", i)
					}
					o, err := client.Reserve(context.Background(), &cofferv1.ReserveRequest{OrderId: id, BenefitKey: "b", Budget: "hot", AmountMinor: 10, Currency: "BRL", Ttl: durationpb.New(time.Hour)})
					if err != nil {
						t.Errorf("order %s: %v", id, err)
						return
					}
					if !o.GetReplayed() {
						first.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(start)
	const want = 2*orders - orders/3
	if first.Load() != want {
		t.Errorf("%d first answers, want %d", first.Load(), want)
	}
	b, err := clients[1].GetBudget(t.Context(), "hot")
	if err != nil || b.GetBudget().GetBalances().GetReservedMinor() != want*10 || b.GetBudget().GetBalances().GetAvailableMinor() != 1_000_000-want*10 {
		t.Errorf("balances %v, %v; want %d reserved", b.GetBudget().GetBalances(), err, want*10)
	}
	var conflicts, commits float64
	for _, url := range urls {
		conflicts += figure(t, url, "coffer_kv_conflicts_total")
		commits += figure(t, url, "coffer_kv_commits_total")
	}
	t.Logf("%d commands in %s (%.0f a second), %.0f transactions, %.0f conflicts (%.1f %%)", 2*orders, took.Round(time.Millisecond),
		2*orders/took.Seconds(), commits, conflicts, 100*conflicts/(commits+conflicts))
	checkAudit(t, must(t, "audit", "--store", place))
}
