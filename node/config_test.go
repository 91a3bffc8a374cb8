package node

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	if got := DefaultConfig().Listen; got != "127.0.0.1:7420" {
		t.Errorf("listen %s", got)
	}
}

// Every setting can be set by file and by environment.
func TestEverySetting(t *testing.T) {
	cfg := DefaultConfig()
	all := settings(reflect.ValueOf(&cfg).Elem(), "")
	if len(all) < 25 {
		t.Fatalf("only %d settings", len(all))
	}
	for _, s := range all {
		value := map[reflect.Kind]string{reflect.String: "x", reflect.Bool: fmt.Sprint(s.value.Kind() == reflect.Bool && !s.value.Bool()), reflect.Int: "7", reflect.Int64: "7s"}[s.value.Kind()]
		fromEnv, fromFile := DefaultConfig(), DefaultConfig()
		if unknown, err := fromEnv.LoadEnv([]string{s.env() + "=" + value}); err != nil || len(unknown) > 0 {
			t.Errorf("%s=%s: %v %v", s.env(), value, unknown, err)
		}
		parts := strings.Split(s.name, ".")
		text := strings.Join(parts, ": {") + ": " + value + strings.Repeat("}", len(parts)-1)
		if err := fromFile.LoadYAML([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(fromEnv, fromFile) || reflect.DeepEqual(fromEnv, DefaultConfig()) {
			t.Errorf("%s: environment and file do not agree, or changed nothing", s.name)
		}
	}
}

// A source that is refused changes nothing.
func TestRefusedSourceChangesNothing(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.LoadYAML([]byte("listen: 127.0.0.1:9\nnonsense: 1\n")); err == nil || !strings.Contains(err.Error(), `line 2: unknown key "nonsense"`) {
		t.Errorf("got %v", err)
	}
	if _, err := cfg.LoadEnv([]string{"COFFER_LISTEN=127.0.0.1:9", "COFFER_INSECURE=maybe"}); err == nil || !strings.Contains(err.Error(), `COFFER_INSECURE is "maybe" (allowed: true or false)`) {
		t.Errorf("got %v", err)
	}
	if !reflect.DeepEqual(cfg, DefaultConfig()) {
		t.Error("a refused source changed the configuration")
	}
	if err := cfg.LoadYAML(nil); err != nil {
		t.Errorf("empty file: %v", err)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Store, cfg.Listen = strings.Repeat("x", 129), "", "0.0.0.0:80"
	cfg.HTTP.MaxConnections, cfg.HTTP.IdleTimeout = 0, time.Nanosecond
	cfg.Executor.QueueLimit, cfg.Expiry.Rate, cfg.Log.Format, cfg.Shutdown.Timeout = 0, 0, "xml", 0
	err := cfg.Validate()
	for _, want := range []string{
		"node_id is", "store is", "listen is", "http.max_connections is 0 (allowed: 1 to 1048576)", "http.idle_timeout is 1ns",
		"executor.queue_limit is 0", "expiry.rate is 0", `log.format is "xml" (allowed: auto, json or console)`, "shutdown.timeout is 0s",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "127.0.0.1:0": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "example.org:1": false,
		"127.0.0.1": false, "127.0.0.1:": false, "127.0.0.1:http": false, "127.0.0.1:65536": false, "": false,
	} {
		cfg := DefaultConfig()
		cfg.Listen = listen
		if err := cfg.Validate(); (err == nil) != ok {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
	cfg := DefaultConfig()
	cfg.Listen, cfg.Insecure = "0.0.0.0:1", true
	if err := cfg.Validate(); err != nil {
		t.Errorf("insecure: %v", err)
	}
}
