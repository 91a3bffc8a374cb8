//go:build !unix

package bench

import "os/exec"

// ownerOf runs programs as whoever runs this one.
func ownerOf(string) (as func(*exec.Cmd), err error) { return func(*exec.Cmd) {}, nil }
