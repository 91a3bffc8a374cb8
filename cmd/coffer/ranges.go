package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// rangeTag is the tag of a flag or an argument that says what numbers or times it
// takes: "1 to 16", "0 or more", "more than 0". It is checked, and is what
// refusals say. A flag without it is checked by its command.
const rangeTag = "range"

// rangeForm is how a range is written.
var rangeForm = regexp.MustCompile(`^(more than )?(\S+?)( or more)?(?: to (\S+))?$`)

// joinNegative makes "--flag -5" what "--flag=-5" is. Else -5 would be an unknown
// flag, and the refusal could not say what --flag takes.
func joinNegative(args []string) []string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		if n := len(out); n > 0 && negative.MatchString(a) && longFlag.MatchString(out[n-1]) {
			out[n-1] += "=" + a
			continue
		}
		out = append(out, a)
	}
	return out
}

var (
	negative = regexp.MustCompile(`^-[0-9.]`)
	longFlag = regexp.MustCompile(`^--[a-z][a-z-]*$`)
)

// outOfRange refuses what was given beyond its range.
func outOfRange(k *kong.Context) error {
	for _, p := range k.Path {
		var v *kong.Value
		var name string
		switch {
		case p.Positional != nil:
			v, name = p.Positional, "<"+p.Positional.Name+">"
		case p.Flag != nil && !p.Resolved:
			v, name = p.Flag.Value, "--"+p.Flag.Name
		default:
			continue
		}
		allowed := v.Tag.Get(rangeTag)
		if allowed == "" {
			continue
		}
		for _, one := range given(v.Target) {
			if !within(one, allowed) {
				return usagef("%s is %.40s (allowed: %s)", name, fmt.Sprint(one), allowed)
			}
		}
	}
	return nil
}

// given are the values of a flag: several where it may be given several times.
func given(v reflect.Value) (out []reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return given(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, v.Index(i))
		}
		return out
	default:
		return []reflect.Value{v}
	}
}

// within says whether a value is in a range. A text that is no number is for its
// reader to refuse, which knows more.
func within(v reflect.Value, allowed string) bool {
	m := rangeForm.FindStringSubmatch(allowed)
	if m == nil {
		panic(fmt.Sprintf("range %q is malformed", allowed)) // a fault of the program: a flag's tag
	}
	if v.Kind() == reflect.String {
		n, err := strconv.ParseFloat(v.String(), 64)
		if err != nil {
			return true
		}
		v = reflect.ValueOf(n)
	}
	low, high := compare(v, m[2]), -1
	if m[4] != "" {
		high = compare(v, m[4])
	}
	return (low > 0 || (low == 0 && m[1] == "")) && high <= 0
}

// compare is the order of a number or a time and a bound.
func compare(v reflect.Value, bound string) int {
	var order int
	var err error
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		var b time.Duration
		b, err = time.ParseDuration(bound)
		order = sign(v.Int() > int64(b), v.Int() < int64(b))
	case v.CanInt():
		var b int64
		b, err = strconv.ParseInt(bound, 10, 64)
		order = sign(v.Int() > b, v.Int() < b)
	case v.CanUint():
		var b uint64
		b, err = strconv.ParseUint(bound, 10, 64)
		order = sign(v.Uint() > b, v.Uint() < b)
	case v.CanFloat():
		var b float64
		b, err = strconv.ParseFloat(bound, 64)
		order = sign(v.Float() > b, v.Float() < b)
	default:
		err = fmt.Errorf("a %s has no order", v.Type())
	}
	if err != nil {
		panic(err) // a fault of the program: a flag's tag
	}
	return order
}

func sign(above, below bool) int {
	switch {
	case above:
		return 1
	case below:
		return -1
	}
	return 0
}

// misread is what kong says of a value that it can't read as a number or a time.
var misread = regexp.MustCompile(`^(--[a-z-]+|<[a-z-]+>): expected (a valid \d+ bit u?int|an int|duration|a float) but got ("(?:[^"\\]|\\.)*")`)

// valueless is what it says of a flag at the end of the line that needs a value.
var valueless = regexp.MustCompile(`^(--[a-z-]+): expected .+ value but got "EOL" \(<EOL>\)$`)

// unreadable words what kong says of such a value as other refusals are worded.
func unreadable(k *kong.Context, said string) (string, bool) {
	if m := valueless.FindStringSubmatch(said); m != nil {
		if allowed := rangeOf(k, m[1]); allowed != "" {
			return fmt.Sprintf("%s has no value (allowed: %s)", m[1], allowed), true
		}
		return m[1] + " has no value", true
	}
	m := misread.FindStringSubmatch(said)
	if m == nil {
		return "", false
	}
	name, value := m[1], m[3]
	if text, err := strconv.Unquote(value); err == nil && plainNumber.MatchString(text) {
		value = text
	}
	allowed := rangeOf(k, name)
	switch kind := m[2]; {
	case kind == "duration" && allowed != "":
		allowed += ", in numbers with units, such as 500ms, 15m, 24h or 7d"
	case kind == "duration":
		allowed = "numbers with units, such as 500ms, 15m, 24h or 7d"
	case allowed != "":
	case kind == "a float":
		allowed = "a number"
	default:
		allowed = "a whole number"
	}
	return fmt.Sprintf("%s is %.80s (allowed: %s)", name, value, allowed), true
}

var plainNumber = regexp.MustCompile(`^-?[0-9.]+$`)

// rangeOf is the range of the selected command's flag or argument of that name.
func rangeOf(k *kong.Context, name string) string {
	if k == nil {
		return ""
	}
	for _, f := range k.Flags() {
		if "--"+f.Name == name {
			return f.Tag.Get(rangeTag)
		}
	}
	if n := k.Selected(); n != nil {
		for _, p := range n.Positional {
			if "<"+p.Name+">" == name {
				return p.Tag.Get(rangeTag)
			}
		}
	}
	return ""
}
