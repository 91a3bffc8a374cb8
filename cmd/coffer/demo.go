package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type demoCmd struct {
	Orders  int    `help:"Orders to send, 200 to 1000000." default:"6000" range:"200 to 1000000"`
	Seed    uint64 `help:"Seed of the traffic: the same seed makes the same orders." default:"1"`
	Callers int    `help:"Orders in work at once, 1 to 1024." default:"64" range:"1 to 1024"`
	Store   string `help:"Run on this store, which keeps the demo's orders, instead of a temporary one." placeholder:"STORE" empty:"name a directory, or leave the flag out to use a temporary store"`
	Verbose bool   `help:"Print what each check of the audit proves."`
}

// Help is the long help.
func (demoCmd) Help() string {
	return `Starts three nodes in this process, on one temporary store on this machine's
disk, and sends them the traffic of a promotion: two hot budgets, one that runs
dry, duplicates, lost answers, cancellations, expiries, late commits and refunds.
In the middle of it the node that leads is paused until another one leads, and
later a node is killed. It adds up for itself what must come out, compares, audits
the store, and ends with "audit: ok". Exit code 1 when anything differs.

Examples:
  coffer demo
  coffer demo --orders 20000 --seed 7 --json`
}

// demo is one run.
type demo struct {
	cmd   *demoCmd
	c     *cli
	nodes *demoCluster
	wire  *lossy
	tally *tally
	// client gathers the calls of many callers and sends again until it has
	// an answer. single does not gather, so that a loss hits one call and
	// duplicates meet at the server. once also sends once only: its caller
	// resolves what is unknown.
	client, single, once caller
	commands             atomic.Int64
	polls                int64 // HTTP calls that only looked whether holds have expired
	done                 atomic.Int64
	// troubled: a node was paused or killed, so a command may have run on one
	// node while its answer came from another, as a repeat.
	troubled atomic.Bool
	// before is what the store held already; nil for a temporary one.
	before *cofferv1.AuditReport
}

// Run runs the demo.
func (d *demoCmd) Run(c *cli) error {
	loc, remove, err := d.place()
	if err != nil {
		return err
	}
	defer remove()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	nodes, err := c.startDemo(ctx, loc, cancel)
	if err != nil {
		return err
	}
	r := d.newRun(c, nodes)
	report, err := r.play(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // why the node ended, or that it was told to
	}
	r.client.Close() // all three share their connections
	if serr := nodes.close(); err == nil {
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
func (d *demoCmd) newRun(c *cli, nodes *demoCluster) *demo {
	tenant := "demo"
	if d.Store != "" {
		tenant += "-" + rand.Text()
	}
	wire := &lossy{next: &balancer{nodes, &http.Transport{MaxIdleConnsPerHost: d.Callers * 2, MaxConnsPerHost: d.Callers * 2}}}
	run := &demo{cmd: d, c: c, nodes: nodes, wire: wire, tally: newTally()}
	with := func(opts ...rpc.Option) caller {
		return caller{rpc.NewClient(nodes.nodes[0].url, append(opts, rpc.WithTenant(tenant), rpc.WithHTTPClient(&http.Client{Transport: wire}))...), &run.commands}
	}
	run.client, run.single, run.once = with(), with(rpc.WithoutBatching()), with(rpc.WithoutBatching(), rpc.WithMaxAttempts(1))
	return run
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
	Cluster  *demoTrouble   `json:"cluster"`
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
	d.say("%d nodes serve; %d orders, seed %d\n", demoNodes, d.cmd.Orders, d.cmd.Seed)
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
	var trouble *demoTrouble
	var g errgroup.Group
	g.Go(func() (err error) {
		trouble, err = d.trouble(ctx)
		return err
	})
	if err := d.orders(ctx, "orders", plan, func(o *order) error {
		defer d.done.Add(1)
		return o.scene.run(d, ctx, o)
	}); err != nil {
		return nil, errors.Join(err, g.Wait())
	}
	took := time.Since(start)
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var due []*order
	for _, o := range plan {
		if o.held {
			due = append(due, o)
		}
	}
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
	return d.collect(ctx, took, trouble)
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
