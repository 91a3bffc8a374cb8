package access

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds of a file.
const (
	// MaxFileBytes bounds the file, maxTokens the tokens in it.
	MaxFileBytes = 4 << 20
	maxTokens    = 10_000
	// maxFaults bounds those that an error names.
	maxFaults = 30
	// maxComment bounds a comment in bytes.
	maxComment = 256
)

// Parse reads a file. Its error joins all faults, each with its line, unless they
// are very many. An empty list is legal and admits nobody; a file without the
// list is a fault.
func Parse(raw []byte) (*Set, error) {
	if len(raw) > MaxFileBytes {
		return nil, fmt.Errorf("the file is larger than %d bytes", MaxFileBytes)
	}
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document; keep one")
	}
	r := reader{set: &Set{byID: map[string]*Entry{}}}
	if len(doc.Content) == 0 {
		doc.Content = []*yaml.Node{{Kind: yaml.MappingNode, Line: 1}}
	}
	r.file(doc.Content[0])
	if r.more > 0 {
		r.faults = append(r.faults, fmt.Errorf("and %d faults more", r.more))
	}
	if len(r.faults) > 0 {
		return nil, errors.Join(r.faults...)
	}
	for i := range r.set.entries {
		r.set.byID[r.set.entries[i].ID] = &r.set.entries[i]
	}
	return r.set, nil
}

// reader collects entries and faults. It names faults by the file's keys.
type reader struct {
	set    *Set
	faults []error
	more   int // faults that are not kept
}

func (r *reader) faultf(n *yaml.Node, format string, args ...any) {
	if len(r.faults) == maxFaults {
		r.more++
		return
	}
	r.faults = append(r.faults, fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...))
}

// pairs calls each for the keys of a mapping. Unknown and repeated keys are faults.
func (r *reader) pairs(n *yaml.Node, what string, keys map[string]func(*yaml.Node)) (seen map[string]bool) {
	if n.Kind != yaml.MappingNode {
		r.faultf(n, "%s", what)
		return nil
	}
	seen = map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read := keys[key.Value]
		switch {
		case read == nil:
			r.faultf(key, "unknown key %s; remove it or correct its spelling", shown(key.Value))
		case seen[key.Value]:
			r.faultf(key, "key %q stands there twice", key.Value)
		default:
			seen[key.Value] = true
			read(value)
		}
	}
	return seen
}

func (r *reader) file(n *yaml.Node) {
	seen := r.pairs(n, `the file is no mapping (allowed: the key "tokens" with a list)`, map[string]func(*yaml.Node){"tokens": r.list})
	if seen != nil && !seen["tokens"] {
		r.faultf(n, "the file has no tokens; coffer token new --file adds one")
	}
}

func (r *reader) list(n *yaml.Node) {
	switch {
	case n.Kind != yaml.SequenceNode:
		r.faultf(n, "tokens is no list")
		return
	case len(n.Content) > maxTokens:
		r.faultf(n, "tokens are %d (allowed: up to %d)", len(n.Content), maxTokens)
		return
	}
	lines := map[string]int{}
	for _, item := range n.Content {
		e, ok := r.entry(item)
		if !ok {
			continue
		}
		if at := lines[e.ID]; at != 0 {
			r.faultf(item, "id %q is that of line %d, too (allowed: an id once)", e.ID, at)
			continue
		}
		lines[e.ID] = item.Line
		r.set.entries = append(r.set.entries, e)
	}
}

// entry reads one token. ok: it has an id by which the others can be compared.
func (r *reader) entry(n *yaml.Node) (e Entry, ok bool) {
	seen := r.pairs(n, "the token is no mapping (allowed: id, tenant, roles, sha256, not_after, comment)", map[string]func(*yaml.Node){
		"id": func(v *yaml.Node) {
			if e.ID = r.text(v, "id"); !legalID(e.ID) {
				r.faultf(v, "id is %s (allowed: %s)", shown(e.ID), idRule)
				e.ID = ""
			}
		},
		"tenant": func(v *yaml.Node) {
			e.Tenant = r.text(v, "tenant")
			if err := checkTenant(e.Tenant); err != nil {
				r.faultf(v, "%w", err)
			}
		},
		"roles": func(v *yaml.Node) { e.Roles = r.roles(v) },
		"sha256": func(v *yaml.Node) {
			sum, err := hex.DecodeString(r.text(v, "sha256"))
			if err != nil || len(sum) != len(e.Sum) {
				r.faultf(v, "sha256 has %d characters (allowed: 64 hexadecimal digits, as coffer token new prints them)", len(v.Value))
			}
			copy(e.Sum[:], sum)
		},
		"not_after": func(v *yaml.Node) {
			at, err := time.Parse(time.RFC3339, r.text(v, "not_after"))
			if err != nil || at.IsZero() { // that would be no end
				r.faultf(v, "not_after is %s (allowed: a time such as 2030-01-31T00:00:00Z)", shown(v.Value))
			}
			e.NotAfter = at.UTC()
		},
		"comment": func(v *yaml.Node) {
			if e.Comment = r.text(v, "comment"); len(e.Comment) > maxComment {
				r.faultf(v, "comment has %d bytes (allowed: up to %d)", len(e.Comment), maxComment)
			}
		},
	})
	if seen == nil {
		return e, false
	}
	for _, key := range []string{"id", "tenant", "roles", "sha256"} {
		if !seen[key] {
			r.faultf(n, "the token has no %s", key)
		}
	}
	return e, e.ID != ""
}

func (r *reader) roles(n *yaml.Node) (roles Roles) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.faultf(n, "roles is no list of roles (allowed: some of %s)", strings.Join(roleNames, ", "))
		return 0
	}
	for _, item := range n.Content {
		role, err := ParseRole(r.text(item, "role"))
		switch {
		case err != nil:
			r.faultf(item, "%w", err)
		case roles&role != 0:
			r.faultf(item, "role %s stands there twice", role)
		}
		roles |= role
	}
	return roles
}

// text is a scalar's value; whatever else stands there is a fault.
func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		r.faultf(n, "%s is no text", what)
		return ""
	}
	return n.Value
}

// YAML is the entry as it stands in a file, each line indented by so many spaces.
func (e *Entry) YAML(indent int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		lead := "  "
		if b.Len() == 0 {
			lead = "- "
		}
		b.WriteString(strings.Repeat(" ", indent) + lead + fmt.Sprintf(format, args...) + "\n")
	}
	line("id: %s", quoted(e.ID))
	line("tenant: %s", quoted(e.Tenant))
	line("roles: [%s]", e.Roles)
	line("sha256: %s", quoted(hex.EncodeToString(e.Sum[:])))
	if !e.NotAfter.IsZero() {
		line("not_after: %s", e.NotAfter.UTC().Format(time.RFC3339))
	}
	if e.Comment != "" {
		line("comment: %s", quoted(e.Comment))
	}
	return b.String()
}

// quoted is a text in YAML that is read as a text: "123" is no number then.
func quoted(s string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
	raw, err := yaml.Marshal(&n)
	if err != nil || bytes.Count(raw, []byte("\n")) != 1 {
		return fmt.Sprintf("%q", s)
	}
	return strings.TrimSpace(string(raw))
}

// Append is the file with one more token at its end; what stands there, comments
// too, stays as it is. An empty file becomes one with this token.
func Append(raw []byte, e Entry) ([]byte, error) {
	indent, before := 2, &Set{}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("# Tokens of coffer serve (setting tokens). The node reads this file again when it changes.\ntokens:\n")
	} else {
		var err error
		if before, err = Parse(raw); err != nil {
			return nil, err
		}
		if indent, err = indentOf(raw); err != nil {
			return nil, err
		}
	}
	out := bytes.Clone(raw)
	if !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, '\n')
	}
	out = append(out, e.YAML(indent)...)
	after, err := Parse(out)
	if err != nil {
		return nil, err
	}
	if len(after.entries) != len(before.entries)+1 || after.entries[len(before.entries)] != e {
		return nil, errors.New("the token cannot be put at the file's end; put it into the list by hand")
	}
	return out, nil
}

// indentOf is how far the items of the list stand from the margin.
func indentOf(raw []byte) (int, error) {
	var doc struct{ Tokens yaml.Node }
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return 0, err
	}
	if n := doc.Tokens; n.Style&yaml.FlowStyle == 0 {
		return n.Column - 1, nil
	}
	return 0, errors.New("the list is written in brackets; put the token into it by hand")
}
