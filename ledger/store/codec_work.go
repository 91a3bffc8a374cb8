package store

import (
	"encoding/binary"
	"time"

	"github.com/coffer-ledger/coffer/ledger/work"
)

func (e *enc) dur(d time.Duration) { e.i(d.Milliseconds()) }
func (d *dec) dur() time.Duration  { return time.Duration(d.i()) * time.Millisecond }

func encodeJob(j *work.Job) []byte {
	e := enc(make([]byte, 0, 192+len(j.Payload)))
	e.u(codecVersion)
	e.u(uint64(j.State))
	e.u(uint64(j.Attempt))
	e.time(j.Due)
	e.time(j.Created)
	e.time(j.Ended)
	e.u(uint64(j.Policy.MaxAttempts))
	e.dur(j.Policy.Base)
	e.dur(j.Policy.Max)
	e.dur(j.Policy.Keep)
	e.dur(j.Delay)
	e.str(j.Correlation)
	e.str(j.Token)
	e.str(j.Worker)
	e.str(j.LastToken)
	e.u(uint64(j.LastEnd))
	e.str(j.LastError)
	e.str(j.Reason)
	e.u(uint64(j.Leases))
	e.u(uint64(j.Deaths))
	e.u(uint64(j.Replays))
	e.raw(j.Payload)
	return e
}

func decodeJob(k work.Key, v []byte) (work.Job, error) {
	d := newDec(v)
	j := work.Job{Request: work.Request{Key: k}}
	j.State = work.State(d.max(255))
	if !j.State.Valid() {
		d.fail(errValue)
	}
	j.Attempt = uint32(d.max(1<<32 - 1))
	j.Due, j.Created, j.Ended = d.time(), d.time(), d.time()
	j.Policy.MaxAttempts = uint32(d.max(1<<32 - 1))
	j.Policy.Base, j.Policy.Max, j.Policy.Keep, j.Delay = d.dur(), d.dur(), d.dur(), d.dur()
	j.Correlation, j.Token, j.Worker, j.LastToken = d.str(), d.str(), d.str(), d.str()
	j.LastEnd = work.End(d.max(255))
	if !j.LastEnd.Valid() {
		d.fail(errValue)
	}
	j.LastError, j.Reason = d.str(), d.str()
	j.Leases, j.Deaths, j.Replays = uint32(d.max(1<<32-1)), uint32(d.max(1<<32-1)), uint32(d.max(1<<32-1))
	j.Payload = d.raw()
	return j, d.end()
}

// plus and minus are the operands that move a counter.
func plus(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// decodeCount reads a counter; one that is not there is zero.
func decodeCount(v []byte) int64 {
	if len(v) != 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(v))
}
