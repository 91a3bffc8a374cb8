package store

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/event"
)

var samplePosition = event.Position{Incarnation: 2, Partition: 3, Stamp: [12]byte{0, 0, 0, 0, 0, 0, 7, 1, 0, 2, 0, 5}, Index: 9}

// Keys of event delivery are stored, too.
func TestEventKeysAreFixed(t *testing.T) {
	s := bare()
	bucket := ledger.BucketID{Budget: ledger.BudgetID{Tenant: "t1", Funder: "brand", Key: "spring"}, Index: 7}
	for _, tc := range []struct {
		name string
		key  key
		want string
	}{
		{"changes", s.sinkChangesKey(), "636f666665720259" + "0014"},
		{"sink", s.sinkKey(hook), "636f666665720259" + "001501" + "02743100" + "02686f6f6b00"},
		{"cursor", s.cursorKey(hook, 3), "636f666665720250" + "001503" + "02743100" + "02686f6f6b00"},
		{"lease", s.relayLeaseKey(3), "636f666665720254" + "0014" + "1503"},
		{"relay", s.relayMemberKey("x"), "636f666665720254" + "001501" + "027800"},
		{"trimmed", s.trimmedKey(3), "636f666665720254" + "001502" + "1503"},
		{"trimmed block", s.trimmedBlockKey(bucket), "636f666665720254" + "001503" + "02743100026272616e640002737072696e67001507"},
		{"parked key", s.parkedKeyRow(hook, 3, "k"), "636f66666572025a" + "00" + "02743100" + "02686f6f6b00" + "14" + "1503" + "026b00"},
		{"parked event", s.parkedEventKey(hook, "k", samplePosition), "636f66666572025a" + "00" + "02743100" + "02686f6f6b00" + "1501" + "1503" + "026b00" + "1502" + "33000000000000070100020005" + "1509"},
		{"retry", s.retryKey(hook, 3, "k"), "636f66666572025a" + "00" + "02743100" + "02686f6f6b00" + "1502" + "1503" + "026b00"},
		{"skip", s.skipKey(hook, samplePosition), "636f66666572025a" + "00" + "02743100" + "02686f6f6b00" + "1503" + "1503" + "1502" + "33000000000000070100020005" + "1509"},
		{"pointer", key(s.pointersFrom(samplePosition).Begin), "636f66666572024f" + "001502" + "1503" + "33000000000000070100020005"},
	} {
		if got := hex.EncodeToString(tc.key); got != tc.want {
			t.Errorf("%s key is %s, want %s", tc.name, got, tc.want)
		}
	}
	if name, at, err := s.readParkedEvent(s.parkedEventKey(hook, "k\x00", samplePosition)); err != nil || name != "k\x00" || at != samplePosition {
		t.Errorf("parked event reads as %q, %v (%v)", name, at, err)
	}
	if _, err := s.readSkipKey(s.retryKey(hook, 3, "k")); err == nil {
		t.Error("a key of one kind is read as one of another")
	}
}

// What is stored is read again, to the last field; what is cut short or longer is
// refused.
func TestEventCodecs(t *testing.T) {
	sink := Sink{
		SinkID: hook, Config: []byte(`{"a":1}`), State: SinkPaused, Reason: "why", Version: 4, Created: clockStart, Changed: clockStart.Add(time.Hour),
		Filter: event.Filter{Tenant: "t1", Budgets: []ledger.BudgetID{{Tenant: "t1", Funder: "f", Key: "k"}}, Types: []string{"coffer.job.*"}, Internal: true},
	}
	cursor := Cursor{At: samplePosition, Moves: 1, Delivered: 2, Parked: 3, Trouble: "down", Since: clockStart}
	lease := RelayLease{Partition: 3, Token: "t", Node: "n", Epoch: 5, Beat: 6}
	member := RelayMember{Token: "t", Node: "n", Beat: 7}
	parked := ParkedKey{Partition: 3, Key: "k", Since: clockStart, Reason: "no", Tries: 5, Events: 9}
	skip := SkippedEvent{At: samplePosition, Key: "k", Reason: "why", Time: clockStart, bucket: ledger.BucketID{Budget: budgetID("b"), Index: 2}, first: 8}
	for _, tc := range []struct {
		v    []byte
		want any
		read func([]byte) (any, error)
	}{
		{encodeSink(&sink), &sink, func(v []byte) (any, error) { return decodeSink(hook, v) }},
		{encodeCursor(&cursor), cursor, func(v []byte) (any, error) { return decodeCursor(3, v) }},
		{encodeRelayLease(&lease), lease, func(v []byte) (any, error) { return decodeRelayLease(3, v) }},
		{encodeRelayMember(&member), member, func(v []byte) (any, error) { return decodeRelayMember("t", v) }},
		{encodeParkedKey(&parked), parked, func(v []byte) (any, error) { return decodeParkedKey(3, "k", v) }},
		{encodeSkip(&skip), skip, func(v []byte) (any, error) { return decodeSkip(samplePosition, v) }},
	} {
		got, err := tc.read(tc.v)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v\n got %+v\nwant %+v", err, got, tc.want)
		}
		for n := range tc.v {
			if _, err := tc.read(tc.v[:n]); err == nil {
				t.Errorf("%T cut to %d of %d bytes is read", tc.want, n, len(tc.v))
			}
		}
		if _, err := tc.read(append(tc.v[:len(tc.v):len(tc.v)], 0)); err == nil {
			t.Errorf("%T with a byte after its end is read", tc.want)
		}
	}
}
