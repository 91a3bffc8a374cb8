package store

import (
	"strings"
	"time"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/fact"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/work"
)

// The tables of queues and facts:
//
//	W, lane, tenant, queue, due, id, …           due-index of work
//	W, 0, tenant, queue                          signal: counts what became ready
//	Q, tenant, 0, queue, job                     job
//	Q, tenant, 1, queue, count                   counters of a queue
//	Q, tenant, 2                                 open jobs of the tenant
//	D, tenant, queue, died, job                  dead letters
//	N, tenant, consumer, event                   inbox: for facts, the order the fact is about
//	F, tenant, 0, h(order), order, source, event fact
//	F, tenant, 1, state, received, order, source, event   facts by state
//	F, "", gauge                                 counters of the whole store
//
// The lanes of W keep apart what is looked for apart. The tenant stands before
// the time that work is due: it spreads the load as a slot would, and one
// tenant's backlog is never in another's way.
const (
	laneSignal = iota
	laneReady  // jobs, by the time they may be leased
	laneLeased // jobs, by the time their lease runs out
	laneKept   // finished jobs, by the time their row goes
	laneFact   // facts that wait, by the time they are looked at again
)

// Sub-tables of Q and F.
const (
	jobRows     = 0
	jobCounts   = 1
	jobOpen     = 2
	factRows    = 0
	factByState = 1
)

func ms(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }

func (s *Store) laneOf(lane uint64) key { return s.key(tableDue).uint(lane) }

func (s *Store) lanePlace(lane uint64, p work.Place) key {
	return s.laneOf(lane).str(p.Tenant).str(p.Queue)
}

func (s *Store) workSignalKey(p work.Place) key { return s.lanePlace(laneSignal, p) }

func (s *Store) dueKey(lane uint64, due time.Time, k work.Key) key {
	return s.lanePlace(lane, k.Place()).uint(ms(due)).str(k.ID)
}

// dueBy is the range of a queue's rows in a lane that are due by now.
func (s *Store) dueBy(lane uint64, p work.Place, now time.Time) kv.Range {
	k := s.lanePlace(lane, p)
	end := append(append(key(nil), k...), key(nil).uint(ms(now))...)
	return kv.Range{Begin: k.all().Begin, End: end.all().End}
}

// readDue takes a row of the due-index apart, up to the time.
func (s *Store) readDue(lane uint64, k []byte) (work.Place, time.Time, keyReader) {
	r := s.read(k, tableDue)
	if r.uint() != lane && r.err == nil {
		r.err = errKey
	}
	p := work.Place{Tenant: r.str(), Queue: r.str()}
	return p, time.UnixMilli(int64(r.uint())).UTC(), r
}

func (s *Store) jobsOf(p work.Place) key {
	return s.key(tableJob).str(p.Tenant).uint(jobRows).str(p.Queue)
}

func (s *Store) jobKey(k work.Key) key { return s.jobsOf(k.Place()).str(k.ID) }

func (s *Store) readJobKey(k []byte) (work.Key, error) {
	r := s.read(k, tableJob)
	out := work.Key{Tenant: r.str()}
	if r.uint() != jobRows && r.err == nil {
		r.err = errKey
	}
	out.Queue, out.ID = r.str(), r.str()
	return out, r.end()
}

func (s *Store) jobCountsOf(tenant string) key {
	return s.key(tableJob).str(tenant).uint(jobCounts)
}

func (s *Store) jobCountKey(p work.Place, st work.State) key {
	return s.jobCountsOf(p.Tenant).str(p.Queue).uint(uint64(st))
}

// inJobTable says what a row of the queues' table is: of which tenant, and
// in which of its sub-tables.
func (s *Store) inJobTable(k []byte) (tenant string, sub uint64, err error) {
	r := s.read(k, tableJob)
	tenant, sub = r.str(), r.uint()
	return tenant, sub, r.err
}

func (s *Store) readJobCount(k []byte) (work.Place, work.State, error) {
	r := s.read(k, tableJob)
	p := work.Place{Tenant: r.str()}
	r.uint()
	p.Queue = r.str()
	st := work.State(r.uint())
	return p, st, r.end()
}

func (s *Store) openJobsKey(tenant string) key { return s.key(tableJob).str(tenant).uint(jobOpen) }

func (s *Store) deadOf(p work.Place) key { return s.key(tableDead).str(p.Tenant).str(p.Queue) }

func (s *Store) deadKey(died time.Time, k work.Key) key {
	return s.deadOf(k.Place()).uint(ms(died)).str(k.ID)
}

func (s *Store) readDeadKey(k []byte) (work.Key, error) {
	r := s.read(k, tableDead)
	out := work.Key{Tenant: r.str(), Queue: r.str()}
	r.uint()
	out.ID = r.str()
	return out, r.end()
}

// inboxOfFacts leads the consumer's name of a source in the inbox.
const inboxOfFacts = "fact:"

// Facts. The consumer's name in the inbox is the source behind a word, so that
// other consumers may have one of their own.

func (s *Store) inboxKey(id fact.ID) key {
	return s.key(tableInbox).str(id.Tenant).str(inboxOfFacts + id.Source).str(id.Event)
}

func (s *Store) factsOf(tenant, order string) key {
	return s.key(tableFact).str(tenant).uint(factRows).uint(uint64(byte(ledger.Hash64(0, tenant, order)))).str(order)
}

func (s *Store) factKey(order string, id fact.ID) key {
	return s.factsOf(id.Tenant, order).str(id.Source).str(id.Event)
}

// readInbox takes an inbox row's key apart; not ok: it is of another consumer.
func (s *Store) readInbox(k []byte) (id fact.ID, ok bool, err error) {
	r := s.read(k, tableInbox)
	id.Tenant = r.str()
	id.Source, ok = strings.CutPrefix(r.str(), inboxOfFacts)
	id.Event = r.str()
	return id, ok, r.end()
}

// inFactTable says what a row of the facts' table is: of which tenant ("" for
// a gauge), and in which of its sub-tables.
func (s *Store) inFactTable(k []byte) (tenant string, sub uint64, err error) {
	r := s.read(k, tableFact)
	tenant, sub = r.str(), r.uint()
	return tenant, sub, r.err
}

func (s *Store) factLists(tenant string) key { return s.key(tableFact).str(tenant).uint(factByState) }

func (s *Store) allFacts(tenant string) kv.Range {
	return s.key(tableFact).str(tenant).uint(factRows).all()
}

func (s *Store) readFactKey(k []byte) (order string, id fact.ID, err error) {
	r := s.read(k, tableFact)
	id.Tenant = r.str()
	r.uint()
	r.uint() // h(order)
	order = r.str()
	id.Source, id.Event = r.str(), r.str()
	return order, id, r.end()
}

func (s *Store) factsIn(tenant string, st fact.State) key {
	return s.key(tableFact).str(tenant).uint(factByState).uint(uint64(st))
}

func (s *Store) factStateKey(f *fact.Row) key {
	return s.factsIn(f.Tenant, f.State).uint(ms(f.Received)).str(f.Order).str(f.Source).str(f.Event)
}

func (s *Store) readFactState(k []byte) (order string, id fact.ID, received time.Time, err error) {
	r := s.read(k, tableFact)
	id.Tenant = r.str()
	r.uint()
	r.uint()
	received = time.UnixMilli(int64(r.uint())).UTC()
	order = r.str()
	id.Source, id.Event = r.str(), r.str()
	return order, id, received, r.end()
}

// listState is the state of the list that a row is in.
func (s *Store) listState(k []byte) (st fact.State, ok bool) {
	r := s.read(k, tableFact)
	r.str()
	r.uint()
	st = fact.State(r.uint())
	return st, r.err == nil && st.Valid()
}

func (s *Store) factGaugeKey(st fact.State) key {
	return s.key(tableFact).str("").uint(uint64(st))
}

// factPlace is where a tenant's waiting facts are in the due-index.
func factPlace(tenant string) work.Place { return work.Place{Tenant: tenant} }

func (s *Store) factDueKey(f *fact.Row) key {
	return s.lanePlace(laneFact, factPlace(f.Tenant)).uint(ms(f.Due)).str(f.Order).str(f.Source).str(f.Event)
}

func (s *Store) readFactDue(k []byte) (order string, id fact.ID, due time.Time, err error) {
	p, due, r := s.readDue(laneFact, k)
	order = r.str()
	id = fact.ID{Tenant: p.Tenant, Source: r.str(), Event: r.str()}
	return order, id, due, r.end()
}
