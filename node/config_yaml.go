package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// LoadYAML lays a YAML document over the configuration. On error the
// configuration is unchanged.
func (c *Config) LoadYAML(raw []byte) error {
	next := *c
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return yamlError(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one document; keep one")
	}
	if len(doc.Content) == 0 { // empty, or comments only
		return nil
	}
	w := newYAMLCheck()
	w.mapping(doc.Content[0], "")
	if len(w.faults) > 0 {
		return errors.Join(w.faults...)
	}
	strict := yaml.NewDecoder(bytes.NewReader(raw))
	strict.KnownFields(true)
	if err := strict.Decode(&next); err != nil && !errors.Is(err, io.EOF) {
		return yamlError(err)
	}
	*c = next
	return nil
}

// yamlError says what is wrong in the file's words.
func yamlError(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var out []error
	for _, e := range te.Errors {
		out = append(out, errors.New(e))
	}
	return errors.Join(out...)
}

// yamlCheck compares a document with the settings. It names faults by the
// file's keys, where the decoder would name Go's types.
type yamlCheck struct {
	leaves map[string]setting
	groups map[string]bool
	faults []error
}

func newYAMLCheck() *yamlCheck {
	scratch := DefaultConfig()
	w := &yamlCheck{leaves: map[string]setting{}, groups: map[string]bool{}}
	for _, s := range settings(reflect.ValueOf(&scratch).Elem(), "") {
		w.leaves[s.name] = s
		if group, _, nested := strings.Cut(s.name, "."); nested {
			w.groups[group] = true
		}
	}
	return w
}

func (w *yamlCheck) faultf(n *yaml.Node, format string, args ...any) {
	w.faults = append(w.faults, fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...))
}

// mapping checks the keys of one level.
func (w *yamlCheck) mapping(n *yaml.Node, prefix string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		if n.Tag == "!!null" {
			return
		}
		if prefix == "" {
			w.faultf(n, "the file is %s (allowed: settings, such as listen: %s)", yamlText(n), DefaultListen)
		} else {
			w.faultf(n, "%s is %s (allowed: a group of settings)", strings.TrimSuffix(prefix, "."), yamlText(n))
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := prefix + key.Value
		s, leaf := w.leaves[name]
		switch {
		case key.Tag == "!!merge": // left to the decoder
		case prefix == "" && w.groups[name]:
			w.mapping(value, name+".")
		case !leaf:
			w.faultf(key, "unknown key %q; remove it or correct its spelling", key.Value)
		default:
			w.leaf(s, value)
		}
	}
}

// leaf checks one value.
func (w *yamlCheck) leaf(s setting, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return // as if it were not there
	}
	var err error
	_, duration := s.value.Interface().(time.Duration)
	switch {
	case n.Kind != yaml.ScalarNode:
		err = errors.New(s.allowed())
	case duration:
		err = s.set(n.Value)
	case n.Decode(reflect.New(s.value.Type()).Interface()) != nil:
		err = errors.New(s.allowed())
	}
	if err != nil {
		w.faultf(n, "%s is %s (allowed: %w)", s.name, yamlText(n), err)
	}
}

// yamlText is a value as an error repeats it.
func yamlText(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a group of settings"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}
