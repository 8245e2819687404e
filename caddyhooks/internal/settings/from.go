package settings

import (
	"net/netip"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// ParseFrom reads the address ranges of a mapping. A single address is a range of one. IPv4 addresses written as IPv6 are IPv4.
func ParseFrom(texts []string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, text := range texts {
		prefix, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func parseRange(value string) (netip.Prefix, error) {
	if !strings.Contains(value, "/") {
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, FieldErrorf("from", "must hold addresses and ranges of them, such as 192.0.2.0/24, and not %q",
				text.Abridge(value))
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err == nil && prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, FieldErrorf("from", "must not hold %q: it has more than the IPv4 addresses", text.Abridge(value))
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if err != nil {
		return netip.Prefix{}, FieldErrorf("from", "must hold addresses and ranges of them, such as 192.0.2.0/24, and not %q",
			text.Abridge(value))
	}
	return prefix.Masked(), nil
}

// Admits reports whether callers of the hook come from an address, as clientAddress tells it.
func (h *Hook) Admits(client string) bool {
	if h.FromRanges == nil {
		return true
	}
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return false
	}
	addr = addr.WithZone("").Unmap()
	for _, prefix := range h.FromRanges {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
