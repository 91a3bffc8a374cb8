package shard

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/coffer-ledger/coffer/ledger/store"
)

// recording gives the span of a call, if somebody records it.
func recording(ctx context.Context) trace.Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return s
	}
	return nil
}

// traceBatch gives each recorded call in a batch a span of the batch's
// transaction below its own: what comes before it in the call's span is the wait
// in the bucket's queue.
func (q *queue) traceBatch(batch []*task, start time.Time, out []store.Applied, err error) {
	var calls map[trace.Span]int // with how many of the batch's commands are theirs
	for _, t := range batch {
		if t.span == nil {
			continue
		}
		if calls == nil {
			calls = map[trace.Span]int{}
		}
		calls[t.span]++
	}
	if calls == nil {
		return
	}
	end := time.Now()
	for call, commands := range calls {
		_, s := call.TracerProvider().Tracer(tracerName).Start(trace.ContextWithSpan(context.Background(), call), "batch",
			trace.WithTimestamp(start), trace.WithAttributes(
				attribute.String("coffer.bucket", q.id.String()),
				attribute.Int("coffer.commands", commands),
				attribute.Int("coffer.batch_commands", len(batch)),
				attribute.Int("coffer.attempts", attemptsOf(out, err)),
			))
		s.End(trace.WithTimestamp(end))
	}
}

const tracerName = "github.com/coffer-ledger/coffer/shard"
