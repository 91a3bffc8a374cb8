package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/rs/zerolog"
)

// Bare serves h as a node serves its API, on the address of cfg and with its
// limits, timeouts and TLS, but with nothing of a node behind it: what a call
// costs before the ledger begins. It returns the base URL; stop ends it at
// once.
func Bare(ctx context.Context, cfg Config, h http.Handler, log zerolog.Logger) (url string, stop func() error, err error) {
	if err := cfg.Validate(); err != nil {
		return "", nil, fmt.Errorf("invalid configuration:\n%w", err)
	}
	n := &Node{cfg: cfg, log: log}
	srv, err := n.server(h)
	if err != nil {
		return "", nil, err
	}
	ln, err := n.listen(ctx)
	if err != nil {
		return "", nil, err
	}
	done := make(chan error, 1)
	go func() { done <- n.serveHTTP(srv, ln) }()
	return n.url(ln), sync.OnceValue(func() error { return errors.Join(srv.Close(), <-done) }), nil
}
