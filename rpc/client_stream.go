package rpc

import (
	"context"
	"errors"
	"io"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
)

// Streams are sent once: what they started is over when they break, and
// starting it again is for the caller to decide. Only ctx bounds them.

// ErrNoReport is matched by the error of a stream that ended without its last
// message.
var ErrNoReport = errors.New("the stream ended before its result")

// receiver is a stream of responses.
type receiver[M any] interface {
	Receive() (M, error)
	Close() error
}

// drain hands every message to each, until the stream ends.
func drain[M any](stream receiver[M], each func(M)) error {
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return streamError(err)
		}
		each(m)
	}
}

func streamError(err error) error {
	e := judge(err, true).err
	e.Attempts = 1
	return e
}

// Audit checks every invariant on the live store and gives the report.
// progress may be nil; it is called on the caller's goroutine.
func (c *Client) Audit(ctx context.Context, progress func(*cofferv1.AuditProgress)) (*cofferv1.AuditReport, error) {
	stream, err := c.operator.Audit(ctx, &cofferv1.AuditRequest{})
	if err != nil {
		return nil, streamError(err)
	}
	defer func() { _ = stream.Close() }()
	var report *cofferv1.AuditReport
	err = drain(stream, func(m *cofferv1.AuditResponse) {
		if p := m.GetProgress(); p != nil && progress != nil {
			progress(p)
		}
		if r := m.GetReport(); r != nil {
			report = r
		}
	})
	if err == nil && report == nil {
		err = ErrNoReport
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}

// RebuildExpiry makes the expiry index again and gives the reservations
// scanned and the rows written. progress may be nil.
func (c *Client) RebuildExpiry(ctx context.Context, progress func(scanned, written uint64)) (scanned, written uint64, err error) {
	stream, err := c.operator.RebuildExpiry(ctx, &cofferv1.RebuildExpiryRequest{})
	if err != nil {
		return 0, 0, streamError(err)
	}
	defer func() { _ = stream.Close() }()
	done := false
	err = drain(stream, func(m *cofferv1.RebuildExpiryResponse) {
		scanned, written, done = m.GetReservationsScanned(), m.GetRowsWritten(), m.GetDone()
		if progress != nil {
			progress(scanned, written)
		}
	})
	if err == nil && !done {
		err = ErrNoReport
	}
	return scanned, written, err
}
