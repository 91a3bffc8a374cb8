package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// child starts this binary as "coffer serve" in a process of its own.
func child(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, url string) {
	t.Helper()
	log := newAnnounced()
	cmd = exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--store", dir, "--log-format", "json")
	cmd.Env = append(append(os.Environ(), childEnv+"=1", "COFFER_EXPIRY_INTERVAL=20ms"), env...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case url = <-log.url:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the child did not start:\n%s", log)
	}
	return cmd, url
}

// promised is what the server acknowledged for one order; undone: the client
// said that the reserve was certainly not done.
type promised struct {
	reserved, committed, undone bool
}

// A server is killed under load at random moments, again and again. After
// each restart the store is whole, and at the end every command that was ever
// acknowledged is there.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	const rounds, callers = 6, 16
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	hook := newConsumer(t)
	var mu sync.Mutex
	acked := map[string]promised{}
	next := 0

	for round := range rounds {
		cmd, url := child(t, dir, hook.env("300ms")...)
		opts := []rpc.Option{rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(patience)}
		if round%2 == 0 {
			opts = append(opts, rpc.WithoutBatching())
		}
		client := rpc.NewClient(url, opts...)
		prepare(t, client, round)
		if round == 0 {
			hook.attach(t, client)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		answers := make(chan struct{}, 1<<16)
		for range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					mu.Lock()
					next++
					id := fmt.Sprintf("o%06d", next)
					mu.Unlock()
					send := drive
					if round >= 3 {
						send = driveTogether
					}
					p := send(ctx, client, id)
					mu.Lock()
					acked[id] = p
					mu.Unlock()
					select {
					case answers <- struct{}{}:
					default:
					}
				}
			})
		}
		// Kill it after a random number of answers.
		for range 50 + rnd.IntN(700) {
			select {
			case <-answers:
			case <-time.After(patience):
				t.Fatal("no answers")
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		cancel()
		wg.Wait()
		client.Close()
	}
	checkAudit(t, must(t, "audit", "--store", dir))
	hook.complete(t, dir)
	checkPromises(t, dir, acked)
}

// prepare makes the budget in the first round and finds it in the others.
func prepare(t *testing.T, c *rpc.Client, round int) {
	t.Helper()
	res, err := c.CreateBudget(t.Context(), &cofferv1.CreateBudgetRequest{Budget: "B", Currency: "BRL", Buckets: 3})
	if err != nil {
		t.Fatal(err)
	}
	fund, err := c.FundBudget(t.Context(), &cofferv1.FundBudgetRequest{Budget: "B", AmountMinor: 1e12, Currency: "BRL", IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Replayed != (round > 0) || fund.Replayed != (round > 0) {
		t.Errorf("round %d: create replayed %t, fund replayed %t", round, res.Replayed, fund.Replayed)
	}
}

// drive sends one order and tells what was acknowledged.
func drive(ctx context.Context, c *rpc.Client, id string) (p promised) {
	_, err := c.Reserve(ctx, &cofferv1.ReserveRequest{OrderId: id, BenefitKey: "b", Budget: "B", AmountMinor: 100, Currency: "BRL", Ttl: durationpb.New(time.Hour)})
	if err != nil {
		p.undone = !errors.Is(err, rpc.ErrOutcomeUnknown)
		return p
	}
	p.reserved = true
	_, err = c.Commit(ctx, &cofferv1.CommitRequest{OrderId: id, BenefitKey: "b", Budget: "B"})
	p.committed = err == nil
	return p
}

// driveTogether sends an order's commands in one call, which shares batches
// with those of other callers.
func driveTogether(ctx context.Context, c *rpc.Client, id string) (p promised) {
	results, _ := c.Execute(ctx, []*cofferv1.Command{ // the results say all
		{Command: &cofferv1.Command_Reserve{Reserve: &cofferv1.ReserveRequest{OrderId: id, BenefitKey: "b", Budget: "B", AmountMinor: 100, Currency: "BRL", Ttl: durationpb.New(time.Hour)}}},
		{Command: &cofferv1.Command_Commit{Commit: &cofferv1.CommitRequest{OrderId: id, BenefitKey: "b", Budget: "B"}}},
	})
	p.reserved, p.committed = results[0].GetOutcome() != nil, results[1].GetOutcome() != nil
	p.undone = results[0].GetError() != nil && results[0].GetError().GetDetail().GetReason() != string(ledger.OutcomeUnknown)
	return p
}

// checkPromises starts the store once more and looks for everything that was
// acknowledged.
func checkPromises(t *testing.T, dir string, acked map[string]promised) {
	t.Helper()
	s := serve(t, dir)
	client := rpc.NewClient(s.url)
	defer client.Close()
	reserved, committed, undone := 0, 0, 0
	for id, p := range acked {
		got, err := client.GetReservation(t.Context(), id, "b")
		if p.undone {
			undone++
			if rpc.ReasonOf(err) != ledger.ReservationNotFound {
				t.Errorf("order %s was said to be certainly not done; it is %v (%v)", id, got, err)
			}
		}
		if !p.reserved {
			continue // it may or may not be there
		}
		reserved++
		if err != nil {
			t.Errorf("order %s was acknowledged and is gone: %v", id, err)
			continue
		}
		state := stateName(got[0].GetState())
		if p.committed {
			committed++
		}
		if p.committed && state != "COMMITTED" || state != "COMMITTED" && state != "RESERVED" {
			t.Errorf("order %s: acknowledged %+v, is %s", id, p, state)
		}
	}
	t.Logf("%d orders sent, %d reserves and %d commits acknowledged, %d certainly not done", len(acked), reserved, committed, undone)
	if committed < 100 {
		t.Errorf("only %d commits were acknowledged: the test tested little", committed)
	}
	checkAudit(t, s.cli(t, "audit"))
}

// SIGTERM drains a real process, which then ends well.
func TestTerminate(t *testing.T) {
	cmd, url := child(t, t.TempDir())
	client := rpc.NewClient(url)
	defer client.Close()
	prepare(t, client, 0)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, cmd.Stderr)
	}
	contains(t, fmt.Sprint(cmd.Stderr), `"message":"draining"`, `"message":"stopped"`)
}

// A server that is told to end answers what it accepted: of the commands that
// got no answer, none took effect.
func TestDrain(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	// An attempt that is given up may take effect all the same.
	client := rpc.NewClient(s.url, rpc.WithMaxAttempts(1), rpc.WithAttemptTimeout(patience), rpc.WithoutBatching())
	defer client.Close()
	prepare(t, client, 0)
	var mu sync.Mutex
	acked, open := map[string]bool{}, map[string]error{}
	ready := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 1 << 20 {
				id := fmt.Sprintf("g%d-%d", g, i)
				_, err := client.Reserve(context.Background(), &cofferv1.ReserveRequest{OrderId: id, BenefitKey: "b", Budget: "B", AmountMinor: 100, Currency: "BRL", Ttl: durationpb.New(time.Hour)})
				mu.Lock()
				if err == nil {
					acked[id] = true
				} else {
					open[id] = err
				}
				n := len(acked)
				mu.Unlock()
				if n == 500 {
					once.Do(func() { close(ready) })
				}
				if err != nil {
					return
				}
			}
		})
	}
	<-ready
	s.end(t)
	wg.Wait()
	contains(t, s.log.String(), `"message":"draining"`, `"message":"stopped"`)

	after := serve(t, dir)
	reader := rpc.NewClient(after.url)
	defer reader.Close()
	for id := range acked {
		if _, err := reader.GetReservation(t.Context(), id, "b"); err != nil {
			t.Errorf("order %s was acknowledged and is gone: %v", id, err)
		}
	}
	for id, err := range open {
		if _, gerr := reader.GetReservation(t.Context(), id, "b"); gerr == nil {
			t.Errorf("order %s took effect and its caller got: %v (unknown: %t)", id, err, errors.Is(err, rpc.ErrOutcomeUnknown))
		}
	}
	t.Logf("%d acknowledged, %d turned away", len(acked), len(open))
}
