package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// remote is a server, called through the Go client.
type remote struct {
	client *rpc.Client
	// web reads the metrics at url.
	web    *http.Client
	url    string
	engine string
	token  string       // of the target server, empty for none
	stop   func() error // of what was started for it
	// keeps: there is a ledger behind it that can be audited.
	keeps bool
}

// connected is a server with the client that all targets over RPC use: its
// defaults, but for the protocol and, where the run says so, its batching. token
// may be empty.
func connected(url string, cfg Config, trust *tls.Config, token string) *remote {
	p := map[string]rpc.Protocol{"connect": rpc.ProtocolConnect, "grpc": rpc.ProtocolGRPC, "grpcweb": rpc.ProtocolGRPCWeb}[cfg.Protocol]
	opts := []rpc.Option{rpc.WithTenant(tenant), rpc.WithProtocol(p), rpc.WithTLS(trust)}
	if token != "" {
		opts = append(opts, rpc.WithToken(token))
	}
	if cfg.Unary {
		opts = append(opts, rpc.WithoutBatching())
	}
	return &remote{
		client: rpc.NewClient(url, opts...), url: url, token: token, keeps: true, stop: func() error { return nil },
		web: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}},
	}
}

func openServer(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	token := ""
	if deps.Token != nil {
		var err error
		if token, err = deps.Token(); err != nil {
			return nil, err
		}
	}
	r := connected(cfg.URL, cfg, deps.TLS, token)
	s, err := r.client.GetStatus(ctx)
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("%s does not answer: %w", cfg.URL, err)
	}
	r.engine = s.GetStore() + ", version " + s.GetVersion()
	return r, nil
}

func openNode(ctx context.Context, cfg Config, deps Deps) (Target, error) {
	if deps.StartNode == nil {
		return nil, errors.New("there is no node to start")
	}
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return nil, err
	}
	url, stop, err := deps.StartNode(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	r := connected(url, cfg, nil, "")
	r.engine = deps.engineName() + ", over loopback"
	r.stop = func() error { return errors.Join(stop(), remove()) }
	return r, nil
}

// Make implements Target.
func (r *remote) Make(ctx context.Context, b budgetSpec) error {
	policy := &cofferv1.BudgetPolicy{}
	if b.policy.Exhaustion == ledger.Strict {
		policy.Exhaustion = cofferv1.Exhaustion_EXHAUSTION_STRICT
	}
	name := b.id.String()
	if _, err := r.client.CreateBudget(ctx, &cofferv1.CreateBudgetRequest{Budget: name, Currency: currency, Buckets: uint32(b.buckets), Policy: policy}); err != nil {
		return fmt.Errorf("create budget %s: %w", name, err)
	}
	req := &cofferv1.FundBudgetRequest{Budget: name, AmountMinor: b.funded, Currency: currency, IdempotencyKey: "fund " + b.id.Key}
	if _, err := r.client.FundBudget(ctx, req); err != nil {
		return fmt.Errorf("fund budget %s: %w", name, err)
	}
	return nil
}

// Do implements Target: one command is a unary call, more are an Execute.
func (r *remote) Do(ctx context.Context, cmds []ledger.Command) []Reply {
	if len(cmds) == 1 {
		return []Reply{r.one(ctx, &cmds[0])}
	}
	msgs := make([]*cofferv1.Command, len(cmds))
	for i := range cmds {
		msgs[i] = messageOf(&cmds[i])
	}
	results, err := r.client.Execute(ctx, msgs)
	out := make([]Reply, len(cmds))
	for i := range out {
		switch {
		case i < len(results) && results[i].GetError() != nil:
			out[i] = refusal(results[i].GetError().GetDetail(), err)
		case i < len(results) && results[i].GetOutcome() != nil:
			out[i] = outcomeOf(results[i].GetOutcome())
		default:
			out[i] = Reply{Code: ledger.Internal, Err: errors.Join(errors.New("a command of a batch got no result"), err)}
		}
	}
	return out
}

func (r *remote) one(ctx context.Context, c *ledger.Command) Reply {
	var o *cofferv1.Outcome
	var err error
	switch m := messageOf(c).GetCommand().(type) {
	case *cofferv1.Command_Reserve:
		o, err = r.client.Reserve(ctx, m.Reserve)
	case *cofferv1.Command_Commit:
		o, err = r.client.Commit(ctx, m.Commit)
	case *cofferv1.Command_Release:
		o, err = r.client.Release(ctx, m.Release)
	case *cofferv1.Command_Reverse:
		o, err = r.client.Reverse(ctx, m.Reverse)
	default:
		err = fmt.Errorf("%s is no command of a bench", c.Op)
	}
	if err == nil {
		return outcomeOf(o)
	}
	var e *rpc.Error
	if errors.As(err, &e) {
		if e.Detail == nil && e.Unknown {
			return Reply{Code: ledger.OutcomeUnknown, Err: err}
		}
		if e.Detail == nil {
			return Reply{Code: ledger.Unavailable, Err: err}
		}
		return refusal(e.Detail, err)
	}
	return Reply{Code: ledger.Internal, Err: err}
}

func outcomeOf(o *cofferv1.Outcome) Reply {
	return Reply{Replayed: o.GetReplayed(), Bucket: uint16(o.GetBucket()), Amount: o.GetAmountMinor()}
}

func refusal(d *cofferv1.ErrorDetail, err error) Reply {
	r := Reply{Code: ledger.Code(d.GetReason()), Requested: d.GetRequestedMinor(), Available: d.GetAvailableMinor(), Replayed: d.GetReplayed(), Err: err}
	if r.Code == "" {
		r.Code = ledger.Internal
	}
	if r.Err == nil {
		r.Err = fmt.Errorf("%s: %s", r.Code, d.GetMessage())
	}
	return r
}

// Balances implements Target.
func (r *remote) Balances(ctx context.Context, id ledger.BudgetID) (ledger.Balances, error) {
	res, err := r.client.GetBudget(ctx, id.String())
	if err != nil {
		return ledger.Balances{}, err
	}
	b := res.GetBudget().GetBalances()
	return ledger.Balances{
		Funded: b.GetFundedMinor(), Available: b.GetAvailableMinor(), Reserved: b.GetReservedMinor(),
		Committed: b.GetCommittedMinor(), Reversed: b.GetReversedMinor(),
	}, nil
}

// Audit implements Target.
func (r *remote) Audit(ctx context.Context, progress func(string, uint64)) (*Audit, error) {
	if !r.keeps {
		return &Audit{OK: true, None: true}, nil
	}
	start := time.Now()
	rep, err := r.client.Audit(ctx, func(p *cofferv1.AuditProgress) { progress(p.GetPhase(), p.GetDone()) })
	if err != nil {
		return nil, err
	}
	a := &Audit{OK: rep.GetOk(), Entries: rep.GetEntries(), Reservations: rep.GetReservations(), Seconds: time.Since(start).Seconds()}
	for _, c := range rep.GetChecks() {
		if c.GetProblems() > 0 {
			a.Problems = append(a.Problems, problem(c.GetName(), c.GetProblems(), c.GetExamples()))
		}
	}
	return a, nil
}

// Counters implements Target: it reads the server's metrics. A server that
// shows none, such as one behind a proxy, has none.
func (r *remote) Counters(ctx context.Context) (Counters, error) {
	if !r.keeps {
		return Counters{NoConflicts: true}, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.url, "/")+"/metrics", nil)
	if err != nil {
		return Counters{}, err
	}
	web := *r.web
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
		web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	res, err := web.Do(req)
	if err != nil {
		return Counters{}, err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	if res.StatusCode != http.StatusOK {
		return Counters{NoConflicts: true}, nil
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return Counters{}, fmt.Errorf("read metrics: %w", err)
	}
	return countersOf(families), nil
}

// countersOf finds a node's counters among its metrics.
func countersOf(families map[string]*dto.MetricFamily) Counters {
	c := Counters{NoConflicts: true}
	if f := families["coffer_kv_conflicts_total"]; f != nil && len(f.GetMetric()) == 1 {
		c.Conflicts, c.NoConflicts = uint64(f.GetMetric()[0].GetCounter().GetValue()), false
	}
	f := families["coffer_batch_size"]
	if f == nil || len(f.GetMetric()) != 1 {
		return c
	}
	h := f.GetMetric()[0].GetHistogram()
	c.Commands, c.Batches = uint64(h.GetSampleSum()), map[int]uint64{}
	var below uint64
	for _, b := range h.GetBucket() {
		if up := b.GetUpperBound(); up < 1<<20 {
			c.Batches[int(up)] = b.GetCumulativeCount() - below
		}
		below = b.GetCumulativeCount()
	}
	return c
}

// Engine implements Target.
func (r *remote) Engine() string { return r.engine }

// Close implements Target.
func (r *remote) Close() error {
	r.client.Close()
	r.web.CloseIdleConnections()
	return r.stop()
}
