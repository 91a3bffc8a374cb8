package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

type eventsParked struct {
	List    parkedList    `cmd:"" help:"List the parked keys of a sink."`
	Show    parkedShow    `cmd:"" help:"Show a parked key with its events."`
	Retry   parkedRetry   `cmd:"" help:"Deliver a key's events again, in order."`
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

type parkedShow struct {
	parkedName `embed:""`
}

// Help is the long help.
func (parkedShow) Help() string {
	return "Example:\n  coffer events parked show shop default/reservations/o-1001/coupon:SPRING"
}

// Run shows.
func (p *parkedShow) Run(c *cli) error {
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
	parkedName `embed:""`
}

// Help is the long help.
func (parkedRetry) Help() string {
	return "Example:\n  coffer events parked retry shop default/reservations/o-1001/coupon:SPRING"
}

// Run asks for a retry.
func (p *parkedRetry) Run(c *cli) error {
	return c.done(fmt.Sprintf("the events of %s are delivered again", p.Key), func(ctx context.Context, s *server) error {
		return s.RetryParked(ctx, p.Sink, p.Key)
	})
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
