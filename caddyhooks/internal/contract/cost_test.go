package contract

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// A workCost is the time and memory that some work took.
type workCost struct {
	time   time.Duration // of the processor, which says less about how busy the machine was than the clock does
	memory int64         // by which the memory in use grew at most, as far as frequent looks tell
}

// check fails the test if the cost of work on size bytes is out of bounds.
func (c workCost) check(t testing.TB, work string, size int) {
	t.Helper()
	t.Logf("%s: %v, %.1f MB", work, c.time.Round(10*time.Microsecond), float64(c.memory)/1e6)
	if c.time > allowedTime() {
		t.Errorf("%s took %v", work, c.time)
	}
	if c.memory > int64(allowedMemory+size) {
		t.Errorf("%s took %d MB of memory", work, c.memory>>20)
	}
}

// measure returns the cost of work. Nothing else may run at the same time.
func measure(work func()) workCost {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // so that garbage counts for little
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	used := func() int64 {
		metrics.Read(samples)
		return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	}
	before := used()
	var peak atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak.Store(max(peak.Load(), used()))
			}
		}
	}()
	start := cpuTime()
	work()
	took := cpuTime() - start
	close(stop)
	<-stopped
	return workCost{took, max(peak.Load()-before, 0)}
}

// allowedTime is far more than is ever needed without the race detector, which makes everything several times slower.
func allowedTime() time.Duration {
	if raceDetector {
		return 20 * time.Second
	}
	return 3 * time.Second
}

const allowedMemory = 64 << 20
