package rpc

import (
	"errors"
	"fmt"

	"github.com/coffer-ledger/coffer/ledger"
)

// MaxBatch is the most commands that one Execute may carry.
const MaxBatch = 1000

// compressMinBytes is the smallest response worth compressing: below it,
// compression costs more time than the bytes it saves.
const compressMinBytes = 16 << 10

// Config bounds what the server takes.
type Config struct {
	// DefaultTenant is the tenant of calls without the Coffer-Tenant header.
	// Empty: such calls are refused.
	DefaultTenant string `yaml:"default_tenant"`
	// MaxMessageBytes is the largest request, after decompression.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// MaxCommandCalls is the most calls open at once that bring commands,
	// MaxEventStreams those of EventService.Subscribe, MaxWorkStreams those of
	// QueueService.Work, MaxScans those that read whole ledgers (Replay,
	// VerifyChain, Audit, RebuildExpiry), and MaxCalls all others, each of which
	// is a transaction or two at the store. Of each a tenant gets at most half of
	// what the others leave. The first should be above the executor's total limit:
	// what that refuses may be answered without a benefit, where a budget wants so.
	MaxCommandCalls int `yaml:"max_command_calls"`
	MaxCalls        int `yaml:"max_calls"`
	MaxEventStreams int `yaml:"max_event_streams"`
	MaxWorkStreams  int `yaml:"max_work_streams"`
	MaxScans        int `yaml:"max_scans"`
	// Reflection answers gRPC reflection, which describes the API to tools.
	Reflection bool `yaml:"reflection"`
}

// DefaultConfig serves the tenant "default" and takes messages up to 4 MiB.
func DefaultConfig() Config {
	return Config{
		DefaultTenant: "default", MaxMessageBytes: 4 << 20, Reflection: true,
		MaxCommandCalls: 131072, MaxCalls: 4096, MaxEventStreams: 2048, MaxWorkStreams: 8192, MaxScans: 16,
	}
}

// Validate names every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	if c.DefaultTenant != "" {
		if r := ledger.CheckTenant("tenant", c.DefaultTenant); r != nil {
			errs = append(errs, fmt.Errorf("default_tenant %s %s (allowed: %s)", r.Value, r.Message, r.Limit))
		}
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > 64<<20 {
		errs = append(errs, fmt.Errorf("max_message_bytes is %d (allowed: 1024 to 67108864)", c.MaxMessageBytes))
	}
	for _, n := range []struct {
		field string
		value int
	}{
		{"max_command_calls", c.MaxCommandCalls},
		{"max_calls", c.MaxCalls},
		{"max_event_streams", c.MaxEventStreams},
		{"max_work_streams", c.MaxWorkStreams},
		{"max_scans", c.MaxScans},
	} {
		if n.value < 1 || n.value > 1<<20 {
			errs = append(errs, fmt.Errorf("%s is %d (allowed: 1 to %d)", n.field, n.value, 1<<20))
		}
	}
	return errors.Join(errs...)
}

// The checks of names are the domain's: a read refuses a name exactly as a
// command would.

func checkTenant(tenant string) *ledger.Rejection {
	return checkBudget(ledger.BudgetID{Tenant: tenant, Key: "-"})
}

func checkBudget(id ledger.BudgetID) *ledger.Rejection {
	c := ledger.Command{Op: ledger.OpFreeze, Budget: id, ID: "-"}
	return c.Validate()
}

func checkKey(k ledger.OrderKey) *ledger.Rejection {
	c := ledger.Command{Op: ledger.OpRelease, Key: k, Attempt: 1}
	return c.Validate()
}
