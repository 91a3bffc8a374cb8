package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/coffer-ledger/coffer/bench"
	"github.com/coffer-ledger/coffer/ledger/kv"
	"github.com/coffer-ledger/coffer/ledger/store"
	"github.com/coffer-ledger/coffer/node"
	"github.com/coffer-ledger/coffer/node/scan"
	"github.com/coffer-ledger/coffer/shard"
)

// benchDeps are the engines and nodes of a bench. Its --store is embedded, for
// an engine in a directory of each target's own, or names a cluster.
func (c *cli) benchDeps(l *benchLoad) (bench.Deps, error) {
	where := l.Store
	demands, err := l.trust.config(c, l.Server)
	if err != nil {
		return bench.Deps{}, err
	}
	at := func(dir string) location { return location{kind: "embedded", path: dir} }
	shared := ""
	if where != "embedded" {
		loc, err := parseStore(where)
		if err != nil {
			return bench.Deps{}, err
		}
		if loc.kind != "fdb" {
			return bench.Deps{}, usagef("--store is %.80q (allowed: embedded, or fdb:FILE; --dir says where embedded stores are put)", where)
		}
		at, shared = func(string) location { return loc }, "FoundationDB"
	}
	log := zerolog.New(c.stderr).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	return bench.Deps{
		Shared:     shared,
		OpenEngine: func(ctx context.Context, dir string) (kv.Store, error) { return at(dir).open(ctx, false) },
		StartNode: func(ctx context.Context, dir string) (string, func() error, error) {
			return benchNode(ctx, at(dir), log)
		},
		ServeAPI: func(ctx context.Context, h http.Handler) (string, func() error, error) {
			return node.Bare(ctx, benchNodeConfig("embedded:none"), h, log)
		},
		Expire: func(ctx context.Context, st *store.Store, exec *shard.Executor) error {
			x, err := scan.New(scan.DefaultConfig(), st, exec, log)
			if err != nil {
				return err
			}
			return x.Run(ctx)
		},
		Token: c.token, TLS: demands,
		Version: buildVersion(), Progress: c.benchProgress(),
	}, nil
}

// benchNodeConfig is a node with the defaults on a free loopback port, and under
// an id of its own: sides of a comparison may share a store.
func benchNodeConfig(where string) node.Config {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.Store, cfg.NodeID = "127.0.0.1:0", where, "bench-"+rand.Text()
	cfg.Shutdown.Delay = 0
	return cfg
}

// benchNode runs a node.
func benchNode(ctx context.Context, loc location, log zerolog.Logger) (url string, stop func() error, err error) {
	ready := make(chan string, 1)
	n, err := node.New(benchNodeConfig(loc.String()), node.Deps{
		OpenStore: func(ctx context.Context) (kv.Store, error) { return loc.open(ctx, false) },
		StoreKind: loc.kind, Prefix: loc.keyPrefix(), Version: buildVersion(), Collector: collectEngine, Log: log,
		OnReady: func(url string) { ready <- url },
	})
	if err != nil {
		return "", nil, err
	}
	// The node outlives the load when the run is told to end, so that its
	// answers are not cut off; stop ends it.
	nctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- n.Run(nctx) }()
	stop = func() error {
		cancel()
		return <-done
	}
	select {
	case url := <-ready:
		return url, stop, nil
	case err := <-done:
		cancel()
		return "", nil, fmt.Errorf("start node: %w", err)
	case <-time.After(time.Minute):
		return "", nil, fmt.Errorf("start node: it does not serve: %w", stop())
	}
}
