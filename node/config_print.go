package node

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// settingDocs says what each setting is, with its unit. A test compares the
// names with the struct's.
var settingDocs = map[string]string{
	"node_id":  "Id of this node, of no other over the store, and in every ledger block it writes. Default: the host's name.",
	"listen":   "Address to serve on, host:port. Anything but loopback needs tls, or insecure.",
	"insecure": "Allow an address beyond loopback without TLS: only where something else encrypts.",
	"store":    "Where the data is: embedded:DIR, DIR, or fdb:FILE.",
	"tokens":   "File of the tokens of those who may call (coffer token new); read again when it changes. Empty: everybody may, for every tenant.",

	"tls.cert_file": "Certificate file (PEM). Both files or neither.",
	"tls.key_file":  "Key file of the certificate (PEM).",

	"executor.batch_limit":    "Most commands one transaction takes (commands).",
	"executor.queue_limit":    "Most commands that may wait for one bucket, and of one tenant for another node; one more is refused with OVERLOADED (commands).",
	"executor.total_limit":    "Most commands accepted and not yet answered, over all buckets and tenants; a tenant gets at most half of what the others leave of them, also one that is alone, one more is refused with OVERLOADED (commands).",
	"executor.tenant_limit":   "Most commands of one tenant accepted and not yet answered; 0: the half that total_limit speaks of; a call that comes while it has none is taken whole (commands).",
	"executor.tenant_rate":    "Most commands of one tenant in a second that this node takes on the average, after a pause twice as many; 0: any number (commands per second).",
	"executor.tenants":        "Tenants with limits of their own in place of the two: NAME=LIMIT/RATE,… such as acme=2000/500; 0 is no limit.",
	"executor.commit_timeout": "Bound of one batch, all its retries included (duration).",

	"expiry.interval":       "From one pass of the expiry scanner to the next (duration).",
	"expiry.page_rows":      "Most index rows read at once (rows).",
	"expiry.pass_limit":     "Most reservations one pass expires (reservations).",
	"expiry.rate":           "Most reservations expired in a second (reservations per second).",
	"expiry.catch_up_after": "How long money may be overdue before catch_up_rate replaces rate (duration).",
	"expiry.catch_up_rate":  "Rate while money is overdue for longer than catch_up_after (reservations per second).",
	"expiry.stall_after":    "How long no pass may complete before the leader says that it is not ready, and nobody lead before a node warns (duration).",

	"queue.open_jobs": "Most jobs of a tenant that are ready, leased or dead letters; one more is refused with QUEUE_FULL (jobs).",
	"queue.leases":    "Most jobs of one queue that are leased at once (jobs).",

	"facts.deadline":   "How long a fact may wait for what it needs before it is an exception (duration).",
	"facts.retry_base": "First time between two looks at a fact that waits; it doubles up to retry_max (duration).",
	"facts.retry_max":  "Longest time between two looks at a fact that waits (duration).",

	"relay.lease":            "How long a relay may give no sign of life before others deliver its partitions (duration).",
	"relay.poll":             "How late new events and changes of sinks are noticed where no watch tells (duration).",
	"relay.watch":            "Notice new events at once, by watches of the store.",
	"relay.batch":            "Most events handed to a sink at once (events).",
	"relay.deliver_timeout":  "How long the delivery of one batch may take (duration).",
	"relay.tries":            "How often an event is refused before its key is parked (tries).",
	"relay.failing_tries":    "How often an event fails otherwise before its key is parked, if the sink answers pings (tries).",
	"relay.max_parked":       "Most events of a sink that are parked in one partition; there it then stands still (events).",
	"relay.max_backoff":      "Longest wait between two tries of a sink in trouble (duration).",
	"relay.retention":        "How long events can be read again after every sink has them (duration).",
	"relay.private_webhooks": "Allow webhooks to loopback, private and link-local addresses.",

	"events.source": "Names this installation in events: a URI, which a slash and the tenant make the CloudEvents source. The same on all nodes over a store.",

	"work.interval":    "From one pass over leases, facts and finished jobs to the next (duration).",
	"work.owners":      "Most tenants and queues one pass looks at (queues).",
	"work.pass_limit":  "Most jobs, and orders with facts, one pass handles, divided equally among the owners (jobs).",
	"work.stall_after": "How long no pass may complete before the leader says that it is not ready (duration).",

	"rebalance.enabled":    "Keep budgets level over their buckets, and bring home what retired buckets get back.",
	"rebalance.interval":   "From one pass over the budgets to the next (duration).",
	"rebalance.pass_limit": "Most budgets one pass looks at; the next goes on after them (budgets).",
	"rebalance.rate":       "Most budgets looked at, and moves made, in a second (budgets and moves per second).",
	"rebalance.skew_limit": "How far apart the fullest and the emptiest bucket in use may be before they are levelled (percent of an equal share).",
	"rebalance.low_water":  "What is left of a budget's funds when it is gathered in fewer buckets; 0: never (percent).",
	"rebalance.max_moves":  "Most moves within a budget in one pass (moves).",

	"adapt.enabled":        "Give budgets another number of buckets by their load on this node.",
	"adapt.min":            "Fewest buckets that a budget gets by itself (buckets).",
	"adapt.max":            "Most buckets that a budget gets by itself (buckets).",
	"adapt.grow_queued":    "How many commands wait for a bucket, on the average, before their number is doubled (commands).",
	"adapt.shrink_queued":  "Below how many waiting commands the number may be halved (commands).",
	"adapt.grow_conflicts": "How many batches conflict before the number is doubled (percent).",
	"adapt.shrink_rate":    "Below how many commands of a bucket the number may be halved (commands per second).",
	"adapt.low_water":      "What is left of a budget's funds when the number is halved (percent).",
	"adapt.cool_down":      "Least time from one change of a budget's buckets to the next (duration).",

	"integrity.enabled":    "Replay every bucket's ledger all the time, and compare it with the bucket's row.",
	"integrity.freeze":     "Refuse new reservations of a budget in which a difference was found.",
	"integrity.interval":   "From one pass over the budgets to the next (duration).",
	"integrity.pass_limit": "Most budgets one pass looks at; the next goes on after them (budgets).",
	"integrity.rate":       "Most entries replayed in a second; a look at a bucket counts as sixteen (entries per second).",
	"integrity.full_every": "From one round over a bucket's whole ledger to the next (duration).",

	"http.max_connections":     "Most connections open at once (connections).",
	"http.max_streams":         "Most calls in flight on one HTTP/2 connection (calls).",
	"http.read_header_timeout": "Bound of reading a request's header (duration).",
	"http.idle_timeout":        "How long an idle connection is kept (duration).",

	"api.default_tenant":    "Tenant of calls without the header Coffer-Tenant; empty: such calls are refused.",
	"api.max_message_bytes": "Largest request, after decompression (bytes).",
	"api.max_command_calls": "Most calls open at once that bring commands, better above executor.total_limit; a tenant gets at most half of what the others leave of these, and of each kind below (calls).",
	"api.max_calls":         "Most calls open at once that are none of the others here: reads, jobs, facts, sinks (calls).",
	"api.max_event_streams": "Most streams of events open at once (streams).",
	"api.max_work_streams":  "Most streams of jobs open at once (streams).",
	"api.max_scans":         "Most calls at once that read whole ledgers: replays, verifications, audits, rebuilds of the expiry index (calls).",
	"api.reflection":        "Answer gRPC reflection, which describes the API to tools.",

	"tracing.endpoint": "Collector that takes spans of calls, as OTLP over HTTP: a URL such as http://127.0.0.1:4318. Empty: nothing is traced.",
	"tracing.one_in":   "Of so many calls that belong to no trace one begins a trace; calls with a trace follow their caller (calls).",

	"log.level":  "debug, info, warn or error.",
	"log.format": "json, console, or auto: console on a terminal, else json.",

	"shutdown.delay":   "How long the node answers \"not ready\" before it stops accepting (duration).",
	"shutdown.timeout": "Bound of answering every accepted command after that (duration).",

	"cluster.peers":            "All nodes that take part in elections, this one too: ID=HOST:PORT,… of their Raft. Empty: this node has none.",
	"cluster.raft_listen":      "Address that Raft listens on, host:port; empty: the one in peers.",
	"cluster.data_dir":         "Directory of Raft's log, of this node alone.",
	"cluster.election_timeout": "How long a leader may be silent before the others elect a new one (duration).",
	"cluster.ca_file":          "Certificates (PEM) of the authority that has signed the nodes' own; with it and tls, nodes prove themselves to each other.",

	"cluster.advertise":       "Base URL by which the other nodes over the store reach this one, to share buckets; auto: the address it listens on; empty: it shares none.",
	"cluster.heartbeat":       "From one sign of life in the store to the next (duration).",
	"cluster.dead_after":      "How long a node may give no sign of life before it gets no more commands and its id is free; a node that was killed waits as long when it is started again (duration).",
	"cluster.forward_timeout": "Bound of a call that takes commands to another node; then they run here (duration).",

	"debug.pprof": "Serve /debug/pprof/, only on a loopback address.",
}

// YAML is the configuration as a complete file: every setting with what it is,
// its default and its variable. Loading it gives the same configuration. A
// node id that is the host's name stands there as a comment, so that the file
// can be used on other machines.
func (c Config) YAML() []byte {
	var b bytes.Buffer
	b.WriteString("# Configuration of coffer serve. A setting that is left out has its default. Durations\n" +
		"# are numbers with units: 500ms, 10s, 5m, 1h30m. COFFER_… variables win over this file,\n# flags over both.\n")
	def := DefaultConfig()
	defaults := settings(reflect.ValueOf(&def).Elem(), "")
	group := ""
	for i, s := range settings(reflect.ValueOf(&c).Elem(), "") {
		section, key, nested := strings.Cut(s.name, ".")
		indent := "  "
		if !nested {
			section, key, indent = "", s.name, ""
		}
		if section != group {
			fmt.Fprintf(&b, "\n%s:\n", section)
			group = section
		} else {
			b.WriteString("\n")
		}
		value, standard := s.text(), defaults[i].text()
		fmt.Fprintf(&b, "%s# %s\n", indent, settingDocs[s.name])
		if s.name == "node_id" {
			fmt.Fprintf(&b, "# env %s\n", s.env())
			if value == standard {
				indent = "# "
			}
		} else {
			fmt.Fprintf(&b, "%s# default %s; env %s\n", indent, standard, s.env())
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, key, value)
	}
	return b.Bytes()
}

// text is a setting's value as it stands in the file.
func (s setting) text() string {
	switch v := s.value.Interface().(type) {
	case time.Duration:
		t := v.String()
		for _, zero := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
			if strings.HasSuffix(t, zero) {
				t = t[:len(t)-2]
			}
		}
		return t
	case string:
		if v == "" {
			return `""`
		}
		raw, err := yaml.Marshal(v)
		if err != nil || bytes.Count(raw, []byte("\n")) != 1 {
			return strconv.Quote(v)
		}
		return strings.TrimSpace(string(raw))
	default:
		return fmt.Sprint(v)
	}
}
