package node

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// bodyTimeout bounds how long a request's body may take to arrive. The
// messages are small: a body that takes longer is stalled, and a connection
// that waits for it is one less for the others.
const bodyTimeout = 30 * time.Second

// bodyDeadline gives each request's body a deadline. It ends with the body, and
// so does not cut a long answer, as http.Server.ReadTimeout would.
func bodyDeadline(next http.Handler, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w)}
			if b.conn.SetReadDeadline(time.Now().Add(d)) == nil {
				r.Body = b
			}
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody lifts the deadline when the body was read to its end.
type timedBody struct {
	io.ReadCloser
	conn   *http.ResponseController
	lifted atomic.Bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.lifted.CompareAndSwap(false, true) {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}
