package caddyhooks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestFailuresCountByTheAddressThatAProxyTells sends bad credentials as proxies do, and expects them to count for the caller
// alone, whatever the caller has put in the header itself.
func TestFailuresCountByTheAddressThatAProxyTells(t *testing.T) {
	const trusting, strict = "trusted_proxies static 127.0.0.1/32 10.0.0.0/8", "\n trusted_proxies_strict"
	for _, tc := range []struct {
		name, servers string
		header        string
		from          func(i int) string // what the header says in one of many requests
		other         string             // what it says for another caller
	}{
		{"one caller", trusting + strict, "X-Forwarded-For", func(int) string { return "192.0.2.1" }, "192.0.2.2"},
		{"two proxies", trusting + strict, "X-Forwarded-For", func(i int) string { return fmt.Sprintf("192.0.2.1, 10.0.0.%d", i) }, "192.0.2.2, 10.0.0.1"},
		{"a caller that makes up addresses", trusting + strict, "X-Forwarded-For",
			func(i int) string { return fmt.Sprintf("203.0.113.%d, 192.0.2.1", i) }, "203.0.113.1, 192.0.2.2"},
		{"a caller that makes up proxies", trusting + strict, "X-Forwarded-For",
			func(i int) string { return fmt.Sprintf("203.0.113.%d, 10.0.0.1, 192.0.2.1", i) }, "203.0.113.1, 10.0.0.1, 192.0.2.2"},
		{"a caller that sends garbage", trusting + strict, "X-Forwarded-For",
			func(i int) string { return strings.Repeat("<garbage>,%,", i) + "\t,999.1.1.1, 192.0.2.1 ," }, "garbage, 192.0.2.2"},
		{"nothing but garbage", trusting + strict, "X-Forwarded-For", func(i int) string { return strings.Repeat("garbage,", i+1) }, "192.0.2.2"},
		{"ports", trusting + strict, "X-Forwarded-For", func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 40000+i) }, "192.0.2.2:40000"},
		{"an IPv4 address written as IPv6", trusting + strict, "X-Forwarded-For",
			func(i int) string { return []string{"192.0.2.1", "::ffff:192.0.2.1", "[::ffff:c000:201]:80"}[i%3] }, "::ffff:192.0.2.2"},
		{"IPv6", trusting + strict, "X-Forwarded-For",
			func(i int) string { return []string{"2001:db8::1", "2001:DB8:0::1%eth0", "[2001:db8::1]:443"}[i%3] }, "2001:db8:ffff::1"},
		{"another header", trusting + "\n client_ip_headers X-Real-Ip", "X-Real-Ip", func(int) string { return "192.0.2.1" }, "192.0.2.2"},
		{"without strict, one caller", trusting, "X-Forwarded-For", func(int) string { return "192.0.2.1" }, "192.0.2.2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hookstest.NewServer(t)
			s.Globals = "servers {\n " + tc.servers + "\n}"
			s.Load("hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n}")
			for i := range 20 {
				s.Request("POST", "/api/hooks/wake", `{}`, tc.header, tc.from(i)).WantError(t, 401)
			}
			s.Request("POST", "/api/hooks/wake", `{}`, tc.header, tc.from(20)).WantError(t, 429)
			s.Request("POST", "/api/hooks/wake", `{}`, tc.header, tc.other).WantError(t, 401)
			// Nobody is locked out by others.
			if resp := s.Post("/api/hooks/wake", `{"text":"hi"}`, tc.header, tc.from(0)); resp.Status != 200 {
				t.Errorf("a good credential from that address: got %d %s", resp.Status, resp.Body)
			}
		})
	}
}

func TestAProxyThatIsNotTrustedTellsNothing(t *testing.T) {
	logFile := filepath.Join(t.TempDir(), "access.log")
	s := hookstest.NewServer(t)
	s.Globals = "servers {\n trusted_proxies static 10.0.0.0/8\n client_ip_headers X-Forwarded-For X-Real-Ip\n}"
	s.Load("log {\n output file " + logFile + "\n format json\n}\nhooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n}")
	for i := range 20 {
		address := fmt.Sprintf("192.0.2.%d", i)
		s.Request("POST", "/api/hooks/wake", `{}`, "X-Forwarded-For", address, "X-Real-Ip", address, "Forwarded", "for="+address).WantError(t, 401)
	}
	s.Request("POST", "/api/hooks/wake", `{}`, "X-Forwarded-For", "192.0.2.99").WantError(t, 429)
	s.Load("") // which writes the log to its end
	log, err := os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), `"client_ip":"192.0.2.`) || strings.Count(string(log), `"client_ip":"127.0.0.1"`) != 21 {
		t.Errorf("the log believes a stranger:\n%.2000s", log)
	}
}
