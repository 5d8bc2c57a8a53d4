//go:build linux || darwin

package local

import (
	"os"
	"os/signal"
	"syscall"
)

// dropped receives the signals that our process ignored. Nobody reads it. An ignored signal
// would be ignored by every command we start, as exec passes that on; a caught one is reset
// to its default. So they are caught, and dropped here, to the same effect for us.
type dropped chan os.Signal

func newDropped() dropped { return make(dropped, 1) }

// catch catches the signals that are ignored now, as far as the runtime knows. It is cheap.
func (d dropped) catch() {
	for s := syscall.Signal(1); s < 32; s++ {
		if signal.Ignored(s) {
			signal.Notify(d, s)
		}
	}
}

// catchInherited also catches those that were ignored before our process began and that the
// runtime takes no notice of.
func (d dropped) catchInherited() {
	for _, s := range inheritedIgnored() {
		signal.Notify(d, s)
	}
	d.catch()
}
