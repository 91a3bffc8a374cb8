package election

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// warnAfter is how long the nodes of tests take it that there is no leader.
const warnAfter = 30 * time.Second

// logged is a line of a log.
type logged struct {
	Level, Message, Error, Leader string
	Since                         time.Time
	Term                          uint64
	SilentPeers                   []string `json:"silent_peers"`
	LeaderlessMS                  float64  `json:"leaderless_ms"`

	at time.Time
}

// logbook keeps what a node logs from info on.
type logbook struct {
	mu    sync.Mutex
	lines []logged
}

func (b *logbook) logger() zerolog.Logger { return zerolog.New(b).Level(zerolog.InfoLevel) }

func (b *logbook) Write(p []byte) (int, error) {
	l := logged{at: time.Now()}
	if err := json.Unmarshal(p, &l); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
	return len(p), nil
}

// with are the lines that have a message, from one moment on.
func (b *logbook) with(message string, from time.Time) (out []logged) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if l.Message == message && !l.at.Before(from) {
			out = append(out, l)
		}
	}
	return out
}

// one is the only line with a message.
func (b *logbook) one(t *testing.T, message string, from time.Time) logged {
	t.Helper()
	ls := b.with(message, from)
	if len(ls) != 1 {
		t.Fatalf("%d lines %q, want one", len(ls), message)
	}
	return ls[0]
}
