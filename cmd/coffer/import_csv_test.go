package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// readAll reads a file's rows into one line each: "line order benefit amount
// currency", or "line code field: reason".
func readAll(t *testing.T, text string) ([]string, error) {
	t.Helper()
	src, err := openRows(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var out []string
	for {
		r, rej, err := src.next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case rej != nil:
			out = append(out, fmt.Sprintf("%d %s %s: %s", rej.Line, rej.Code, rej.Field, rej.Reason))
		default:
			out = append(out, fmt.Sprintf("%d %s %s %d %s", r.line, r.order, r.benefit, r.amount, r.currency))
		}
	}
}

func TestRows(t *testing.T) {
	const header = "order_id,benefit_key,amount_minor,currency\n"
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"plain":         {header + "o1,b1,5,BRL\no2,b2,6,BRL\n", []string{"2 o1 b1 5 BRL", "3 o2 b2 6 BRL"}},
		"no last line":  {header + "o1,b1,5,BRL", []string{"2 o1 b1 5 BRL"}},
		"bom and crlf":  {"\ufefforder_id,benefit_key,amount_minor,currency\r\no1,b1,5,BRL\r\n", []string{"2 o1 b1 5 BRL"}},
		"other order":   {"Currency, amount_minor ,benefit_key,order_id\nBRL,5,b1,o1\n", []string{"2 o1 b1 5 BRL"}},
		"extra columns": {"note,order_id,x,benefit_key,amount_minor,currency\nhi,o1,,b1,5,BRL\n", []string{"2 o1 b1 5 BRL"}},
		"quoted":        {header + `"o,1","b ""x""",5,"BRL"` + "\n", []string{`2 o,1 b "x" 5 BRL`}},
		"quoted lines":  {"note,order_id,benefit_key,amount_minor,currency\n\"two\nlines\",o1,b1,5,BRL\n,o2,b2,6,BRL\n", []string{"2 o1 b1 5 BRL", "4 o2 b2 6 BRL"}},
		"blank lines":   {header + "\no1,b1,5,BRL\n\n\no2,b2,6,BRL\n\n", []string{"3 o1 b1 5 BRL", "6 o2 b2 6 BRL"}},
		"broken rows": {header + "o1,b1,5\no2,b2,6,BRL,x\no3,b\"3,7,BRL\n\"o4\"x,b4,8,BRL\no5,b5,9,BRL\n", []string{
			"2 BROKEN_ROW : row has 3 fields (allowed: 4, as the header)",
			"3 BROKEN_ROW : row has 5 fields (allowed: 4, as the header)",
			"4 BROKEN_ROW : a quote stands inside an unquoted field; quote the field and double the quote",
			"5 BROKEN_ROW : text follows a closing quote; double quotes inside a quoted field",
			"6 o5 b5 9 BRL",
		}},
		"open quote costs one line": {header + "\"o1,b1,5,BRL\no2,b2,6,BRL\no3,b3,7,BRL\n", []string{
			"2 BROKEN_ROW : a quoted field does not end; close its quote", "3 o2 b2 6 BRL", "4 o3 b3 7 BRL",
		}},
		"amounts": {header + "o1,b1,1.5,BRL\no2,b2,,BRL\no3,b3,99999999999999999999,BRL\no4,b4,0,BRL\n", []string{
			`2 INVALID_ARGUMENT amount_minor: amount_minor "1.5" is not a whole number of minor units (allowed: 1 to 9223372036854775807)`,
			`3 INVALID_ARGUMENT amount_minor: amount_minor "" is not a whole number of minor units (allowed: 1 to 9223372036854775807)`,
			`4 INVALID_ARGUMENT amount_minor: amount_minor "99999999999999999999" is out of range (allowed: 1 to 9223372036854775807)`,
			"5 o4 b4 0 BRL",
		}}, // the server refuses it
		"not utf-8": {header + "o\xff,b1,5,BRL\n", []string{`2 INVALID_ARGUMENT order_id: order_id "o\xff" is not valid UTF-8 (allowed: UTF-8)`}},
	} {
		got, err := readAll(t, tc.in)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s:\n got %q, %v\nwant %q", name, got, err, tc.want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"empty":          {"", "file is empty; its first line must name the columns order_id,benefit_key,amount_minor,currency"},
		"blank":          {"\n\n", "file is empty"},
		"missing column": {"order_id,amount_minor,currency\no1,5,BRL\n", `line 1: column benefit_key is missing (found: "order_id,amount_minor,currency"); nothing was sent`},
		"no header":      {"o1,b1,5,BRL\n", "line 1: column order_id, benefit_key, amount_minor, currency is missing"},
		"semicolons":     {"order_id;benefit_key;amount_minor;currency\n", "separate fields by commas"},
		"twice":          {"order_id,benefit_key,amount_minor,currency,order_id\n", "line 1: column order_id is there twice"},
		"bad header":     {"order_id,\"benefit_key,amount_minor,currency\n", "line 1: header cannot be read: a quoted field does not end"},
		"utf-16":         {"\xff\xfeo\x00r\x00", "file is UTF-16; save it as UTF-8 CSV"},
		"long line":      {"order_id,benefit_key,amount_minor,currency\n" + strings.Repeat("x", 2<<20), "line 2 is longer than 1048576 bytes"},
	} {
		if _, err := readAll(t, tc.in); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

func FuzzRows(f *testing.F) {
	f.Add("order_id,benefit_key,amount_minor,currency\n\"o,1\",b,5,BRL\r\n\"x\n")
	f.Add("\ufefforder_id,benefit_key,amount_minor,currency\n\n\"\",\"\"\"\",1,X\n")
	f.Fuzz(func(t *testing.T, text string) {
		src, err := openRows(strings.NewReader(text))
		if err != nil {
			return
		}
		last := 1
		for {
			r, rej, err := src.next()
			if err != nil {
				return
			}
			line := r.line
			if rej != nil {
				line = rej.Line
			}
			if line <= last {
				t.Fatalf("line %d comes after line %d", line, last)
			}
			last = line
		}
	})
}
