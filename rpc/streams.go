package rpc

import (
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
)

// streamGrace is how long a caller may take to read what is on its way to it when
// the node leaves.
const streamGrace = time.Second

// streamMux cuts streams off when the node leaves.
type streamMux struct {
	connecthttp.ServeMux
	streams map[string]bool // procedures
	leaving <-chan struct{}
	grace   time.Duration
}

// cuttingStreams mounts the procedures of rpc.
func cuttingStreams(mux connecthttp.ServeMux, rpc *connect.Server, leaving <-chan struct{}, grace time.Duration) streamMux {
	m := streamMux{mux, map[string]bool{}, leaving, grace}
	for spec := range rpc.Specs() {
		m.streams[spec.Procedure] = spec.StreamType != connect.StreamTypeUnary
	}
	return m
}

func (m streamMux) Handle(pattern string, h http.Handler) {
	if m.streams[pattern] {
		h = cutOff(h, m.leaving, m.grace)
	}
	m.ServeMux.Handle(pattern, h)
}

// cutOff gives an answer that is not read an end, d after the node began to
// leave: a write waits for its reader for as long as that likes, and the
// shutdown would wait with it. A subscriber goes on behind the last event it has.
func cutOff(next http.Handler, leaving <-chan struct{}, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			select {
			case <-leaving:
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
			case <-ended:
			}
		})
		defer watch.Wait() // w must not be used once this returns
		defer close(ended)
		next.ServeHTTP(w, r)
	})
}
