package relay

import "github.com/coffer-ledger/coffer/ledger/event"

// Naming says how the ledger's events name where they come from.
type Naming struct {
	// Source names this installation in every event: its CloudEvents source is
	// Source, a slash and the tenant. It should be the same on all nodes over a
	// store, and another one wherever one consumer gets events of several.
	Source string `yaml:"source"`
}

// DefaultNaming is the same in every installation.
func DefaultNaming() Naming { return Naming{Source: event.DefaultSource} }

// Validate says what is wrong with the source.
func (n Naming) Validate() error { return event.CheckSource(n.Source) }
