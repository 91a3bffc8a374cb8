package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coffer-ledger/coffer/ledger"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node/relay/sink"
)

// Drivers knows the configurations of sinks: how people write them, how they are
// stored, and how to open them.
type Drivers struct{ deps sink.Deps }

// NewDrivers makes drivers that work with deps.
func NewDrivers(deps sink.Deps) *Drivers { return &Drivers{deps} }

// Open makes the driver of a sink; it is an Opener.
func (d *Drivers) Open(_ context.Context, s *store.Sink) (sink.Sink, error) {
	c, err := sink.Decode(s.Config)
	if err != nil {
		return nil, err
	}
	deps := d.deps
	deps.Tenant = s.Tenant
	return sink.Open(c, deps)
}

// Parse turns a configuration in JSON into its stored form. Secrets that are not
// shown are taken from old, the stored form of the configuration that this one
// replaces; nil for none.
func (d *Drivers) Parse(config, old []byte) ([]byte, error) {
	c, err := sink.ParseConfig(config)
	if err != nil {
		return nil, badConfig(err)
	}
	if old != nil {
		was, err := sink.Decode(old)
		if err != nil {
			return nil, fmt.Errorf("stored sink configuration: %w", err)
		}
		c.KeepSecrets(&was)
	}
	if err := c.Validate(); err != nil {
		return nil, badConfig(err)
	}
	return c.Encode()
}

func badConfig(err error) *ledger.Rejection {
	return &ledger.Rejection{
		Code: ledger.InvalidArgument, Field: "config", Value: "given",
		Message: "cannot be used: " + strings.ReplaceAll(err.Error(), "\n", "; "), Cause: err,
	}
}

// Show turns a stored configuration into JSON without its secrets.
func (d *Drivers) Show(stored []byte) ([]byte, error) {
	c, err := sink.Decode(stored)
	if err != nil {
		return nil, err
	}
	return json.Marshal(&c)
}

// Ping checks that the receiver of a sink can be reached from this node.
func (d *Drivers) Ping(ctx context.Context, s *store.Sink) error {
	driver, err := d.Open(ctx, s)
	if err != nil {
		return err
	}
	return errors.Join(driver.Ping(ctx), driver.Close())
}
