package retries

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestRetryDelayFollowsTheSchedule(t *testing.T) {
	t.Parallel()
	middle := func() float64 { return 0.5 }
	want := []time.Duration{0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour}
	for attempt, want := range want {
		if d, ok := delay(attempt, middle); !ok || (d-want).Abs() > time.Microsecond {
			t.Errorf("after %d attempts: %v, %v", attempt, d, ok)
		}
	}
	for _, attempt := range []int{8, 9, math.MaxInt} {
		if _, ok := delay(attempt, middle); ok {
			t.Errorf("there is another attempt after %d", attempt)
		}
	}
	if d, ok := delay(-1, middle); d != 0 || !ok {
		t.Errorf("before the first attempt: %v, %v", d, ok)
	}
}

func TestRetryDelayIsSpreadByAFifth(t *testing.T) {
	t.Parallel()
	for attempt := 1; attempt <= len(retryDelays); attempt++ {
		base := retryDelays[attempt-1]
		if d, _ := delay(attempt, func() float64 { return 0 }); d != base*8/10 {
			t.Errorf("attempt %d, shortest: %v", attempt, d)
		}
		for range 1000 {
			if d, _ := delay(attempt, rand.Float64); d < base*8/10 || d > base*12/10 {
				t.Fatalf("attempt %d: %v", attempt, d)
			}
		}
	}
}
