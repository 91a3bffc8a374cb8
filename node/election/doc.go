// Package election says which node leads: the one that runs the scanners. It
// imports ledger and ledger/store.
//
//	Elector.Run(ctx, lead)
//	      │ elected in a term
//	      ▼
//	  claim the term in the store (the fence rises) ──▶ lead(ctx with the term)
//	      ▲                                                  │ leadership lost: ctx ends
//	      └──────────────────── stand by ◀───────────────────┘ or FENCED
//
// Leadership is a means to spare work and never one of safety: two nodes may
// both believe that they lead, for as long as one of them is paused. What keeps
// them apart is the fence. Each transaction of a scanner reads the leader's
// row, and commits only while it has the scanner's term; so from the moment a
// new leader has claimed its term, nothing of an older one takes effect, however
// late it wakes up.
//
// There are two electors. Alone is for a node without peers: it leads from its
// start, and the term is the store's next. Raft holds elections among
// configured peers; Raft's term is the fence's. Nothing else is replicated by
// Raft: what the cluster knows is in the store.
// Leaders of both kinds give signs of life in the store, so that a process that
// is over it by mistake, without peers, takes the lead once and then stands by.
//
// Decision: before it takes part, a Raft node raises its own term to that of the
// store, as if a message had brought it. Otherwise a cluster whose Raft data is
// new, or that took over the store of a node that was alone, would elect leaders
// whose terms the fence refuses.
package election
