package outbound

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"
)

// Guard decides where callbacks may go: to public addresses and those an operator allowed, on a few ports. CheckURL
// gives callers an early answer; Control is the reliable check, since it sees the very address that is dialled.
type Guard struct {
	addrs *ssrf.Guardian
	ports []uint16 // empty: any
}

// cloudInternal are addresses that are public by their number, but lead to the inside of the clouds that use them: to the
// services of an Azure host, and to those of a cluster at Google. An allowance opens them as it does others.
var cloudInternal = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("34.118.224.0/20")}

// maxURLLength leaves room for the long signed URLs of object stores.
const maxURLLength = 4096

// NewGuard returns a guard that lets callbacks go to public addresses and to those in allow, on the given ports or, if
// there are none, on 80, 443, 8080 and 8443. With anyPort every port is open.
//
// Allowing the NAT64 prefix 64:ff9b::/96 opens it for those IPv4 addresses only that could be reached directly.
func NewGuard(allow []netip.Prefix, ports []uint16, anyPort bool) *Guard {
	var v4, v6 []netip.Prefix
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	switch {
	case anyPort:
		ports = nil
	case len(ports) == 0:
		ports = []uint16{80, 443, 8080, 8443}
	}
	return &Guard{
		addrs: ssrf.New(ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(cloudInternal...)),
		ports: slices.Clone(ports),
	}
}

// refusal is the error of a destination that must not be contacted, now or later, in words fit for the caller.
type refusal string

func (r refusal) Error() string { return string(r) }

// CheckURL returns an error, one sentence fit for the caller, if no callback may be sent to the URL. Host names are
// not resolved: where they lead is checked when they are dialled.
func (g *Guard) CheckURL(raw string) error { return g.checkURL("the callback URL", raw) }

// CheckFetch is CheckURL for a URL from which something is fetched.
func (g *Guard) CheckFetch(raw string) error { return g.checkURL("the URL", raw) }

// checkURL checks a URL that errors call by a noun.
func (g *Guard) checkURL(noun, raw string) error {
	switch {
	case raw == "":
		return refusal(noun + " is empty")
	case len(raw) > maxURLLength:
		return refusal(fmt.Sprintf("%s is longer than %d bytes", noun, maxURLLength))
	case strings.Contains(raw, " "):
		return refusal(noun + " has a space in it")
	}
	u, err := url.Parse(raw)
	if err != nil { // its text repeats the URL
		return refusal(noun + " is not a valid URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return refusal(noun + " must begin with http:// or https://")
	}
	if u.User != nil {
		return refusal(noun + " must not hold a user name or password")
	}
	port, err := portOf(noun, u)
	if err != nil {
		return err
	}
	addr, err := addressOf(noun, u.Hostname())
	if err != nil {
		return err
	}
	var reasons, permits []string
	if addr.IsValid() && !g.addrAllowed(addr) {
		reasons = append(reasons, fmt.Sprintf("points to %s, which is not a public address", addr))
		permits = append(permits, permitAddress(addr))
	}
	if !g.portAllowed(port) {
		reasons = append(reasons, fmt.Sprintf("uses port %d; allowed: %s", port, listPorts(g.ports)))
		permits = append(permits, g.permitPort(port))
	}
	if reasons == nil {
		return nil
	}
	return refusal(noun + " " + strings.Join(reasons, ", and ") + permitted(permits...))
}

// portOf returns the port that a URL leads to.
func portOf(noun string, u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" && u.Scheme == "https" {
		return 443, nil
	}
	if text == "" {
		return 80, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, refusal("the port of " + noun + " is not between 1 and 65535")
	}
	return uint16(port), nil
}

// permitAddress is the line of a callbacks block that permits an address.
func permitAddress(addr netip.Addr) string {
	addr = addr.WithZone("").Unmap()
	if ssrf.IPv6NAT64Prefix.Contains(addr) {
		b := addr.As16()
		return fmt.Sprintf("'allow %s %s'", addr, netip.AddrFrom4([4]byte(b[12:])))
	}
	return fmt.Sprintf("'allow %s'", addr)
}

// permitPort is the line of a callbacks block that permits one more port.
func (g *Guard) permitPort(port uint16) string {
	return fmt.Sprintf("'ports %s %d'", listPorts(g.ports), port)
}

// permitted tells which lines would permit what is refused. They are no secret: the caller named the address and the port.
func permitted(lines ...string) string {
	return "; the operator can permit that with " + strings.Join(lines, " and ") + " in the callbacks block of the Caddyfile"
}

func listPorts(ports []uint16) string { return strings.Trim(fmt.Sprint(ports), "[]") }

func (g *Guard) portAllowed(port uint16) bool {
	return len(g.ports) == 0 || slices.Contains(g.ports, port)
}

// addressOf returns the address that a host stands for. That of a name is not valid: it is known when it is dialled.
func addressOf(noun, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, refusal(noun + " has no host")
	}
	// The HTTP client maps other digits and dots to ASCII before it dials, so the host is looked at as it will be then.
	if strings.ContainsFunc(host, func(r rune) bool { return r >= 0x80 }) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return netip.Addr{}, refusal("the host of " + noun + " is not a valid name")
		}
		host = ascii
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.WithZone(""), nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if endsInNumber(name) {
		return netip.Addr{}, refusal("the host of " + noun + " is neither a name nor an address of four decimal numbers")
	}
	if !validName(name) {
		return netip.Addr{}, refusal("the host of " + noun + " is not a valid name")
	}
	return netip.Addr{}, nil
}

// endsInNumber tells names from addresses as browsers do. No top-level domain is a number, but some resolvers read
// 0x7f.1, 0177.0.0.1 or 2130706433 as 127.0.0.1.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hexDigits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hexDigits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// validName reports whether a lower-case name could be found in the DNS or a hosts file. Underscores are no part of
// host names, but common in those of containers.
func validName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// Control refuses connections to addresses and ports that are not allowed. It is made for net.Dialer, which calls it
// for every address it tries, after names are resolved.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return refusal("the host cannot be reached over TCP")
	}
	if !g.portAllowed(to.Port()) {
		return refusal(fmt.Sprintf("port %d is not allowed%s", to.Port(), permitted(g.permitPort(to.Port()))))
	}
	if !g.addrAllowed(to.Addr()) {
		return errNotPublic
	}
	return nil
}

// The address is not shown: callers must not learn the addresses of internal names. Those of localhost are known to all.
var (
	errNotPublic = notPublic("<address>")
	errLocalhost = notPublic("127.0.0.1 ::1")
)

func notPublic(addresses string) refusal {
	return refusal("the host has an address that is not public" + permitted("'allow "+addresses+"'"))
}

// isLocalhost reports whether the host of a host and port is a name of this machine wherever it is resolved (RFC 6761).
func isLocalhost(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func (g *Guard) addrAllowed(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	if g.addrs.SafeAddr(addr) != nil {
		return false
	}
	if ssrf.IPv6NAT64Prefix.Contains(addr) {
		b := addr.As16()
		return g.addrs.SafeAddr(netip.AddrFrom4([4]byte(b[12:]))) == nil
	}
	return true
}
