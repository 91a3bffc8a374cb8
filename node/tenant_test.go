package node

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// A tenant's limits in the configuration hold at the node's address: what is above
// them is refused in words that say whose it is, and others do not notice.
func TestTenantLimits(t *testing.T) {
	cfg := testConfig()
	if err := cfg.LoadYAML([]byte("executor:\n  tenants: hot=0/1, other=5/5\n")); err != nil {
		t.Fatal(err)
	}
	n, err := New(cfg, testDeps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, n, nil)
	client := func(tenant string, opts ...rpc.Option) *rpc.Client {
		c := rpc.NewClient(r.url, append(opts, rpc.WithTenant(tenant), rpc.WithAttemptTimeout(time.Minute), rpc.WithoutBatching())...)
		t.Cleanup(c.Close)
		return c
	}
	hot, quiet := client("hot", rpc.WithMaxAttempts(1)), client("quiet")
	var batch []*cofferv1.Command // lets it in for once, and uses up its rate of 1000 seconds
	for i := range 1000 {
		batch = append(batch, &cofferv1.Command{Command: &cofferv1.Command_Release{Release: &cofferv1.ReleaseRequest{OrderId: fmt.Sprint("o", i), BenefitKey: "coupon:A"}}})
	}
	if _, err := hot.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	var e *rpc.Error
	err = reserve(t.Context(), hot, "o1", time.Minute)
	if !errors.As(err, &e) || e.Reason() != ledger.Overloaded || e.Detail.GetField() != "rate" || e.Detail.GetLimit() != "1" ||
		!strings.Contains(e.Error(), `tenant "hot"`) || e.Detail.GetRetryDelay().AsDuration() < time.Minute {
		t.Errorf("refused with %v", err)
	}
	fund(t, quiet, 4)
	for i := range 20 {
		if err := reserve(t.Context(), quiet, fmt.Sprint("o", i), time.Minute); err != nil {
			t.Fatalf("the other tenant: %v", err)
		}
	}
	code, text := get(t, r.url+"/metrics")
	for _, want := range []string{
		"coffer_tenant_limited_total 1\n", "coffer_overloaded_total 1\n", "coffer_tenants_pending 0\n", "coffer_tenant_pending_max 0\n",
		`coffer_rpc_places_taken{kind="command"} `, `coffer_rpc_tenant_limited_total{kind="scan"} 0` + "\n",
	} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}
