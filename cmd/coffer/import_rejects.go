package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// rejectColumns stand after a row's own columns in the file of rejected rows.
var rejectColumns = []string{"line", "code", "reason"}

// refusal counts the rows that were rejected for one reason: a code and the
// field that it speaks of.
type refusal struct {
	Rows    int    `json:"rows"`
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
	Example reject `json:"example"` // the first such row of the file
}

// rejectLog collects the rejected rows: all of them for the file, else those
// shown, and how many each reason has. Answers come in any order; what it
// writes is sorted by line.
type rejectLog struct {
	n    int
	by   map[[2]string]*refusal // by code and field
	all  []reject
	keep int // columns of the imported file that the file of rejects has
	head []string
	file *os.File
}

// newRejectLog makes the file at once, so that a path that cannot be written
// stops the import before anything is sent. Importing a file of rejects again
// replaces its last columns.
func newRejectLog(path string, head []string) (*rejectLog, error) {
	l := &rejectLog{head: head, keep: len(head), by: map[[2]string]*refusal{}}
	if n := len(head) - len(rejectColumns); n > 0 && slices.Equal(head[n:], rejectColumns) {
		l.keep = n
	}
	if path == "" {
		return l, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--rejects: %w", err)
	}
	l.file = f
	return l, nil
}

func (l *rejectLog) add(r reject) {
	l.n++
	why := [2]string{r.Code, r.Field}
	f := l.by[why]
	if f == nil {
		f = &refusal{Code: r.Code, Field: r.Field, Example: r}
		l.by[why] = f
	}
	f.Rows++
	if r.Line < f.Example.Line {
		f.Example = r
	}
	l.all = append(l.all, r)
	if l.file == nil && len(l.all) >= 2*rejectsShown { // the first ones are enough
		l.all = l.first()
	}
}

// first are the rejected rows to show.
func (l *rejectLog) first() []reject {
	l.sort()
	return l.all[:min(len(l.all), rejectsShown)]
}

// reasons are the reasons of all rejected rows, the one of most rows first.
func (l *rejectLog) reasons() []refusal {
	var out []refusal
	for _, f := range l.by {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b refusal) int {
		return cmp.Or(b.Rows-a.Rows, strings.Compare(a.Code, b.Code), strings.Compare(a.Field, b.Field))
	})
	return out
}

func (l *rejectLog) sort() {
	slices.SortStableFunc(l.all, func(a, b reject) int { return a.Line - b.Line })
}

// close writes the file.
func (l *rejectLog) close() error {
	if l.file == nil {
		return nil
	}
	l.sort()
	w := csv.NewWriter(l.file)
	_ = w.Write(append(slices.Clone(l.head[:l.keep]), rejectColumns...)) // Error gives what fails
	for _, r := range l.all {
		_ = w.Write(l.fields(r))
	}
	w.Flush()
	if err := errors.Join(w.Error(), l.file.Close()); err != nil {
		return fmt.Errorf("--rejects: %w", err)
	}
	return nil
}

// fields is a rejected row with line, code and reason. The columns of a row
// whose fields cannot be told apart stay empty, and the row stands in the
// reason.
func (l *rejectLog) fields(r reject) []string {
	out := make([]string, l.keep, l.keep+len(rejectColumns))
	copy(out, r.record)
	reason := r.Reason
	if r.record == nil {
		reason += ": " + strings.ToValidUTF8(r.raw, "\uFFFD")
	}
	return append(out, strconv.Itoa(r.Line), r.Code, reason)
}
