package fdbkv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadClusterFile(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          []string
		err           string
	}{
		{name: "one", content: "test:abc@127.0.0.1:4500\n", want: []string{"127.0.0.1:4500"}},
		{
			name: "comment and three", content: "# made by hand\ntest:abc@10.0.0.1:4500,10.0.0.2:4500,[::1]:4501:tls\n",
			want: []string{"10.0.0.1:4500", "10.0.0.2:4500", "[::1]:4501:tls"},
		},
		{name: "empty", content: "", err: "not description:id@host:port"},
		{name: "no id", content: "test@127.0.0.1:4500", err: `"test@127.0.0.1:4500", not description:id@host:port`},
		{name: "no port", content: "a:b@127.0.0.1", err: `names the coordinator "127.0.0.1", not host:port`},
		{name: "port 0", content: "a:b@127.0.0.1:0", err: `names the coordinator "127.0.0.1:0"`},
		{name: "two lines", content: "a:b@h:1\nc:d@h:2\n", err: "more than one connection string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fdb.cluster")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readClusterFile(path)
			if tc.err != "" {
				if !errors.Is(err, ErrClusterFile) || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), path) {
					t.Fatalf("got %v, want ErrClusterFile with %q and the path", err, tc.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Fatalf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	if _, err := readClusterFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrClusterFile) || !strings.Contains(err.Error(), "does not exist") {
		t.Fatalf("missing file: %v", err)
	}
}

// Both builds refuse a missing cluster file at once; the one without the tag
// says how to get the engine.
func TestOpenFailsAtOnce(t *testing.T) {
	_, err := Open(context.Background(), Options{ClusterFile: filepath.Join(t.TempDir(), "none")})
	if !errors.Is(err, ErrNotBuilt) && !errors.Is(err, ErrClusterFile) {
		t.Fatalf("got %v", err)
	}
}
