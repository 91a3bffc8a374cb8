package node

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// flawed is an engine that cannot read a file.
type flawed struct{ faults chan error }

func (f flawed) ReadFaults() <-chan error { return f.faults }

// What a disk does not give is in the log, with the file, and not each time.
func TestReadFaultsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		e := flawed{make(chan error, 1)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			logReadFaults(ctx, zerolog.New(&log), e)
		}()
		tell := func(what string) {
			select {
			case e.faults <- errors.New(what):
			default:
			}
			synctest.Wait()
		}
		for range 100 {
			tell("read 000012.sst: input/output error")
		}
		time.Sleep(readFaultsPause)
		synctest.Wait()
		cancel()
		<-ended
		const line = `{"level":"error","error":"read 000012.sst: input/output error","message":"the disk does not give a file of the store; what needs it is refused with UNAVAILABLE until it does: look at the disk"}` + "\n"
		if log.String() != line+line { // of the first, and of one while it paused
			t.Errorf("log %s\nwant twice %s", &log, line)
		}
		logReadFaults(t.Context(), zerolog.New(&log), struct{}{}) // an engine that tells of none
	})
}
