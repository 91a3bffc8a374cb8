package node

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deadlines records what is set on the connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestBodyDeadlineEndsWithTheBody(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	h := bodyDeadline(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(w.set) != 1 || w.set[0].IsZero() {
			t.Errorf("deadlines %v before the body is read, want one", w.set)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || string(b) != "body" {
			t.Errorf("body %q, %v", b, err)
		}
		if len(w.set) != 2 || !w.set[1].IsZero() {
			t.Errorf("deadlines %v after the body was read, want it lifted", w.set)
		}
	}), time.Minute)
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
	w.set = nil
	bodyDeadline(http.NotFoundHandler(), time.Minute).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if len(w.set) != 0 {
		t.Errorf("a request without a body got deadlines %v", w.set)
	}
}

// A body that never ends frees its connection.
func TestStalledBodyIsCutOff(t *testing.T) {
	failed := make(chan error, 1)
	srv := httptest.NewServer(bodyDeadline(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	}), 10*time.Millisecond))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the body was read to its end, which never came")
	}
	if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection ends with %v", err)
	}
}
