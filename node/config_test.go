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

// A variable that a script left empty opens no server that the file closes.
func TestEmptyVariableTakesNoTokensAway(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Tokens = "tokens.yaml"
	if _, err := cfg.LoadEnv([]string{"COFFER_TOKENS="}); err == nil || !strings.Contains(err.Error(), `COFFER_TOKENS is "" (allowed: a file of tokens; unset it for that of the configuration file, or for none)`) {
		t.Errorf("got %v", err)
	}
	if cfg.Tokens != "tokens.yaml" {
		t.Errorf("tokens are %q", cfg.Tokens)
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

// Limits of "*" would be those of no tenant, and not those of all others.
func TestLimitsAreOneTenants(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Executor.Tenants = "acme=1/2,*=100/10"
	want := `executor.tenants has "*=100/10", which names no tenant; tenant_limit and tenant_rate are those of all others (allowed: NAME=LIMIT/RATE,… such as acme=2000/500; 0 is no limit)`
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
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

// The printed configuration is complete, documented and loads as what it was.
func TestPrintedConfig(t *testing.T) {
	cfg := DefaultConfig()
	all := settings(reflect.ValueOf(&cfg).Elem(), "")
	text := string(cfg.YAML())
	for _, s := range all {
		if settingDocs[s.name] == "" {
			t.Errorf("setting %s has no documentation", s.name)
		}
		key := s.name[strings.LastIndexByte(s.name, '.')+1:]
		for _, want := range []string{"\n" + strings.Repeat("  ", strings.Count(s.name, ".")) + key + ": ", "env " + s.env() + "\n", settingDocs[s.name]} {
			if !strings.Contains(strings.ReplaceAll(text, "\n# node_id: ", "\nnode_id: "), want) {
				t.Errorf("printed configuration lacks %q:\n%s", want, text)
			}
		}
	}
	if len(settingDocs) != len(all) {
		t.Errorf("%d settings are documented, there are %d", len(settingDocs), len(all))
	}
	loaded := Config{NodeID: cfg.NodeID} // nothing else comes from elsewhere
	if err := loaded.LoadYAML([]byte(text)); err != nil || !reflect.DeepEqual(loaded, DefaultConfig()) {
		t.Errorf("printed and loaded: %v\n%+v\nwant\n%+v", err, loaded, DefaultConfig())
	}
	other := DefaultConfig()
	for _, s := range settings(reflect.ValueOf(&other).Elem(), "") {
		if err := s.set(map[reflect.Kind]string{reflect.String: "x: #'y\"", reflect.Bool: fmt.Sprint(s.value.Kind() == reflect.Bool && !s.value.Bool()), reflect.Int: "7", reflect.Int64: "1h30m7s"}[s.value.Kind()]); err != nil {
			t.Fatal(err)
		}
	}
	loaded = DefaultConfig()
	if err := loaded.LoadYAML(other.YAML()); err != nil || !reflect.DeepEqual(loaded, other) {
		t.Errorf("printed and loaded: %v\n%s", err, other.YAML())
	}
}

func TestYAMLFaultsNameTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"expiry:\n  interval: soon\n":                `line 2: expiry.interval is "soon" (allowed: a duration such as 500ms, 10s or 5m)`,
		"expiry: {interval: 5}\n":                    `line 1: expiry.interval is "5" (allowed: a duration such as 500ms, 10s or 5m)`,
		"expiry: {interval: [1s]}\n":                 `line 1: expiry.interval is a list (allowed: a duration such as 500ms, 10s or 5m)`,
		"expiry: {rate: many}\n":                     `line 1: expiry.rate is "many" (allowed: a whole number)`,
		"listen: 127.0.0.1:1\ninsecure: perhaps\n":   `line 2: insecure is "perhaps" (allowed: true or false)`,
		"listen: {host: x}\n":                        `line 1: listen is a group of settings (allowed: a text)`,
		"expiry: 7s\n":                               `line 1: expiry is "7s" (allowed: a group of settings)`,
		"just text\n":                                `line 1: the file is "just text" (allowed: settings, such as listen: 127.0.0.1:7420)`,
		"expiry:\n  intervall: 1s\n":                 `line 2: unknown key "intervall"`,
		"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n": "listen",
	} {
		cfg := DefaultConfig()
		if err := cfg.LoadYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(cfg, DefaultConfig()) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	cfg := DefaultConfig()
	if err := cfg.LoadYAML([]byte("# nothing\nexpiry:\nlog: {level: }\n")); err != nil || !reflect.DeepEqual(cfg, DefaultConfig()) {
		t.Errorf("keys without values: %v, %+v", err, cfg)
	}
}
