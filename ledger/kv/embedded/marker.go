package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store's directory holds a marker that says what it is and in which
// format, a lock and the engine's own folder:
//
//	STORE     "coffer store\nformat 1\n", written before anything else
//	LOCK      held by the process that has the store open
//	data/     the engine
const (
	markerName  = "STORE"
	markerTemp  = "STORE.new"
	lockName    = "LOCK"
	dataName    = "data"
	markerMagic = "coffer store"

	// formatVersion is the version of the layout that this build writes: of
	// the directory, of the engine's own rows and of the engine's files.
	formatVersion = 1
)

// readMarker returns the format version of the store in dir; exists is false
// where dir may become a store: it is absent, empty, or holds no more than
// what a creation that was cut short leaves.
func readMarker(fs vfs.FS, dir string) (format int, exists bool, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	foreign := ""
	for _, n := range names {
		switch n {
		case markerName:
			format, err := parseMarker(fs, fs.PathJoin(dir, n))
			return format, true, err
		case markerTemp, lockName:
		default:
			foreign = n
		}
	}
	if foreign != "" {
		return 0, false, fmt.Errorf("%w: it holds %q and no %s file", ErrNotAStore, foreign, markerName)
	}
	return 0, false, nil
}

func parseMarker(fs vfs.FS, name string) (int, error) {
	f, err := fs.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	b, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return 0, err
	}
	magic, rest, _ := strings.Cut(string(b), "\n")
	line, _, ok := strings.Cut(rest, "\n")
	number, isFormat := strings.CutPrefix(line, "format ")
	format, err := strconv.Atoi(number)
	if magic != markerMagic || !ok || !isFormat || err != nil || format < 1 {
		return 0, fmt.Errorf("%w: its %s file reads %q", ErrNotAStore, markerName, b[:min(len(b), 64)])
	}
	return format, nil
}

// writeMarker makes dir a store. The marker appears as a whole or not at all.
func writeMarker(fs vfs.FS, dir string) error {
	temp := fs.PathJoin(dir, markerTemp)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nformat %d\n", markerMagic, formatVersion)
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, markerName)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// syncDir makes the names in dir durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
