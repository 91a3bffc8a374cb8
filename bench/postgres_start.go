package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresBins are where PostgreSQL's programs are looked for.
var postgresBins = []string{"/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin"}

// ErrNoPostgres says that there is no PostgreSQL to start.
var ErrNoPostgres = errors.New("PostgreSQL is not on this machine; install it (Debian: postgresql-15), or name a running one with --pg-dsn")

// postgresReady is how long PostgreSQL may take to start and to stop.
const postgresReady = 60 * time.Second

// findPostgres is the folder with initdb and postgres, version 15 first.
func findPostgres() (string, error) {
	for _, pattern := range postgresBins {
		dirs, _ := filepath.Glob(pattern) // the patterns are well formed
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
				return dir, nil
			}
		}
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p), nil
	}
	return "", ErrNoPostgres
}

// startPostgres runs a private PostgreSQL with durable defaults in a new
// directory, on a free loopback port. It refuses to run as root, so root runs
// it as the user postgres. stop ends it and removes the directory.
func startPostgres(ctx context.Context, cfg Config) (dsn string, stop func() error, err error) {
	bin, err := findPostgres()
	if err != nil {
		return "", nil, err
	}
	dir, remove, err := tempDir(cfg)
	if err != nil {
		return "", nil, err
	}
	s := &pgServer{bin: bin, dir: dir, remove: remove, done: make(chan error, 1)}
	if err := s.start(ctx); err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	return s.dsn, s.stop, nil
}

// pgServer is a PostgreSQL that this process started.
type pgServer struct {
	bin, dir, dsn string
	remove        func() error
	cmd           *exec.Cmd
	log           bytes.Buffer
	done          chan error
}

func (s *pgServer) start(ctx context.Context) error {
	as, err := ownerOf(s.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--encoding=UTF8", "--no-locale")
	as(initdb)
	initdb.Dir = s.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, lastLines(out))
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	s.dsn = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", port)
	// Memory and connections for this load; everything that makes commits
	// durable stays as it comes.
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-k", s.dir, //nolint:gosec // our own folder
		"-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=1GB", "-c", "max_connections=300", "-c", "max_wal_size=8GB")
	as(s.cmd)
	s.cmd.Dir, s.cmd.Stderr, s.cmd.Stdout = s.dir, &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("start postgres: %w", err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	return s.ready(ctx)
}

// ready waits until the server takes connections.
func (s *pgServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, postgresReady)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case werr := <-s.done:
			s.cmd = nil
			return fmt.Errorf("postgres ended at once: %w\n%s", errors.Join(werr, err), lastLines(s.log.Bytes()))
		default:
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("postgres does not answer: %w", err)
		}
	}
}

// stop ends the server, first politely, and removes what it stored.
func (s *pgServer) stop() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Interrupt) // "fast shutdown"
		kill := time.AfterFunc(postgresReady, func() { _ = s.cmd.Process.Kill() })
		err := <-s.done // ended by a signal, or else long before
		kill.Stop()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			return errors.Join(fmt.Errorf("stop postgres: %w", err), s.remove())
		}
	}
	return s.remove()
}

// freePort finds a port below those that systems give away: nobody is given it
// until PostgreSQL takes it.
func freePort(ctx context.Context) (int, error) {
	const from, to, tries = 20_000, 32_000, 100
	var lc net.ListenConfig
	var err error
	for range tries {
		port := from + rand.IntN(to-from)
		var ln net.Listener
		if ln, err = lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// lastLines is the end of a program's output.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
