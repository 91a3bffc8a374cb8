package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

// envPrefix starts the name of every environment variable of the node.
const envPrefix = "COFFER_"

// ownedByCLI are variables of the command line's own; they are not settings
// of a node.
var ownedByCLI = map[string]bool{
	"COFFER_CONFIG": true, "COFFER_SERVER": true, "COFFER_TENANT": true, "COFFER_CA": true,
	"COFFER_TOKEN": true, "COFFER_TOKEN_FILE": true,
}

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// LoadFile lays a YAML file over the configuration. An unknown key is an
// error that names the key and its line; so is a value of the wrong type.
func (c *Config) LoadFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read config: %w; coffer serve --print-config prints one", err)
	}
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return fmt.Errorf("read config %s: %w", path, err)
	}
	if len(raw) > maxConfigBytes {
		return fmt.Errorf("read config %s: file is larger than %d bytes", path, maxConfigBytes)
	}
	if err := c.LoadYAML(raw); err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	return nil
}

// setting is one leaf of the configuration.
type setting struct {
	name  string // path in the file, such as expiry.interval
	value reflect.Value
}

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

// settings lists the leaves of a struct by their yaml tags.
func settings(v reflect.Value, prefix string) []setting {
	var out []setting
	t := v.Type()
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if tag == "" || tag == "-" {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			out = append(out, settings(f, prefix+tag+".")...)
		} else {
			out = append(out, setting{prefix + tag, f})
		}
	}
	return out
}

// LoadEnv lays COFFER_… variables ("NAME=value") over the configuration.
// It returns the names of those that name no setting: orchestrators put
// variables of that form into every container, so they are worth a warning
// and not an error.
func (c *Config) LoadEnv(environ []string) (unknown []string, err error) {
	next := *c
	known := map[string]setting{}
	for _, s := range settings(reflect.ValueOf(&next).Elem(), "") {
		known[s.env()] = s
	}
	var faults []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || ownedByCLI[name] {
			continue
		}
		s, ok := known[name]
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		if s.name == "tokens" && value == "" { // it would let everybody in
			faults = append(faults, fmt.Errorf("environment %s is \"\" (allowed: a file of tokens; unset it for that of the configuration file, or for none)", name))
			continue
		}
		if err := s.set(value); err != nil {
			faults = append(faults, fmt.Errorf("environment %s is %q (allowed: %w)", name, value, err))
		}
	}
	sort.Strings(unknown)
	if len(faults) > 0 {
		return unknown, errors.Join(faults...)
	}
	*c = next
	return unknown, nil
}

// allowed says what a setting can be.
func (s setting) allowed() string {
	if _, ok := s.value.Interface().(time.Duration); ok {
		return "a duration such as 500ms, 10s or 5m"
	}
	switch s.value.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	default:
		return "a text"
	}
}

// set parses a value; its error says what is allowed.
func (s setting) set(value string) error {
	if _, ok := s.value.Interface().(time.Duration); ok {
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New(s.allowed())
		}
		s.value.SetInt(int64(d))
		return nil
	}
	switch s.value.Kind() {
	case reflect.String:
		s.value.SetString(value)
	case reflect.Bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New(s.allowed())
		}
		s.value.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errors.New(s.allowed())
		}
		s.value.SetInt(n)
	default:
		return fmt.Errorf("nothing: the setting %s is of kind %s and cannot come from the environment", s.name, s.value.Kind())
	}
	return nil
}
