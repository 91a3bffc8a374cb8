package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newNap gives a sleep for the arrivals of a load, and what ends its use. It
// wakes through the poller that also brings network packets: to some ten
// microseconds, where the runtime's own timers are up to a millisecond off on
// an idle machine, and while the garbage collector uses what is idle. An
// arrival is as late as a packet would be. It is not safe for concurrent use.
func newNap() (nap func(time.Duration), end func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return time.Sleep, func() {}
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	ticks := make([]byte, 8)
	nap = func(d time.Duration) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))}
		if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
			time.Sleep(d)
			return
		}
		if _, err := f.Read(ticks); err != nil {
			time.Sleep(d)
		}
	}
	return nap, func() { _ = f.Close() } // nothing was written
}
