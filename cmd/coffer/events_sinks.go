package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coffer-ledger/coffer/ledger/store"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc/receiver"
)

type eventsSinks struct {
	Create sinkCreate `cmd:"" help:"Add a sink."`
	Update sinkUpdate `cmd:"" help:"Replace a sink's configuration."`
	List   sinkList   `cmd:"" help:"List the sinks."`
	Get    sinkGet    `cmd:"" help:"Show a sink, and how far it is."`
	Pause  sinkPause  `cmd:"" help:"Stop deliveries; what is not delivered is kept."`
	Resume sinkResume `cmd:"" help:"Go on with deliveries."`
	Rewind sinkRewind `cmd:"" help:"Deliver again from an earlier place, or skip to a later one."`
	Ping   sinkPing   `cmd:"" help:"Check that the receiver can be reached."`
	Delete sinkDelete `cmd:"" help:"Remove a sink with its cursors and what it has parked."`
}

// sinkName names a sink.
type sinkName struct {
	Sink string `arg:"" help:"Name of the sink."`
}

// sinkSettings are the two ways to give a configuration.
type sinkSettings struct {
	Webhook string `help:"Deliver to this URL by webhook, signed with a new secret that is printed once." xor:"settings" placeholder:"URL"`
	Config  string `help:"File with the configuration as JSON; - is the standard input." xor:"settings" placeholder:"FILE"`
}

// config reads the configuration. secret is a new one, to be shown.
func (s *sinkSettings) config() (config *structpb.Struct, secret string, err error) {
	config = &structpb.Struct{}
	switch {
	case s.Webhook != "":
		secret = receiver.NewSecret()
		hook := map[string]any{"url": s.Webhook, "keys": []any{map[string]any{"id": webhookKey, "secret": secret}}}
		if strings.HasPrefix(s.Webhook, "http:") {
			hook["insecure"] = true
		}
		config, err = structpb.NewStruct(map[string]any{"kind": "webhook", "webhook": hook})
		return config, secret, err
	case s.Config == "":
		return nil, "", usagef("no configuration; give --webhook URL or --config FILE")
	}
	in := os.Stdin
	if s.Config != "-" {
		f, err := os.Open(s.Config)
		if err != nil {
			return nil, "", fmt.Errorf("read configuration: %w", err)
		}
		defer f.Close() //nolint:errcheck // read only
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, store.MaxSinkConfig+1))
	if err != nil {
		return nil, "", fmt.Errorf("read configuration: %w", err)
	}
	if len(b) > store.MaxSinkConfig {
		return nil, "", fmt.Errorf("the configuration in %s is larger than %d bytes", s.Config, store.MaxSinkConfig)
	}
	if err := config.UnmarshalJSON(b); err != nil {
		return nil, "", fmt.Errorf("the configuration in %s is not a JSON object: %w", s.Config, err)
	}
	return config, "", nil
}

type sinkCreate struct {
	sinkName     `embed:""`
	sinkSettings `embed:""`
	filtered     `embed:""`
	started      `embed:""`
}

// Help is the long help.
func (sinkCreate) Help() string {
	return `A configuration has a kind and its settings, as in
  {"kind":"webhook","webhook":{"url":"https://example.com/hook","keys":[{"id":"2026-11","secret":"whsec_…"}]}}
  {"kind":"nats","nats":{"servers":["nats://127.0.0.1:4222"],"subject":"coffer.{tenant}.{type}"}}
  {"kind":"kafka","kafka":{"brokers":["127.0.0.1:9092"],"topic":"coffer","plaintext":true}}
It begins with what comes from now on, unless a flag says otherwise.

Examples:
  coffer events sinks create shop --webhook https://example.com/hook
  coffer events sinks create bus --config kafka.json --beginning --type 'coffer.reservation.*'`
}

// Run creates.
func (k *sinkCreate) Run(c *cli) error {
	config, secret, err := k.config()
	if err != nil {
		return err
	}
	start, err := k.start()
	if err != nil {
		return err
	}
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.CreateSinkResponse, error) {
		return s.CreateSink(ctx, &cofferv1.CreateSinkRequest{Name: k.Sink, Config: config, Filter: k.filter(), Start: start})
	})
	if err != nil {
		return k.exists(k.Sink, err)
	}
	if res.GetReplayed() {
		secret = "" // the sink has the one that it was made with
		if !c.JSON {
			c.printf("created before; this is the sink now\n\n")
		}
	}
	return c.showSink(&k.sinkSettings, res, res.GetSink(), secret)
}

type sinkUpdate struct {
	sinkName     `embed:""`
	sinkSettings `embed:""`
	Version      uint64 `help:"Version that the change is based on; 0 is any." default:"0" range:"0 or more"`
}

// Help is the long help.
func (sinkUpdate) Help() string {
	return `A secret that is given as "***" stays what it is, so that what "sinks get --json"
shows can be changed and sent back. A password or token must be given again when the
servers change that it is for. With --webhook the secret is a new one, and the old one
is no longer used.

Examples:
  coffer events sinks update shop --config shop.json
  coffer events sinks update shop --webhook https://example.com/hook`
}

// Run updates.
func (k *sinkUpdate) Run(c *cli) error {
	config, secret, err := k.config()
	if err != nil {
		return err
	}
	sink, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.Sink, error) {
		return s.UpdateSink(ctx, &cofferv1.UpdateSinkRequest{Name: k.Sink, Config: config, Version: k.Version})
	})
	if err != nil {
		return err
	}
	return c.showSink(&k.sinkSettings, sink, sink, secret)
}

type sinkList struct{}

// Help is the long help.
func (sinkList) Help() string { return "Example:\n  coffer events sinks list" }

// Run lists.
func (k *sinkList) Run(c *cli) error {
	all, err := onServer(c, func(ctx context.Context, s *server) ([]*cofferv1.Sink, error) { return s.ListSinks(ctx) })
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		return c.printMessage(&cofferv1.ListSinksResponse{Sinks: all})
	case len(all) == 0:
		c.printf("no sinks\n")
	default:
		c.sinkTable(all)
	}
	return nil
}

func (c *cli) sinkTable(sinks []*cofferv1.Sink) {
	t := c.table(table.Row{"sink", "kind", "state", "reason", "budgets", "types", "internal", "version", "created"}, "version")
	for _, k := range sinks {
		internal := ""
		if k.GetFilter().GetInternal() {
			internal = "yes"
		}
		t.row(k.GetName(), k.GetConfig().GetFields()["kind"].GetStringValue(), shortEnum(k.GetState(), "SINK_STATE_"), oneLine(k.GetReason()),
			strings.Join(k.GetFilter().GetBudgets(), " "), strings.Join(k.GetFilter().GetTypes(), " "), internal, k.GetVersion(), clock(k.GetCreateTime()))
	}
	t.print()
}

type sinkGet struct {
	sinkName `embed:""`
}

// Help is the long help.
func (sinkGet) Help() string {
	return `"behind" counts blocks of entries up to 1000 a partition; they may be of other
tenants. A trouble is what keeps the sink from going on.

Example:
  coffer events sinks get shop`
}

// Run shows a sink.
func (k *sinkGet) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.GetSinkResponse, error) { return s.GetSink(ctx, k.Sink) })
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	c.sinkTable([]*cofferv1.Sink{res.GetSink()})
	c.printf("\n")
	t := c.table(table.Row{"partition", "delivered", "parked", "behind", "oldest", "cursor"}, "partition", "delivered", "parked", "behind")
	for _, cur := range res.GetCursors() {
		t.row(cur.GetPartition(), cur.GetDelivered(), cur.GetParked(), cur.GetBehindBlocks(), clock(cur.GetOldestTime()), cur.GetCursor())
	}
	t.print()
	for _, line := range troubles(res.GetCursors()) {
		c.printf("%s\n", line)
	}
	return nil
}

// troubles says what keeps a sink from going on: each trouble once, in full,
// with its partitions and when the first of them met it.
func troubles(cursors []*cofferv1.SinkCursor) []string {
	var order []string
	where, since := map[string][]string{}, map[string]time.Time{}
	for _, cur := range cursors {
		what := cur.GetTrouble()
		if what == "" {
			continue
		}
		at := cur.GetTroubleTime().AsTime()
		if where[what] == nil {
			order = append(order, what)
			since[what] = at
		}
		where[what] = append(where[what], strconv.FormatUint(uint64(cur.GetPartition()), 10))
		if at.Before(since[what]) {
			since[what] = at
		}
	}
	lines := make([]string, 0, len(order))
	for _, what := range order {
		lines = append(lines, fmt.Sprintf("\ntrouble in partitions %s since %s:\n  %s", strings.Join(where[what], ", "),
			clock(timestamppb.New(since[what])), strings.ReplaceAll(what, "\n", "\n  ")))
	}
	return lines
}

type sinkPause struct {
	sinkName `embed:""`
	Reason   string `help:"Why, for people." required:"" placeholder:"TEXT"`
}

// Help is the long help.
func (sinkPause) Help() string {
	return "What is not delivered is kept until the sink is resumed or deleted.\n\nExample:\n  coffer events sinks pause shop --reason 'maintenance until 10:00'"
}

// Run pauses.
func (k *sinkPause) Run(c *cli) error {
	return onSink(c, func(ctx context.Context, s *server) (*cofferv1.Sink, error) {
		return s.PauseSink(ctx, k.Sink, k.Reason)
	})
}

type sinkResume struct {
	sinkName `embed:""`
}

// Help is the long help.
func (sinkResume) Help() string { return "Example:\n  coffer events sinks resume shop" }

// Run resumes.
func (k *sinkResume) Run(c *cli) error {
	return onSink(c, func(ctx context.Context, s *server) (*cofferv1.Sink, error) { return s.ResumeSink(ctx, k.Sink) })
}

type sinkRewind struct {
	sinkName `embed:""`
	started  `embed:""`
	Now      bool `help:"Skip to what comes from now on."`
}

// Help is the long help.
func (sinkRewind) Help() string {
	return `Events that are delivered again have the ids they had. With --after alone, other
partitions stay where they are. What is parked stays parked.

Examples:
  coffer events sinks rewind shop --since 2h
  coffer events sinks rewind shop --after 1-03-000000000000000700000000-2`
}

// Run rewinds.
func (k *sinkRewind) Run(c *cli) error {
	if k.given() == k.Now {
		return usagef("give one of --beginning, --since, --after and --now")
	}
	start, err := k.start()
	if err != nil {
		return err
	}
	return c.done(fmt.Sprintf("sink %s was moved", k.Sink), func(ctx context.Context, s *server) error { return s.RewindSink(ctx, k.Sink, start) })
}

// done makes one call that answers nothing, and says what was done.
func (c *cli) done(words string, call func(context.Context, *server) error) error {
	_, err := onServer(c, func(ctx context.Context, s *server) (struct{}, error) { return struct{}{}, call(ctx, s) })
	switch {
	case err != nil:
		return err
	case c.JSON:
		return c.printJSON(map[string]any{"ok": true})
	}
	c.printf("%s\n", words)
	return nil
}

type sinkPing struct {
	sinkName `embed:""`
}

// Help is the long help.
func (sinkPing) Help() string {
	return "The server, not this program, tries to reach the receiver.\n\nExample:\n  coffer events sinks ping shop"
}

// Run pings.
func (k *sinkPing) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.PingSinkResponse, error) {
		return s.PingSink(ctx, k.Sink)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		if err := c.printMessage(res); err != nil {
			return err
		}
	}
	switch {
	case !res.GetOk():
		c.notef("coffer: the receiver of sink %s cannot be reached: %s; it is the server that tries: see that the receiver runs and can be reached from there, then ping again\n", k.Sink, res.GetProblem())
		return errFailed
	case !c.JSON:
		c.printf("the receiver of sink %s answers\n", k.Sink)
	}
	return nil
}

type sinkDelete struct {
	sinkName `embed:""`
}

// Help is the long help.
func (sinkDelete) Help() string { return "Example:\n  coffer events sinks delete shop" }

// Run deletes.
func (k *sinkDelete) Run(c *cli) error {
	return c.done(fmt.Sprintf("sink %s is deleted", k.Sink), func(ctx context.Context, s *server) error { return s.DeleteSink(ctx, k.Sink) })
}
