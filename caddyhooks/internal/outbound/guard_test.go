package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGuardCheckURL(t *testing.T) {
	t.Parallel()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	public := NewGuard(nil, nil, false)
	local := NewGuard(loopback, nil, false)
	for _, c := range []struct {
		guard *Guard
		url   string
		want  string // what the error says; empty: none
	}{
		{public, "http://example.com", ""},
		{public, "https://example.com/path?q=1#fragment", ""},
		{public, "HTTPS://EXAMPLE.COM./", ""},
		{public, "http://example.com:8080/", ""},
		{public, "http://example.com:/", ""},
		{public, "https://example.com:8443/", ""},
		{public, "http://my_service/", ""},
		{public, "http://bücher.example/", ""},
		{public, "http://例え。テスト/", ""},
		{public, "http://93.184.216.34/", ""},
		{public, "http://[2606:2800:220:1:248:1893:25c8:1946]/", ""},
		{public, "http://[::ffff:93.184.216.34]/", ""},
		{public, "http://localhost/", ""}, // its address is looked at when it is dialled
		{public, "http://1password.example/", ""},
		{public, "http://x.0xdeadbeefg/", ""},
		{local, "http://127.0.0.1:8080/", ""},
		{local, "http://[::1]/", ""},
		{local, "http://[::ffff:127.0.0.1]/", ""},
		{local, "http://①②⑦.⓪.⓪.①/", ""},
		{NewGuard(nil, []uint16{9000}, false), "http://example.com:9000/", ""},
		{NewGuard(nil, nil, true), "http://example.com:22/", ""},
		{NewGuard([]netip.Prefix{netip.MustParsePrefix("fe80::/10")}, nil, false), "http://[fe80::1%25eth0]/", ""},

		{public, "", "empty"},
		{public, " http://example.com/", "space"},
		{public, "http://example.com/ ", "space"},
		{public, "http://example.com/\r\nX:y", "not a valid URL"},
		{public, "http://example.com/" + strings.Repeat("a", maxURLLength), "longer than"},
		{public, "example.com", "must begin with"},
		{public, "/path", "must begin with"},
		{public, "//example.com/", "must begin with"},
		{public, "ftp://example.com/", "must begin with"},
		{public, "file:///etc/passwd", "must begin with"},
		{public, "gopher://example.com/", "must begin with"},
		{public, "javascript:alert(1)", "must begin with"},
		{public, "http:", "no host"},
		{public, "http:example.com", "no host"},
		{public, "http:///path", "no host"},
		{public, "http://:80/", "no host"},
		{public, "http://user@example.com/", "user name"},
		{public, "http://user:pass@example.com/", "user name"},
		{public, "http://@example.com/", "user name"},
		{public, "http://example.com@127.0.0.1/", "user name"},
		{public, "http://example.com\\@127.0.0.1/", "not a valid"},
		{public, "http://example.com:22/", "port 22; allowed: 80 443 8080 8443"},
		{public, "http://example.com:0/", "between 1 and 65535"},
		{public, "http://example.com:65536/", "between 1 and 65535"},
		{public, "http://example.com:http/", "not a valid URL"},
		{NewGuard(nil, nil, true), "http://example.com:0/", "between 1 and 65535"},
		{NewGuard(nil, []uint16{9000}, false), "http://example.com/", "port 80; allowed: 9000"},

		{public, "http://127.0.0.1/", "127.0.0.1, which is not a public address"},
		{public, "http://127.8.8.8/", "not a public address"},
		{public, "http://0.0.0.0/", "not a public address"},
		{public, "http://10.0.0.1/", "not a public address"},
		{public, "http://100.64.0.1/", "not a public address"},
		{public, "http://169.254.169.254/latest/meta-data/", "not a public address"},
		{public, "http://172.16.0.1/", "not a public address"},
		{public, "http://192.168.0.1/", "not a public address"},
		{public, "http://198.18.0.1/", "not a public address"},
		{public, "http://224.0.0.1/", "not a public address"},
		{public, "http://255.255.255.255/", "not a public address"},
		{public, "http://[::]/", "not a public address"},
		{public, "http://[::1]/", "not a public address"},
		{public, "http://[0:0:0:0:0:0:0:1]/", "not a public address"},
		{public, "http://[::127.0.0.1]/", "not a public address"},
		{public, "http://[::ffff:127.0.0.1]/", "127.0.0.1, which is not a public address"},
		{public, "http://[::ffff:7f00:1]/", "not a public address"},
		{public, "http://[::ffff:0:127.0.0.1]/", "not a public address"},
		{public, "http://[64:ff9b::127.0.0.1]/", "not a public address"},
		{public, "http://[64:ff9b::8.8.8.8]/", "not a public address"},
		{public, "http://[64:ff9b:1::10.0.0.1]/", "not a public address"},
		{public, "http://[2002:7f00:1::]/", "not a public address"},
		{public, "http://[2001:0:7f00:1::]/", "not a public address"},
		{public, "http://[fc00::1]/", "not a public address"},
		{public, "http://[fe80::1]/", "not a public address"},
		{public, "http://[fe80::1%25eth0]/", "fe80::1, which is not a public address"},
		{public, "http://[::1%25lo]/", "not a public address"},
		{public, "http://[ff02::1]/", "not a public address"},
		{public, "http://[fd00:ec2::254]/", "not a public address"},
		{public, "http://①②⑦.⓪.⓪.①/", "127.0.0.1, which is not a public address"},
		{public, "http://１２７。０。０。１/", "127.0.0.1, which is not a public address"},
		{public, "http://%e2%91%a0%e2%91%a1%e2%91%a6.0.0.1/", "not a public address"},
		{local, "http://10.0.0.1/", "not a public address"},

		{public, "http://127.0.0.1./", "four decimal numbers"},
		{public, "http://127.1/", "four decimal numbers"},
		{public, "http://0x7f.1/", "four decimal numbers"},
		{public, "http://0x7f.0x0.0x0.0x1/", "four decimal numbers"},
		{public, "http://0X7F000001/", "four decimal numbers"},
		{public, "http://0x/", "four decimal numbers"},
		{public, "http://0177.1/", "four decimal numbers"},
		{public, "http://0177.0.0.1/", "four decimal numbers"},
		{public, "http://127.0.0.01/", "four decimal numbers"},
		{public, "http://2130706433/", "four decimal numbers"},
		{public, "http://017700000001/", "four decimal numbers"},
		{public, "http://0/", "four decimal numbers"},
		{public, "http://256.256.256.256/", "four decimal numbers"},
		{public, "http://1.2.3.4.5/", "four decimal numbers"},
		{public, "http://example.com.1/", "four decimal numbers"},
		{public, "http://②①③⓪⑦⓪⑥④③③/", "four decimal numbers"},
		{local, "http://0x7f.1/", "four decimal numbers"},

		{public, "http://127.0.0.1../", "not a valid name"},
		{public, "http://example..com/", "not a valid name"},
		{public, "http://./", "not a valid name"},
		{public, "http://.example.com/", "not a valid name"},
		{public, "http://*.example.com/", "not a valid name"},
		{public, "http://a,b/", "not a valid name"},
		{public, "http://" + strings.Repeat("a", 64) + "/", "not a valid name"},
		{public, "http://" + strings.Repeat("a.", 130) + "com/", "not a valid name"},
		{public, "http://\u00ad/", "not a valid name"},
		{public, "http://a\u200bb\ufffd/", "not a valid name"},
		{public, "http://%31%32%37.0.0.1/", "not a valid URL"},
		{public, "http://[127.0.0.1]/", "not a"},
		{public, "http://[::1/", "not a valid URL"},
		{public, "http://[v1.x]/", "not a valid"},
		{public, "http://::1/", "not a valid"},
	} {
		err := c.guard.CheckURL(c.url)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("CheckURL(%q): %v", c.url, err)
		case c.want != "" && err == nil:
			t.Errorf("CheckURL(%q) passed", c.url)
		case c.want != "" && !strings.Contains(err.Error(), c.want):
			t.Errorf("CheckURL(%q): %v; want %q in it", c.url, err, c.want)
		}
	}
}

// The lines that a refusal names are those that let the callback go there.
func TestRefusalNamesTheLinesThatPermitIt(t *testing.T) {
	t.Parallel()
	permitLine := regexp.MustCompile(`'(allow|ports) ([^']+)'`)
	for url, want := range map[string]string{
		"http://127.0.0.1/":            "'allow 127.0.0.1' in the callbacks block",
		"http://169.254.169.254/":      "'allow 169.254.169.254' in the callbacks block",
		"http://168.63.129.16/":        "'allow 168.63.129.16' in the callbacks block",
		"http://[::1]/":                "'allow ::1' in the callbacks block",
		"http://[::ffff:10.0.0.1]/":    "'allow 10.0.0.1' in the callbacks block",
		"http://[fe80::1%25eth0]/":     "'allow fe80::1' in the callbacks block",
		"http://[64:ff9b::127.0.0.1]/": "'allow 64:ff9b::7f00:1 127.0.0.1' in the callbacks block",
		"http://example.com:9000/":     "'ports 80 443 8080 8443 9000' in the callbacks block",
		"http://10.0.0.1:9000/":        "'allow 10.0.0.1' and 'ports 80 443 8080 8443 9000' in the callbacks block",
	} {
		err := NewGuard(nil, nil, false).CheckURL(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckURL(%q): %v; want %q in it", url, err, want)
			continue
		}
		var allow []netip.Prefix
		var ports []uint16
		for _, line := range permitLine.FindAllStringSubmatch(err.Error(), -1) {
			for _, word := range strings.Fields(line[2]) {
				if line[1] == "ports" {
					port, err := strconv.ParseUint(word, 10, 16)
					if err != nil {
						t.Fatal(err)
					}
					ports = append(ports, uint16(port))
				} else {
					addr := netip.MustParseAddr(word)
					allow = append(allow, netip.PrefixFrom(addr, addr.BitLen()))
				}
			}
		}
		if err := NewGuard(allow, ports, false).CheckURL(url); err != nil {
			t.Errorf("with the lines that it names, CheckURL(%q): %v", url, err)
		}
	}
	for address, want := range map[string]string{
		"10.1.2.3:80":        "the host has an address that is not public; the operator can permit that with 'allow <address>' in the callbacks block",
		"93.184.216.34:9000": "port 9000 is not allowed; the operator can permit that with 'ports 80 443 8080 8443 9000' in the callbacks block",
	} {
		if err := NewGuard(nil, nil, false).Control("tcp4", address, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Control(%s): %v; want %q in it", address, err, want)
		}
	}
}

func TestGuardControl(t *testing.T) {
	t.Parallel()
	prefixes := func(s ...string) (all []netip.Prefix) {
		for _, p := range s {
			all = append(all, netip.MustParsePrefix(p))
		}
		return all
	}
	for _, c := range []struct {
		name    string
		allow   []netip.Prefix
		network string
		address string
		want    bool
	}{
		{"public IPv4", nil, "tcp4", "93.184.216.34:443", true},
		{"public IPv6", nil, "tcp6", "[2606:2800:220:1::1]:443", true},
		{"public, mapped", nil, "tcp6", "[::ffff:93.184.216.34]:443", true},
		{"loopback", nil, "tcp4", "127.0.0.1:80", false},
		{"loopback, IPv6", nil, "tcp6", "[::1]:80", false},
		{"loopback, mapped", nil, "tcp6", "[::ffff:127.0.0.1]:80", false},
		{"metadata service", nil, "tcp4", "169.254.169.254:80", false},
		{"services of an Azure host", nil, "tcp4", "168.63.129.16:80", false},
		{"services of a cluster", nil, "tcp4", "34.118.224.1:80", false},
		{"services of a cluster, mapped", nil, "tcp6", "[::ffff:34.118.239.255]:80", false},
		{"beside the services of a cluster", nil, "tcp4", "34.118.240.1:80", true},
		{"services of a cluster, allowed", prefixes("34.118.224.0/20"), "tcp4", "34.118.224.1:80", true},
		{"link-local with zone", nil, "tcp6", "[fe80::1%eth0]:80", false},
		{"public with zone", nil, "tcp6", "[2606:2800:220:1::1%eth0]:80", true},
		{"NAT64", nil, "tcp6", "[64:ff9b::808:808]:80", false},
		{"other port", nil, "tcp4", "93.184.216.34:22", false},
		{"UDP", nil, "udp4", "93.184.216.34:80", false},
		{"socket", nil, "unix", "/run/x.sock", false},
		{"no port", nil, "tcp4", "93.184.216.34", false},
		{"name", nil, "tcp4", "example.com:80", false},
		{"allowed", prefixes("127.0.0.0/8"), "tcp4", "127.0.0.1:80", true},
		{"allowed, mapped address", prefixes("127.0.0.0/8"), "tcp6", "[::ffff:127.0.0.1]:80", true},
		{"allowed, mapped prefix", prefixes("::ffff:10.0.0.0/104"), "tcp4", "10.1.2.3:80", true},
		{"outside the mapped prefix", prefixes("::ffff:10.0.0.0/104"), "tcp4", "127.0.0.1:80", false},
		{"allowed with zone", prefixes("fe80::/10"), "tcp6", "[fe80::1%eth0]:80", true},
		{"allowed, other port", prefixes("127.0.0.0/8"), "tcp4", "127.0.0.1:22", false},
		{"NAT64 allowed", prefixes("64:ff9b::/96"), "tcp6", "[64:ff9b::808:808]:80", true},
		{"NAT64 allowed, to loopback", prefixes("64:ff9b::/96"), "tcp6", "[64:ff9b::7f00:1]:80", false},
		{"NAT64 and loopback allowed", prefixes("64:ff9b::/96", "127.0.0.0/8"), "tcp6", "[64:ff9b::7f00:1]:80", true},
		{"all IPv6 allowed, NAT64 to loopback", prefixes("::/0"), "tcp6", "[64:ff9b::7f00:1]:80", false},
		{"all IPv6 allowed, mapped loopback", prefixes("::/0"), "tcp6", "[::ffff:127.0.0.1]:80", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := NewGuard(c.allow, nil, false).Control(c.network, c.address, nil)
			if (err == nil) != c.want {
				t.Errorf("Control(%s, %s): %v", c.network, c.address, err)
			}
		})
	}
}

// likeAnAddress matches hosts whose last label is a number, which some resolvers take for an address.
var likeAnAddress = regexp.MustCompile(`(?i)(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$`)

// FuzzCheckURL asks the real HTTP transport where it would connect for a URL that passed: never to an address that is
// not public, and never to something that only some resolvers take for an address.
func FuzzCheckURL(f *testing.F) {
	for _, u := range []string{
		"http://example.com/", "https://bücher.example:8443/x?y#z", "http://93.184.216.34", "http://[2606:2800:220:1::1]:80/",
		"http://127.0.0.1/", "http://[::1%25lo]/", "http://①②⑦.⓪.⓪.①/", "http://0x7f.1/", "http://0177.1./", "http://2130706433/",
		"http://user@host/", "http://[::ffff:127.0.0.1]", "http://a\\@b/", "http://%e2%91%a0/", "http:x", "//x", "http://１２７。０。０。１/", "http://xn--a/",
	} {
		f.Add(u)
	}
	guard := NewGuard(nil, nil, false)
	f.Fuzz(func(t *testing.T, raw string) {
		if err := guard.CheckURL(raw); err != nil {
			if s := err.Error(); !utf8.ValidString(s) || strings.ContainsAny(s, "\r\n") || len(s) > 400 {
				t.Errorf("CheckURL(%q): unfit for the caller: %q", raw, s)
			}
			return
		}
		var dialled string
		stop := errors.New("stop")
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			dialled = address
			return nil, stop
		}}
		req, err := Callback{URL: raw}.request(t.Context(), nil)
		if err != nil {
			t.Fatalf("%q passed, but makes no request: %v", raw, err)
		}
		if _, err := transport.RoundTrip(req); !errors.Is(err, stop) {
			t.Fatalf("%q passed, but is not dialled: %v", raw, err)
		}
		host, port, err := net.SplitHostPort(dialled)
		if err != nil {
			t.Fatalf("%q dials %q: %v", raw, dialled, err)
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			if guard.Control("tcp6", netip.AddrPortFrom(addr, 80).String(), nil) != nil {
				t.Errorf("%q dials %s", raw, dialled)
			}
		} else if strings.ContainsAny(host, "%:[]/@ ") || likeAnAddress.MatchString(host) {
			t.Errorf("%q dials %s", raw, dialled)
		}
		switch strings.TrimLeft(port, "0") {
		case "80", "443", "8080", "8443":
		default:
			t.Errorf("%q dials %s", raw, dialled)
		}
	})
}

func BenchmarkCheckURL(b *testing.B) {
	guard := NewGuard(nil, nil, false)
	b.ReportAllocs()
	for b.Loop() {
		if err := guard.CheckURL("https://hooks.example.com/callbacks/0198c0de?x=1"); err != nil {
			b.Fatal(err)
		}
	}
}
