//go:build linux

package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Why callback URLs are refused.
const (
	notPublic   = "which is not a public address"
	fourNumbers = "neither a name nor an address of four decimal numbers"
	noName      = "is not a valid name"
	noURL       = "is not a valid URL"
	otherScheme = "must begin with http:// or https://"
	noHost      = "has no host"
	withUser    = "must not hold a user name or password"
	withSpace   = "has a space in it"
	closedPort  = "allowed: 80 443 8080 8443"
	noPort      = "is not between 1 and 65535"
)

// refusedURLs are refused as they are. Those that would arrive are proven to do so where everything is allowed.
var refusedURLs = []struct {
	why         string
	wouldArrive bool
	urls        []string
}{
	{notPublic, true, []string{
		// IPv4
		"http://127.0.0.1", "http://127.0.0.1/", "HTTP://127.0.0.1/", "http://127.0.0.1:/", "http://127.0.0.1:0080/", "http://127.0.0.1:8080/", "http://127.0.0.1:8443/",
		"http://127.0.0.2/", "http://127.127.127.127/", "http://127.255.255.254/", "http://0.0.0.0/", "http://0.0.0.0:8080/",
		"http://10.0.0.1/", "http://10.255.255.255/", "http://100.64.0.1/", "http://100.127.255.254/", "http://172.16.0.1/", "http://172.31.255.254/", "http://192.168.0.1/", "http://192.168.255.254/",
		"http://192.0.0.1/", "http://192.0.2.1/", "http://198.51.100.1/", "http://203.0.113.1/", "http://198.18.0.1/", "http://198.19.255.254/", "http://192.88.99.1/", "http://240.0.0.1/", "http://255.255.255.254/",
		// the metadata services of clouds
		"http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/v2/credentials", "http://169.254.0.23/", "http://169.254.42.42/", "http://100.100.100.200/latest/meta-data/", "http://192.0.0.192/opc/v1/",
		// inside of clouds, though public by their number
		"http://168.63.129.16/machine", "http://34.118.224.1/", "http://34.118.239.254:8080/",
		"http://[fd00:ec2::254]/latest/meta-data/", "http://[fd20:ce::254]/", "http://[fd00:42::42]/", "http://[fe80::a9fe:a9fe%25lo]/",
		// other digits and dots, encoded or not, and what is dropped from names
		"http://①②⑦.⓪.⓪.①/", "http://⑫⑦.0.0.1/", "http://１２７.０.０.１/", "http://１２７。０。０。１/", "http://127。0。0。1/", "http://127．0．0．1/", "http://127｡0｡0｡1/", "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏/", "http://¹²⁷.⁰.⁰.¹/", "http://₁₂₇.₀.₀.₁/",
		"http://%e2%91%a0%e2%91%a1%e2%91%a6.0.0.1/", "http://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1/", "http://127%E3%80%820%E3%80%820%E3%80%821/",
		"http://127\u200b.0.0.1/", "http://127.0.0.1\u00ad/", "http://\ufeff127.0.0.1/", "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/",
		// IPv6
		"http://[::]/", "http://[::]:8080/", "http://[0:0:0:0:0:0:0:0]/", "http://[::0.0.0.0]/",
		"http://[::1]/", "http://[::1]:8443/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000:0000:0000:0000:0000:0000:0000:0001]/", "http://[0::1]/", "http://[::0:0:1]/", "http://[::0.0.0.1]/", "http://[::1%25lo]/", "http://[::1%251]/",
		"http://[::ffff:127.0.0.1]/", "http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:7F00:0001]/", "http://[::ffff:0.0.0.0]/", "http://[::ffff:10.0.0.1]/", "http://[::ffff:a9fe:a9fe]/",
		"http://[::127.0.0.1]/", "http://[::7f00:1]/", "http://[::ffff:0:127.0.0.1]/", "http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::93.184.216.34]/", "http://[64:ff9b:1::7f00:1]/",
		"http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:7f00:1::]/", "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/", "http://[2001:20::1]/", "http://[2001:db8::1]/", "http://[3fff::1]/", "http://[2620:4f:8000::1]/",
		"http://[100::1]/", "http://[5f00::1]/", "http://[4000::1]/", "http://[1::]/", "http://[::2]/",
		"http://[fc00::1]/", "http://[fd12:3456:789a:1::1]/", "http://[fe80::1%25lo]/", "http://[fe80::1%251]/", "http://[febf::1%25lo]/", "http://[fec0::1]/", "http://[feff::1]/",
		// what only looks like another host
		"http://127.0.0.1#@example.com/", "http://127.0.0.1?@example.com/", "http://127.0.0.1/@example.com/", "http://127.0.0.1/http://example.com/", "http://127.0.0.1?.example.com/", "http://127.0.0.1#.example.com/",
	}},
	// The kernel does not connect to some of these, and others do not get past the handshake.
	{notPublic, false, []string{
		"https://127.0.0.1/", "hTtPs://127.0.0.1/", "https://127.0.0.1:8443/", "https://[::1]/", "http://127.0.0.1:443/", "http://0.1.2.3/",
		"http://224.0.0.1/", "http://239.255.255.250/", "http://255.255.255.255/", "http://127.255.255.255/",
		"http://[::ffff:127.0.0.1%25lo]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[::1%25eth0]/", "http://[::1%2525lo]/", "http://[::%25lo]/", "http://[ff01::1]/", "http://[ff02::1]/", "http://[ff02::1%25lo]/", "http://[ff0e::1]/",
	}},
	{closedPort, true, []string{
		"http://127.0.0.1:22/", "http://127.0.0.1:00022/", "http://127.0.0.1:25/", "http://127.0.0.1:2019/config/", "http://[::1]:2019/load", "http://localhost:2019/", "http://127.0.0.1:6379/", "http://[::ffff:127.0.0.1]:6379/",
		"http://public.test:22/", "http://public.test:25/", "http://public.test:2019/", "http://public.test:6379/", "http://loopback.test:22/", "http://93.184.216.34:22/", "http://93.184.216.34:2019/", "http://[2606:2800:220:1::1]:25/",
	}},
	{closedPort, false, []string{"https://public.test:22/", "http://public.test:81/", "http://public.test:1/", "http://public.test:65535/"}},
	{noPort, false, []string{"http://127.0.0.1:0/", "http://public.test:0/", "http://public.test:000/", "http://public.test:65536/", "http://public.test:65616/", "http://public.test:4294967376/", "http://public.test:99999999999999999999/"}},
	{fourNumbers, false, []string{
		"http://2130706433/", "http://2130706433./", "http://2130706433:8080/", "http://017700000001/", "http://0017700000001/", "http://0x7f000001/", "http://0X7F000001/", "http://0x0000000007f000001/", "http://4294967296/", "http://0x100000000/", "http://6425673729/",
		"http://127.1/", "http://127.0.1/", "http://127.65535/", "http://127.0x1/", "http://0177.1/", "http://0x7f.1/", "http://0x7f.0.1/",
		"http://0177.0.0.1/", "http://0177.0.0.01/", "http://0177.0x0.0.1/", "http://0x7f.0.0.1/", "http://0x7f.0x0.0x0.0x1/", "http://127.0.0.0x1/", "http://127.0.0.01/", "http://127.000.000.001/", "http://00000127.0.0.1/",
		"http://127.0.0.1./", "http://127.0.0.1.0/", "http://127.0.0.256/", "http://383.0.0.1/", "http://127..0.1/", "http://.127.0.0.1/", "http://1.2.3.4.5/",
		"http://0/", "http://0./", "http://00/", "http://0x0/", "http://0x/", "http://1/", "http://example.com.1/", "http://example.com.0x1/",
		"http://2852039166/", "http://0xa9fea9fe/", "http://025177524776/", "http://0251.0376.0251.0376/", "http://0xa9.0xfe.0xa9.0xfe/", "http://169.254.43518/", "http://167772161/", "http://10.1/", "http://192.168.257/",
		"http://②①③⓪⑦⓪⑥④③③/", "http://０ｘ７ｆ.1/", "http://⓪①⑦⑦.1/", "http://127。1/", "http://１２７．１/",
	}},
	{noName, false, []string{
		"http://127.0.0.1../", "http://localhost../", "http://./", "http://../", "http://a..b/", "http://.public.test/", "http://*/", "http://*.public.test/", "http://127.0.0.1;public.test/", "http://127.0.0.1,public.test/", "http://~/", "http://$/", "http://<127.0.0.1>/",
		"http://١٢٧.٠.٠.١/", "http://⒈⒉⒎.0.0.1/", "http://127.0.0.\u200d1/", "http://\u202e127.0.0.1/", "http://127.0.0.1\u00a0/", "http://127.0.0.1\u2028/", "http://\u3000127.0.0.1/", "http://127.0.0.1\u0085/", "http://127.0.0.1\ufffd/",
		"http://" + strings.Repeat("a", 64) + ".test/", "http://" + strings.Repeat("a.", 127) + "test/",
	}},
	{noURL, false, []string{
		"http://%31%32%37.0.0.1/", "http://127%2e0%2e0%2e1/", "http://%31%32%37%2E%30%2E%30%2E%31/", "http://%6c%6f%63alhost/", "http://%5B::1%5D/", "http://127.0.0.1%00.public.test/", "http://127.0.0.1%0d%0a/", "http://127.0.0.1%20/", "http://127.0.0.1%23.public.test/", "http://public.test%40127.0.0.1/",
		"http://[127.0.0.1]/", "http://[localhost]/", "http://[]/", "http://[::1/", "http://::1/", "http://::1:80/", "http://[::1]80/", "http://[::1]:80:80/", "http://[::1].public.test/", "http://public.test[::1]/", "http://[[::1]]/", "http://[::1]]/", "http://[::1::]/", "http://[::g]/",
		"http://[::00001]/", "http://[0x0::1]/", "http://[::ffff:127.1]/", "http://[::ffff:0177.0.0.1]/", "http://[fe80::1%lo]/", "http://[fe80::1%25]/", "http://[vf.127.0.0.1]/", "http://[：：１]/",
		"http://127.0.0.1\\@public.test/", "http://public.test\\@127.0.0.1/", "http://public.test\\.127.0.0.1/", "http://127.0.0.1|public.test/", "http://{host}/", "http://{env.HOME}/",
		"http://127.0.0.1\t/", "http://127.0.0.1\n/", "http://127.0.0.1\r\n/", "http://12\t7.0.0.1/", "ht\ntp://127.0.0.1/", "\thttp://127.0.0.1/", "\nhttp://127.0.0.1/", "http://127.0.0.1\x00.public.test/", "\x00http://127.0.0.1/", "http://127.0.0.1\x7f/", "http://\x0b127.0.0.1/", "\x1bhttp://127.0.0.1/", "\u00a0http://127.0.0.1/", "http://127.0.0.1/\r\nHost:public.test",
		"http://public.test:-80/", "http://public.test:+80/", "http://public.test:0x50/", "http://public.test:８０/", "http://public.test:%38%30/", "http://public.test:http/", "http://public.test:80:22/",
		"127.0.0.1:80", "://127.0.0.1/", "http+unix://%2Frun%2Fdocker.sock/info",
	}},
	{withUser, false, []string{
		"http://user@127.0.0.1/", "http://user:pass@127.0.0.1/", "http://@127.0.0.1/", "http://:@127.0.0.1/", "http://public.test@127.0.0.1/", "http://public.test:80@127.0.0.1/", "http://public.test:@127.0.0.1:80/", "http://a@public.test@127.0.0.1/",
		"http://127.0.0.1&@public.test/", "http://127.0.0.1%2f@public.test/", "http://user@public.test/",
	}},
	{withSpace, false, []string{" http://127.0.0.1/", "http://127.0.0.1 /", "http://127.0.0.1/ ", "http:// 127.0.0.1/", "http://127.0.0.1 @public.test/", "http://public.test:80 /", "http://127.0.0.1/ HTTP/1.1\r\nHost: public.test\r\n\r\n"}},
	{otherScheme, false, []string{
		"file:///etc/passwd", "file://127.0.0.1/etc/passwd", "gopher://127.0.0.1:6379/_INFO", "ftp://127.0.0.1/", "ftps://127.0.0.1/", "sftp://127.0.0.1/", "dict://127.0.0.1:6379/info", "ldap://127.0.0.1/", "ws://127.0.0.1/", "wss://127.0.0.1/", "h2c://127.0.0.1/", "fastcgi://127.0.0.1:9000/",
		"unix:///run/docker.sock", "javascript:alert(1)", "data:text/plain,x", "about:blank", "view-source:http://127.0.0.1/", "url:http://127.0.0.1/", "jar:http://127.0.0.1!/", "httpx://127.0.0.1/", "https+insecure://127.0.0.1/",
		"127.0.0.1", "localhost", "localhost:80", "public.test/x", "//127.0.0.1/", "///127.0.0.1/", "/127.0.0.1/", "?127.0.0.1", "#",
	}},
	{noHost, false, []string{
		"http:127.0.0.1", "https:127.0.0.1", "http:/127.0.0.1/", "http:///127.0.0.1/", "http:////127.0.0.1/", "http:\\\\127.0.0.1\\", "http:/\\127.0.0.1/", "http:http://127.0.0.1/", "http:", "http://", "http:///", "http://:80/", "http://#", "http://?127.0.0.1",
	}},
	{"is longer than 4096 bytes", false, []string{"http://public.test/" + strings.Repeat("a", 4096), "http://" + strings.Repeat("a", 100_000) + "@127.0.0.1/", "http://127.0.0.1/" + strings.Repeat("%61", 5000)}},
}

// publicAddr and publicAddr6 are addresses of the internet, and here as well.
const (
	publicAddr  = "93.184.216.34"
	publicAddr6 = "2606:2800:220:1:248:1893:25c8:1946"
)

// insideNames are names that lead to where no callback may go.
var insideNames = map[string][]string{
	"loopback.test": {"127.0.0.1"}, "loopback-2.test": {"127.0.0.2"}, "loopback-8.test": {"127.8.8.8"}, "any.test": {"0.0.0.0"},
	"private-10.test": {"10.0.0.1"}, "private-172.test": {"172.16.0.1"}, "private-192.test": {"192.168.1.1"}, "shared.test": {"100.64.0.1"}, "link-local.test": {"169.254.1.1"},
	"documentation.test": {"203.0.113.1"}, "benchmark.test": {"198.18.0.1"}, "reserved.test": {"240.0.0.1"},
	"metadata.google.internal": {"169.254.169.254"}, "instance-data.ec2.internal": {"169.254.169.254", "fd00:ec2::254"}, "metadata-6.test": {"fd00:ec2::254"},
	"wire.azure.test": {"168.63.129.16"}, "cluster.google.test": {"34.118.224.1"},
	"metadata.alibaba.test": {"100.100.100.200"}, "metadata.oracle.test": {"192.0.0.192"}, "metadata.google-6.test": {"fd20:ce::254"},
	"loopback-6.test": {"::1"}, "any-6.test": {"::"}, "mapped.test": {"::ffff:127.0.0.1"}, "mapped-metadata.test": {"::ffff:169.254.169.254"}, "compatible.test": {"::127.0.0.1"}, "translated.test": {"::ffff:0:127.0.0.1"},
	"nat64.test": {"64:ff9b::7f00:1"}, "nat64-metadata.test": {"64:ff9b::a9fe:a9fe"}, "nat64-public.test": {"64:ff9b::5db8:d822"}, "nat64-local.test": {"64:ff9b:1::7f00:1"}, "6to4.test": {"2002:7f00:1::"}, "teredo.test": {"2001:0:7f00:1::"},
	"unique-local.test": {"fd12:3456:789a:1::1"}, "site-local.test": {"fec0::1"}, "documentation-6.test": {"2001:db8::1"}, "discard.test": {"100::1"},
	"several.test": {"10.0.0.1", "127.0.0.1", "192.168.1.1"}, "both.test": {"127.0.0.1", "::1"}, "many.test": manyAddresses("127.0.0.", 250), "many-6.test": manyAddresses("fd00::", 250),
	"alias.test": {"loopback.test"}, "alias-of-alias.test": {"alias.test"}, "alias-of-both.test": {"both.test"}, "a.b.c.alias.test": {"alias-of-alias.test"}, "www.example.com": {"private-10.test"},
	"127.0.0.1.nip.io": {"127.0.0.1"}, "7f000001.rbndr.test": {"127.0.0.1"}, "my_service": {"10.0.0.9"}, "xn--bcher-kva.test": {"127.0.0.1"}, strings.Repeat("a.", 120) + "test": {"127.0.0.1"},
	"localhost": {"127.0.0.1"}, "a.localhost": {"127.0.0.1"}, "localhost.localdomain": {"127.0.0.1"}, "localhost.test": {"127.0.0.1", "::1"}, "localhost6": {"::1"}, "ip6-localhost": {"::1"},
}

// deadNames lead to where no connection can be made at all.
var deadNames = map[string][]string{"multicast.test": {"224.0.0.1"}, "multicast-6.test": {"ff02::1"}, "broadcast.test": {"255.255.255.255"}, "link-local-6.test": {"fe80::1"}}

func manyAddresses(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, prefix+strconv.Itoa(i+1))
	}
	return all
}

// insideURLs are other ways to say some of these names, and other ports.
var insideURLs = []string{
	"http://LOOPBACK.Test/", "http://loopback.test./", "http://loopback。test/", "http://ⓛⓞⓞⓟⓑⓐⓒⓚ.test/", "http://loop\u00adback.test/", "http://%e2%93%9boopback.test/", "http://loopback.test:8080/", "http://loopback.test:00080/", "http://loopback.test:/",
	"http://loopback.test#@public.test/", "http://loopback.test?@public.test", "http://loopback.test/@public.test/", "http://LocalHost/", "http://localhost./", "http://ｌｏｃａｌｈｏｓｔ/", "http://localhost:8443/", "http://bücher.test/", "http://BÜCHER。ｔｅｓｔ/",
}

// insideHTTPS do not get past the handshake where they are allowed.
var insideHTTPS = []string{"https://loopback.test/", "https://loopback.test:8443/", "https://localhost/", "https://loopback-6.test/", "http://loopback.test:443/"}

// hooksWith is a hooks directive with webhooks on, a runner that repeats the message, and more.
func hooksWith(more string) string {
	return "hooks {\n\tenabled\n\ttoken " + hookstest.Token + "\n\trunner echo\n" + more + "\n}"
}

const everythingAllowed = "\ncallbacks {\n\tallow 0.0.0.0/0 ::/0\n\tports *\n}\n"

func TestRefusedCallbackURLsReachNothing(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	startNameServer(t, zoneOf(insideNames))
	w := startWatch(t, nil)
	s := hookstest.StartSite(t, hooksWith(""))

	seen := make(map[string]bool)
	for _, group := range refusedURLs {
		t.Run(group.why, func(t *testing.T) {
			for _, url := range group.urls {
				if seen[url] {
					t.Errorf("%q is there twice", url)
				}
				seen[url] = true
				in := func(body map[string]any) string {
					body["callbackUrl"] = url
					return hookstest.AsJSON(t, body)
				}
				s.Post("/api/hooks/agent", in(map[string]any{"message": "x"})).WantError(t, 400, "callbackUrl", group.why)
				s.Post("/api/hooks/agent", in(map[string]any{"message": "x", "syncResponse": true})).WantError(t, 400, "callbackUrl", group.why)
				for _, action := range []string{"agent", "wake"} {
					mapping := in(map[string]any{"action": action, "name": "hook"})
					s.AdminRequest("PUT", "/hooks/mappings/hook", mapping).WantAdminError(t, 400, "callbackUrl", group.why)
					s.AdminRequest("PATCH", "/hooks/settings", `{"mappings":[`+mapping+`]}`).WantAdminError(t, 400, "callbackUrl", group.why)
				}
				wantNotAdapted(t, url, group.why)
				if t.Failed() {
					t.Fatalf("that was %.100q", url)
				}
			}
		})
	}
	for _, url := range []string{`""`, `" "`, `"\u0000"`, `7`, `["http://public.test/"]`, `{"url":"http://public.test/"}`} {
		s.Post("/api/hooks/agent", `{"message":"x","callbackUrl":`+url+`}`).WantError(t, 400, "callbackUrl")
	}
	if ids, _ := s.Listed(""); len(ids) > 0 {
		t.Errorf("the runs %v are stored", ids)
	}
	s.AdminRequest("GET", "/hooks/mappings", "").WantJSON(t, `[]`)
	w.wantNobody(t)
}

// wantNotAdapted checks that a Caddyfile with the URL is refused at its line.
func wantNotAdapted(t *testing.T, url, why string) {
	t.Helper()
	text := "http://127.0.0.1:9999 {\n\thooks {\n\t\thook x {\n\t\t\taction agent\n\t\t\tcallback_url `" + url + "`\n\t\t}\n\t}\n}\n"
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "Caddyfile:5") {
		t.Errorf("adapting a Caddyfile: %v", err)
	}
}

func TestConfigurationsWithRefusedCallbackURLsAreNotLoaded(t *testing.T) {
	s := hookstest.NewServer(t)
	text := s.Caddyfile(s.Site + " {\n" + hooksWith("hook x {\n action agent\n callback_url http://public.test/here\n }") + "\n}\n")
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range refusedURLs {
		url := group.urls[0] // loading takes its time
		hostile := strings.Replace(string(config), `"http://public.test/here"`, hookstest.AsJSON(t, url), 1)
		if err := caddy.Load([]byte(hostile), true); err == nil || !strings.Contains(err.Error(), "callbackUrl") || !strings.Contains(err.Error(), group.why) {
			t.Errorf("with the URL %.100q: %v", url, err)
		}
	}
}

// If this fails, the other tests of this file prove nothing.
func TestRefusedCallbackURLsArriveWhereAllIsAllowed(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	zone := zoneOf(insideNames)
	zone["public.test"] = always(publicAddr)
	startNameServer(t, zone)
	w := startWatch(t, nil)
	s := hookstest.StartSite(t, hooksWith(everythingAllowed))
	var urls []string
	for _, group := range refusedURLs {
		if group.wouldArrive {
			urls = append(urls, group.urls...)
		}
	}
	w.wantAll(t, s, urls)
}

func TestNamesThatLeadInsideReachNothing(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	zone := zoneOf(insideNames)
	maps.Copy(zone, zoneOf(deadNames))
	startNameServer(t, zone)
	w := startWatch(t, nil)
	s := hookstest.StartSite(t, hooksWith("hook pinned {\n action agent\n callback_url http://loopback.test/\n }"))

	var urls []string
	for name := range insideNames {
		urls = append(urls, "http://"+name+"/")
	}
	urls = append(urls, insideURLs...)
	slices.Sort(urls)

	t.Run("from requests", func(t *testing.T) {
		all := append(slices.Clone(urls), insideHTTPS...)
		for name := range deadNames {
			all = append(all, "http://"+name+"/")
		}
		runs := askForCallbacks(s, all)
		for i, url := range all {
			run := tried(s, runs[i])
			if !refusedInside(run) {
				t.Errorf("%.100q: %s", url, run.Body)
			}
			host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
			for _, address := range insideNames[host] {
				// The addresses of localhost are known to all.
				if strings.Contains(run.Body, address) && !strings.Contains(host, address) && !strings.HasSuffix(host, "localhost") {
					t.Errorf("%.100q: the run tells of %s: %s", url, address, run.Body)
				}
			}
		}
	})
	t.Run("from mappings", func(t *testing.T) {
		s.PutMapping("live", `{"action":"agent","callbackUrl":"http://mapped.test/"}`)
		for _, hook := range []string{"live", "pinned"} {
			resp := s.Post("/api/hooks/"+hook, `{}`)
			id, _ := resp.Field(t, "runId").(string)
			if resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			if run := tried(s, id); !refusedInside(run) {
				t.Errorf("%s: %s", hook, run.Body)
			}
		}
	})
	t.Run("from a request that waits", func(t *testing.T) {
		resp := s.Post("/api/hooks/agent", `{"message":"x","syncResponse":true,"callbackUrl":"http://metadata.google.internal/"}`)
		if resp.Status != 200 || resp.Body != "x" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		if run := tried(s, resp.Header.Get("X-Service-Run-Id")); !refusedInside(run) {
			t.Errorf("the run is %s", run.Body)
		}
	})
	w.wantNobody(t)

	t.Run("and are found where all is allowed", func(t *testing.T) {
		s.Reload(hooksWith(everythingAllowed))
		w.wantAll(t, s, urls)
	})
}

func TestNamesThatLeadInsideAndOutside(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	// The dialer goes through the addresses of a name until it has a connection, IPv6 and IPv4 side by side.
	mixed := map[string][]string{
		"public-first.test": {publicAddr, "127.0.0.1"}, "inside-first.test": {"127.0.0.1", publicAddr},
		"public-first-6.test": {publicAddr6, "::1"}, "inside-first-6.test": {"::1", publicAddr6},
		"inside-6.test": {"::1", publicAddr}, "inside-4.test": {"127.0.0.1", publicAddr6}, "mapped.test": {"::ffff:127.0.0.1", publicAddr},
		"nat64.test": {"64:ff9b::7f00:1", publicAddr}, "metadata.test": {"169.254.169.254", "fd00:ec2::254", publicAddr},
		"many.test": append(manyAddresses("127.0.0.", 100), publicAddr), "many-public-first.test": append([]string{publicAddr}, manyAddresses("10.0.0.", 100)...),
		"alias.test": {"inside-first.test"},
	}
	zone := zoneOf(mixed)
	var urls, down []string
	for name, what := range mixed {
		urls = append(urls, "http://"+name+"/")
		for i := range 5 { // hosts, since one that is down may not be tried again at once
			again := fmt.Sprintf("%d.%s", i, name)
			zone[again] = always(what...)
			down = append(down, "http://"+again+":8443/") // where nobody listens outside
		}
	}
	startNameServer(t, zone)
	w := startWatch(t, nil)
	s := hookstest.StartSite(t, hooksWith(""))

	t.Run("lead outside", func(t *testing.T) {
		for range 5 {
			w.wantAll(t, s, urls)
			w.wantOnlyPublic(t)
		}
	})
	t.Run("lead nowhere when outside is down", func(t *testing.T) {
		for _, id := range askForCallbacks(s, down) {
			// Whether another attempt is due depends on which address was the first.
			if run := tried(s, id); run.Deliveries[0].Status == "delivered" {
				t.Errorf("the run is %s", run.Body)
			}
		}
		w.wantNobody(t)
	})
	t.Run("lead inside where all is allowed", func(t *testing.T) {
		s.Reload(hooksWith(everythingAllowed))
		w.wantAll(t, s, []string{"http://public-first.test:8443/", "http://inside-first.test:8443/", "http://inside-6.test:8443/", "http://inside-4.test:8443/", "http://alias.test:8443/"})
		for _, to := range w.arrivals(t) {
			if !to.Addr().IsLoopback() {
				t.Errorf("a connection was made to %s", to)
			}
		}
	})
}

func TestRebindingNamesReachNothingInside(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	startNameServer(t, map[string]answers{
		"outside-then-inside.test": onceThen(publicAddr, "127.0.0.1"),
		"inside-then-outside.test": onceThen("127.0.0.1", publicAddr),
		"turns.test":               inTurns(publicAddr, "127.0.0.1"),
		"turns-6.test":             inTurns(publicAddr6, "::1"),
		"turns-of-metadata.test":   inTurns(publicAddr, "169.254.169.254", publicAddr6, "fd00:ec2::254"),
		"turns-of-alias.test":      inTurns("outside.test", "loopback.test"),
		"outside.test":             always(publicAddr),
		"loopback.test":            always("127.0.0.1"),
	})
	w := startWatch(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/later" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s := hookstest.StartSite(t, hooksWith(""))

	// The second attempt is made after a few seconds, in which the rest is tried.
	later := askForCallbacks(s, []string{"http://outside-then-inside.test/later"})[0]
	if run := tried(s, later); run.Deliveries[0].Status != "pending" || !strings.Contains(run.Deliveries[0].LastError, "503") {
		t.Errorf("after the first attempt the run is %s", run.Body)
	}
	t.Run("when they lead inside at first", func(t *testing.T) {
		if run := tried(s, askForCallbacks(s, []string{"http://inside-then-outside.test/"})[0]); !refusedInside(run) {
			t.Errorf("the run is %s", run.Body)
		}
	})
	t.Run("when they change all the time", func(t *testing.T) {
		for _, host := range []string{"turns.test", "turns-6.test", "turns-of-metadata.test", "turns-of-alias.test"} {
			var delivered, refused int
			for _, id := range askForCallbacks(s, slices.Repeat([]string{"http://" + host + "/"}, 40)) {
				switch run := tried(s, id); {
				case run.Deliveries[0].Status == "delivered" && run.Deliveries[0].Attempts == 1:
					delivered++
				case refusedInside(run):
					refused++
				default:
					t.Errorf("%s: the run is %s", host, run.Body)
				}
			}
			// A name may have addresses of both kinds at once, when it is asked for both.
			if delivered == 0 || refused == 0 && host == "turns.test" {
				t.Errorf("%s: %d delivered, %d refused", host, delivered, refused)
			}
		}
	})
	hookstest.Within(t, 30*time.Second, "the second attempt is over", func() bool { return s.Run(later).Deliveries[0].Status != "pending" })
	if d := s.Run(later).Deliveries[0]; d.Status != "dead" || d.Attempts != 2 || !strings.Contains(d.LastError, insideReason) {
		t.Errorf("after the second attempt the delivery is %+v", d)
	}
	w.wantOnlyPublic(t)
}

func TestCallbacksFollowNoRedirects(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	startNameServer(t, map[string]answers{"loopback.test": always("127.0.0.1"), "receiver.test": always("127.0.0.2")})
	targets := []string{"http://127.0.0.1:8080/inside", "//127.0.0.1:8080/inside", "http://loopback.test/inside", "http://[::1]/inside"}
	w := startWatch(t, func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code"))
		target := r.URL.Query().Get("to")
		if target == "" {
			return
		}
		w.Header().Set("Location", target)
		w.Header().Set("Content-Location", target)
		w.Header().Set("Refresh", "0; url="+target)
		w.Header().Set("Link", "<"+target+">; rel=preload")
		w.Header().Set("Alt-Svc", `h2="127.0.0.1:443"`)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `<meta http-equiv="refresh" content="0; url=`+target+`"><script>location = "`+target+`"</script>`)
	})
	s := hookstest.StartSite(t, hooksWith("callbacks {\n allow 127.0.0.2\n }"))

	for _, code := range []int{200, 201, 202, 300, 301, 302, 303, 305, 307, 308, 401, 407, 451} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			for _, receiver := range []string{"http://127.0.0.2", "http://receiver.test:8080"} {
				var urls []string
				for _, target := range targets {
					urls = append(urls, fmt.Sprintf("%s/?code=%d&to=%s", receiver, code, target))
				}
				for _, id := range askForCallbacks(s, urls) {
					run := tried(s, id)
					switch d := run.Deliveries[0]; {
					case code < 300 && d.Status == "delivered" && d.Attempts == 1:
					case code >= 300 && d.Status == "dead" && d.Attempts == 1 && strings.Contains(d.LastError, strconv.Itoa(code)):
					default:
						t.Errorf("the run is %s", run.Body)
					}
				}
			}
			for _, to := range w.arrivals(t) {
				if to.Addr().String() != "127.0.0.2" {
					t.Errorf("a connection was made to %s", to)
				}
			}
		})
	}
	t.Run("that others do follow", func(t *testing.T) {
		resp, err := hookstest.TryRequest("POST", "http://127.0.0.2/?code=307&to="+targets[0], "")
		if err != nil || resp.Status != 200 {
			t.Fatalf("got %d, %v", resp.Status, err)
		}
		if !slices.Contains(w.arrivals(t), netip.MustParseAddrPort("127.0.0.1:8080")) {
			t.Error("the redirect was not followed")
		}
	})
}

func TestOnlyWhatIsAllowedIsOpen(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	zone := zoneOf(insideNames)
	zone["public.test"] = always(publicAddr)
	startNameServer(t, zone)
	w := startWatch(t, nil)
	s := hookstest.NewServer(t)
	for _, c := range []struct {
		callbacks string
		open      []string
		refused   []string // when they are asked for
		closed    []string // when they are dialled
	}{
		{
			"allow 127.0.0.0/8 ::1\n ports 8080 22",
			[]string{
				"http://127.0.0.1:8080/", "http://127.0.0.1:22/", "http://127.8.8.8:22/", "http://[::1]:8080/", "http://[::ffff:127.0.0.1]:8080/", "http://①②⑦.⓪.⓪.①:8080/",
				"http://loopback.test:8080/", "http://loopback-6.test:22/", "http://localhost:8080/", "http://mapped.test:8080/", "http://alias.test:8080/", "http://public.test:8080/", "http://93.184.216.34:22/",
			},
			[]string{
				"http://127.0.0.1/", "http://127.0.0.1:443/", "http://127.0.0.1:2019/", "http://loopback.test/", "http://public.test/", "http://0.0.0.0:8080/", "http://10.0.0.1:8080/", "http://[::]:8080/", "http://[::2]:8080/",
				"http://169.254.169.254:8080/", "http://[::127.0.0.1]:8080/", "http://[64:ff9b::127.0.0.1]:8080/", "http://[2002:7f00:1::]:8080/", "http://127.1:8080/", "http://2130706433:8080/", "http://user@127.0.0.1:8080/",
			},
			[]string{"http://any.test:8080/", "http://private-10.test:8080/", "http://metadata.google.internal:8080/", "http://compatible.test:8080/", "http://nat64.test:8080/", "http://6to4.test:8080/", "http://unique-local.test:8080/", "http://any-6.test:8080/"},
		},
		{
			"allow 127.0.0.1",
			[]string{"http://127.0.0.1/", "http://127.0.0.1:8080/", "http://[::ffff:7f00:1]/", "http://loopback.test/", "http://public.test/"},
			[]string{"http://127.0.0.2/", "http://127.0.0.0/", "http://[::1]/", "http://127.0.0.1:22/", "http://127.0.0.1:2019/", "http://10.0.0.1/"},
			[]string{"http://loopback-2.test/", "http://loopback-6.test/", "http://loopback-8.test/"},
		},
		{
			"allow 10.0.0.0/31 fd00:ec2::254",
			[]string{"http://10.0.0.1/", "http://[::ffff:10.0.0.0]/", "http://private-10.test/", "http://[fd00:ec2::254]/", "http://metadata-6.test/"},
			[]string{"http://10.0.0.2/", "http://9.255.255.255:22/", "http://169.254.169.254/", "http://[fd00:ec2::253]/", "http://[fd00:ec2::255]/", "http://127.0.0.1/"},
			[]string{"http://my_service/", "http://metadata.google.internal/", "http://unique-local.test/"},
		},
		{
			"allow ::ffff:192.168.0.0/112",
			[]string{"http://192.168.1.1/", "http://private-192.test/"},
			[]string{"http://192.169.0.1:22/", "http://10.0.0.1/", "http://127.0.0.1/", "http://[::1]/"},
			[]string{"http://private-10.test/", "http://mapped.test/"},
		},
		{
			"allow 64:ff9b::/96",
			[]string{"http://[64:ff9b::93.184.216.34]/", "http://nat64-public.test/"},
			[]string{"http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::10.0.0.1]/", "http://[64:ff9b:1::7f00:1]/", "http://127.0.0.1/"},
			[]string{"http://nat64.test/", "http://nat64-metadata.test/", "http://nat64-local.test/"},
		},
		{
			"allow ::/0",
			[]string{"http://[::1]/", "http://[fd12:3456:789a:1::1]/", "http://unique-local.test/"},
			[]string{"http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://169.254.169.254/"},
			[]string{"http://loopback.test/", "http://mapped.test/", "http://nat64.test/"},
		},
		{
			"ports *",
			[]string{"http://public.test:22/", "http://93.184.216.34:6379/"},
			[]string{"http://127.0.0.1:22/", "http://[::1]:2019/", "http://10.0.0.1:6379/", "http://public.test:0/", "http://public.test:65536/"},
			[]string{"http://loopback.test:22/", "http://localhost:2019/", "http://private-10.test:6379/"},
		},
	} {
		t.Run(c.callbacks, func(t *testing.T) {
			s.Reload(hooksWith("callbacks {\n " + c.callbacks + "\n }"))
			for _, url := range c.refused {
				resp := s.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]string{"message": "x", "callbackUrl": url}))
				resp.WantError(t, 400, "callbackUrl")
				if resp.Status != 400 {
					t.Errorf("that was %s", url)
				}
			}
			for i, id := range askForCallbacks(s, c.closed) {
				if run := tried(s, id); !refusedInside(run) {
					t.Errorf("%s: %s", c.closed[i], run.Body)
				}
			}
			w.wantNobody(t)
			w.wantAll(t, s, c.open)
			w.arrivals(t)
		})
	}
}

func TestAllowanceThatIsTakenBack(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	startNameServer(t, map[string]answers{"loopback.test": always("127.0.0.1"), "public.test": always(publicAddr)})
	w := startWatch(t, nil)
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "callbacks {\n allow 127.0.0.0/8\n ports 22 80\n }"))
	urls := []string{"http://127.0.0.1/", "http://loopback.test/", "http://public.test:22/"}
	w.wantAll(t, s, urls)
	w.arrivals(t)

	var held []string
	for _, url := range urls {
		held = append(held, s.Accept(hookstest.AsJSON(t, map[string]string{"message": "hold", "callbackUrl": url})))
	}
	for range held {
		for rn.Next().Text("message") != "hold" {
		}
	}
	s.PutMapping("saved", `{"action":"agent","messageTemplate":"x","callbackUrl":"http://127.0.0.1/"}`)
	if err := s.TryLoad(hookstest.Hooks(rn, "")); err == nil || !strings.Contains(err.Error(), notPublic) {
		t.Errorf("loading a configuration that the hook does not go with: %v", err)
	}
	s.Settle()
	hookstest.Eventually(t, "the admin endpoint is back, and the hook is deleted", func() bool {
		resp, err := hookstest.TryRequest("DELETE", s.Admin+"/hooks/mappings/saved", "", "Connection", "close")
		return err == nil && (resp.Status == 204 || resp.Status == 404)
	})
	s.Reload(hookstest.Hooks(rn, ""))
	close(release)
	for i, why := range []string{notPublic, insideReason, closedPort} {
		run := tried(s, held[i])
		if d := run.Deliveries[0]; run.Status != "completed" || d.Status != "dead" || d.Attempts != 1 || !strings.Contains(d.LastError, why) {
			t.Errorf("%s: %s", urls[i], run.Body)
		}
	}

	t.Run("while nothing was running", func(t *testing.T) {
		s.Reload(hookstest.Hooks(rn, "callbacks {\n allow 127.0.0.0/8\n }"))
		s.PutMapping("saved", `{"action":"agent","messageTemplate":"x","callbackUrl":"http://127.0.0.1/"}`)
		s.Restart(hookstest.Hooks(rn, ""))
		s.Post("/api/hooks/saved", `{}`).WantError(t, 404)
		s.WantProblems(t, []string{"saved", "callbackUrl", notPublic})
	})
	w.wantNobody(t)
}

func TestCallbacksUseNoProxyOfTheEnvironment(t *testing.T) {
	proxy := netip.MustParseAddrPort("93.184.216.99:8080") // a public address and an open port: nothing else keeps callbacks from it
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"=http://"+proxy.String(), strings.ToLower(name)+"=http://"+proxy.String())
	}
	if !inOwnNetwork(t, append(env, "NO_PROXY=", "no_proxy=")...) {
		return
	}
	startNameServer(t, map[string]answers{"public.test": always(publicAddr)})
	w := startWatch(t, nil)
	if _, err := hookstest.TryRequest("GET", "http://public.test/", ""); err != nil {
		t.Fatal(err)
	}
	if got := w.arrivals(t); !slices.Equal(got, []netip.AddrPort{proxy}) {
		t.Fatalf("others connect to %v, and not to the proxy", got)
	}
	s := hookstest.StartSite(t, hooksWith(""))
	w.wantAll(t, s, []string{"http://public.test/", "http://public.test:8080/", "http://93.184.216.34/"})
	for _, id := range askForCallbacks(s, []string{"https://public.test/", "https://93.184.216.34:8080/"}) {
		tried(s, id) // where nobody speaks TLS
	}
	w.wantOnlyPublic(t)
}

// askForCallbacks sends a request with each of the callback URLs, and returns the ids of the runs. Their chats are named
// after the place of the URL.
func askForCallbacks(s *hookstest.Server, urls []string) (ids []string) {
	s.T.Helper()
	for i, url := range urls {
		ids = append(ids, s.Accept(hookstest.AsJSON(s.T, map[string]string{"message": "x", "chatId": strconv.Itoa(i), "callbackUrl": url})))
	}
	return ids
}

// tried waits until there was an attempt at the only delivery of a run.
func tried(s *hookstest.Server, id string) (run hookstest.RunView) {
	s.T.Helper()
	hookstest.Within(s.T, 30*time.Second, "the delivery of run "+id+" is tried", func() bool {
		run = s.Run(id)
		return len(run.Deliveries) == 1 && (run.Deliveries[0].Status != "pending" || run.Deliveries[0].LastError != "")
	})
	return run
}

// insideReason is all that is said about a name that leads inside. Its address stays unsaid, unless the name is localhost.
const insideReason = "the host has an address that is not public; the operator can permit that with 'allow <address>' in the callbacks block of the Caddyfile"

// refusedInside reports whether the delivery was given up at once, and for the right reason.
func refusedInside(r hookstest.RunView) bool {
	d := r.Deliveries[0]
	return r.Status == "completed" && d.Status == "dead" && d.Attempts == 1 &&
		(d.LastError == insideReason || d.LastError == strings.Replace(insideReason, "<address>", "127.0.0.1 ::1", 1))
}

// watch listens at every address, on the ports that URLs in this file name, and keeps who was connected to. On port 8443
// there is somebody inside only.
type watch struct {
	listeners []net.Listener

	mu          sync.Mutex
	connections []connection
	runs        map[string]bool // whose callbacks came
}

type connection struct{ from, to netip.AddrPort }

// startWatch starts a watch. Requests are answered by answer, or with 200 if it is nil.
func startWatch(t *testing.T, answer http.HandlerFunc) *watch {
	t.Helper()
	w := &watch{runs: make(map[string]bool)}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close") // so that every callback has to connect
		w.mu.Lock()
		w.runs[r.Header.Get("X-Service-Run-Id")] = true
		w.mu.Unlock()
		if answer != nil {
			answer(rw, r)
		}
	})}
	t.Cleanup(func() { server.Close() })
	for _, address := range []string{":22", ":25", ":80", ":443", ":2019", ":6379", ":8080", "127.0.0.1:8443", "[::1]:8443"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		w.listeners = append(w.listeners, l)
		go server.Serve(watchedListener{l, w})
	}
	return w
}

type watchedListener struct {
	net.Listener
	w *watch
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.w.mu.Lock()
		l.w.connections = append(l.w.connections, connection{addressOf(conn.RemoteAddr()), addressOf(conn.LocalAddr())})
		l.w.mu.Unlock()
	}
	return conn, err
}

func addressOf(a net.Addr) netip.AddrPort {
	to := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())
}

// arrivals are all addresses that were connected to since it was called last.
func (w *watch) arrivals(t *testing.T) (all []netip.AddrPort) {
	t.Helper()
	// Connections are accepted in the order in which they came. When one that is made now is there, all others are.
	// Connections to different addresses may come from the same port.
	var own []connection
	for _, l := range w.listeners {
		address := addressOf(l.Addr())
		if address.Addr().IsUnspecified() {
			address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), address.Port())
		}
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		own = append(own, connection{addressOf(conn.LocalAddr()), addressOf(conn.RemoteAddr())})
	}
	hookstest.Eventually(t, "all connections are accepted", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !slices.ContainsFunc(own, func(c connection) bool { return !slices.Contains(w.connections, c) })
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.connections {
		if !slices.Contains(own, c) && !slices.Contains(all, c.to) {
			all = append(all, c.to)
		}
	}
	w.connections = nil
	return all
}

// wantNobody checks that no connection was made.
func (w *watch) wantNobody(t *testing.T) {
	t.Helper()
	if got := w.arrivals(t); len(got) > 0 {
		t.Errorf("connections were made to %v", got)
	}
}

// wantOnlyPublic checks that connections were made, and to the public addresses only.
func (w *watch) wantOnlyPublic(t *testing.T) {
	t.Helper()
	got := w.arrivals(t)
	for _, to := range got {
		if a := to.Addr().String(); a != publicAddr && a != publicAddr6 {
			t.Errorf("a connection was made to %s", to)
		}
	}
	if len(got) == 0 {
		t.Error("no connection was made")
	}
}

// wantAll checks that callbacks to all URLs arrive.
func (w *watch) wantAll(t *testing.T, s *hookstest.Server, urls []string) {
	t.Helper()
	for i, id := range askForCallbacks(s, urls) {
		run := tried(s, id)
		w.mu.Lock()
		came := w.runs[id]
		w.mu.Unlock()
		if d := run.Deliveries[0]; !came || d.Status != "delivered" {
			t.Errorf("%.100q does not arrive: %s", urls[i], run.Body)
		}
	}
}

// answers says what a name stands for when it is asked for, of each kind of address, for the given time, counted from 0:
// addresses, or the one name that it is an alias of.
type answers func(query int) []string

func always(what ...string) answers { return func(int) []string { return what } }

// inTurns is a name that stands for another thing each time, until it is the turn of the first again.
func inTurns(what ...string) answers {
	return func(query int) []string { return what[query%len(what):][:1] }
}

func onceThen(first, then string) answers {
	return func(query int) []string {
		if query == 0 {
			return []string{first}
		}
		return []string{then}
	}
}

func zoneOf(names map[string][]string) map[string]answers {
	zone := make(map[string]answers)
	for name, what := range names {
		zone[name] = always(what...)
	}
	return zone
}

// nameServer is a DNS server. It lets nobody keep an answer.
type nameServer struct {
	zone map[string]answers

	mu      sync.Mutex
	queries map[dnsmessage.Question]int
}

// startNameServer starts a DNS server, which is asked for all names from now on that are not in the hosts file.
func startNameServer(t *testing.T, zone map[string]answers) {
	t.Helper()
	n := &nameServer{zone: zone, queries: make(map[dnsmessage.Question]int)}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := packets.LocalAddr().String()
	streams, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go n.servePackets(packets)
	go n.serveStreams(streams)

	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		packets.Close()
		streams.Close()
	})
}

func (n *nameServer) servePackets(conn net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply, err := n.reply(buf[:size], 512); err == nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

// serveStreams serves those whose answer did not fit in a packet.
func (n *nameServer) serveStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var size uint16
			for binary.Read(conn, binary.BigEndian, &size) == nil {
				query := make([]byte, size)
				if _, err := io.ReadFull(conn, query); err != nil {
					return
				}
				reply, err := n.reply(query, 65535)
				if err != nil {
					return
				}
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
			}
		}()
	}
}

func (n *nameServer) reply(query []byte, limit int) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if _, known := n.zone[name]; !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	m.Answers = n.records(name, q.Type)
	reply, err := m.Pack()
	if err == nil && len(reply) > limit {
		m.Truncated, m.Answers = true, nil
		reply, err = m.Pack()
	}
	return reply, err
}

// records are what the name stands for, and before that the aliases on the way there.
func (n *nameServer) records(name string, kind dnsmessage.Type) (all []dnsmessage.Resource) {
	header := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name + "."), Class: dnsmessage.ClassINET}
	add := func(body dnsmessage.ResourceBody) { all = append(all, dnsmessage.Resource{Header: header, Body: body}) }
	for _, what := range n.ask(name, kind) {
		addr, err := netip.ParseAddr(what)
		switch {
		case err != nil:
			add(&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(what + ".")})
			all = append(all, n.records(what, kind)...)
		case kind == dnsmessage.TypeA && addr.Is4():
			add(&dnsmessage.AResource{A: addr.As4()})
		case kind == dnsmessage.TypeAAAA && addr.Is6():
			add(&dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	return all
}

func (n *nameServer) ask(name string, kind dnsmessage.Type) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: kind}
	query := n.queries[q]
	n.queries[q]++
	if n.zone[name] == nil {
		return nil
	}
	return n.zone[name](query)
}

// ownNetwork is set in the environment of processes that have a network of their own.
const ownNetwork = "CADDYHOOKS_TEST_OWN_NETWORK"

// inOwnNetwork runs the test once more, in a process with a network in which every address there is belongs to this machine
// and all ports are free. So whatever is connected to can be watched, and nothing leaves the machine. It reports whether
// this is that process.
func inOwnNetwork(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		openNetwork(t)
		return true
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(append(os.Environ(), env...), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, fs.ErrPermission):
		t.Skip("needs root, or a system that lets users make network namespaces")
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Errorf("the test was not run:\n%s", out)
	}
	return false
}

// openNetwork brings up the only device of a new network, and has it take all addresses.
func openNetwork(t *testing.T) {
	t.Helper()
	const loopback = 1 // it is always the first device
	up := binary.NativeEndian.AppendUint32([]byte{syscall.AF_UNSPEC, 0, 0, 0}, loopback)
	up = binary.NativeEndian.AppendUint32(up, syscall.IFF_UP)
	up = binary.NativeEndian.AppendUint32(up, syscall.IFF_UP) // the flags to change
	tellKernel(t, syscall.RTM_NEWLINK, up)
	for _, family := range []byte{syscall.AF_INET, syscall.AF_INET6} {
		route := []byte{family, 0, 0, 0, syscall.RT_TABLE_LOCAL, syscall.RTPROT_STATIC, syscall.RT_SCOPE_HOST, syscall.RTN_LOCAL, 0, 0, 0, 0}
		route = binary.NativeEndian.AppendUint16(route, 8)
		route = binary.NativeEndian.AppendUint16(route, syscall.RTA_OIF)
		tellKernel(t, syscall.RTM_NEWROUTE, binary.NativeEndian.AppendUint32(route, loopback))
	}
}

// tellKernel changes the network.
func tellKernel(t *testing.T, what uint16, body []byte) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	message := binary.NativeEndian.AppendUint32(nil, uint32(syscall.NLMSG_HDRLEN+len(body)))
	message = binary.NativeEndian.AppendUint16(message, what)
	message = binary.NativeEndian.AppendUint16(message, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|syscall.NLM_F_CREATE)
	message = append(message, make([]byte, 8)...)
	if err := syscall.Sendto(fd, append(message, body...), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil || n < syscall.NLMSG_HDRLEN+4 {
		t.Fatalf("the kernel answered %d bytes, %v", n, err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[syscall.NLMSG_HDRLEN:])); code != 0 {
		t.Fatalf("the kernel does not change the network: %v", syscall.Errno(-code))
	}
}
