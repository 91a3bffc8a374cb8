package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// parseDuration reads a time with units, or whole days, such as 30d.
func parseDuration(s string) (time.Duration, error) {
	days, ok := strings.CutSuffix(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	return time.Duration(n) * 24 * time.Hour, err
}

// readDuration reads the value of a flag that is a time.
func readDuration(k *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := k.Scan.PopValueInto("duration", &s); err != nil {
		return err
	}
	d, err := parseDuration(s)
	if err != nil {
		return fmt.Errorf("expected duration but got %.40q", s) // in words of the parser, which are made ours with those
	}
	target.SetInt(int64(d))
	return nil
}
