package main

import (
	"errors"
	"fmt"
)

type expiryCmd struct {
	remote `embed:""`

	Rebuild expiryRebuild `cmd:"" help:"Drop the expiry index and make it again from the reservations."`
}

type expiryRebuild struct {
	Store string `help:"Rebuild in this store, which no server may have open, instead of on a server." placeholder:"STORE" empty:"name a directory, or leave the flag out to use the server"`
}

// Help is the long help.
func (expiryRebuild) Help() string {
	return `The index only says where to look; the reservations are the truth. So it can be
dropped and made again at any time, also while the server runs. --timeout does
not bound it.

Examples:
  coffer expiry rebuild
  coffer expiry rebuild --store embedded:/var/lib/coffer/store`
}

// Run rebuilds.
func (e *expiryRebuild) Run(c *cli) error {
	var scanned, written uint64
	var err error
	if e.Store != "" {
		scanned, written, err = c.rebuildStore(e.Store)
	} else {
		scanned, written, err = c.rebuildServer()
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return c.printJSON(map[string]uint64{"reservations_scanned": scanned, "rows_written": written})
	}
	c.printf("expiry index rebuilt: %d reservations scanned, %d rows written\n", scanned, written)
	return nil
}

func (c *cli) rebuildStore(where string) (scanned, written uint64, err error) {
	loc, err := parseStore(where)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = loc.explain(err) }()
	st, engine, err := c.openLedger(loc, false)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	progress := c.progress()
	err = st.RebuildExpiry(c.ctx, func(s, w uint64) {
		scanned, written = s, w
		progress("reservations", s)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("rebuild expiry index of %s: %w", where, err)
	}
	progress("", 0)
	return scanned, written, nil
}

func (c *cli) rebuildServer() (scanned, written uint64, err error) {
	s, err := c.dial()
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	progress := c.progress()
	scanned, written, err = s.RebuildExpiry(c.ctx, func(scanned, _ uint64) { progress("reservations", scanned) })
	progress("", 0)
	return scanned, written, s.explain(err)
}
