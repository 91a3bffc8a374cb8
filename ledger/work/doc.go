// Package work is the domain of the retry queue, pure: jobs, their policy, and
// the functions that decide what becomes of one. It imports ledger, for
// rejections and the rule of names, and has no clock, no I/O and no randomness.
//
//	           Enqueue            Grant              Complete
//	(none) ───────────▶ READY ───────────▶ LEASED ───────────▶ DONE ──┐
//	                     ▲  ▲                │ │                      │ kept for
//	                     │  └─ Fail, Lapse ──┘ │ the last attempt     │ policy.keep,
//	                     │     Return          ▼                      │ then removed
//	                     └────── Replay ───── DEAD ───▶ DISCARDED ────┘
//	                                              Discard(reason)
//
// What counts as an attempt: a lease that ended without success. Fail counts
// one and sets the backoff. A lease that runs out counts one too, so that a job
// that kills its workers ends among the dead letters, but the job is due again
// at once: the lease was delay enough. Return counts none: a worker that stops
// in good order takes nothing from the job. After policy.max_attempts of them
// the job is a dead letter, which nobody but a person consumes.
//
// The backoff after attempt n (counted from 0) is min(base·2ⁿ, max), of which
// the upper half is jittered by a hash of the job's name and n: the same job
// always waits the same, and jobs that failed together do not come back
// together. It is never above max. ("Equal jitter", as in Marc Brooker,
// Exponential Backoff and Jitter, AWS Architecture Blog, 2015.)
//
// The state decides, not the clock, as with reservations: a lease whose time
// has passed and that nobody noticed yet may still be extended, completed and
// failed. A lease is named by a token that is never given twice. What a token
// ended it may say again and gets its first answer; with any other token the
// answer is LEASE_LOST.
//
// Fairness: a queue belongs to one tenant, and its jobs are leased by the time
// they are due. Whoever works for several tenants at once (the sweeps of a node)
// divides what it takes by [Share]: no tenant gets more than another while the
// other still wants something. So a flood of one delays its own jobs alone.
package work
