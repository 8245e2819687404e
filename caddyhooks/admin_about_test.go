package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func TestAboutAnInstance(t *testing.T) {
	s := hookstest.StartSite(t, `hooks {
		runner echo
		store memory
		workers 3
		max_timeout 2m
		queue_time 1h
		retention 24h
		channel notes log
	}`)
	resp := s.AdminRequest("GET", "/hooks/about", "")
	resp.WantMembers(t, `{"instance":"default","path":"/api/hooks","urls":["`+s.URL+`/api/hooks"],"on":false,"offBecause":"enabled is not set, and no token is set",
		"channels":[{"name":"notes","kind":"log"}],"runner":"echo","store":"memory","maxTimeoutSeconds":120,"queueTimeSeconds":3600,"retentionSeconds":86400,"workers":3}`)
	var about struct {
		Now      time.Time `json:"now"`
		Settings []struct {
			Name, Label, Input string
		} `json:"settings"`
	}
	if err := json.Unmarshal([]byte(resp.Body), &about); err != nil {
		t.Fatal(err)
	}
	if about.Now.IsZero() {
		t.Errorf("got %+v", about)
	}
	page, err := os.ReadFile("dashboard/assets/settings.js")
	for i, setting := range settings.AllSettings {
		got := about.Settings[i]
		if err != nil || got.Name != setting.JSONName() || got.Label == "" || !strings.Contains(string(page), "\t\t"+got.Input+": ") {
			t.Errorf("the page has no input for %s: %+v, %v", setting.JSONName(), got, err)
		}
	}
	s.PatchSettings(`{"enabled":true,"token":"one"}`)
	s.AdminRequest("GET", "/hooks/about", "").WantMembers(t, `{"on":true,"offBecause":""}`)
	s.Reload("hooks {\nstore bolt\n}")
	if size, _ := s.AdminRequest("GET", "/hooks/about", "").Field(t, "storeBytes").(float64); size < 4096 {
		t.Errorf("the store has %v bytes", size)
	}
}

// Pages offer what makes a difference to a runner that is there.
func TestAboutNamesWhatRunnersUse(t *testing.T) {
	s := hookstest.NewServer(t)
	all := strings.Join(settings.MemoryPresets, " ")
	for _, c := range []struct{ runners, tiers, presets string }{
		{"", "", "disabled"},
		{"runner echo", "", "disabled"},
		{"runner openai ollama {\ntier deep b\ntier smart a\n}", "smart deep", all},
		{"runner openai openclaw {\nkey k\n}", "", "disabled general_chat"},
		{"runner openai openclaw {\nkey k\nmemory ops_support model m\n}", "", "disabled general_chat ops_support"},
		{"runner command claude {\ntier coding a\n}", "coding", "disabled general_chat"},
		{"runner command /bin/cat", strings.Join(settings.Tiers, " "), all},
		{"runner acp /bin/cat", "", "disabled general_chat"},
		{"runner a2a http://127.0.0.1:9/", strings.Join(settings.Tiers, " "), "disabled general_chat"},
		{"runner http http://127.0.0.1:9/", strings.Join(settings.Tiers, " "), all},
		{"runner echo\nrunner big acp /bin/cat {\ntier special1 a\n}\nrunner_for deep big", "deep special1", "disabled general_chat"},
	} {
		s.Reload("hooks {\nstore memory\n" + c.runners + "\n}")
		var about struct{ Tiers, MemoryPresets []string }
		if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/about", "").Body), &about); err != nil || about.Tiers == nil {
			t.Fatalf("%q: %v", c.runners, err)
		}
		if tiers, presets := strings.Join(about.Tiers, " "), strings.Join(about.MemoryPresets, " "); tiers != c.tiers || presets != c.presets {
			t.Errorf("%q: got the tiers %q and the memory presets %q", c.runners, tiers, presets)
		}
	}
}

func TestURLsOfHooksAreRightOrLeftOut(t *testing.T) {
	s := hookstest.NewServer(t)
	other := hookstest.FreePort(t)
	for _, c := range []struct {
		sites string // P and Q are ports; a global option may stand before them
		want  string
	}{
		{"http://127.0.0.1:P {\nhooks\n}", "http://127.0.0.1:P/api/hooks"},
		{"http://a.test:P, http://b.test:Q {\nhooks\n}", "http://a.test:P/api/hooks http://b.test:Q/api/hooks"},
		{"https://a.test:P {\ntls internal\nhooks {\npath /x\n}\n}", "https://a.test:P/x"},
		{"http_port P http://a.test {\nhooks\n}", "http://a.test:P/api/hooks"},
		{"https_port P a.test {\ntls internal\nhooks\n}", "https://a.test:P/api/hooks"},
		{"http://[::1]:P {\nhooks\n}", "http://[::1]:P/api/hooks"},
		{"http://:P {\nhooks\n}", ""},
		{"http://*.a.test:P {\nhooks\n}", ""},
		{"http://a.test:P {\nhandle /api/* {\nhooks\n}\n}", "http://a.test:P/api/hooks"},
		{"http://a.test:P {\nhandle /other/* {\nhooks\n}\n}", ""},
		{"http://a.test:P {\nhandle_path /other/* {\nhooks\n}\n}", ""},
		{"http://a.test:P {\nroute {\nuri strip_prefix /x\nhooks\n}\n}", ""},
		{"http://a.test:P {\n@local remote_ip 127.0.0.1\nhandle @local {\nhooks\n}\n}", ""},
		{"http://a.test:P {\nroute {\n@b host b.test\nhandle @b {\nhooks\n}\n}\n}", ""},
		{"http://a.test:P {\nroute {\nhooks\nuri strip_prefix /x\n}\n}", "http://a.test:P/api/hooks"},
		{"http://a.test:P {\nrespond /other 200\nhooks\n}\nhttp://c.test:P {\nrespond ok\n}", "http://a.test:P/api/hooks"},
	} {
		ports := strings.NewReplacer(":P", ":"+s.Port, ":Q", ":"+other)
		option, sites := "", c.sites
		if words := strings.SplitN(sites, " ", 3); strings.HasSuffix(words[0], "_port") {
			option, sites = words[0]+" "+s.Port+"\n", words[2]
		}
		if err := hookstest.LoadCaddyfile(strings.Replace(s.Caddyfile(ports.Replace(sites)), "{\n", "{\n\t"+option+"skip_install_trust\n\tauto_https disable_redirects\n\tservers {\n\t\tprotocols h1 h2\n\t}\n", 1)); err != nil {
			t.Fatalf("%s: %v", c.sites, err)
		}
		want := strings.Fields(ports.Replace(c.want))
		got := s.AdminRequest("GET", "/hooks/about", "").Field(t, "urls")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", c.sites, got, want)
		}
	}
}
