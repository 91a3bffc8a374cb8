//go:build unix

package node

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/rpc/access"
)

// A pipe gives nothing a second time, and whoever opens it waits: the node's end
// would, too.
func TestTokensOfAPipe(t *testing.T) {
	file, _ := tokensFile(t, access.Service)
	var log bytes.Buffer
	tk, err := loadTokens(file, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := loadTokens(file, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "it is no regular file") {
		t.Errorf("at the start: %v", err)
	}
	tk.look()
	if !strings.Contains(log.String(), "it is no regular file") {
		t.Errorf("log:\n%s", &log)
	}
}
