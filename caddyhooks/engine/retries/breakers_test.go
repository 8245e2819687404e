package retries

import (
	"testing"
	"testing/synctest"
	"time"
)

// Attempts that were under way when a pause began make no pause of their own, but whichever of them is settled first tells
// the store about the pause.
func TestAttemptsThatFailTogetherMakeOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Breakers
		to := Destination{Host: "channel/chats"}
		began := time.Now()
		throttles, _, news := b.Failed(to, began, 10*time.Second)
		if len(throttles) != 1 || throttles[0] != (Throttle{To: to, AtOnce: 1, Pause: 10 * time.Second}) || !news {
			t.Errorf("the first one: %+v, %t", throttles, news)
		}
		time.Sleep(4 * time.Second)
		throttles, down, news := b.Failed(to, began, 10*time.Second)
		if len(throttles) != 1 || throttles[0] != (Throttle{To: to, AtOnce: 1, Pause: 6 * time.Second}) || news || down != 0 {
			t.Errorf("the second one: %+v, %s, %t", throttles, down, news)
		}
		time.Sleep(time.Minute)
		if throttles, _, news := b.Failed(to, began, 10*time.Second); len(throttles) != 0 || news {
			t.Errorf("when the pause is over: %+v, %t", throttles, news)
		}
		if throttles, _, news := b.Failed(to, time.Now(), 10*time.Second); len(throttles) != 1 || throttles[0].Pause != 10*time.Second || !news {
			t.Errorf("an attempt of its own: %+v, %t", throttles, news)
		}
	})
}
