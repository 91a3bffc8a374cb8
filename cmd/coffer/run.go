package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/encoding/protojson"

	cofferv1 "github.com/coffer-ledger/coffer/proto/gen/coffer/v1"
	"github.com/coffer-ledger/coffer/rpc"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // refused, or failed
	exitUsage  = 2
)

// usageError is a fault of the command line that kong cannot see.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errFailed ends a command with exit code 1 whose output says why already.
var errFailed = errors.New("failed")

// globals are the flags of every command.
type globals struct {
	JSON bool `help:"Print JSON for programs instead of tables." name:"json"`
}

// remote are the flags of commands that call a server. Those that do not call
// one do not have them.
type remote struct {
	Server  string        `help:"Server's base URL (default: ${default}, env COFFER_SERVER)." default:"http://127.0.0.1:7420" placeholder:"URL" empty:"name a URL, or leave the flag out to use COFFER_SERVER or the default"`
	Tenant  string        `help:"Tenant (default: that of the token, or default; env COFFER_TENANT)." placeholder:"NAME" empty:"name a tenant, or leave the flag out to use COFFER_TENANT or the default"`
	Timeout time.Duration `help:"Time one call may take, its retries included." default:"30s" placeholder:"30s" range:"more than 0s"`

	TokenFile string `help:"File with the token to show (env COFFER_TOKEN_FILE; COFFER_TOKEN has the token itself)." name:"token-file" placeholder:"FILE"`
	Insecure  bool   `help:"Show the token over http:// beyond this machine, too: only where something else encrypts."`
	trust     `embed:""`
}

// AfterApply hands the flags to the command.
func (r *remote) AfterApply(c *cli) error {
	c.remote = *r
	return nil
}

// app is the command line.
type app struct {
	globals

	Serve   serveCmd   `cmd:"" help:"Run a node." group:"Server"`
	Dev     devCmd     `cmd:"" help:"Run a node on this machine for trying things out." group:"Server"`
	Demo    demoCmd    `cmd:"" help:"Run three nodes in this process, drive promotion traffic at them, pause one, kill one, and audit." group:"Server"`
	Budget  budgetCmd  `cmd:"" help:"Create, fund and look at budgets." group:"Operations"`
	Order   orderCmd   `cmd:"" help:"Reserve, commit, release and refund benefits of orders." group:"Operations"`
	Wallet  walletCmd  `cmd:"" help:"Create wallets, grant credits and read statements." group:"Operations"`
	Job     jobCmd     `cmd:"" help:"Charge, refund and settle what jobs cost: usage billing with wallets." group:"Operations"`
	Queue   queueCmd   `cmd:"" help:"Queues of work that is done later or again, and its dead letters." group:"Operations"`
	Fact    factCmd    `cmd:"" help:"What other systems say happened: payments, refunds, results of jobs." group:"Operations"`
	Events  eventsCmd  `cmd:"" help:"What happened in the ledger: print it, deliver it, settle what a receiver refused." group:"Operations"`
	Import  importCmd  `cmd:"" help:"Send a CSV file of benefits through the server." group:"Operations"`
	Ledger  ledgerCmd  `cmd:"" help:"Read, replay and verify the ledger." group:"Proof"`
	Audit   auditCmd   `cmd:"" help:"Check every invariant of a server or a store." group:"Proof"`
	Token   tokenCmd   `cmd:"" help:"Make tokens for those who may call a server, and list them." group:"Operations"`
	Cluster clusterCmd `cmd:"" help:"The nodes over the store: who leads, who has how many buckets; drain one." group:"Operations"`
	Expiry  expiryCmd  `cmd:"" help:"Repair the expiry index." group:"Proof"`
	Store   storeCmd   `cmd:"" help:"Check a store, or raise its incarnation after a restore." group:"Proof"`
	Bench   benchCmd   `cmd:"" help:"Measure this machine, with an audit after each run." group:"Server"`
	Version versionCmd `cmd:"" help:"Print the version." group:"Server"`
}

// cli is what a command gets: the world and the global flags.
type cli struct {
	ctx            context.Context
	stdout, stderr io.Writer
	columns        int             // of the terminal that stdout is, 0: it is none
	flags          map[string]bool // that the command has
	env            []string
	*globals
	remote
}

// getenv looks a variable up in the environment that run was given.
func (c *cli) getenv(name string) (string, bool) {
	for i := len(c.env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(c.env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// flagEnv names the variables that stand in for flags.
var flagEnv = map[string]string{"server": "COFFER_SERVER", "tenant": "COFFER_TENANT", "ca": "COFFER_CA", "config": "COFFER_CONFIG"}

const description = `A ledger for promotion budgets, credits and other money-like benefits: each is
paid exactly once. Begin with "coffer demo", or with "coffer dev" in one terminal
and "coffer budget create SPRING --currency BRL" in another.

Exit codes: 0 it worked, 1 it was refused or failed, 2 the command line is wrong.
With --json an error is on stdout, too, as "error". "coffer --version" prints the
version.`

// exited carries an exit code out of kong, which wants to end the process.
type exited int

// run is the whole program but for the process around it. It returns the
// exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, env []string) (code int) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exited)
			if !ok {
				panic(p)
			}
			code = int(e)
		}
	}()
	var a app
	c := &cli{ctx: ctx, stdout: stdout, stderr: stderr, columns: columnsOf(stdout), env: env, globals: &a.globals}
	parser, err := kong.New(&a,
		kong.Name("coffer"),
		kong.Description(description),
		kong.Bind(c),
		kong.Writers(stdout, stderr),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
			if v, ok := c.getenv(flagEnv[f.Name]); ok && v != "" {
				return v, nil
			}
			return nil, nil
		})),
	)
	if err != nil {
		panic(err) // a fault of the program: the command line's definition
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	switch args[0] {
	case "--version":
		args = append([]string{"version"}, args[1:]...)
	case "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	k, err := parser.Parse(joinNegative(args))
	if err != nil {
		c.JSON = c.JSON || slices.Contains(args, "--json") // it may not have come so far
		return c.usage(err)
	}
	c.flags = flagsOf(k)
	if err := emptyFlag(k); err != nil {
		return c.finish(err)
	}
	if err := idleFlags(k); err != nil {
		return c.finish(err)
	}
	if err := outOfRange(k); err != nil {
		return c.finish(err)
	}
	return c.finish(k.Run(c))
}

// mayBeEmpty are the flags whose empty value means nothing but "none".
var mayBeEmpty = map[string]bool{"page": true, "correlation": true}

// emptyFlag refuses a flag that was given without a value, such as from a
// variable of a script that is not set: it must never mean the default, which
// may be another server, tenant or key than the caller believes.
func emptyFlag(k *kong.Context) error {
	for _, p := range k.Path {
		if p.Flag == nil || p.Resolved || mayBeEmpty[p.Flag.Name] || p.Flag.Target.Kind() != reflect.String || p.Flag.Target.String() != "" {
			continue
		}
		hint := "give it a value, or leave the flag out"
		if p.Flag.Tag.Has("empty") {
			hint = p.Flag.Tag.Get("empty")
		}
		return usagef("--%s is empty; %s", p.Flag.Name, hint)
	}
	return nil
}

// idleFlags refuses a flag that was given and would do nothing beside the
// others. The command tells, by a method idle.
func idleFlags(k *kong.Context) error {
	n := k.Selected()
	if n == nil || !n.Target.CanAddr() {
		return nil
	}
	cmd, ok := n.Target.Addr().Interface().(interface {
		idle(given map[string]bool) error
	})
	if !ok {
		return nil
	}
	given := map[string]bool{}
	for _, p := range k.Path {
		if p.Flag != nil && !p.Resolved {
			given[p.Flag.Name] = true
		}
	}
	return cmd.idle(given)
}

// idleFlag refuses a flag that would do nothing.
func idleFlag(name, allowed string) error {
	return usagef("--%s would do nothing (allowed: %s)", name, allowed)
}

// What kong says of arguments.
var (
	missing  = regexp.MustCompile(`^expected "(<.+)"$`)
	unwanted = regexp.MustCompile(`^unexpected argument (.+?)(, did you mean .+)?$`)
)

// usage reports a wrong command line.
func (c *cli) usage(err error) int {
	where, commands := "coffer", []string(nil)
	var at *kong.Context
	var pe *kong.ParseError
	if errors.As(err, &pe) && pe.Context != nil {
		at = pe.Context
		n := at.Selected()
		if n != nil {
			where = strings.TrimSpace("coffer " + n.Path())
		} else {
			n = at.Model.Node
		}
		for _, child := range n.Children {
			commands = append(commands, child.Name)
		}
	}
	words, ok := unreadable(at, err.Error())
	if !ok {
		words = inWords(err.Error(), where, commands)
	}
	c.tellUsage(usagef("%s", words))
	c.notef("try: %s --help\n", where)
	return exitUsage
}

// inWords says what is wrong with a command line in words of our own. commands
// are those that may follow where.
func inWords(said, where string, commands []string) string {
	allowed := " (allowed: " + strings.Join(commands, ", ") + ")"
	if strings.HasPrefix(said, "expected one of ") && len(commands) > 0 {
		return where + " needs a command" + allowed
	}
	if m := unwanted.FindStringSubmatch(said); m != nil && len(commands) > 0 {
		return m[1] + " is no command of " + where + m[2] + allowed
	}
	if m := missing.FindStringSubmatch(said); m != nil {
		return "missing arguments: " + m[1]
	}
	if where == "coffer" && strings.HasPrefix(said, "unknown flag ") {
		return said + "; a command's flags stand after it"
	}
	return said
}

// tellUsage says what is wrong with a command line, with --json on stdout, too.
func (c *cli) tellUsage(err error) {
	if c.JSON {
		_ = c.printJSON(map[string]any{"error": map[string]any{"code": "usage", "message": err.Error(), "outcome_unknown": false}})
	}
	c.notef("coffer: %v\n", err)
}

// finish turns a command's error into words and an exit code. With --json the
// error stands on stdout too, in a form that programs can tell apart.
func (c *cli) finish(err error) int {
	var ue usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(err, &ue):
		c.tellUsage(err)
		return exitUsage
	}
	if c.JSON {
		_ = c.printJSON(map[string]any{"error": jsonError(err)})
	}
	c.notef("coffer: %v\n", err)
	return exitFailed
}

// jsonError is an error for programs: what the server said, where it did.
func jsonError(err error) map[string]any {
	out := map[string]any{"message": err.Error()}
	var e *rpc.Error
	var item refusedItem
	var st storeError
	var detail *cofferv1.ErrorDetail
	switch {
	case errors.As(err, &e):
		out["code"], out["outcome_unknown"] = e.Code.String(), e.Unknown
		detail = e.Detail
	case errors.As(err, &item):
		out["outcome_unknown"] = false
		detail = item.detail
	case errors.As(err, &st):
		out["problem"] = storeProblem(err)
	}
	if detail != nil {
		if raw, merr := protojson.Marshal(detail); merr == nil {
			out["detail"] = jsonRaw(raw)
		}
	}
	return out
}
