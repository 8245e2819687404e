package auth

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// Throttle counts failed credentials by client address. Its minute is fixed: it begins with the first failure of an
// address and ends sixty seconds later, however many failures fall into it.
//
// Memory is fixed too, 2 MiB from the start, for which the operating system gives pages as they are used. Addresses
// share small buckets, and when a bucket is full the address with the fewest failures is forgotten. An address over
// the limit is never forgotten before its minute ends, so a flood from many addresses does not set it free; a
// newcomer to a bucket full of such addresses goes uncounted instead. Nobody is locked out by any of this, since a
// good credential is never asked for its address.
type Throttle struct {
	seed maphash.Seed // senders cannot choose addresses that share a bucket

	mu      sync.Mutex // one is enough: it is held for a tenth of a microsecond
	buckets [][throttleWays]failures
}

// failures counts the failures of one address. The entry is free when count is 0.
type failures struct {
	addr  [16]byte // see AddressKey
	since int64    // nanoseconds, Unix time
	count int      // stops growing once over the limit
}

const (
	throttleWindow  = time.Minute
	throttleLimit   = 20
	throttleBuckets = 8192
	throttleWays    = 8
)

// NewThrottle returns a Throttle that has seen no failure.
func NewThrottle() *Throttle {
	return &Throttle{seed: maphash.MakeSeed(), buckets: make([][throttleWays]failures, throttleBuckets)}
}

// Fail counts one failed credential from the address. The first 20 of a minute are not throttled; each further one
// is, and retryAfter says how much of the minute is left. IPv6 addresses with the same first 64 bits are counted together:
// that is the least a customer or a machine gets, to choose addresses in as it likes. An IPv4-mapped address counts as the
// IPv4 address, and zones make no difference. Requests whose address is unknown (the zero Addr) are counted together.
func (t *Throttle) Fail(addr netip.Addr, now time.Time) (retryAfter time.Duration, throttled bool) {
	key := AddressKey(addr)
	at := now.UnixNano()
	bucket := maphash.Bytes(t.seed, key[:]) % throttleBuckets

	t.mu.Lock()
	defer t.mu.Unlock()
	f := findFailures(&t.buckets[bucket], key, at)
	if f == nil {
		return 0, false
	}
	if f.count <= throttleLimit {
		f.count++
	}
	if f.count <= throttleLimit {
		return 0, false
	}
	return min(throttleWindow, throttleWindow-time.Duration(at-f.since)), true
}

// AddressKey is what an address is counted as: IPv4 in its mapped form, or the /64 of an IPv6 address.
func AddressKey(addr netip.Addr) [16]byte {
	key := addr.As16()
	switch {
	case !addr.IsValid():
		key[15] = 1 // which no /64 has
	case !addr.Unmap().Is4():
		clear(key[8:])
	}
	return key
}

// findFailures returns the entry of the address, a fresh one if its minute is over or it had none, or nil if there is
// no room.
func findFailures(bucket *[throttleWays]failures, addr [16]byte, at int64) *failures {
	var victim *failures
	for i := range bucket {
		f := &bucket[i]
		// A clock set back by a minute ends the minute as well, or the entry would live too long. Less than that is
		// no reason: callers may come here in another order than they read the clock.
		if f.count > 0 && time.Duration(at-f.since).Abs() >= throttleWindow {
			*f = failures{}
		}
		if f.count > 0 && f.addr == addr {
			return f
		}
		if f.count <= throttleLimit && (victim == nil || f.count < victim.count || f.count == victim.count && f.since < victim.since) {
			victim = f
		}
	}
	if victim != nil {
		*victim = failures{addr: addr, since: at}
	}
	return victim
}
