package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/work"
)

func sampleJob() work.Job {
	j := work.Job{
		Request: queued("j"), State: work.Leased, Attempt: 3, Due: clockStart, Created: clockStart.Add(-time.Hour), Ended: clockStart.Add(time.Second),
		Token: "tok", Worker: "w", LastToken: "old", LastEnd: work.Lapsed, LastError: "boom", Reason: "why", Leases: 4, Deaths: 2, Replays: 1,
	}
	j.Delay, j.Correlation = 1500*time.Millisecond, "trace"
	return j
}

func sampleFact() fact.Row {
	place := ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t1", Funder: "acme", Key: "k"}, Index: 3}
	return fact.Row{
		Fact: fact.Fact{
			ID: fact.ID{Tenant: "t1", Source: "shop", Event: "e"}, Kind: fact.RefundSucceeded, Order: "o", Ref: "r", Attempt: 2, Currency: "BRL", Correlation: "trace",
			Lines: []fact.Line{{Benefit: "a", Attempt: 1, Amount: 5}, {Benefit: "b", Attempt: 2, Amount: 7}},
		},
		State: fact.Exception, Version: 9, Reason: "why", Code: ledger.RefundExceedsCommit, Received: clockStart, Settled: clockStart.Add(time.Hour),
		Deadline: clockStart.Add(2 * time.Hour), Due: clockStart.Add(time.Minute), Tries: 4, Resolution: "by hand",
		Effects: []fact.Effect{
			{Op: ledger.OpReverse, Benefit: "a", Attempt: 1, Outcome: ledger.Outcome{
				State: ledger.StateReversed, Amount: 5, Held: 1, Committed: 5, Reversed: 5, Expires: clockStart, At: clockStart, Bucket: place, Seq: 7, Late: true,
			}},
			{Op: ledger.OpRelease, Benefit: "b", Attempt: 2, Outcome: ledger.Outcome{State: ledger.StateCancelled, At: clockStart}},
		},
	}
}

// What is stored is read again, to the last field; what is cut short, longer, or
// of another form is refused and does no harm.
func TestWorkCodecs(t *testing.T) {
	j, f := sampleJob(), sampleFact()
	readJob := func(v []byte) (any, error) { return decodeJob(j.Key, v) }
	readFact := func(v []byte) (any, error) { return decodeFact(f.Order, f.ID, v) }
	for _, tc := range []struct {
		name string
		v    []byte
		want any
		read func([]byte) (any, error)
	}{{"job", encodeJob(&j), j, readJob}, {"fact", encodeFact(&f), f, readFact}} {
		got, err := tc.read(tc.v)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", tc.name, err, got, tc.want)
		}
		for n := range tc.v {
			if _, err := tc.read(tc.v[:n]); err == nil {
				t.Errorf("%s: cut to %d of %d bytes is read", tc.name, n, len(tc.v))
			}
		}
		if _, err := tc.read(append(append([]byte(nil), tc.v...), 0)); err == nil {
			t.Errorf("%s: with a byte more is read", tc.name)
		}
		if _, err := tc.read(append([]byte{codecVersion + 1}, tc.v[1:]...)); err == nil {
			t.Errorf("%s: of a later form is read", tc.name)
		}
	}
}

func FuzzDecodeJob(f *testing.F) {
	j := sampleJob()
	f.Add(encodeJob(&j))
	f.Fuzz(func(t *testing.T, v []byte) {
		got, err := decodeJob(j.Key, v)
		if err != nil {
			return
		}
		again, err := decodeJob(j.Key, encodeJob(&got))
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%v: %+v, then %+v", err, got, again)
		}
	})
}

func FuzzDecodeFact(f *testing.F) {
	r := sampleFact()
	f.Add(encodeFact(&r))
	f.Fuzz(func(t *testing.T, v []byte) {
		got, err := decodeFact(r.Order, r.ID, v)
		if err != nil {
			return
		}
		again, err := decodeFact(r.Order, r.ID, encodeFact(&got))
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%v: %+v, then %+v", err, got, again)
		}
	})
}
