package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/rpc"
)

// moneyIn are the two ways to give an amount.
type moneyIn struct {
	Amount string `help:"Amount in major units, such as 12.34." xor:"amount" placeholder:"12.34" range:"more than 0"`
	Minor  *int64 `help:"Amount in minor units, such as 1234." xor:"amount" placeholder:"1234" range:"1 to 9223372036854775807"`
}

// check refuses a missing amount before anything is asked of the
// server.
func (m moneyIn) check(required bool) error {
	if required && !m.given() {
		return usagef("no amount; give --amount 12.34 or --minor 1234, more than zero")
	}
	return nil
}

func (m moneyIn) given() bool { return m.Amount != "" || m.Minor != nil }

// minor is the amount in minor units of the currency; 0 when none was given.
func (m moneyIn) minor(currency string) (int64, error) {
	switch {
	case m.Minor != nil:
		return *m.Minor, nil
	case m.Amount == "":
		return 0, nil
	}
	v, err := parseMajor("--amount", m.Amount, currency)
	if err != nil {
		return 0, usageError{err}
	}
	if v == 0 { // it would be all that is held
		return 0, usagef("--amount is %s (allowed: more than 0)", m.Amount)
	}
	return v, nil
}

// keyed is the flag of commands on a budget that makes them safe to repeat.
type keyed struct {
	Key string `help:"Idempotency key: the same key takes effect once, over all budgets of the tenant (default: a new one)." placeholder:"KEY" empty:"name a key, or leave the flag out to make a new one"`
}

// get returns the key, making one where none was given.
func (k *keyed) get() string {
	if k.Key == "" {
		k.Key = "cli-" + rand.Text()
	}
	return k.Key
}

// hint adds to an error how to repeat the command without doing it twice.
func (k *keyed) hint(err error) error {
	if !errors.Is(err, rpc.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w (to send it again safely: --key %s)", err, k.Key)
}
