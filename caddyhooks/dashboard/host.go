package dashboard

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// loopbackHosts are the names that a browser on this machine uses. No other machine can have them.
var loopbackHosts = []string{"localhost", "127.0.0.1", "::1"}

// IsLoopback reports whether a request names this machine as its host, on any port.
func IsLoopback(r *http.Request) bool { return HostIn(r, loopbackHosts) }

// HostIn reports whether a request names one of these hosts, on any port. Where no login keeps others out, that is needed
// against a foreign page whose name in the DNS was changed to the address of this server: to the browser, the page and the
// API are then the same site.
func HostIn(r *http.Request, hosts []string) bool {
	host := HostName(r.Host)
	return host != "" && slices.ContainsFunc(hosts, func(allowed string) bool { return strings.EqualFold(allowed, host) })
}

// HostName is the name or address in a Host header, without its port and brackets. It is "" if the header has another form.
func HostName(header string) string {
	host := header
	if name, port, err := net.SplitHostPort(header); err == nil {
		if port == "" || strings.Trim(port, "0123456789") != "" {
			return ""
		}
		host = name
		if strings.HasPrefix(header, "[") != strings.Contains(host, ":") {
			return ""
		}
	} else if inside, ok := strings.CutPrefix(header, "["); ok {
		if host, ok = strings.CutSuffix(inside, "]"); !ok || !strings.Contains(host, ":") {
			return ""
		}
	} else if strings.Contains(header, ":") {
		return ""
	}
	if strings.ContainsAny(host, "[]/\\@?# \t%") {
		return ""
	}
	return host
}
