package fdbkv

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// clientStatus is the part that matters here of what the client library says
// of itself.
type clientStatus struct {
	State            string `json:"InitializationState"`
	ProtocolVersion  string
	AvailableClients []struct{ ProtocolVersion, ReleaseVersion string }
}

// clusterStatus is the part that matters here of the cluster's status.
type clusterStatus struct {
	Client struct {
		Coordinators struct {
			Reachable bool `json:"quorum_reachable"`
		}
	}
	Cluster struct {
		Recovery struct{ Name, Description string } `json:"recovery_state"`
		Messages []struct{ Name, Description string }
	}
}

// coordinator is one coordinator of the cluster file and what a connection to
// it met; nil: it takes connections.
type coordinator struct {
	address string
	err     error
}

// diagnosis is what is known about a cluster that does not answer.
type diagnosis struct {
	file            string
	client, cluster []byte // status documents; empty where there is none
	coordinators    []coordinator
}

// explain names the reason why the cluster does not answer, and what to do.
func (d diagnosis) explain() error {
	var cl clientStatus
	haveClient := json.Unmarshal(d.client, &cl) == nil
	if haveClient && cl.State == "incompatible" {
		var ours []string
		for _, c := range cl.AvailableClients {
			ours = append(ours, fmt.Sprintf("%s (FoundationDB %s)", release(c.ProtocolVersion), c.ReleaseVersion))
		}
		return fmt.Errorf("%w: the cluster speaks %s, this process %s; install the client library of the cluster's version, "+
			"or put it into a folder that FDB_NETWORK_OPTION_EXTERNAL_CLIENT_DIRECTORY names", ErrProtocol, release(cl.ProtocolVersion), strings.Join(ours, ", "))
	}
	var st clusterStatus
	haveCluster := json.Unmarshal(d.cluster, &st) == nil
	if up := d.reached(); 2*up <= len(d.coordinators) || (haveCluster && !st.Client.Coordinators.Reachable) {
		return fmt.Errorf("%w: %s of %s; more than half must answer: check that fdbserver runs there, that this machine reaches it, "+
			"and that the file is the one that the cluster's own machines have now", ErrUnreachable, d.list(), d.file)
	}
	if r := st.Cluster.Recovery; r.Name == "configuration_never_created" {
		return fmt.Errorf(`%w: it was never configured; on a cluster without data run: fdbcli -C %s --exec "configure new double ssd"`, ErrUnavailable, d.file)
	} else if r.Name != "" && r.Name != "fully_recovered" && r.Name != "all_logs_recruited" && r.Name != "accepting_commits" {
		return fmt.Errorf("%w: its recovery stands at %s (%s); see fdbcli -C %s --exec status", ErrUnavailable, r.Name, strings.Join(strings.Fields(r.Description), " "), d.file)
	}
	why := "it takes connections but gives no read version"
	for _, m := range st.Cluster.Messages {
		why += fmt.Sprintf("; %s: %s", m.Name, m.Description)
	}
	return fmt.Errorf("%w: %s; see fdbcli -C %s --exec status", ErrUnavailable, why, d.file)
}

// reached counts the coordinators that take connections.
func (d diagnosis) reached() (n int) {
	for _, c := range d.coordinators {
		if c.err == nil {
			n++
		}
	}
	return n
}

// list is the coordinators with what each said.
func (d diagnosis) list() string {
	var out []string
	for _, c := range d.coordinators {
		out = append(out, c.address+" "+reason(c.err))
	}
	return strings.Join(out, ", ")
}

// reason says in a word why a connection failed.
func reason(err error) string {
	var dns *net.DNSError
	switch {
	case err == nil:
		return "takes connections"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections"
	case errors.As(err, &dns):
		return "has no address"
	case errors.Is(err, os.ErrDeadlineExceeded), strings.Contains(err.Error(), "timeout"):
		return "does not answer"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return "cannot be reached (" + err.Error() + ")"
}

// release is the release, such as 7.3, of a protocol version in hexadecimal,
// such as fdb00b073000000. The client library's sources say: after the fixed
// digits come those of the release.
func release(protocol string) string {
	if digits, ok := strings.CutPrefix(protocol, "fdb00b0"); ok && len(digits) >= 2 {
		return digits[:1] + "." + digits[1:2]
	}
	return "an unknown version " + protocol
}
