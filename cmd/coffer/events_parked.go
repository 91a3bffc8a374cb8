package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/coffer-ledger/coffer/ledger"
	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

type eventsParked struct {
	List    parkedList    `cmd:"" help:"List the parked keys of a sink."`
	Get     parkedGet     `cmd:"" help:"Show a parked key with its events."`
	Retry   parkedRetry   `cmd:"" help:"Deliver events of one key, or of all, again."`
	Skip    parkedSkip    `cmd:"" help:"Give up the first event of a parked key."`
	Skipped parkedSkipped `cmd:"" help:"List the events that were skipped."`
}

// parkedName names a parked key.
type parkedName struct {
	sinkName `embed:""`
	Key      string `arg:"" help:"Key, as the list shows it."`
}

type parkedList struct {
	sinkName `embed:""`
	paged    `embed:""`
}

// Help is the long help.
func (parkedList) Help() string { return "Example:\n  coffer events parked list shop" }

// Run lists.
func (p *parkedList) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListParkedResponse, error) {
		return s.ListParked(ctx, &cofferv1.ListParkedRequest{Sink: p.Sink, PageSize: int32(p.Limit), PageToken: p.Page})
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return c.printMessage(res)
	case len(res.GetKeys()) == 0:
		c.printf("nothing is parked\n")
		return nil
	}
	c.parkedTable(res.GetKeys())
	c.more(res.GetNextPageToken())
	return nil
}

func (c *cli) parkedTable(keys []*cofferv1.ParkedKey) {
	t := c.table(table.Row{"key", "events", "tries", "since", "reason", "to be retried"}, "events", "tries")
	for _, k := range keys {
		retrying := ""
		if k.GetRetrying() {
			retrying = "yes"
		}
		t.row(k.GetKey(), k.GetEvents(), k.GetTries(), clock(k.GetSinceTime()), oneLine(k.GetReason()), retrying)
	}
	t.print()
}

type parkedGet struct {
	parkedName `embed:""`
}

// Help is the long help.
func (parkedGet) Help() string {
	return "Example:\n  coffer events parked get shop default/reservations/o-1001/coupon:SPRING"
}

// Run shows.
func (p *parkedGet) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.GetParkedResponse, error) {
		return s.GetParked(ctx, p.Sink, p.Key)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(res)
	}
	c.parkedTable(res.GetKeys())
	c.printf("\n")
	for _, e := range res.GetEvents() {
		if err := c.event(e); err != nil {
			return err
		}
	}
	return nil
}

type parkedRetry struct {
	sinkName `embed:""`
	Key      string `arg:"" optional:"" help:"Key, as the list shows it."`
	All      bool   `help:"All keys that are parked now."`
}

// Help is the long help.
func (parkedRetry) Help() string {
	return `A key's events are delivered in order. Where the receiver takes them, the key is
parked no more; where it does not, it stays so.

Examples:
  coffer events parked retry shop default/reservations/o-1001/coupon:SPRING
  coffer events parked retry shop --all`
}

// Run asks for a retry.
func (p *parkedRetry) Run(c *cli) error {
	switch {
	case p.All == (p.Key != ""):
		return usagef("give one of KEY and --all")
	case p.All:
		return p.all(c)
	}
	return c.done(fmt.Sprintf("the events of %s are delivered again", p.Key), func(ctx context.Context, s *server) error {
		return s.RetryParked(ctx, p.Sink, p.Key)
	})
}

// all asks for every key of the list. A key that is parked no more was retried
// by another, or is gone.
func (p *parkedRetry) all(c *cli) error {
	s, err := c.dial()
	if err != nil {
		return err
	}
	defer s.Close()
	asked, show := uint64(0), c.progress()
	defer show("", 0)
	for page := ""; ; {
		ctx, cancel := c.call()
		res, err := s.ListParked(ctx, &cofferv1.ListParkedRequest{Sink: p.Sink, PageToken: page})
		cancel()
		if err != nil {
			return p.stopped(asked, s.explain(err))
		}
		for _, k := range res.GetKeys() {
			ctx, cancel := c.call()
			err := s.RetryParked(ctx, p.Sink, k.GetKey())
			cancel()
			if rpc.ReasonOf(err) == ledger.ParkedNotFound {
				continue
			}
			if err != nil {
				return p.stopped(asked, s.explain(err))
			}
			asked++
			show("keys", asked)
		}
		if page = res.GetNextPageToken(); page == "" {
			break
		}
	}
	show("", 0)
	if c.JSON {
		return c.printJSON(map[string]any{"keys": asked})
	}
	c.printf("the events of %s are delivered again\n", count(int64(asked), "key"))
	return nil
}

// stopped says how far a retry of all has come.
func (*parkedRetry) stopped(asked uint64, err error) error {
	if asked == 0 {
		return err
	}
	return fmt.Errorf("after %s: %w; repeat the command, which is safe", count(int64(asked), "key"), err)
}

type parkedSkip struct {
	parkedName `embed:""`
	Reason     string `help:"Why; it is kept." required:"" placeholder:"TEXT"`
	All        bool   `help:"Give up all of them, up to 256." xor:"which"`
	Event      string `help:"Id of the event that is meant; another one is not skipped." xor:"which" placeholder:"ID" empty:"name the event, or leave the flag out to skip the first one"`
}

// Help is the long help.
func (parkedSkip) Help() string {
	return `The consumer never gets what is skipped, and sees the gap in the sequence. What
waits behind is delivered.

Example:
  coffer events parked skip shop default/reservations/o-1001/coupon:SPRING \
      --event 1-03-000000000000000700000002-4 --reason 'a test order'`
}

// Run skips.
func (p *parkedSkip) Run(c *cli) error {
	ids, err := onServer(c, func(ctx context.Context, s *server) ([]string, error) {
		return s.SkipParked(ctx, &cofferv1.SkipParkedRequest{Sink: p.Sink, Key: p.Key, Reason: p.Reason, All: p.All, EventId: p.Event})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printMessage(&cofferv1.SkipParkedResponse{EventIds: ids})
	}
	c.printf("skipped %s\n", strings.Join(ids, " "))
	return nil
}

type parkedSkipped struct {
	sinkName `embed:""`
	paged    `embed:""`
}

// Help is the long help.
func (parkedSkipped) Help() string { return "Example:\n  coffer events parked skipped shop" }

// Run lists.
func (p *parkedSkipped) Run(c *cli) error {
	res, err := onServer(c, func(ctx context.Context, s *server) (*cofferv1.ListSkippedResponse, error) {
		return s.ListSkipped(ctx, &cofferv1.ListSkippedRequest{Sink: p.Sink, PageSize: int32(p.Limit), PageToken: p.Page})
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return c.printMessage(res)
	case len(res.GetEvents()) == 0:
		c.printf("nothing was skipped\n")
		return nil
	}
	t := c.table(table.Row{"event", "key", "time", "reason"})
	for _, e := range res.GetEvents() {
		t.row(e.GetEventId(), e.GetKey(), clock(e.GetTime()), oneLine(e.GetReason()))
	}
	t.print()
	c.more(res.GetNextPageToken())
	return nil
}
