//go:build !unix

package embedded

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readLock is no lock: there is none for those who may not write.
func readLock(vfs.FS, string) (io.Closer, error) { return nil, nil }
