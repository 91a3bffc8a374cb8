package event

// Attribute is one of a CloudEvent's, for transports that carry them in headers.
type Attribute struct{ Name, Value string }

// attributes lists the envelope's members that are attributes, but for
// datacontenttype, which each transport has a header of its own for.
func (v *envelope) attributes() []struct {
	name string
	at   *string
} {
	return []struct {
		name string
		at   *string
	}{
		{"specversion", &v.SpecVersion},
		{"id", &v.ID},
		{"source", &v.Source},
		{"type", &v.Type},
		{"subject", &v.Subject},
		{"time", &v.Time},
		{"partitionkey", &v.PartitionKey},
		{"sequence", &v.Sequence},
		{"correlationid", &v.CorrelationID},
		{"traceparent", &v.TraceParent},
	}
}

// Attributes is the event in two parts: its attributes, always in the same order
// and without those that are empty, and its data, of DataContentType.
func (e *Event) Attributes() ([]Attribute, []byte, error) {
	v, err := e.envelope()
	if err != nil {
		return nil, nil, err
	}
	var out []Attribute
	for _, a := range v.attributes() {
		if *a.at != "" {
			out = append(out, Attribute{a.name, *a.at})
		}
	}
	return out, v.Data, nil
}

// FromAttributes reads what Attributes gave; get returns the value of an
// attribute, "" where there is none. Its errors are those of Parse.
func FromAttributes(get func(name string) string, data []byte) (*Event, error) {
	v := envelope{Data: data}
	for _, a := range v.attributes() {
		*a.at = get(a.name)
	}
	return v.event()
}
