package auth

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func TestThrottleBeginsAfterTwentyFailures(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	addr := netip.MustParseAddr("192.0.2.1")
	for i := range 20 {
		if _, throttled := throttle.Fail(addr, noon.Add(time.Duration(i)*time.Second)); throttled {
			t.Fatalf("failure %d throttled", i+1)
		}
	}
	for i, c := range []struct{ at, want time.Duration }{
		{20 * time.Second, 40 * time.Second},
		{20 * time.Second, 40 * time.Second},
		{59*time.Second + 500*time.Millisecond, 500 * time.Millisecond},
	} {
		retryAfter, throttled := throttle.Fail(addr, noon.Add(c.at))
		if !throttled || retryAfter != c.want {
			t.Errorf("failure %d: throttled %v, retry after %v", 21+i, throttled, retryAfter)
		}
	}
}

func TestThrottleForgetsAfterAMinute(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	addr := netip.MustParseAddr("2001:db8::1")
	failTimes(throttle, addr, noon, 100)
	again := noon.Add(time.Minute)
	for i := range 20 {
		if _, throttled := throttle.Fail(addr, again); throttled {
			t.Fatalf("failure %d of the next minute throttled", i+1)
		}
	}
	if retryAfter, throttled := throttle.Fail(addr, again); !throttled || retryAfter != time.Minute {
		t.Errorf("failure 21 of the next minute: throttled %v, retry after %v", throttled, retryAfter)
	}
}

func TestThrottleCountsOneAddressOnce(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.1%eth0"},
		{"fe80::1", "fe80::1%eth0", "fe80::1%eth1"},
		{"2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::192.0.2.1"},
	} {
		throttle := NewThrottle()
		for i := range 20 {
			throttle.Fail(netip.MustParseAddr(same[i%len(same)]), noon)
		}
		for _, addr := range same {
			if _, throttled := throttle.Fail(netip.MustParseAddr(addr), noon); !throttled {
				t.Errorf("%s is counted apart", addr)
			}
		}
	}
}

func TestThrottleKeepsAddressesApart(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	for _, addr := range []string{"192.0.2.1", "2001:db8:0:1::1", "::1"} {
		failTimes(throttle, netip.MustParseAddr(addr), noon, 100)
	}
	for _, addr := range []string{"192.0.2.2", "::ffff:192.0.2.3", "2001:db8::1", "2001:db8:0:2::1", "2001:db8:0:1000::1"} {
		if _, throttled := throttle.Fail(netip.MustParseAddr(addr), noon); throttled {
			t.Errorf("%v pays for another", addr)
		}
	}
	if _, throttled := throttle.Fail(netip.Addr{}, noon); throttled {
		t.Error("a request without an address pays for another")
	}
}

func TestThrottleSurvivesAClockSetBack(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	addr := netip.MustParseAddr("192.0.2.1")
	failTimes(throttle, addr, noon, 100)
	if retryAfter, throttled := throttle.Fail(addr, noon.Add(-time.Second)); !throttled || retryAfter != time.Minute {
		t.Errorf("a second earlier: throttled %v, retry after %v", throttled, retryAfter)
	}
	if _, throttled := throttle.Fail(addr, noon.Add(-time.Hour)); throttled {
		t.Error("an hour earlier: still throttled")
	}
}

func TestThrottleHoldsUnderAFloodOfAddresses(t *testing.T) {
	// Not parallel: the heap is that of all tests.
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	throttle := NewThrottle()
	var caught []netip.Addr
	for i := range 100 {
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		caught = append(caught, addr)
		failTimes(throttle, addr, noon, 21)
	}
	for i := range 1_000_000 {
		throttle.Fail(floodAddr(i), noon.Add(time.Duration(i)*10*time.Microsecond))
	}

	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("a million addresses take %d KiB", grown>>10)
	} else {
		t.Logf("a million addresses take %d KiB", grown>>10)
	}
	for _, addr := range caught {
		if _, throttled := throttle.Fail(addr, noon.Add(30*time.Second)); !throttled {
			t.Errorf("%v was set free by the flood", addr)
		}
	}
}

func TestThrottleLetsNewcomersPassWhenFull(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	var neighbours []netip.Addr // they share a bucket
	for i := 0; len(neighbours) < throttleWays+1; i++ {
		if key := AddressKey(floodAddr(i)); maphash.Bytes(throttle.seed, key[:])%throttleBuckets == 0 {
			neighbours = append(neighbours, floodAddr(i))
		}
	}
	caught, newcomer := neighbours[:throttleWays], neighbours[throttleWays]
	for _, addr := range caught {
		failTimes(throttle, addr, noon, 21)
	}
	for range 100 {
		if _, throttled := throttle.Fail(newcomer, noon); throttled {
			t.Fatal("the newcomer pays for its neighbours")
		}
	}
	for _, addr := range caught {
		if _, throttled := throttle.Fail(addr, noon); !throttled {
			t.Errorf("%v was set free", addr)
		}
	}
	failTimes(throttle, newcomer, noon.Add(time.Minute), 20)
	if _, throttled := throttle.Fail(newcomer, noon.Add(time.Minute)); !throttled {
		t.Error("the newcomer is not counted when there is room again")
	}
}

func TestThrottleCountsExactlyUnderConcurrency(t *testing.T) {
	t.Parallel()
	throttle := NewThrottle()
	addr := netip.MustParseAddr("192.0.2.1")
	var free atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if _, throttled := throttle.Fail(addr, noon.Add(time.Duration((i*j)%7)*time.Millisecond)); !throttled {
					free.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if free.Load() != throttleLimit {
		t.Errorf("%d failures were not throttled", free.Load())
	}
}

func BenchmarkThrottleFail(b *testing.B) {
	b.Run("same address", func(b *testing.B) {
		throttle, addr := NewThrottle(), netip.MustParseAddr("192.0.2.1")
		b.ReportAllocs()
		for b.Loop() {
			throttle.Fail(addr, noon)
		}
	})
	b.Run("flood", func(b *testing.B) {
		throttle := NewThrottle()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			throttle.Fail(floodAddr(i), noon)
		}
	})
	b.Run("flood in parallel", func(b *testing.B) {
		throttle := NewThrottle()
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				throttle.Fail(floodAddr(int(next.Add(1))), noon)
			}
		})
	})
}

func failTimes(throttle *Throttle, addr netip.Addr, at time.Time, n int) {
	for range n {
		throttle.Fail(addr, at)
	}
}

// floodAddr returns the i-th of many IPv6 addresses, each in a /64 of its own.
func floodAddr(i int) netip.Addr {
	b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	binary.BigEndian.PutUint32(b[4:], uint32(i))
	return netip.AddrFrom16(b)
}
