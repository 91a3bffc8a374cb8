package node

import (
	"net/http"
	"time"

	"github.com/coffer-ledger/coffer/proto/gen/coffer/v1/cofferv1connect"
)

// streamGrace is how long a subscriber may take to read what is on its way to it
// when the node leaves.
const streamGrace = time.Second

// streamDeadline cuts streams of events off that are not read once the node
// leaves: a write waits for its reader for as long as that likes, and the
// shutdown would wait with it. Other answers are short. The subscriber goes on
// behind the last event it has.
func streamDeadline(next http.Handler, leaving <-chan struct{}, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == cofferv1connect.EventServiceSubscribeProcedure {
			ended := make(chan struct{})
			defer close(ended)
			go func() {
				select {
				case <-leaving:
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
				case <-ended:
				}
			}()
		}
		next.ServeHTTP(w, r)
	})
}
