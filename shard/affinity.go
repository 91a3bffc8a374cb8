package shard

import (
	"strconv"

	"github.com/coffer-ledger/coffer/ledger"
)

// Prefer names the node that a bucket's commands should run on, among nodes
// with distinct names: the one whose hash with the bucket is the highest
// (rendezvous hashing: D. Thaler and C. Ravishankar, 1996). All who know the
// same nodes name the same one, whatever the order, and when a node comes or
// goes only the buckets that it gets or had change theirs. It is "" where there
// are no nodes.
func Prefer(b ledger.BucketID, nodes []string) string {
	best, top := "", uint64(0)
	index := strconv.Itoa(int(b.Index))
	for _, n := range nodes {
		h := ledger.Hash64(0, n, b.Budget.Tenant, b.Budget.Funder, b.Budget.Key, index)
		if best == "" || h > top || (h == top && n < best) {
			best, top = n, h
		}
	}
	return best
}
