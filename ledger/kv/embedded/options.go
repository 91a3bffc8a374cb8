package embedded

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configure a Store. The zero value of every field but Dir stands for
// its default. There is no option to turn fsync off: an acknowledged commit is
// on disk.
type Options struct {
	// Dir is the store's directory. It is created when absent, unless
	// ReadOnly is set. Required.
	Dir string
	// FS is the file system Dir is on. Default: the machine's.
	FS vfs.FS
	// Clock says how old a transaction is. Default: time.Now.
	Clock func() time.Time
	// CacheBytes is the size of the block cache. Default 256 MiB.
	CacheBytes int64
	// MemTableBytes is the size of one write buffer; up to four live at a
	// time. Default 64 MiB.
	MemTableBytes uint64
	// ReadOnly opens the store for reading, for instance for an audit. It
	// writes nothing to Dir and refuses commits that would.
	ReadOnly bool
	// MaxWatches bounds the watches. Default 10,000.
	MaxWatches int
	// Faults injects faults, in tests only. It must not be shared by stores
	// that are open at the same time.
	Faults *Faults
}

// Bounds of the engine that are not the contract's.
const (
	defaultCacheBytes    = 256 << 20
	defaultMemTableBytes = 64 << 20
	defaultMaxWatches    = 10_000

	// maxQueued is how many commits may wait to be taken into a group.
	maxQueued = 1024
	// maxGroupTxs and maxGroupBytes bound one group. A group holds at least
	// one transaction whatever its size.
	maxGroupTxs   = 512
	maxGroupBytes = 4 << 20
	// maxSyncing is how many groups may be applied and not yet synced.
	maxSyncing = 4
	// versionBlock is how many versions are reserved on disk at once.
	versionBlock = 1 << 20
	// maxPooledBytes is the largest buffer kept for reuse.
	maxPooledBytes = 1 << 20
	// rowsPerAgeCheck is how many rows a range read takes between two looks
	// at its age and context.
	rowsPerAgeCheck = 256
)

// withDefaults fills the zero fields.
func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	if o.MaxWatches == 0 {
		o.MaxWatches = defaultMaxWatches
	}
	return o
}

// Validate joins all faults of the options.
func (o Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("dir is empty"))
	}
	if o.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("cache bytes %d is negative", o.CacheBytes))
	}
	if o.MemTableBytes != 0 && (o.MemTableBytes < 1<<16 || o.MemTableBytes > 1<<31) {
		errs = append(errs, fmt.Errorf("memtable bytes %d is outside 65536 to 2147483648", o.MemTableBytes))
	}
	if o.MaxWatches < 0 {
		errs = append(errs, fmt.Errorf("max watches %d is negative", o.MaxWatches))
	}
	return errors.Join(errs...)
}
