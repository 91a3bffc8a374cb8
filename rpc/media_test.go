package rpc

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// A request of a content type that is not taken is told which ones are; one that
// is taken is answered as ever.
func TestContentTypeThatIsNotTaken(t *testing.T) {
	w := newQueueWorld(t)
	const (
		unary = " (allowed: application/json, application/proto, gRPC, gRPC-Web)\n"
		multi = " (allowed: application/connect+json, application/connect+proto, gRPC, gRPC-Web)\n"
	)
	for _, tc := range []struct {
		path, contentType string
		status            int
		text              string
	}{
		{reservePath, "", 415, "the request has no Content-Type" + unary},
		{reservePath, "application/x-www-form-urlencoded", 415, `Content-Type "application/x-www-form-urlencoded" is not taken by this call` + unary},
		{cofferv1connect.QueueServiceWorkProcedure, "", 415, "the request has no Content-Type" + multi},
		{cofferv1connect.QueueServiceWorkProcedure, "application/json", 415, `Content-Type "application/json" is not taken by this call` + multi},
		{cofferv1connect.OperatorServiceGetStatusProcedure, "Application/JSON; charset=utf-8", 200, "{"},
		{"/", "", 404, "404 page not found\n"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+tc.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if tc.contentType != "" {
			req.Header.Set("Content-Type", tc.contentType)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tc.status || !strings.HasPrefix(string(body), tc.text) || (tc.status == 415 && string(body) != tc.text) {
			t.Errorf("%s with %q: status %d, %q, %v, want %d, %q", tc.path, tc.contentType, res.StatusCode, body, err, tc.status, tc.text)
		}
		if accepts := res.Header.Get("Accept-Post") != ""; accepts != (tc.status == 415) {
			t.Errorf("%s with %q: header %v", tc.path, tc.contentType, res.Header)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A stream whose content type is written in another way flushes each message.
func TestStreamBehindMediaWriter(t *testing.T) {
	w := newQueueWorld(t)
	body := "\x00\x00\x00\x00\x02{}"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+cofferv1connect.QueueServiceWorkProcedure, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "Application/Connect+JSON")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(got), "INVALID_ARGUMENT") {
		t.Errorf("status %d, %q, %v", res.StatusCode, got, err)
	}
}
