// Package node is one running process of Coffer: configuration, wiring,
// lifecycle, health and metrics. It imports rpc, shard, shard/intake, ledger/store and
// its own parts; the engine comes from its caller as a factory, so that no engine is linked here.
//
//	New(cfg, deps)    validates and wires, does nothing
//	Run(ctx)          ┌ listen
//	                  ├ open the store ─▶ executor ─▶ rpc server ─▶ serve
//	                  ├ fact intake, relay of events to sinks
//	                  ├ members: sign of life, and who else is there
//	                  ├ election ─▶ while this node leads: the scanners (node/scan)
//	      ctx ends ─▶ ├ not ready (/readyz) ─▶ wait shutdown.delay, hand buckets to the other nodes
//	                  ├ stop the scanners and the relay, end streams, refuse new commands, stop accepting
//	                  ├ answer every accepted command
//	                  └ close the store, return
//
// Run owns every goroutine it starts and joins it before it returns. The drain
// is bounded by shutdown.timeout; what is cut off then has no answer, and its
// caller asks again or resolves the key: nothing in the store depends on a
// clean shutdown.
//
// One address serves the RPC services (Connect, gRPC, gRPC-Web), /metrics,
// /healthz (the process lives) and /readyz (it should get traffic). With the
// setting tokens all but the last two ask for a token; the file is read again
// when it changes, and one with a fault changes nothing. Other nodes show a
// certificate in place of a token: the first of them has asked its caller.
package node
