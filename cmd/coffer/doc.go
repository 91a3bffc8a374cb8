// Command coffer is the server, the operator's tool, the importer and the
// demo of Coffer, a ledger for promotion budgets.
//
//	main ─▶ run(ctx, args, stdout, stderr, env) int
//	          ├ serve, dev         a node in this process
//	          ├ demo               three nodes in this process and traffic against them
//	          ├ bench              load with an audit after each run
//	          ├ budget, order, wallet, job, queue, fact, events, import, cluster, ledger, audit, expiry
//	          │                    calls to a server, over rpc.Client
//	          ├ store, audit --store, expiry rebuild --store
//	          │                    a store that no server has open
//	          └ token              a file of tokens, which serve reads
//
// Results go to stdout, everything else to stderr; with --json an error is on
// both. Exit codes: 0 it worked, 1 it was refused or failed, 2 the command line
// is wrong. Tables are as wide as they come, and on a terminal as wide as it.
//
// This is the one package that links storage engines.
package main
