//go:build !linux

package bench

import "time"

// newNap gives a sleep for the arrivals of a load, and what ends its use.
func newNap() (nap func(time.Duration), end func()) { return time.Sleep, func() {} }
