package fdbkv

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// The documents are as client libraries and clusters of version 7.3 give
// them, shortened.
func TestDiagnosis(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	const created = `{"AvailableClients":[{"ProtocolVersion":"fdb00b073000000","ReleaseVersion":"7.3.79"}],"InitializationState":"created","ProtocolVersion":"fdb00b073000000"}`
	const initializing = `{"AvailableClients":[{"ProtocolVersion":"fdb00b073000000","ReleaseVersion":"7.3.79"}],"InitializationState":"initializing"}`
	for name, tc := range map[string]struct {
		client, cluster string
		dials           []error
		want            error
		text            []string
	}{
		"other protocol": {
			client: `{"AvailableClients":[{"ProtocolVersion":"fdb00b073000000","ReleaseVersion":"7.3.79"}],"InitializationState":"incompatible","ProtocolVersion":"fdb00b071010000"}`,
			dials:  []error{nil}, want: ErrProtocol, text: []string{"the cluster speaks 7.1", "7.3 (FoundationDB 7.3.79)", "install the client library"},
		},
		"nobody there": {
			client: initializing, dials: []error{refused, refused, &net.DNSError{Err: "no such host", Name: "fdb-3", IsNotFound: true}},
			want: ErrUnreachable, text: []string{"h0:1 refuses connections, h1:1 refuses connections, h2:1 has no address", "/etc/f.cluster", "more than half must answer"},
		},
		"half there": {
			client: initializing, dials: []error{nil, refused}, want: ErrUnreachable, text: []string{"h0:1 takes connections, h1:1 refuses"},
		},
		"something else listens": {
			client: initializing, dials: []error{nil}, want: ErrUnavailable, text: []string{"gives no read version"},
		},
		"wrong cluster": {
			client: created, dials: []error{nil}, cluster: `{"client":{"coordinators":{"quorum_reachable":false}}}`,
			want: ErrUnreachable, text: []string{"the file is the one that the cluster's own machines have now"},
		},
		"never configured": {
			client: created, dials: []error{nil, nil, refused},
			cluster: `{"client":{"coordinators":{"quorum_reachable":true}},"cluster":{"recovery_state":{"name":"configuration_never_created","description":"The coordinator(s) have no record of this database."}}}`,
			want:    ErrUnavailable, text: []string{"never configured", "configure new"},
		},
		"recovery stuck": {
			client: created, dials: []error{nil},
			cluster: `{"client":{"coordinators":{"quorum_reachable":true}},"cluster":{"recovery_state":{"name":"recruiting_transaction_servers","description":"Recruiting new transaction servers."}}}`,
			want:    ErrUnavailable, text: []string{"stands at recruiting_transaction_servers (Recruiting new transaction servers.)"},
		},
		"other trouble": {
			client: created, dials: []error{nil},
			cluster: `{"client":{"coordinators":{"quorum_reachable":true}},"cluster":{"recovery_state":{"name":"fully_recovered"},"messages":[{"name":"storage_server_lagging","description":"too far behind"}]}}`,
			want:    ErrUnavailable, text: []string{"storage_server_lagging: too far behind"},
		},
		"no documents": {dials: []error{nil}, want: ErrUnavailable, text: []string{"fdbcli -C /etc/f.cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnosis{file: "/etc/f.cluster", client: []byte(tc.client), cluster: []byte(tc.cluster)}
			for i, err := range tc.dials {
				d.coordinators = append(d.coordinators, coordinator{"h" + string(rune('0'+i)) + ":1", err})
			}
			err := d.explain()
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			for _, part := range tc.text {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}
