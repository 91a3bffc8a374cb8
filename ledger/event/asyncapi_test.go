package event

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type schema struct {
	Ref, Type, Description, Const string
	Properties                    map[string]schema
	Required                      []string
	OneOf                         []schema `yaml:"oneOf"`
}

// UnmarshalYAML reads $ref, which is no name for a field.
func (s *schema) UnmarshalYAML(n *yaml.Node) error {
	type plain schema
	if err := n.Decode((*plain)(s)); err != nil {
		return err
	}
	var r struct {
		Ref string `yaml:"$ref"`
	}
	err := n.Decode(&r)
	s.Ref = r.Ref
	return err
}

// The published description of events says what the code does: every type, every
// field, its kind, and whether it is always there.
func TestAsyncAPI(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "proto", "events.asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		AsyncAPI   string
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(b, &doc); err != nil || doc.AsyncAPI != "3.0.0" {
		t.Fatalf("asyncapi %q, %v", doc.AsyncAPI, err)
	}
	var described []string
	for _, c := range doc.Components.Schemas["Type"].OneOf {
		described = append(described, c.Const)
		if c.Description == "" {
			t.Errorf("type %s is not described", c.Const)
		}
	}
	if !slices.Equal(described, Types()) {
		t.Errorf("the file lists the types\n%q\nwant, in this order\n%q", described, Types())
	}
	structs := map[string]any{"Event": envelope{}, "Data": Data{}, "Balances": Balances{}, "Peer": Peer{}}
	if len(doc.Components.Schemas) != len(structs)+1 {
		t.Errorf("the file has %d schemas, want Type and %d more", len(doc.Components.Schemas), len(structs))
	}
	for name, v := range structs {
		checkSchema(t, name, doc.Components.Schemas[name], reflect.TypeOf(v))
	}
	checkRefs(t, b)
}

func checkSchema(t *testing.T, name string, s schema, typ reflect.Type) {
	t.Helper()
	var required []string
	if len(s.Properties) != typ.NumField() {
		t.Errorf("%s has %d properties, the struct %d fields", name, len(s.Properties), typ.NumField())
	}
	for f := range typ.Fields() {
		field, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		if omit == "" {
			required = append(required, field)
		}
		p, ok := s.Properties[field]
		if !ok {
			t.Errorf("%s lacks %s", name, field)
			continue
		}
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int64: "integer", reflect.Uint16: "integer", reflect.Uint32: "integer", reflect.Uint64: "integer"}[f.Type.Kind()]
		ref := ""
		switch {
		case field == "type":
			want, ref = "", "Type"
		case f.Type == reflect.TypeFor[json.RawMessage]():
			want, ref = "", "Data"
		case f.Type.Kind() == reflect.Pointer:
			ref = f.Type.Elem().Name()
		case f.Type.Kind() == reflect.Struct:
			ref = f.Type.Name()
		}
		if p.Type != want || strings.TrimPrefix(p.Ref, "#/components/schemas/") != ref {
			t.Errorf("%s.%s is of type %q, %q; want %q, %q", name, field, p.Type, p.Ref, want, ref)
		}
	}
	if !slices.Equal(s.Required, required) {
		t.Errorf("%s requires %v, want %v", name, s.Required, required)
	}
}

// checkRefs looks up what every $ref names.
func checkRefs(t *testing.T, b []byte) {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}
	refs := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				refs++
				var at any = root
				for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					at = m[name]
				}
				if at == nil {
					t.Errorf("%s names nothing", ref)
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(root)
	if refs < 20 {
		t.Errorf("only %d references", refs)
	}
}
