package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/rpc"
	"github.com/coffer-ledger/coffer/rpc/access"
)

// tokensPoll is the time between two looks at the tokens file. A change is taken
// at the second look that sees it.
const tokensPoll = time.Second

// tokens are those of a file, which is read again when it changes. It is looked
// at rather than watched or told by a signal: that works on every file system,
// where files are replaced and where they are links, and for every supervisor.
type tokens struct {
	path string
	log  zerolog.Logger
	set  atomic.Pointer[access.Set]
	// used is the content that set was made of, seen that of the last look. A
	// file is taken when two looks have seen it the same: it may be half written.
	used, seen []byte
	// refused is what is wrong with seen, nil where that was not looked into.
	refused error
	// said is the fault that the log has already.
	said string
}

// loadTokens reads the file for the first time.
func loadTokens(path string, log zerolog.Logger) (*tokens, error) {
	t := &tokens{path: path, log: log}
	raw, err := t.read()
	if err != nil {
		return nil, err
	}
	return t, t.take(raw)
}

// read refuses what it might have to wait for, such as a pipe: the node's end
// would wait with it.
func (t *tokens) read() ([]byte, error) {
	if info, err := os.Stat(t.path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("read tokens %s: it is no regular file (allowed: one that can be read again, or a link to it)", t.path)
	}
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read tokens: %w; coffer token new --file makes the file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, access.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read tokens %s: %w", t.path, err)
	}
	return raw, nil
}

// take uses a content from now on, if it has no fault.
func (t *tokens) take(raw []byte) error {
	set, err := access.Parse(raw)
	if err != nil {
		return fmt.Errorf("tokens %s:\n%w", t.path, err)
	}
	t.set.Store(set)
	t.used, t.seen = raw, raw
	t.log.Info().Str("file", t.path).Int("tokens", len(set.Entries())).Msg("tokens read")
	return nil
}

// run looks at the file until ctx ends.
func (t *tokens) run(ctx context.Context) {
	tick := time.NewTicker(tokensPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.look()
		case <-ctx.Done():
			return
		}
	}
}

// look takes what has changed. With a fault the tokens stay as they are, and the
// log says it once.
func (t *tokens) look() {
	raw, err := t.read()
	switch {
	case err != nil:
	case bytes.Equal(raw, t.used):
		t.seen, t.refused = raw, nil
	case !bytes.Equal(raw, t.seen):
		t.seen, t.refused = raw, nil
		return
	default:
		if t.refused == nil {
			t.refused = t.take(raw)
		}
		err = t.refused
	}
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault != "" && fault != t.said {
		t.log.Error().Err(err).Msg("the tokens stay as they were")
	}
	t.said = fault
}

// known are the tokens for the server, nil where everybody may call.
func (p *parts) known() rpc.Tokens {
	if p.tokens == nil {
		return nil
	}
	return p.tokens.set.Load
}

// validateTokens refuses nodes that would take each other's commands without
// knowing who sends them: those need no token.
func (c Config) validateTokens(f *faults) {
	if c.Tokens != "" && c.Cluster.CAFile == "" && (c.Cluster.Advertise != "" || c.Cluster.On()) {
		f.all = append(f.all, errors.New(`cluster.ca_file is "" (allowed: the authority of the nodes, with tls.cert_file and tls.key_file, where tokens and cluster.advertise or cluster.peers are set: `+
			`by their certificates nodes are told from strangers, whose commands would need no token)`))
	}
}

// warnOpen says that the address is open to everybody.
func (n *Node) warnOpen() {
	if n.cfg.Tokens == "" && n.cfg.beyondLoopback() {
		n.log.Warn().Str("listen", n.cfg.Listen).
			Msg("no tokens are set: whoever reaches this address may do everything, for every tenant; make some with coffer token new, and set tokens")
	}
}
