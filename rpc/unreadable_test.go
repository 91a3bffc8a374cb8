package rpc

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// A refusal does not send back all that it refuses.
func TestLongUnreadableValue(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 1<<20)
	for name, body := range map[string]string{
		"value": `{"amount_minor":"` + long + `"}`, "field": `{"` + long + `":1}`, "duration": `{"ttl":"` + long + `"}`,
	} {
		e := rawPost(t, w, "Reserve", "application/json", []byte(body))
		if d := e.Detail; e.Code != connect.CodeInvalidArgument || !strings.Contains(d.GetMessage(), "cannot be read") || len(d.String()) > 1000 || len(e.Error()) > 1000 {
			t.Errorf("%s: code %s, %d bytes, detail %.1000s", name, e.Code, len(e.Error()), d)
		}
	}
}

// A message that ends early is the caller's fault, not the ledger's.
func TestHalfAMessage(t *testing.T) {
	w := newQueueWorld(t)
	defer http.DefaultClient.CloseIdleConnections()
	for _, tc := range []struct{ path, contentType, body string }{
		{reservePath, "application/grpc", "\x00\x00"},
		{reservePath, "application/grpc", "\x00\x00\x00\x00\x20ab"},
		{reservePath, "application/grpc-web", "\x00\x00\x00\x00\x20ab"},
		{cofferv1connect.QueueServiceWorkProcedure, "application/connect+json", "\x00\x00\x00\x00\x20{}"},
		{cofferv1connect.QueueServiceWorkProcedure, "application/connect+json", "\x77\x00\x00\x00\x02{}"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", tc.contentType)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		said := string(body) + res.Header.Get("Grpc-Message") + res.Trailer.Get("Grpc-Message")
		if err != nil || !strings.Contains(said, "INVALID_ARGUMENT: message coffer.v1.") || !strings.Contains(said, "cannot be read: protocol error: ") {
			t.Errorf("%s %q: %q, %v", tc.contentType, tc.body, said, err)
		}
	}
}
