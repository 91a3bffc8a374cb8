package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/coffer-ledger/coffer/rpc"
)

// names are the values of fields, by their names, with which the tenant "ours"
// fills the ledger and "theirs" looks for it.
func names(lease string) map[string]any {
	hook := map[string]any{"kind": "webhook", "webhook": map[string]any{
		"url": "http://127.0.0.1:1/", "insecure": true, "keys": []any{map[string]any{"id": "1", "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}},
	}}
	order := map[string]any{"order_id": "o-1", "benefit_key": "c"}
	return map[string]any{
		"budget": "B", "wallet": "acme", "currency": "BRL", "amount_minor": "777123", "idempotency_key": "k", "buckets": 2, "reason": "ours alone",
		"order_id": "o-1", "benefit_key": "c", "ttl": "600s", "refund_id": "r", "operation": "OPERATION_RESERVE", "commands": []any{map[string]any{"commit": order}},
		"correlation_id": "ours alone", "job_id": "j-1", "queue": "mail", "lease_token": lease, "lease": "60s", "worker": "w", "error": "ours alone",
		"jobs":   []any{map[string]any{"job_id": "j-1", "payload": "b3VycyBhbG9uZQ=="}},
		"source": "shop", "event_id": "e-1", "facts": []any{map[string]any{"source": "shop", "event_id": "e-1", "kind": "FACT_KIND_JOB_FAILED", "order_id": "j-9"}},
		"name": "hook", "sink": "hook", "key": "reservations/o-1/c", "config": hook, "start": map[string]any{"beginning": true},
	}
}

// calls makes calls in JSON for one tenant.
type calls struct {
	*world
	tenant string
}

// make calls a procedure with the values that its request has fields for. It
// gives the answer, and the reason of a refusal.
func (c calls) make(m protoreflect.MethodDescriptor, values map[string]any) (answer any, reason string) {
	c.Helper()
	body := map[string]any{}
	for name, v := range values {
		if m.Input().Fields().ByName(protoreflect.Name(name)) != nil {
			body[name] = v
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		c.Fatal(err)
	}
	url := c.url + "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(rpc.TenantHeader, c.tenant)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	raw, err = io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(raw, &answer) != nil {
		c.Fatalf("%s: %v: %s", m.Name(), err, raw)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := answer.(map[string]any)["message"].(string)
		reason, _, _ = strings.Cut(text, ":")
	}
	return answer, reason
}

// ofTenants are the procedures about one tenant that answer once, by service and
// name. Streams of one tenant have tests of their own.
func ofTenants() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("coffer.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if s.Name() == "OperatorService" || s.Name() == "ClusterService" {
				continue
			}
			for j := range s.Methods().Len() {
				if m := s.Methods().Get(j); !m.IsStreamingServer() {
					out[string(s.Name()+"."+m.Name())] = m
				}
			}
		}
		return true
	})
	return out
}

// No call of one tenant reads or changes what is another's, by any name, key or
// lease: it is answered as if there were nothing of that name, and may make its
// own.
func TestTenantsAreApart(t *testing.T) {
	onEngine(t, func(w *world) {
		defer http.DefaultClient.CloseIdleConnections()
		all := ofTenants()
		if len(all) < 65 {
			t.Fatalf("only %d procedures", len(all))
		}
		ours, theirs := calls{w, "ours"}, calls{w, "theirs"}
		lease := "none"
		for _, name := range []string{
			"BudgetService.CreateBudget", "BudgetService.FundBudget", "ReservationService.Reserve", "CreditService.CreateWallet", "CreditService.Grant",
			"CreditService.Charge", "QueueService.Enqueue", "QueueService.Lease", "FactService.SubmitFacts", "SinkService.CreateSink",
		} {
			answer, reason := ours.make(all[name], valuesOf(all[name], lease))
			if reason != "" {
				t.Fatalf("%s: %v", name, answer)
			}
			if name == "QueueService.Lease" {
				lease = answer.(map[string]any)["jobs"].([]any)[0].(map[string]any)["leaseToken"].(string)
			}
		}
		see := func() string {
			var out []any
			for _, name := range []string{
				"BudgetService.GetBudget", "ReservationService.GetReservation", "CreditService.GetWallet", "CreditService.GetJob", "QueueService.GetQueueJob",
				"FactService.GetFact", "SinkService.ListSinks", "LedgerService.ListEntries", "LedgerService.ExplainOrder", "CreditService.Statement",
			} {
				answer, reason := ours.make(all[name], valuesOf(all[name], lease))
				if reason != "" {
					t.Fatalf("%s: %v", name, answer)
				}
				out = append(out, answer)
			}
			return asJSON(t, out)
		}
		before := see()
		if !strings.Contains(before, "777123") || !strings.Contains(before, "b3VycyBhbG9uZQ") {
			t.Fatalf("the marks of what is ours are missing: %s", before)
		}
		makers := []string{
			"BudgetService.CreateBudget", "CreditService.CreateWallet", "QueueService.Enqueue", "FactService.SubmitFacts", "SinkService.CreateSink",
			"ReservationService.Release", "ReservationService.Resolve", "CreditService.ReleaseHold",
		} // of tombstones
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if slices.Contains(makers, name) {
				continue
			}
			answer, reason := theirs.make(all[name], valuesOf(all[name], lease))
			text, want := asJSON(t, answer), emptyFor(name)
			if want == "" && !strings.HasSuffix(reason, "_NOT_FOUND") || want != "" && (reason != "" || !strings.Contains(text, want)) {
				t.Errorf("%s: %s, want %s", name, text, want)
			}
			if strings.Contains(text, "777123") || strings.Contains(text, "b3VycyBhbG9uZQ") || strings.Contains(text, "ours alone") || strings.Contains(text, lease) && reason == "" {
				t.Errorf("%s tells what is ours: %s", name, text)
			}
		}
		for _, name := range makers {
			if answer, reason := theirs.make(all[name], valuesOf(all[name], lease)); reason != "" || strings.Contains(asJSON(t, answer), "replayed") {
				t.Errorf("%s: %v, %s", name, answer, reason)
			}
		}
		if after := see(); after != before {
			t.Errorf("what is ours has changed:\n%s\n%s", before, after)
		}
	})
}

// valuesOf are the values for a procedure. Keys differ, so that none is refused
// for a key that was used.
func valuesOf(m protoreflect.MethodDescriptor, lease string) map[string]any {
	out := names(lease)
	out["idempotency_key"] = string(m.Name())
	if m.Parent().Name() == "SinkService" {
		delete(out, "event_id") // there it is that of an event, and not of a fact
	}
	return out
}

// emptyFor is what the answer to a call has that finds nothing and is not refused;
// empty: it must be refused.
func emptyFor(name string) string {
	_, call, _ := strings.Cut(name, ".")
	switch {
	case call == "ListEntries":
		return ""
	case strings.HasPrefix(call, "List") && call != "ListParked", call == "Lease":
		return "{}"
	case call == "Execute":
		return "RESERVATION_NOT_FOUND"
	}
	return ""
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
