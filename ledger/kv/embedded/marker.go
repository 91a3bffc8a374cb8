package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store's directory holds a marker that says what it is and in which
// format, a lock and the engine's own folder:
//
//	STORE     "coffer store\nformat 1\n": the store was created
//	STORE.new the same, while it is being created
//	LOCK      held by the process that has the store open
//	data/     the engine
//
// A creation goes in two steps, each durable before the next begins: STORE.new
// is written, the engine makes its folder, STORE.new becomes STORE. So
//
//   - where STORE is, the engine's data must be too: if it is not, it was lost
//     or is not mounted, and to start anew would pass for an empty ledger;
//   - where only STORE.new is, no Open has returned and nothing was ever
//     acknowledged: the creation starts over, whatever there is of data/;
//   - where STORE is not readable beside data/, the store is damaged;
//   - data/ without either is not ours to touch.
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
// what a creation that was cut short leaves. begun says that such a creation
// got as far as the engine's folder; format is then that of STORE.new.
func readMarker(fs vfs.FS, dir string) (format int, exists, begun bool, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, false, nil
	}
	if err != nil {
		return 0, false, false, err
	}
	foreign, creating := "", false
	for _, n := range names {
		switch n {
		case markerName:
			bad := ErrNotAStore
			if slices.Contains(names, dataName) {
				bad = ErrCorrupt
			}
			format, err := parseMarker(fs, fs.PathJoin(dir, n), bad)
			return format, true, false, err
		case markerTemp:
			creating = true
		case lockName:
		case dataName:
			begun = true
		default:
			foreign = n
		}
	}
	if begun && !creating {
		foreign = dataName
	}
	if foreign != "" {
		return 0, false, false, fmt.Errorf("%w: it holds %q and no %s file", ErrNotAStore, foreign, markerName)
	}
	if begun {
		format, err = parseMarker(fs, fs.PathJoin(dir, markerTemp), ErrNotAStore)
	}
	return format, false, begun, err
}

// parseMarker reads the format out of a marker; what is none is refused with bad.
func parseMarker(fs vfs.FS, name string, bad error) (int, error) {
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
		return 0, fmt.Errorf("%w: its %s file reads %q", bad, fs.PathBase(name), b[:min(len(b), 64)])
	}
	return format, nil
}

// beginMarker notes that dir is about to become a store. It must not be
// called again once the engine's folder exists, for it overwrites the note.
func beginMarker(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, markerTemp), vfs.WriteCategoryUnspecified)
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
	return syncDir(fs, dir)
}

// finishMarker makes dir a store, once its engine is on disk. The marker
// appears as a whole or not at all.
func finishMarker(fs vfs.FS, dir string) error {
	if err := fs.Rename(fs.PathJoin(dir, markerTemp), fs.PathJoin(dir, markerName)); err != nil {
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
