package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/node"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type demoCmd struct {
	Orders  int    `help:"Orders to send, 200 to 1000000." default:"6000"`
	Seed    uint64 `help:"Seed of the traffic: the same seed makes the same orders." default:"1"`
	Callers int    `help:"Orders in work at once, 1 to 1024." default:"64"`
	Store   string `help:"Run on this store, which keeps the demo's orders, instead of a temporary one." placeholder:"STORE" empty:"name a directory, or leave the flag out to use a temporary store"`
	Verbose bool   `help:"Print what each check of the audit proves."`
}

// Help is the long help.
func (demoCmd) Help() string {
	return `Starts a node in this process, on a temporary store on this machine's disk, and
sends it the traffic of a promotion: two hot budgets, one that runs dry,
duplicates, lost answers, cancellations, expiries, late commits and refunds. It
adds up for itself what must come out, compares, audits the store, and ends with
"audit: ok". Exit code 1 when anything differs.

Examples:
  coffer demo
  coffer demo --orders 20000 --seed 7 --json`
}

// demo is one run.
type demo struct {
	cmd   *demoCmd
	c     *cli
	url   string
	wire  *lossy
	tally *tally
	// client gathers the calls of many callers and sends again until it has
	// an answer. single does not gather, so that a loss hits one call and
	// duplicates meet at the server. once also sends once only: its caller
	// resolves what is unknown.
	client, single, once caller
	commands             atomic.Int64
	polls                int64 // HTTP calls that only looked whether holds have expired
	// before is what the store held already; nil for a temporary one.
	before *cofferv1.AuditReport
}

// Run runs the demo.
func (d *demoCmd) Run(c *cli) error {
	if d.Orders < 200 || d.Orders > 1_000_000 {
		return usagef("--orders is %d (allowed: 200 to 1000000)", d.Orders)
	}
	if d.Callers < 1 || d.Callers > 1024 {
		return usagef("--callers is %d (allowed: 1 to 1024)", d.Callers)
	}
	loc, remove, err := d.place()
	if err != nil {
		return err
	}
	defer remove()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	url, stopped, err := c.demoNode(ctx, loc, cancel)
	if err != nil {
		return err
	}
	r := d.newRun(c, url)
	report, err := r.play(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // why the node ended, or that it was told to
	}
	r.client.Close() // all three share their connections
	cancel(nil)
	if serr := <-stopped; err == nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return r.print(report)
}

// place is where the store is, and what removes it if it is temporary.
func (d *demoCmd) place() (loc location, remove func(), err error) {
	if d.Store != "" {
		loc, err = parseStore(d.Store)
		return loc, func() {}, err
	}
	dir, err := os.MkdirTemp("", "coffer-demo-")
	if err != nil {
		return location{}, nil, fmt.Errorf("make temporary store: %w", err)
	}
	return location{kind: "embedded", path: dir}, func() { _ = os.RemoveAll(dir) }, nil
}

// newRun makes the clients. On a store that has other orders the demo is a new
// tenant, which nobody else's orders can meet.
func (d *demoCmd) newRun(c *cli, url string) *demo {
	tenant := "demo"
	if d.Store != "" {
		tenant += "-" + rand.Text()
	}
	wire := &lossy{next: &http.Transport{MaxIdleConnsPerHost: d.Callers * 2, MaxConnsPerHost: d.Callers * 2}}
	run := &demo{cmd: d, c: c, url: url, wire: wire, tally: newTally()}
	with := func(opts ...rpc.Option) caller {
		return caller{rpc.NewClient(url, append(opts, rpc.WithTenant(tenant), rpc.WithHTTPClient(&http.Client{Transport: wire}))...), &run.commands}
	}
	run.client, run.single, run.once = with(), with(rpc.WithoutBatching()), with(rpc.WithoutBatching(), rpc.WithMaxAttempts(1))
	return run
}

// demoNode starts a node on a free loopback port. What comes out of the
// channel is how it ended; a node that ends by itself ends the run.
func (c *cli) demoNode(ctx context.Context, loc location, end context.CancelCauseFunc) (url string, stopped <-chan error, err error) {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.Store, cfg.NodeID = "127.0.0.1:0", loc.String(), "demo"
	cfg.Expiry.Interval = 100 * time.Millisecond
	ready := make(chan string, 1)
	n, err := node.New(cfg, node.Deps{
		OpenStore: func(ctx context.Context) (kv.Store, error) { return loc.open(ctx, false) },
		StoreKind: loc.kind, Prefix: loc.keyPrefix(), Version: buildVersion(), Collector: collectEngine,
		Log:     zerolog.New(c.stderr).Level(zerolog.WarnLevel).With().Timestamp().Logger(),
		OnReady: func(url string) { ready <- url },
	})
	if err != nil {
		return "", nil, err
	}
	done := make(chan error, 1)
	go func() {
		err := n.Run(ctx)
		end(err)
		done <- err
	}()
	select {
	case url := <-ready:
		return url, done, nil
	case err := <-done:
		return "", nil, fmt.Errorf("demo: start node: %w", err)
	}
}

// demoReport is what a run found.
type demoReport struct {
	Orders   int            `json:"orders"`
	Seed     uint64         `json:"seed"`
	Seconds  float64        `json:"seconds"`
	PerSec   float64        `json:"orders_per_second"`
	Commands int64          `json:"commands"`
	CmdsSec  float64        `json:"commands_per_second"`
	Calls    int64          `json:"http_calls"`
	Happened map[string]int `json:"happened"`
	Budgets  []demoBudget   `json:"budgets"`
	Checks   []demoCheck    `json:"checks"`
	Audit    string         `json:"audit"`
	OK       bool           `json:"ok"`
	Faults   []string       `json:"faults,omitempty"`
	Entries  uint64         `json:"entries"`
	Events   uint64         `json:"events"`
	audit    *cofferv1.AuditReport
	server   []*cofferv1.Budget
}

type demoBudget struct {
	Budget    string `json:"budget"`
	Currency  string `json:"currency"`
	Funded    int64  `json:"funded_minor"`
	Available int64  `json:"available_minor"`
	Reserved  int64  `json:"reserved_minor"`
	Committed int64  `json:"committed_minor"`
	Reversed  int64  `json:"reversed_minor"`
}

type demoCheck struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// play sends the traffic and collects what came of it.
func (d *demo) play(ctx context.Context) (*demoReport, error) {
	d.say("node serves on %s; %d orders, seed %d\n", d.url, d.cmd.Orders, d.cmd.Seed)
	if d.cmd.Store != "" {
		var err error
		if d.before, err = d.client.Audit(ctx, nil); err != nil {
			return nil, err
		}
	}
	if err := d.setUp(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	plan := d.plan()
	if err := d.orders(ctx, "orders", plan, func(o *order) error { return o.scene.run(d, ctx, o) }); err != nil {
		return nil, err
	}
	var due []*order
	for _, o := range plan {
		if o.held {
			due = append(due, o)
		}
	}
	took := time.Since(start)
	d.say("waiting for the expiry scanner to return %d holds\n", len(due))
	due, err := d.expired(ctx, due)
	if err != nil {
		return nil, err
	}
	start = time.Now()
	if err := d.orders(ctx, "late commits", due, func(o *order) error { return o.scene.after(d, ctx, o) }); err != nil {
		return nil, err
	}
	took += time.Since(start)
	d.say("auditing\n")
	return d.collect(ctx, took)
}

// orders works through a list of orders, several at once. What goes wrong with
// an order is a fault of the run and not the end of it, unless the context
// ends.
func (d *demo) orders(ctx context.Context, what string, list []*order, work func(*order) error) error {
	bar := d.c.countBar(len(list), what)
	var g errgroup.Group
	g.SetLimit(d.cmd.Callers)
	for _, o := range list {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := work(o); err != nil {
				d.tally.fault(fmt.Sprintf("%s %s (%s): %v", o.id, o.benefit, o.scene.name, err))
			}
			_ = bar.Add(1)
			return nil
		})
	}
	_ = g.Wait()
	_ = bar.Finish()
	return ctx.Err()
}

// say tells how far the run is, unless the output is for programs.
func (d *demo) say(format string, args ...any) {
	if !d.c.JSON {
		d.c.notef(format, args...)
	}
}
