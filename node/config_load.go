package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// envPrefix starts the name of every environment variable of the node.
const envPrefix = "COFFER_"

// ownedByCLI are variables of the command line's own; they are not settings
// of a node.
var ownedByCLI = map[string]bool{
	"COFFER_CONFIG": true, "COFFER_SERVER": true, "COFFER_TENANT": true,
}

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// LoadFile lays a YAML file over the configuration. An unknown key is an
// error that names the key and its line; so is a value of the wrong type.
func (c *Config) LoadFile(path string) error {
	f, err := os.Open(path)
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

// LoadYAML lays a YAML document over the configuration. On error the
// configuration is unchanged.
func (c *Config) LoadYAML(raw []byte) error {
	next := *c
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&next); err != nil && !errors.Is(err, io.EOF) {
		return yamlError(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one document; keep one")
	}
	*c = next
	return nil
}

var unknownKey = regexp.MustCompile(`^line (\d+): field (\S+) not found in type \S+$`)

// yamlError says what is wrong in the file's words instead of Go's.
func yamlError(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var out []error
	for _, e := range te.Errors {
		if m := unknownKey.FindStringSubmatch(e); m != nil {
			e = fmt.Sprintf("line %s: unknown key %q; remove it or correct its spelling", m[1], m[2])
		}
		out = append(out, errors.New(e))
	}
	return errors.Join(out...)
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

// set parses a value; its error says what is allowed.
func (s setting) set(value string) error {
	if _, ok := s.value.Interface().(time.Duration); ok {
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New("a duration such as 500ms, 10s or 5m")
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
			return errors.New("true or false")
		}
		s.value.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errors.New("a whole number")
		}
		s.value.SetInt(n)
	default:
		return fmt.Errorf("nothing: the setting %s is of kind %s and cannot come from the environment", s.name, s.value.Kind())
	}
	return nil
}
