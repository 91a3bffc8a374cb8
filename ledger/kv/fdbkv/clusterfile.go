package fdbkv

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
)

// readClusterFile checks the form of a cluster file, description:id@host:port,…
// before the client library sees it: the library would wait for ever on some
// wrong ones.
func readClusterFile(path string) (coordinators []string, err error) {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s does not exist; copy it from a machine of the cluster", ErrClusterFile, path)
	case err != nil:
		return nil, fmt.Errorf("%w: %s cannot be read: %w", ErrClusterFile, path, err)
	}
	var line string
	for l := range strings.Lines(string(raw)) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		if line != "" {
			return nil, fmt.Errorf("%w: %s has more than one connection string", ErrClusterFile, path)
		}
		line = l
	}
	name, addrs, ok := strings.Cut(line, "@")
	desc, id, okName := strings.Cut(name, ":")
	if !ok || !okName || desc == "" || id == "" {
		return nil, fmt.Errorf("%w: %s holds %.60q, not description:id@host:port", ErrClusterFile, path, line)
	}
	for _, a := range strings.Split(addrs, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSuffix(a, ":tls"))
		p, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || p == 0 || host == "" {
			return nil, fmt.Errorf("%w: %s names the coordinator %.60q, not host:port", ErrClusterFile, path, a)
		}
		coordinators = append(coordinators, a)
	}
	return coordinators, nil
}
