package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of one record of a file.
const (
	maxLineBytes   = 1 << 20
	maxRecordLines = 64 // a quoted field may hold line ends
)

// record reads one record. One that is broken costs its first line and no
// more: reading goes on with the line after it, even when a quote that never
// ends seems to swallow the rest of the file.
func (r *rows) record() ([]string, *reject, error) {
	first, err := r.lines.next()
	for err == nil && first.text == "" {
		first, err = r.lines.next()
	}
	if err != nil {
		return nil, nil, err
	}
	r.line = first.n
	text := first.text
	var more []line
	for {
		rec, fault := split(text)
		if fault == nil && r.names != nil && len(rec) != len(r.names) {
			fault = fmt.Errorf("row has %d fields (allowed: %d, as the header)", len(rec), len(r.names))
		}
		if fault == nil {
			return rec, nil, nil
		}
		if errors.Is(fault, errOpenQuote) && len(more) < maxRecordLines && len(text) < maxLineBytes {
			l, err := r.lines.next()
			if err == nil {
				more = append(more, l)
				text += "\n" + l.text
				continue
			}
			if !errors.Is(err, io.EOF) {
				return nil, nil, err
			}
		}
		r.lines.back(more)
		return nil, &reject{Line: first.n, Code: codeBrokenRow, Reason: fault.Error(), raw: first.text}, nil
	}
}

// Faults of a record's form, after RFC 4180.
var (
	errOpenQuote  = errors.New("a quoted field does not end; close its quote")
	errBareQuote  = errors.New("a quote stands inside an unquoted field; quote the field and double the quote")
	errAfterQuote = errors.New("text follows a closing quote; double quotes inside a quoted field")
)

// split cuts the text of one record into fields.
func split(text string) ([]string, error) {
	var out []string
	for {
		if !strings.HasPrefix(text, `"`) {
			field, rest, more := strings.Cut(text, ",")
			if strings.Contains(field, `"`) {
				return nil, errBareQuote
			}
			out = append(out, field)
			if !more {
				return out, nil
			}
			text = rest
			continue
		}
		field, rest, err := unquote(text[1:])
		if err != nil {
			return nil, err
		}
		out = append(out, field)
		if rest == "" {
			return out, nil
		}
		if rest[0] != ',' {
			return nil, errAfterQuote
		}
		text = rest[1:]
	}
}

// unquote reads a quoted field whose opening quote is gone already.
func unquote(text string) (field, rest string, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '"')
		if i < 0 {
			return "", "", errOpenQuote
		}
		b.WriteString(text[:i])
		text = text[i+1:]
		if !strings.HasPrefix(text, `"`) {
			return b.String(), text, nil
		}
		b.WriteByte('"')
		text = text[1:]
	}
}

// line is one line of a file, without its end.
type line struct {
	n    int
	text string
}

// lineReader reads lines of bounded length that end with LF or CR LF, and
// takes lines back.
type lineReader struct {
	in    *bufio.Reader
	n     int
	ahead []line
}

func (r *lineReader) back(lines []line) { r.ahead = append(lines, r.ahead...) }

func (r *lineReader) next() (line, error) {
	if len(r.ahead) > 0 {
		l := r.ahead[0]
		r.ahead = r.ahead[1:]
		return l, nil
	}
	var b strings.Builder
	for {
		part, err := r.in.ReadSlice('\n')
		b.Write(part)
		switch {
		case b.Len() > maxLineBytes:
			return line{}, fmt.Errorf("line %d is longer than %d bytes; the file is not CSV with one row a line", r.n+1, maxLineBytes)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && b.Len() == 0:
			return line{}, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return line{}, fmt.Errorf("read line %d: %w", r.n+1, err)
		}
		r.n++
		return line{r.n, strings.TrimSuffix(strings.TrimSuffix(b.String(), "\n"), "\r")}, nil
	}
}
