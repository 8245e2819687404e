package caddyhooks_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Every setting can be set in a Caddyfile, where it is pinned, and through the admin API. A new setting needs a sample here.
func TestEverySettingCanBeSetPinnedShownAndSetBack(t *testing.T) {
	samples := map[string]struct {
		args         string // in a Caddyfile
		value, other string // in JSON
		shown        any    // of value
		wrong        string // in JSON
	}{
		"enabled":               {"", `true`, `false`, true, `"yes"`},
		"token":                 {"s3cret", `"s3cret"`, `["s3cret","more"]`, "••••", `1`},
		"defaultTimeoutSeconds": {"1m", `60`, `61`, 60.0, `"1m"`},
		"maxPayloadSize":        {"2KB", `"2KB"`, `2047`, 2048.0, `true`},
		"historySeconds":        {"1h", `3600`, `3601`, 3600.0, `"1h"`},
		"keepRefusedSeconds":    {"1h", `3600`, `3601`, 3600.0, `"1h"`},
		"wakeFold":              {"5s 50", `{"seconds":5,"max":50}`, `{"seconds":6,"max":50}`, map[string]any{"seconds": 5.0, "max": 50.0}, `"5s"`},
		"memoryPreset":          {"ops_support", `"ops_support"`, `"general_chat"`, "ops_support", `[]`},
	}
	for _, names := range caddyhooks.SettingNames() {
		name, directive := names[0], names[1]
		t.Run(name, func(t *testing.T) {
			sample, ok := samples[name]
			if !ok {
				t.Fatal("has no sample")
			}
			s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
			show := func() (value any, pinned bool) {
				t.Helper()
				resp := s.AdminRequest("GET", "/hooks/settings", "")
				list, _ := resp.Field(t, "pinned").([]any)
				return resp.Field(t, name), slices.Contains(list, any(name))
			}
			want := func(wanted any, wantedPinned bool) {
				t.Helper()
				if value, pinned := show(); !reflect.DeepEqual(value, wanted) || pinned != wantedPinned {
					t.Errorf("shown as %v, pinned %t; want %v, %t", value, pinned, wanted, wantedPinned)
				}
			}
			patch := func(value string) hookstest.Response {
				return s.AdminRequest("PATCH", "/hooks/settings", `{"`+name+`":`+value+`}`)
			}
			accept := func(value string) {
				t.Helper()
				if resp := patch(value); resp.Status != 200 {
					t.Errorf("%s is answered %d %s", value, resp.Status, resp.Body)
				}
			}

			unset, _ := show()
			accept(sample.value)
			want(sample.shown, false)
			patch(sample.wrong).WantAdminError(t, 400, name, "null for its default")
			want(sample.shown, false)
			accept("null")
			want(unset, false)
			accept(sample.other)

			line := strings.TrimSpace(directive + " " + sample.args)
			s.Load("hooks {\nrunner echo\n" + line + "\n}")
			want(sample.shown, true)
			accept(sample.value)
			patch(sample.other).WantAdminError(t, 409, name)
			patch("null").WantAdminError(t, 409, name)
			want(sample.shown, true)
			if err := s.TryLoad("hooks {\nrunner echo\n" + line + "\n" + line + "\n}"); err == nil || !strings.Contains(err.Error(), directive+" is set already") {
				t.Errorf("set twice: %v", err)
			}

			s.Load("hooks {\nrunner echo\n}")
			want(unset, false) // the live value did not outlive the PATCH of the pinned one
		})
	}
}

// An error names the option that is wrong, and no other.
func TestWrongOptionIsNamed(t *testing.T) {
	for option, must := range map[string]string{
		`"max_timeout":-1`: "max_timeout must be at least 1s", `"max_request":67108865`: "max_request must be from 1 byte to 64MB",
		`"max_memory":1048575`:                                       "max_memory must be at least 1MB, and eight times max_request",
		`"max_memory":2097151,"max_request":262144`:                  "max_memory must be at least 1MB, and eight times max_request",
		`"max_memory":8388608,"settings":{"maxPayloadSize":1048577}`: "maxPayloadSize must not be larger than an eighth of max_memory, which is 8.0 MiB",
		`"workers":-1`: "workers must be at least 1", `"queue_limit":-1`: "queue_limit must be at least 1",
		`"chat_limit":-1`: "chat_limit must not be negative", `"max_attempts":-1`: "max_attempts must be at least 1",
		`"retention":1`: "retention must be at least 1s", `"history_limit":"1025GB"`: "history_limit must be from 1 byte to 1024GB", `"drain_timeout":-1`: "drain_timeout must not be negative",
		`"callbacks":{"timeout":-1}`: "timeout of callbacks must not be negative",
	} {
		err := validateHandler(`{"handler":"hooks",` + option + `}`)
		if err == nil || !strings.HasSuffix(err.Error(), ": "+must) {
			t.Errorf("%s: got %v", option, err)
		}
	}
}

// validateHandler checks a configuration with one handler, given in JSON.
func validateHandler(handler string) error {
	var config caddy.Config
	err := json.Unmarshal([]byte(`{"admin":{"disabled":true},"logging":{"logs":{"default":{"level":"PANIC"}}},
		"apps":{"http":{"servers":{"s":{"routes":[{"handle":[`+handler+`]}]}}}}}`), &config)
	if err != nil {
		return err
	}
	return caddy.Validate(&config)
}

func TestThePageHasAnInputForEverySetting(t *testing.T) {
	script, err := os.ReadFile("dashboard/assets/settings.js")
	if err != nil {
		t.Fatal(err)
	}
	_, inputs, _ := strings.Cut(string(script), "const inputs = {\n")
	inputs, _, _ = strings.Cut(inputs, "\n\t};")
	for _, setting := range settings.AllSettings {
		if kind := setting.Page().Input; !strings.Contains("\n"+inputs, "\n\t\t"+kind+": ") {
			t.Errorf("inputs in dashboard/assets/settings.js has no %q, which %s needs", kind, setting.JSONName())
		}
	}
}
