// Package store runs the domain's commands on a [kv.Store] and reads what they
// wrote. It imports ledger, ledger/work, ledger/fact, ledger/event and ledger/kv.
//
//	commands of one bucket
//	      │ Apply: one transaction
//	      ▼
//	 load ───────▶ decide (ledger.Decide) ───▶ overlay ───▶ flush
//	 budget, bucket,   one command after          │          n rows · bucket · block ·
//	 n rows, at once   the other, purely          └ next     outbox pointer · signal ·
//	                                                command  expiry rows
//
// keys*.go are the only files that know the key layout, codec*.go the only ones
// that know the form of values. Apply is the only path that changes a balance.
//
// The ledger block is the outbox: its entries carry all that an event needs,
// and a pointer in commit order names the block. So an event exists if and only
// if its transition committed.
//
// The expiry index is a hint, the reservation row is the truth: the index can be
// dropped and rebuilt at any time, and a row of it that names a reservation
// which was committed, released or extended does nothing.
//
// Jobs and facts are rows of their own, decided by ledger/work and ledger/fact. A
// job's place in the due-index, its dead letter and its counters are written in
// the transaction that writes its row, by putJob alone, and a fact's by putFact:
// so unlike the expiry index, these are no hints. No balance is among them; what
// a fact asks for goes through Apply like everything else.
//
// The leader's row is the fence: transactions made with a context that has a
// term (WithTerm), and commands that have one, read it and are refused unless
// the term is the current one. It only rises.
//
// Events are read from the outbox with a cursor, the position of an event, which
// holds across incarnations: all pointers of an older one come before those of
// the next. Sinks have a cursor in each partition, and relays share partitions
// by leases without a time in them; AdvanceSink moves a cursor in a transaction
// that reads the lease, so a relay that lost it moves nothing. Pointers that
// every sink is past may be trimmed: a mark for each bucket tells the audit up to
// which block.
//
// Nothing here assumes that this process is alone: what a transaction read is
// checked again when it commits.
package store
