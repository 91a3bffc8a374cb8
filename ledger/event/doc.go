// Package event is a ledger entry as other systems see it: its name, its order
// and its JSON. It is pure and imports ledger alone.
//
// # Identity and order
//
// Every entry is one event. Its [Position] says where it stands in the outbox:
// the store's incarnation, the partition, the commit stamp of its block and its
// place in the block. The position is the event's id, the same however often it
// is delivered, and the cursor to go on from. A store that was restored from an
// older copy writes under a new incarnation, so no id is ever given twice by one
// installation. Another one may give the same: a consumer of several tells them
// apart by [Event.Source], which their operators set.
//
// Positions have an order within one partition of one incarnation only. What
// consumers go by is the key and the sequence:
//
//	of an entry of     key                                         sequence             dense
//	a reservation      tenant, order and benefit, all attempts     its event number     yes
//	a job              tenant and job, all attempts                its event number     yes
//	a budget           tenant, budget and bucket                   the entry's number   no
//	the control plane  tenant, budget and bucket                   the entry's number   no
//
// Dense means: the first event has sequence 1, and [Event.Next] of each is the
// sequence of the one after it, so a consumer sees at once that one is missing.
// That is sequence + 1, but for a refund whose money went to another budget (its
// peer): the entry in that other bucket takes the number in between, and is an
// internal event there. Numbers of a bucket are shared by all that happens in
// it, so they rise with gaps. A command on a budget may write to many buckets
// (FUND gives each its share); each is an event of its own.
//
// A reservation stays in one bucket, hence in one partition, and its events come
// in order. An attempt that is made against another budget than the one before it
// is in another partition: its events may overtake, which the sequence shows.
//
// # Types
//
// A type is "coffer.SUBJECT.WHAT.vN", such as coffer.reservation.committed.v1;
// [Types] lists all. A field may be added to a version; a field that changes its
// meaning or goes makes a new one. What is internal (coffer.internal.…) is for
// those who ask for it: it moves money between buckets of which a consumer need
// not know.
//
// # JSON
//
// [Event.MarshalJSON] writes a CloudEvents 1.0 event in the JSON format, whose
// data is [Data]; [Parse] reads it back. Transports that carry the attributes in
// headers use [Event.Attributes] and [FromAttributes]. Amounts are integers in
// minor units of the currency and may exceed 2^53: read them as 64-bit integers.
package event
