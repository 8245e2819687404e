package engine_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// attempts is a sender that puts down what it is asked to send, and does as it is told.
type attempts struct {
	mu    sync.Mutex
	begin time.Time
	made  []attempt
	send  func(ctx context.Context, d *engine.Delivery) error
}

type attempt struct {
	to      string // the callback, or the chat
	body    string
	number  int
	at      time.Duration
	failure error
}

func (a *attempts) Send(ctx context.Context, d *engine.Delivery) error {
	at := time.Since(a.begin)
	err := a.send(ctx, d)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made = append(a.made, attempt{d.Callback + d.To, d.Body, d.Attempt, at, err})
	return err
}

func (*attempts) ValidTo(string) error { return nil }

// count says how many attempts there were with a destination, and how many of them succeeded.
func (a *attempts) count(to string) (made, succeeded int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.made {
		if one.to == to {
			made++
			if one.failure == nil {
				succeeded++
			}
		}
	}
	return made, succeeded
}

// startSending starts an engine that sends callbacks and what goes to the channel "chats" by send.
func startSending(t *testing.T, send func(ctx context.Context, d *engine.Delivery) error) (*engine.Engine, *attempts) {
	t.Helper()
	sender := &attempts{begin: time.Now(), send: send}
	c := longLease(config(echo)) // days pass in some tests
	c.Workers = 100
	c.Callbacks = sender
	c.Channels = map[string]engine.Channel{"chats": sender}
	return start(t, c), sender
}

// callBack has a run carried out whose callback goes there.
func callBack(t *testing.T, e *engine.Engine, url string) *engine.Run {
	t.Helper()
	run := newRun("hook:"+url+fmt.Sprint(time.Now().UnixNano(), counter.Add(1)), "answer")
	run.CallbackURL = url
	submit(t, e, run)
	return run
}

var counter atomic.Int64

// write has a run carried out whose answer goes to a chat of the channel.
func write(t *testing.T, e *engine.Engine, to, text string) {
	t.Helper()
	run := newRun("one chat, so that answers come in order", text)
	run.Channel, run.To = "chats", to
	submit(t, e, run)
}

// deliveryOf is the only delivery of a run.
func deliveryOf(t *testing.T, e *engine.Engine, run *engine.Run) *engine.Delivery {
	t.Helper()
	record, err := e.Find(t.Context(), run.ID, 0)
	if err != nil || len(record.Deliveries) != 1 {
		t.Fatalf("run %s: %+v, %v", run.ID, record, err)
	}
	return record.Deliveries[0]
}

var errUnreachable = &engine.UnreachableError{Err: errors.New("the host refused the connection")}

func TestAHostHasItsShareAndAllHostsHaveTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		sending := map[string]int{}
		all, sent := 0, 0
		e, _ := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			mu.Lock()
			sending[d.Callback]++
			all++
			mu.Unlock()
			<-release
			mu.Lock()
			defer mu.Unlock()
			sent++
			return nil
		})
		for i := range 30 * 20 {
			callBack(t, e, fmt.Sprintf("https://host-%d.example/", i%30))
		}
		synctest.Wait()
		mu.Lock()
		if all != 256 {
			t.Errorf("%d deliveries at once, want 256", all)
		}
		for host, n := range sending {
			if n > engine.PerHost {
				t.Errorf("%d deliveries to %s at once, want %d at most", n, host, engine.PerHost)
			}
		}
		mu.Unlock()
		close(release)
		synctest.Wait()
		if sent != 30*20 {
			t.Errorf("%d deliveries were sent, want %d", sent, 30*20)
		}
	})
}

func TestASlowHostHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if strings.Contains(d.Callback, "slow") {
				time.Sleep(14 * time.Second)
			}
			return nil
		})
		for range 1000 {
			callBack(t, e, "https://slow.example/")
		}
		synctest.Wait()
		for range 100 {
			callBack(t, e, "https://quick.example/")
		}
		synctest.Wait()
		if _, sent := sender.count("https://quick.example/"); sent != 100 {
			t.Errorf("%d of 100 deliveries were sent while another host was slow", sent)
		}
		if made, _ := sender.count("https://slow.example/"); made > 0 {
			t.Errorf("%d deliveries have ended at a host that takes 14 seconds", made)
		}
		time.Sleep(1000/engine.PerHost*14*time.Second + 15*time.Second)
		synctest.Wait()
		if _, sent := sender.count("https://slow.example/"); sent != 1000 {
			t.Errorf("%d of 1000 deliveries were sent to the slow host", sent)
		}
	})
}

func TestAChatIsSentOneMessageAtATimeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			mu.Lock()
			now[d.To]++
			most[d.To] = max(most[d.To], now[d.To])
			most["all"] = max(most["all"], now["a"]+now["b"])
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now[d.To]--
			mu.Unlock()
			return nil
		})
		for i := range 20 {
			write(t, e, "a", fmt.Sprint(i))
			write(t, e, "b", fmt.Sprint(i))
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if most["a"] != 1 || most["b"] != 1 || most["all"] != 2 {
			t.Errorf("at once: %v", most)
		}
		next := map[string]int{}
		for _, one := range sender.made {
			if one.body != fmt.Sprint(next[one.to]) {
				t.Errorf("to %s: message %s in place of %d", one.to, one.body, next[one.to])
			}
			next[one.to]++
		}
		if next["a"] != 20 || next["b"] != 20 {
			t.Errorf("sent: %v", next)
		}
	})
}

func TestAHostThatCannotBeReachedIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead, alive = "https://dead.example/", "https://alive.example/"
		var up atomic.Bool
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if d.Callback == dead && !up.Load() {
				time.Sleep(time.Second)
				return errUnreachable
			}
			return nil
		})
		const many = 500
		for range many {
			callBack(t, e, dead)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		made, _ := sender.count(dead)
		// The first ones together, one after each pause until the pauses are 5 minutes long, and then 12 an hour.
		if made < engine.PerHost+12 || made > engine.PerHost+20 {
			t.Errorf("%d attempts in an hour at a host that is down", made)
		}
		// Some more have begun while the first ones failed. Then there is a second for the attempt, and a pause.
		var gaps []string
		for i := 1; len(gaps) < 6; i++ {
			if gap := sender.made[i].at - sender.made[i-1].at; gap > time.Second {
				gaps = append(gaps, gap.String())
			}
		}
		if got := strings.Join(gaps[1:], " "); got != "21s 41s 1m21s 2m41s 5m1s" {
			t.Errorf("between attempts are %s", got)
		}
		callBack(t, e, alive)
		synctest.Wait()
		if _, sent := sender.count(alive); sent != 1 {
			t.Error("another host is left alone too")
		}

		up.Store(true)
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if _, sent := sender.count(dead); sent < many-made {
			t.Errorf("%d of %d deliveries were sent when the host was back", sent, many)
		}
		time.Sleep(12 * time.Hour) // for those whose turn comes later by the schedule
		synctest.Wait()
		if _, sent := sender.count(dead); sent != many {
			t.Errorf("%d of %d deliveries were sent", sent, many)
		}
	})
}

func TestFailuresThatAreNotInARowMakeNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e, sender := startSending(t, func(context.Context, *engine.Delivery) error {
			if n++; n%5 != 0 {
				return errUnreachable
			}
			return nil
		})
		for i := range 100 {
			callBack(t, e, "https://flaky.example/")
			synctest.Wait()
			if made, _ := sender.count("https://flaky.example/"); made != i+1 {
				t.Fatalf("%d attempts after %d callbacks", made, i+1)
			}
		}
	})
}

func TestWhatWaitsForAHostInVainIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, sender := startSending(t, func(context.Context, *engine.Delivery) error { return errUnreachable })
		var runs []*engine.Run
		for range 1000 {
			runs = append(runs, callBack(t, e, "https://dead.example/"))
		}
		time.Sleep(23 * time.Hour)
		late := callBack(t, e, "https://dead.example/late")
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		statuses := map[string]int{}
		for _, run := range runs {
			d := deliveryOf(t, e, run)
			statuses[string(d.Status)+" "+d.LastError]++
		}
		if n := statuses["dead the host could not be reached for a day"]; n < 700 {
			t.Errorf("after a day: %v", statuses)
		}
		if d := deliveryOf(t, e, late); d.Status != engine.Pending {
			t.Errorf("a delivery of an hour ago is %s", d.Status)
		}
		time.Sleep(60 * time.Hour)
		synctest.Wait()
		for _, run := range append(runs, late) {
			if d := deliveryOf(t, e, run); d.Status != engine.Dead || d.LastError == "" {
				t.Fatalf("a delivery is %s in the end: %+v", d.Status, d)
			}
		}
		if made := len(sender.made); made > 1500 {
			t.Errorf("%d attempts were made", made)
		}
	})
}

// What was due long ago, because nobody was there to send it, has its chance like everything else.
func TestWhatWasDueLongAgoIsTriedByTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := longLease(config(echo))
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			<-ctx.Done()
			return errUnreachable
		})
		e := start(t, c)
		for range 100 {
			callBack(t, e, "https://example.com/")
		}
		time.Sleep(72 * time.Hour)
		stop() // and now the host cannot be reached for a while
		time.Sleep(time.Hour)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { return nil })
		e.Attach(c)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if page, _, err := e.ListDeliveries(t.Context(), engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{engine.Delivered}, Limit: 1000}); err != nil || len(page) != 100 {
			t.Errorf("%d of 100 have arrived, %v", len(page), err)
		}
	})
}

func TestAChatThatAsksForAPauseGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if d.To == "busy" && first {
				first = false
				return &engine.RetryLaterError{After: 40 * time.Second, Err: errors.New("too many messages")}
			}
			return nil
		})
		for i := range 5 {
			write(t, e, "busy", fmt.Sprint(i))
			write(t, e, "calm", fmt.Sprint(i))
		}
		time.Sleep(39 * time.Second)
		synctest.Wait()
		if made, sent := sender.count("busy"); made != 1 || sent != 0 {
			t.Errorf("%d attempts, %d sent before the pause is over", made, sent)
		}
		if _, sent := sender.count("calm"); sent != 5 {
			t.Errorf("%d sent to the other chat", sent)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if made, sent := sender.count("busy"); made != 6 || sent != 5 {
			t.Errorf("%d attempts, %d sent after the pause", made, sent)
		}
		sender.inOrder(t, "busy")
	})
}

// inOrder expects that what has arrived at a chat came in the order of its numbers, each by its first attempt that counts.
func (a *attempts) inOrder(t *testing.T, to string) {
	t.Helper()
	next := 0
	for _, one := range a.made {
		if one.to != to || one.failure != nil {
			continue
		}
		if one.body != fmt.Sprint(next) {
			t.Fatalf("message %s arrives in place of %d", one.body, next)
		}
		if one.number != 1 {
			t.Errorf("message %s arrives with attempt %d", one.body, one.number)
		}
		next++
	}
}

// A service that takes a message a second gets them in order, and none of them is given up however many there are.
func TestAServiceThatTakesFewMessagesGetsAllInOrder(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			last := map[string]time.Time{}
			refused := 0
			e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				bucket := d.To
				if everywhere {
					bucket = ""
				}
				if wait := time.Until(last[bucket].Add(time.Second)); wait > 0 {
					refused++
					return &engine.RetryLaterError{After: wait, WholeChannel: everywhere, Err: errors.New("too many messages")}
				}
				last[bucket] = time.Now()
				return nil
			})
			const each = 300
			for i := range each {
				write(t, e, "a", fmt.Sprint(i))
				write(t, e, "b", fmt.Sprint(i))
			}
			took := each * time.Second
			if everywhere {
				took *= 2
			}
			time.Sleep(took + 10*time.Second)
			synctest.Wait()
			for _, chat := range []string{"a", "b"} {
				if _, sent := sender.count(chat); sent != each {
					t.Errorf("everywhere %v: %d of %d messages have arrived", everywhere, sent, each)
				}
				sender.inOrder(t, chat)
			}
			if refused > 2*each+10 {
				t.Errorf("everywhere %v: %d attempts were refused", everywhere, refused)
			}
		})
	}
}

func TestAServiceThatNeverTakesAnythingIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, sender := startSending(t, func(context.Context, *engine.Delivery) error {
			return &engine.RetryLaterError{After: time.Second, Err: errors.New("too many messages")}
		})
		write(t, e, "busy", "0")
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if made, _ := sender.count("busy"); made < 23*12 || made > 23*12+20 {
			t.Errorf("it was asked %d times in 23 hours", made)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if page, _, err := e.ListDeliveries(t.Context(), engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{engine.Dead}, Limit: 10}); err != nil || len(page) != 1 {
			t.Errorf("%d are given up in the end, %v", len(page), err)
		}
	})
}

// A channel that asked for a pause in the name of all its chats is written to carefully, but not for ever.
func TestAChannelThatAskedForAPauseIsUsedAsBeforeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sending, most atomic.Int32
		first := true
		e, _ := startSending(t, func(context.Context, *engine.Delivery) error {
			if first {
				first = false
				return &engine.RetryLaterError{After: time.Second, WholeChannel: true, Err: errors.New("too many messages")}
			}
			most.Store(max(most.Load(), sending.Add(1)))
			time.Sleep(time.Second)
			sending.Add(-1)
			return nil
		})
		write(t, e, "first", "0")
		synctest.Wait()
		for i := range 500 {
			write(t, e, fmt.Sprint(i), "0")
		}
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := most.Load(); n != 1 {
			t.Errorf("%d messages at once right after the pause", n)
		}
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := most.Load(); n != engine.PerHost {
			t.Errorf("%d messages at once in the end", n)
		}
	})
}

func TestAnAttemptThatShutdownBreaksOffLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		e := engine.New(store)
		c := config(echo)
		n := 0
		c.Callbacks = senderFunc(func(ctx context.Context, d *engine.Delivery) error {
			if n++; n == 1 {
				return errors.New("the receiver answered 500")
			}
			<-ctx.Done()
			d.LastStatus = 502
			return ctx.Err()
		})
		e.Attach(c)
		run := callBack(t, e, "https://example.com/")
		synctest.Wait()
		before := deliveryOf(t, e, run)
		time.Sleep(10 * time.Second) // now the second attempt is under way
		synctest.Wait()
		e.Stop()
		after := deliveryOf(t, e, run)
		before.Token, before.TriedAt = after.Token, after.TriedAt // it was claimed, and tried
		if !reflect.DeepEqual(after, before) || n != 2 {
			t.Errorf("before %+v\nafter  %+v", before, after)
		}
	})
}

// An answer that fails holds up its chat for a few minutes, so that the ones after it do not pass it, and then no longer.
func TestAnAnswerThatFailsIsNotPassedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if d.Body == "0" {
				return errors.New("the receiver answered 500")
			}
			return nil
		})
		write(t, e, "a", "0")
		write(t, e, "a", "1")
		write(t, e, "b", "1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, sent := sender.count("a"); sent != 0 {
			t.Error("the next one has passed it")
		}
		if _, sent := sender.count("b"); sent != 1 {
			t.Error("another chat has to wait")
		}
		time.Sleep(90 * time.Second) // chance makes the pauses longer or shorter
		synctest.Wait()
		if _, sent := sender.count("a"); sent != 1 {
			t.Error("the next one still waits")
		}
	})
}

func TestAnAnswerOfWhichPartsArriveIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if d.Sent < 30 {
				d.Sent++
				return errors.New("too many messages")
			}
			return nil
		})
		run := callBack(t, e, "https://example.com/")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Delivered || len(sender.made) != 31 {
			t.Errorf("after %d attempts it is %+v", len(sender.made), d)
		}
	})
}

func TestAnswersAreKeptWithWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		e, _ := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			d.LastStatus, d.LastAnswer = 200, "thanks"
			if fail.Load() {
				d.LastStatus, d.LastAnswer = 500, "oops"
				d.Sent++
				return errors.New("the receiver answered 500")
			}
			return nil
		})
		run := callBack(t, e, "https://example.com/")
		synctest.Wait()
		d := deliveryOf(t, e, run)
		if d.LastStatus != 500 || d.LastAnswer != "oops" || d.LastError != "the receiver answered 500" || d.Sent != 1 || d.TriedAt.IsZero() || d.CreatedAt.IsZero() {
			t.Errorf("after a failure: %+v", d)
		}
		fail.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Delivered || d.LastStatus != 200 || d.LastAnswer != "" || d.LastError != "" || d.Sent != 1 {
			t.Errorf("in the end: %+v", d)
		}
	})
}

func TestAnythingButASuccessCanBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outcome atomic.Pointer[error]
		set := func(err error) { outcome.Store(&err) }
		release := make(chan struct{})
		e, sender := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			if d.Callback == "https://slow.example/" {
				<-release
			}
			return *outcome.Load()
		})
		set(&engine.FinalError{Err: errors.New("gone")})
		run := callBack(t, e, "https://example.com/")
		synctest.Wait()
		id := deliveryOf(t, e, run).ID
		if d := deliveryOf(t, e, run); d.Status != engine.Dead || d.Attempt != 1 {
			t.Fatalf("got %+v", d)
		}

		// One that was given up has all attempts of the schedule again.
		set(errors.New("busy"))
		d, err := e.RetryDelivery(t.Context(), id, false)
		if err != nil || d.Status != engine.Pending {
			t.Fatalf("got %+v, %v", d, err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Dead || d.Attempt != 1+8 {
			t.Errorf("got %+v", d)
		}
		numbers := []int{}
		for _, one := range sender.made {
			numbers = append(numbers, one.number)
		}
		if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("the attempts are numbered %v", numbers)
		}

		// One that waits goes out at once.
		if _, err := e.RetryDelivery(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		set(nil)
		if d := deliveryOf(t, e, run); d.Status != engine.Pending {
			t.Fatalf("got %+v", d)
		}
		if _, err := e.RetryDelivery(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Delivered || d.Attempt != 11 {
			t.Errorf("got %+v", d)
		}
		if _, err := e.RetryDelivery(t.Context(), id, false); !errors.Is(err, engine.ErrDelivered) {
			t.Errorf("got %v, want ErrDelivered", err)
		}
		if err := e.DropDelivery(t.Context(), id); !errors.Is(err, engine.ErrDelivered) {
			t.Errorf("got %v, want ErrDelivered", err)
		}

		// One that has arrived goes out once more if somebody wants that, as it was, with a schedule of its own.
		set(errors.New("busy"))
		if d, err := e.RetryDelivery(t.Context(), id, true); err != nil || d.Status != engine.Pending || d.Repeats != 1 || d.Body != "answer" {
			t.Errorf("got %+v, %v", d, err)
		}
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Pending || d.Attempt != 12 {
			t.Errorf("got %+v", d)
		}
		set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := deliveryOf(t, e, run); d.Status != engine.Delivered || d.Attempt != 13 || d.Repeats != 1 {
			t.Errorf("got %+v", d)
		}
		if last := sender.made[len(sender.made)-1]; last.to != "https://example.com/" || last.number != 13 || last.body != "answer" {
			t.Errorf("the last attempt was %+v", last)
		}

		slow := callBack(t, e, "https://slow.example/")
		synctest.Wait()
		id = deliveryOf(t, e, slow).ID
		if _, err := e.RetryDelivery(t.Context(), id, false); !errors.Is(err, engine.ErrUnderWay) {
			t.Errorf("got %v, want ErrUnderWay", err)
		}
		if err := e.DropDelivery(t.Context(), id); !errors.Is(err, engine.ErrUnderWay) {
			t.Errorf("got %v, want ErrUnderWay", err)
		}
		close(release)
		for _, id := range []string{"", "msg_1", "msg_0198c0de00007000800000000000000a_0", id + "0"} {
			if _, err := e.RetryDelivery(t.Context(), id, false); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%q: got %v, want ErrNotFound", id, err)
			}
		}
	})
}

func TestAHostThatIsLeftAloneIsTriedWhenSomebodyAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		e, sender := startSending(t, func(context.Context, *engine.Delivery) error {
			if !up.Load() {
				return errUnreachable
			}
			return nil
		})
		for range 100 {
			callBack(t, e, "https://dead.example/")
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		up.Store(true)
		page, _, err := e.ListDeliveries(t.Context(), engine.DeliveryQuery{Host: "dead.example", Limit: 1})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		if _, err := e.RetryDelivery(t.Context(), page[0].ID, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, sent := sender.count("https://dead.example/"); sent != 100 {
			t.Errorf("%d of 100 were sent at once", sent)
		}
	})
}

func TestAttemptsOfADeliveryAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n int
		e, _ := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			n++
			time.Sleep(2 * time.Second)
			switch n {
			case 1:
				d.LastStatus = 503
				return errors.New("the receiver answered 503")
			case 2:
				panic("ouch")
			case 3:
				return errors.New(strings.Repeat("ü", 1000))
			}
			d.LastStatus = 204
			return nil
		})
		run := callBack(t, e, "https://example.com/")
		time.Sleep(24 * time.Hour)
		d := deliveryOf(t, e, run)
		if len(d.History) != 4 || d.Status != engine.Delivered {
			t.Fatalf("it is %s with the history %+v", d.Status, d.History)
		}
		at := d.CreatedAt
		for i, want := range []engine.Attempt{
			{Status: 503, Error: "the receiver answered 503"},
			{Error: "the sender failed"},
			{Error: strings.Repeat("ü", 150) + "…"},
			{Status: 204},
		} {
			got := d.History[i]
			if got.At.Before(at) || got.Took != 2*time.Second || got.Status != want.Status || got.Error != want.Error {
				t.Errorf("attempt %d is %+v, want %+v after %v", i+1, got, want, at)
			}
			at = got.At.Add(got.Took)
		}
		if last := d.History[3].At; !last.Equal(d.TriedAt) {
			t.Errorf("the last attempt began at %v, want %v", last, d.TriedAt)
		}
	})
}

func TestTheLastAttemptsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n int
		e, _ := startSending(t, func(_ context.Context, d *engine.Delivery) error {
			n++
			d.LastStatus = 400 + n
			return errors.New("no")
		})
		run := callBack(t, e, "https://example.com/")
		for range 3 {
			time.Sleep(24 * time.Hour)
			if _, err := e.RetryDelivery(t.Context(), deliveryOf(t, e, run).ID, false); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(24 * time.Hour)
		history := deliveryOf(t, e, run).History
		if n < 20 || len(history) != engine.KeptAttempts {
			t.Fatalf("%d of %d attempts are remembered", len(history), n)
		}
		for i, attempt := range history {
			if want := 400 + n - len(history) + 1 + i; attempt.Status != want {
				t.Errorf("attempt %d of those that are remembered was answered %d, want %d", i, attempt.Status, want)
			}
		}
	})
}

func TestTheLogTellsWhenADeliveryIsTriedAgain(t *testing.T) {
	for name, address := range map[string]func(*engine.Run){
		"a channel":  func(run *engine.Run) { run.Channel, run.To = "chats", "a" },
		"a callback": func(run *engine.Run) { run.CallbackURL = "https://example.com" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) { return engine.Reply{Text: "hello"}, nil }))
				var tried []time.Time
				sender := senderFunc(func(context.Context, *engine.Delivery) error {
					tried = append(tried, time.Now())
					return errors.New("the receiver answered 500")
				})
				c.Callbacks, c.Channels, c.Log = sender, map[string]engine.Channel{"chats": sender}, zap.New(core)
				e := start(t, c)
				run := newRun("chat", "hello")
				address(run)
				submit(t, e, run)
				time.Sleep(time.Hour)
				synctest.Wait()
				for i, line := range logs.FilterMessage("delivery failed, will be tried again").All()[:len(tried)-1] {
					if due, _ := line.ContextMap()["due"].(time.Time); !due.Equal(tried[i+1]) {
						t.Errorf("attempt %d is due at %v, and was made at %v", i+2, due, tried[i+1])
					}
				}
			})
		})
	}
}
