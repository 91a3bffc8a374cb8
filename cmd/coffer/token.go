package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/coffer-ledger/coffer/rpc/access"
)

type tokenCmd struct {
	New  tokenNew  `cmd:"" help:"Make a token and print it, once."`
	List tokenList `cmd:"" help:"List the tokens of a file."`
}

// maxTokenFile bounds a file that holds one token.
const maxTokenFile = 4 << 10

// token is the token to show to a server, empty for none: that of the file, or
// of the environment. No flag takes it, since everybody on a machine can read
// the command lines of the others.
func (c *cli) token() (string, error) {
	from, file := "COFFER_TOKEN", c.TokenFile
	if file == "" {
		file, _ = c.getenv("COFFER_TOKEN_FILE")
	}
	token, _ := c.getenv(from)
	if file != "" {
		from = file
		raw, err := readBounded(file, maxTokenFile)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		token = string(raw)
	} else if token == "" {
		return "", nil
	}
	token = strings.TrimSpace(token)
	if access.IDOf(token) == "" {
		return "", usagef("%s holds no token (allowed: coffer_ID_SECRET, as coffer token new prints it)", from)
	}
	return token, nil
}

// readBounded reads a file that must not be larger.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, nil
}

type tokenNew struct {
	ID      string   `help:"Name of the token, in logs and in the file: small letters, digits and hyphens." name:"id" required:"" placeholder:"ID"`
	Tenant  string   `help:"Tenant it is for; '*' for every tenant." required:"" placeholder:"NAME"`
	Role    []string `help:"service, operator, auditor or monitor; several with commas." required:"" placeholder:"ROLE"`
	Expires string   `help:"How long it is good, such as 90d or 12h (default: for ever)." placeholder:"TIME"`
	Comment string   `help:"What it is for." placeholder:"TEXT"`
	File    string   `help:"Put it into this file of tokens, at the end. Without it the entry is printed." placeholder:"FILE"`
}

// Help is the long help.
func (tokenNew) Help() string {
	return `The token goes to stdout and is nowhere else: the file has only the SHA-256 of
its secret. A service does the work of orders, wallets, queues and facts; an
auditor reads; a monitor sees metrics and the state of nodes; an operator may do
everything. A node reads its file again when it changes (coffer serve --tokens),
so a token is revoked by taking its entry out.

Examples:
  coffer token new --id checkout --tenant shop --role service --expires 90d --file tokens.yaml >checkout.token
  coffer token new --id ops --tenant '*' --role operator`
}

// Run makes a token.
func (t *tokenNew) Run(c *cli) error {
	e := access.Entry{ID: t.ID, Tenant: t.Tenant, Comment: t.Comment}
	for _, name := range t.Role {
		role, err := access.ParseRole(name)
		if err != nil {
			return usagef("--%w", err)
		}
		e.Roles |= role
	}
	if t.Expires != "" {
		d, err := parseExpiry(t.Expires)
		if err != nil {
			return err
		}
		e.NotAfter = time.Now().Add(d).UTC().Truncate(time.Second)
	}
	token, sum, err := access.New(t.ID)
	if err != nil {
		return usagef("--%w", err)
	}
	e.Sum = sum
	if _, err := access.Append(nil, e); err != nil {
		return usagef("the token cannot be written down: %w", err)
	}
	if t.File != "" {
		if err := addToken(t.File, e); err != nil {
			return fmt.Errorf("tokens %s: %w", t.File, err)
		}
	}
	if c.JSON {
		out := shownToken(&e, time.Now())
		out["token"], out["sha256"] = token, hex.EncodeToString(e.Sum[:])
		return c.printJSON(out)
	}
	c.printf("%s\n", token)
	if t.File != "" {
		c.notef("token %s is in %s; this is the only time that it is shown\n", t.ID, t.File)
	} else {
		c.notef("this is the only time that it is shown; put its entry under \"tokens:\" in the server's file:\n\n%s", e.YAML(2))
	}
	return nil
}

// parseExpiry reads a time with units, days among them.
func parseExpiry(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err != nil || d < time.Second {
		return 0, usagef("--expires is %.40q (allowed: a number with a unit, such as 90d or 12h)", s)
	}
	return d, nil
}

// addToken puts an entry into a file, at once: a node reads the file as it was
// or as it is then. A new file is for its owner alone; another keeps its mode and
// its owner, so that whoever could read it still can. Several at once go one after
// the other, each with what the ones before it have written.
func addToken(path string, e access.Entry) (err error) {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	was, err := os.Stat(path)
	var raw []byte
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !was.Mode().IsRegular():
		return errors.New("it is no regular file")
	default:
		if raw, err = readBounded(path, access.MaxFileBytes); err != nil {
			return err
		}
	}
	if raw, err = access.Append(raw, e); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(raw)
	if was != nil {
		err = errors.Join(err, f.Chmod(was.Mode().Perm()), keepOwner(f, was))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

type tokenList struct {
	File string `help:"The file of tokens." required:"" placeholder:"FILE"`
}

// Help is the long help.
func (tokenList) Help() string { return "Example:\n  coffer token list --file tokens.yaml" }

// Run lists.
func (t *tokenList) Run(c *cli) error {
	raw, err := readBounded(t.File, access.MaxFileBytes)
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	set, err := access.Parse(raw)
	if err != nil {
		return fmt.Errorf("tokens %s:\n%w", t.File, err)
	}
	now, entries := time.Now(), set.Entries()
	if c.JSON {
		out := make([]map[string]any, len(entries))
		for i := range entries {
			out[i] = shownToken(&entries[i], now)
		}
		return c.printJSON(map[string]any{"tokens": out})
	}
	if len(entries) == 0 {
		c.printf("%s has no tokens: nobody may call\n", t.File)
		return nil
	}
	w := c.table(table.Row{"id", "tenant", "roles", "state", "until", "comment"})
	for i := range entries {
		e := &entries[i]
		until := ""
		if !e.NotAfter.IsZero() {
			until = e.NotAfter.Format(time.RFC3339)
		}
		w.row(e.ID, e.Tenant, e.Roles, stateOf(e, now), until, e.Comment)
	}
	w.print()
	return nil
}

func stateOf(e *access.Entry, now time.Time) string {
	if e.Expired(now) {
		return "expired"
	}
	return "good"
}

// shownToken is an entry for programs.
func shownToken(e *access.Entry, now time.Time) map[string]any {
	out := map[string]any{"id": e.ID, "tenant": e.Tenant, "roles": e.Roles.Names(), "expired": e.Expired(now)}
	if !e.NotAfter.IsZero() {
		out["not_after"] = e.NotAfter.Format(time.RFC3339)
	}
	if e.Comment != "" {
		out["comment"] = e.Comment
	}
	return out
}
