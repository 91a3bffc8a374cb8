// Package access knows who may call a server: the tokens that callers show, the
// file that lists them, and the roles they have. Which role may call what is in
// package rpc, which asks; nothing here reads a clock or watches a file. It
// imports package ledger alone, for the rules of names.
//
//	coffer_checkout_Jk3…43 characters…
//	└─────┘└───────┘└────────────────┘
//	 prefix   id        secret
//
// Decisions of weight:
//
//   - The file has the SHA-256 of each secret and never a secret. A secret is 32
//     bytes from the system's random source, so nobody finds it by trying, and a
//     hash that is slow on purpose, as passwords need, would cost every call
//     and gain nothing.
//   - The id stands in the token, so that the server finds the one hash to compare
//     by one look into a map. It is no secret: logs and refusals name it. What
//     is compared is the hash, in constant time.
//   - The prefix lets scanners of repositories and logs find a token that leaked.
//   - A token is of one tenant, or of every tenant ("*"), and then the header
//     names the one it acts for. Two tenants are two tokens: a list of tenants
//     would need the header, too, and be wider than its holder needs.
//   - A file with a fault in one entry is refused as a whole. Half of a list of
//     those who may call is no list anybody wrote.
//   - No fault repeats a value that may be a secret put into the wrong place.
package access
