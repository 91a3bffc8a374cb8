package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type cliJob struct {
	JobID, State, LeaseToken, LastError, DiscardReason string
	Attempt                                            int
	Payload                                            []byte
}

type cliJobs struct{ Jobs []cliJob }

type cliChanged struct {
	Job      cliJob
	Replayed bool
}

// Every command of a queue, in the life of three jobs.
func TestQueueCommands(t *testing.T) {
	s := serve(t, t.TempDir())
	contains(t, s.cli(t, "queue", "stats"), "no queues")
	contains(t, s.cli(t, "queue", "enqueue", "mail", "a", "--payload", "hello", "--max-attempts", "1"), "READY", "mail")
	contains(t, s.cli(t, "queue", "enqueue", "mail", "a", "--payload", "hello", "--max-attempts", "1"), "done before; this is the job now")
	fails(t, exitFailed, "IDEMPOTENCY_CONFLICT: job \"a\" was first enqueued with other values of payload; send the same values",
		"queue", "enqueue", "mail", "a", "--payload", "bye", "--max-attempts", "1", "--server", s.url)
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cli(t, "queue", "enqueue", "mail", "b", "--file", file)
	s.cli(t, "queue", "enqueue", "mail", "later", "--delay", "1h")
	if err := os.WriteFile(file, make([]byte, 65<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailed, "is larger than 65536 bytes; put it elsewhere", "queue", "enqueue", "mail", "big", "--file", file, "--server", s.url)

	leased := decode[cliJobs](t, s.cli(t, "queue", "lease", "mail", "--max", "5", "--for", "1h", "--json")).Jobs
	if len(leased) != 2 || leased[0].JobID != "a" || string(leased[1].Payload) != "from a file" || leased[0].LeaseToken == "" {
		t.Fatalf("leased %+v", leased)
	}
	contains(t, s.cli(t, "queue", "lease", "mail"), "no job is due")
	token := leased[0].LeaseToken
	contains(t, s.cli(t, "queue", "fail", "mail", "a", "--token", token, "--error", "no route"), "DEAD", "no route")
	fails(t, exitFailed, "LEASE_LOST: lease_token", "queue", "complete", "mail", "a", "--token", token, "--server", s.url)
	contains(t, s.cli(t, "queue", "return", "mail", "b", "--token", token), "READY")
	again := decode[cliJobs](t, s.cli(t, "queue", "lease", "mail", "--for", "1h", "--json")).Jobs
	contains(t, s.cli(t, "queue", "complete", "mail", "b", "--token", again[0].LeaseToken), "DONE")

	contains(t, s.cli(t, "queue", "stats"), "mail", "1", "oldest due")
	contains(t, s.cli(t, "queue", "list", "mail", "--state", "done"), "b")
	contains(t, s.cli(t, "queue", "list", "mail", "--limit", "1"), "more with --page ")
	contains(t, s.cli(t, "queue", "list", "empty"), "no jobs")
	contains(t, s.cli(t, "queue", "get", "mail", "a"), "leased 1 times; dead 1 times", "last error:\nno route", "payload:\nhello\n")

	contains(t, s.cli(t, "queue", "dead", "list", "mail"), "a", "no route")
	contains(t, s.cli(t, "queue", "dead", "get", "mail", "a"), "DEAD")
	contains(t, s.cli(t, "queue", "dead", "replay", "mail", "a"), "READY")
	fails(t, exitFailed, "JOB_ILLEGAL_STATE: only a dead letter can be discarded", "queue", "dead", "discard", "mail", "a", "--reason", "x", "--server", s.url)
	re := decode[cliJobs](t, s.cli(t, "queue", "lease", "mail", "--for", "1h", "--json")).Jobs
	s.cli(t, "queue", "fail", "mail", "a", "--token", re[0].LeaseToken, "--error", "still no route", "--permanent")
	discard := []string{"queue", "dead", "discard", "mail", "a", "--reason", "the customer has left", "--json"}
	first, second := decode[cliChanged](t, s.cli(t, discard...)), decode[cliChanged](t, s.cli(t, discard...))
	if first.Replayed || !second.Replayed || second.Job.State != first.Job.State {
		t.Errorf("%+v, then %+v", first, second)
	}
	if got := first.Job; got.State != "QUEUE_JOB_STATE_DISCARDED" || got.DiscardReason != "the customer has left" || got.LastError != "still no route" {
		t.Errorf("%+v", got)
	}
	contains(t, s.cli(t, "queue", "dead", "list", "mail"), "no dead letters")
	fails(t, exitFailed, "JOB_NOT_FOUND: job_id \"x\" is not in queue \"mail\"", "queue", "get", "mail", "x", "--server", s.url)
	fails(t, exitUsage, "--token is empty", "queue", "complete", "mail", "a", "--token", "")
	fails(t, exitUsage, "missing flags: --reason=TEXT", "queue", "dead", "discard", "mail", "a")
	s.cli(t, "audit")
}

// cliError is what a refused command prints with --json.
type cliError struct {
	Error struct {
		Message string
		Detail  struct {
			Reason          string
			DifferingFields []string
		}
	}
}

type cliSubmitted struct {
	Fact     cliFact
	Replayed bool
}

type cliFact struct {
	State, Reason, Code, Resolution string
	Effects                         []struct {
		Operation string
		Outcome   struct{ AmountMinor, EntrySeq string }
	}
}

// Every command of facts, in the life of one order.
func TestFactCommands(t *testing.T) {
	s := serve(t, t.TempDir())
	s.cli(t, "budget", "create", "SPRING", "--currency", "BRL")
	s.cli(t, "budget", "fund", "SPRING", "--amount", "100.00", "--key", "f1")
	refund := []string{"fact", "submit", "shop", "e-2", "refund-succeeded", "o-1", "--reference", "r-1", "--line", "coupon:A=300"}
	contains(t, s.cli(t, refund...), "PENDING", "nothing is reserved yet")
	s.cli(t, "order", "reserve", "o-1", "coupon:A", "--budget", "SPRING", "--amount", "12.50")
	pay := []string{"fact", "submit", "shop", "e-1", "payment-succeeded", "o-1", "--reference", "p-1", "--json"}
	first, again := decode[cliSubmitted](t, s.cli(t, pay...)), decode[cliSubmitted](t, s.cli(t, pay...))
	if first.Replayed || !again.Replayed {
		t.Errorf("%+v, then %+v", first, again)
	}
	if got := first.Fact; got.State != "FACT_STATE_APPLIED" || len(got.Effects) != 1 || got.Effects[0].Operation != "OPERATION_COMMIT" || got.Effects[0].Outcome.AmountMinor != "1250" {
		t.Errorf("%+v", got)
	}
	code, out, _ := coffer(t, "fact", "submit", "shop", "e-1", "payment-failed", "o-1", "--json", "--server", s.url)
	if e := decode[cliError](t, out).Error; code != exitFailed || e.Detail.Reason != "IDEMPOTENCY_CONFLICT" || len(e.Detail.DifferingFields) != 2 || !strings.Contains(e.Message, "said something else of kind, reference_id when it came first; send") {
		t.Errorf("exit code %d, %s", code, out)
	}
	contains(t, s.cli(t, refund...), "came before; this is the fact now", "APPLIED", "REVERSE", "300")
	fails(t, exitFailed, "IDEMPOTENCY_CONFLICT", "fact", "submit", "shop", "e-2", "refund-succeeded", "o-1", "--reference", "r-1", "--line", "coupon:A=301", "--server", s.url)
	fails(t, exitFailed, "facts[0].lines 0 are missing", "fact", "submit", "shop", "e-3", "refund-succeeded", "o-1", "--reference", "r-1", "--server", s.url)
	fails(t, exitUsage, "--line is \"coupon:A=x\"", "fact", "submit", "shop", "e-3", "refund-succeeded", "o-1", "--line", "coupon:A=x")
	s.cli(t, "fact", "submit", "shop", "e-4", "order-cancelled", "o-2", "--line", "coupon:A")
	contains(t, s.cli(t, "fact", "submit", "shop", "e-5", "payment-succeeded", "o-2", "--reference", "p-2", "--line", "coupon:A"), "EXCEPTION", "had been cancelled before it was reserved")
	contains(t, s.cli(t, "fact", "list"), "e-5", "EXCEPTION")
	contains(t, s.cli(t, "fact", "list", "--state", "pending"), "no facts in state pending")
	contains(t, s.cli(t, "fact", "list", "--state", "all", "--limit", "2"), "more with --page ")
	contains(t, s.cli(t, "fact", "retry", "shop", "e-5"), "EXCEPTION")
	contains(t, s.cli(t, "fact", "resolve", "shop", "e-5", "--reason", "sent back by the bank"), "RESOLVED", "resolved: sent back by the bank")
	contains(t, s.cli(t, "fact", "get", "shop", "e-1"), "APPLIED", "COMMIT")
	fails(t, exitFailed, "FACT_ILLEGAL_STATE", "fact", "resolve", "shop", "e-1", "--reason", "x", "--server", s.url)
	fails(t, exitFailed, "FACT_NOT_FOUND", "fact", "get", "shop", "e-9", "--server", s.url)
	s.cli(t, "wallet", "create", "w", "--currency", "BRL")
	s.cli(t, "wallet", "grant", "w", "--amount", "10.00", "--key", "k")
	s.cli(t, "job", "charge", "j", "--wallet", "w", "--amount", "4.00")
	contains(t, s.cli(t, "fact", "submit", "renderer", "e-1", "job-failed", "j"), "APPLIED", "REFUND")
	contains(t, s.cli(t, "fact", "submit", "renderer", "e-2", "job-succeeded", "j"), "APPLIED", "RECLAIM_CHARGE")
	contains(t, s.cli(t, "job", "get", "j"), "DELIVERED", "4.00")
	contains(t, s.cli(t, "order", "explain", "o-1"), "r-1")
	s.cli(t, "audit")
}

func TestShownText(t *testing.T) {
	for in, want := range map[string]string{
		`{"to":"ü"}`: `{"to":"ü"}`, "a\n\tb": "a\n\tb", "": "", "\x1b[2J": `"\x1b[2J"`, "a\rb": `"a\rb"`, "\xff": `"\xff"`, "\u202e": `"\u202e"`,
	} {
		if got := shownText([]byte(in)); got != want {
			t.Errorf("%q is shown as %s, not %s", in, got, want)
		}
	}
}
