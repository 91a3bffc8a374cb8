package sink

import (
	"sync"
	"time"
)

// MaxRetryAfter bounds how long a receiver may ask to be left alone.
const MaxRetryAfter = time.Hour

// circuit leaves a receiver alone that keeps failing.
//
//	            so many failures in a row, or the receiver asks
//	CLOSED ──────────────────────────────────────────────────▶ OPEN ◀─┐
//	  ▲                                                          │    │ fails
//	  │ succeeds                                     its time is up   │
//	  └──────────────────────── HALF-OPEN: one request ◀─────────┘ ───┘
//
// It is safe for concurrent use.
type circuit struct {
	limit int
	open  time.Duration

	mu       sync.Mutex
	failures int       // in a row
	why      error     // the last of them
	until    time.Time // not zero: open till then, half-open after
	probing  bool      // half-open, and its one request is under way
}

// enter asks to send a request; an error says for how long not to, and repeats
// the last failure word for word: who reads it wants to know what is wrong, and
// what is the same trouble shall read the same. After nil, one of leave and
// abandon must follow.
func (c *circuit) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch wait := time.Until(c.until); {
	case c.until.IsZero():
		return nil
	case wait > 0:
		return &Trouble{Err: c.why, After: wait, Unsent: true}
	case c.probing:
		return &Trouble{Err: c.why, Unsent: true}
	}
	c.probing = true
	return nil
}

// leave says how a request went: why is nil when the receiver is well. after, if
// not 0, is how long it asked to be left alone.
func (c *circuit) leave(why error, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	if why == nil {
		c.failures, c.why, c.until = 0, nil, time.Time{}
		return
	}
	c.failures++
	c.why = why
	if after > 0 {
		c.until = later(c.until, time.Now().Add(after))
	} else if c.failures >= c.limit {
		c.until = later(c.until, time.Now().Add(c.open))
	}
}

// abandon says that a request ended without saying anything about the receiver.
func (c *circuit) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
