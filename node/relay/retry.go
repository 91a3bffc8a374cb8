package relay

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

func (p *pump) log() *zerolog.Logger {
	l := p.r.log.With().Str("tenant", p.sink.Tenant).Str("sink", p.sink.Name).Uint64("partition", p.partition).Logger()
	return &l
}

// retry delivers what waits of parked keys that a person wants tried again. It
// reports whether there may be more of them.
func (p *pump) retry(ctx context.Context) (more bool, err error) {
	again, err := p.r.st.ParkedRetries(ctx, p.sink.SinkID, p.partition, retryKeys)
	if err != nil || len(again) == 0 {
		return false, err
	}
	for _, a := range again {
		if err := p.retryKey(ctx, a); err != nil {
			return false, err
		}
	}
	p.loaded = false // counts and names have changed
	return len(again) == retryKeys, p.load(ctx)
}

// retryKey delivers a parked key's events in order, until there are none left or
// one is refused again, or fails while the sink is well.
func (p *pump) retryKey(ctx context.Context, which store.Retry) error {
	for {
		_, events, err := p.r.st.ParkedEvents(ctx, p.sink.SinkID, p.partition, which.Key, min(p.r.cfg.Batch, store.MaxParkedPage))
		if errors.Is(err, &ledger.Rejection{Code: ledger.ParkedNotFound}) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, bad := p.again(ctx, events)
		rel.Retry = which
		if bad != nil && sink.Sent(bad) && p.well(ctx) {
			rel.Refused, rel.Reason, bad = true, failedReason(bad), nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.r.st.ReleaseParked(ctx, p.fence, p.sink.SinkID, rel); err != nil {
			return err
		}
		if rel.Refused {
			return nil
		}
		if bad != nil {
			if err := p.load(ctx); err != nil {
				return err
			}
			return p.trouble(ctx, bad.Error(), sink.RetryAfter(bad))
		}
	}
}

// again sends events of one parked key. They stop at the first that fails.
func (p *pump) again(ctx context.Context, events []*event.Event) (rel store.Released, bad error) {
	for i, err := range p.send(ctx, events) {
		var no *sink.Refused
		switch {
		case err == nil:
			rel.Delivered = append(rel.Delivered, events[i].At)
			p.sink.totals.delivered.Add(1)
			continue
		case errors.As(err, &no):
			rel.Refused, rel.Reason = true, no.Reason
		default:
			bad = err
		}
		p.sink.totals.failed.Add(1)
		break
	}
	return rel, bad
}
