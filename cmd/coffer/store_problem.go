package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/kv/embedded"
	"github.com/coffer-ledger/coffer/ledger/kv/fdbkv"
	"github.com/coffer-ledger/coffer/ledger/store"
)

// problem is a reason why a store cannot be used. Its name is for programs. next
// is what to do, for errors that do not say so themselves; STORE stands for the
// store, DIR for its directory.
type problem struct {
	name string
	is   error
	next string
}

const (
	nextRestore = "restore DIR from a backup"
	nextRoom    = "make room on the disk of DIR; nothing is lost"
	nextDisk    = "see that the disk of DIR is well, then try again"
	nextWait    = "see that the disk or the cluster is well, then try again"
)

var storeProblems = []problem{
	{"NOT_BUILT", fdbkv.ErrNotBuilt, ""},
	{"CLUSTER_FILE", fdbkv.ErrClusterFile, "copy it from a machine of the cluster"},
	{"API_VERSION", fdbkv.ErrAPIVersion, ""},
	{"PROTOCOL_VERSION", fdbkv.ErrProtocol, ""},
	{"UNREACHABLE", fdbkv.ErrUnreachable, ""},
	{"UNAVAILABLE", fdbkv.ErrUnavailable, ""},
	{"DATABASE_LOCKED", fdbkv.ErrLocked, ""},
	{"IN_USE", embedded.ErrLocked, "a node that runs takes coffer audit and coffer expiry rebuild without --store"},
	{"NOT_A_STORE", embedded.ErrNotAStore, ""},
	{"FORMAT", embedded.ErrNewerFormat, ""},
	{"DAMAGED", embedded.ErrDataMissing, ""},
	{"DAMAGED", kv.ErrDamaged, nextRestore},
	{"DISK_FULL", syscall.ENOSPC, nextRoom},
	{"DISK_FULL", syscall.EDQUOT, nextRoom},
	{"DISK", syscall.EIO, nextDisk},
	{"READ_ONLY", embedded.ErrReadOnly, ""},
	{"PERMISSION", fs.ErrPermission, "run as a user who may read all files in DIR"},
	{"NO_LEDGER", store.ErrNoLedger, "start a node with --store STORE, which makes it, or name another store"},
	{"FORMAT", store.ErrFormat, "use the version of coffer that wrote it, or a newer one"},
	{"TIMEOUT", kv.ErrTimedOut, nextWait},
	{"TIMEOUT", context.DeadlineExceeded, nextWait},
}

func problemOf(err error) *problem {
	for i := range storeProblems {
		if errors.Is(err, storeProblems[i].is) {
			return &storeProblems[i]
		}
	}
	return nil
}

func storeProblem(err error) string {
	if p := problemOf(err); p != nil {
		return p.name
	}
	return "OTHER"
}

// explain names the problem in an error of a command that works on the store
// itself, without a server, and says what to do about it.
func (l location) explain(err error) error {
	if err == nil {
		return nil
	}
	text := engineCause(err)
	if p := problemOf(err); p != nil {
		text = p.name + ": " + text
		next := strings.NewReplacer("STORE", l.String(), "DIR", l.path).Replace(p.next)
		if !strings.Contains(text, next) {
			text += "; " + next
		}
	}
	return storeError{err, text}
}

// engineCause is the text of err with what the engine said: in the place of a
// refusal, which tells clients of a server what they can do, and of a
// transaction that met damage, the file.
func engineCause(err error) string {
	var r *ledger.Rejection
	var tx *kv.TxError
	var e *kv.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	why, said := e.Error(), ""
	if errors.As(err, &r) {
		said = r.Error()
	}
	if errors.Is(e.Cause, kv.ErrDamaged) {
		why = e.Cause.Error()
		if r == nil && errors.As(err, &tx) {
			said = tx.Error()
		}
	}
	if said == "" {
		return err.Error()
	}
	return strings.Replace(err.Error(), said, why, 1)
}

// storeError is an error of a store, explained.
type storeError struct {
	error
	text string
}

// Error gives the explanation.
func (e storeError) Error() string { return e.text }

// Unwrap returns the error as it was.
func (e storeError) Unwrap() error { return e.error }
