// Package bench measures Coffer and what it is compared with: workloads, an
// open-loop load generator, targets, checks and reports. It imports rpc, shard,
// ledger, ledger/store, ledger/kv and the generated code; storage engines and
// nodes come from its caller, through Deps.
//
//	Workload ──▶ task i ──▶ runner ──▶ Target ──▶ answers ──▶ recorder ──▶ Result
//	 pure in       │      arrivals,     server, node, executor,   histograms,   │
//	 (seed, i)     │      callers       raw, noop, postgres       timeline      ▼
//	               └─ intended start: latency counts from here          checks and audit
//	                                                                      │ one fails
//	                                                                      ▼
//	                                                                 *VoidError, no figures
//
// Decisions of weight:
//
//   - Load is open loop. When an arrival is due does not depend on any answer,
//     and its latency counts from when it was due, so a server that stalls pays
//     for everyone who would have come meanwhile. (Gil Tene calls the opposite
//     "coordinated omission".) The rate "max" is the exception: callers who
//     send as soon as they have their answer, to find the capacity.
//   - A workload is a pure function of seed and index, so that two targets get
//     the same orders whatever the number of callers.
//   - A run ends with an audit of what it wrote. A run whose audit or checks
//     fail has no figures: Run returns a *VoidError and no Result.
//   - Machines differ and are noisy; only ratios of one run count. Compare runs
//     its sides in turn (A B A B …) and gives each ratio with its spread.
package bench
