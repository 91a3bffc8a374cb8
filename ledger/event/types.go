package event

import (
	"maps"
	"slices"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
)

const prefix = "coffer."

// types is the type of each entry's event, and jobTypes that of the entries that
// reservations and jobs share where it is a job's. A test proves that every entry
// type has one.
var (
	types = map[ledger.EntryType]string{
		ledger.EntryReserve:   prefix + "reservation.reserved.v1",
		ledger.EntryCommit:    prefix + "reservation.committed.v1",
		ledger.EntryExtend:    prefix + "reservation.extended.v1",
		ledger.EntryRelease:   prefix + "reservation.released.v1",
		ledger.EntryExpire:    prefix + "reservation.expired.v1",
		ledger.EntryReclaim:   prefix + "reservation.reclaimed.v1",
		ledger.EntryReverse:   prefix + "reservation.reversed.v1",
		ledger.EntryReinstate: prefix + "reservation.reinstated.v1",
		ledger.EntryCharge:    prefix + "job.charged.v1",
		ledger.EntryRefund:    prefix + "job.refunded.v1",
		ledger.EntryHold:      prefix + "job.held.v1",
		ledger.EntrySettle:    prefix + "job.settled.v1",
		ledger.EntryCreate:    prefix + "budget.created.v1",
		ledger.EntryFund:      prefix + "budget.funded.v1",
		ledger.EntryDefund:    prefix + "budget.defunded.v1",
		ledger.EntryFreeze:    prefix + "budget.frozen.v1",
		ledger.EntryUnfreeze:  prefix + "budget.unfrozen.v1",
		ledger.EntryClose:     prefix + "budget.closed.v1",
		ledger.EntryMoveOut:   internal + "moved_out.v1",
		ledger.EntryMoveIn:    internal + "moved_in.v1",
		ledger.EntryReshard:   prefix + "budget.resharded.v1",
	}
	jobTypes = map[ledger.EntryType]string{
		ledger.EntryExtend:  prefix + "job.extended.v1",
		ledger.EntryRelease: prefix + "job.released.v1",
		ledger.EntryExpire:  prefix + "job.expired.v1",
		ledger.EntryReclaim: prefix + "job.reclaimed.v1",
	}
	entryOf = func() map[string]ledger.EntryType {
		m := make(map[string]ledger.EntryType)
		for _, table := range []map[ledger.EntryType]string{types, jobTypes} {
			for t, name := range table {
				m[name] = t
			}
		}
		return m
	}()
)

// internal begins the types of the control plane.
const internal = prefix + "internal."

// Types lists all event types, sorted.
func Types() []string { return slices.Sorted(maps.Keys(entryOf)) }

// KnownType reports whether s is one of Types.
func KnownType(s string) bool { return entryOf[s] != 0 }

// InternalType reports whether a type is one of the control plane.
func InternalType(s string) bool { return strings.HasPrefix(s, internal) }
