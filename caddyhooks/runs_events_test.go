package caddyhooks_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// speaker is a runner that says in all turns what it is told to, event by event.
type speaker struct {
	*hookstest.Runner
	words chan string // frames; "cut" breaks the connection, "end" ends the answer
	gone  chan string // runs whose turn was cancelled
}

func startSpeaker(t testing.TB) *speaker {
	sp := &speaker{words: make(chan string), gone: make(chan string, 100)}
	sp.Runner = hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == busyMessage {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		out := http.NewResponseController(w)
		_ = out.Flush()
		for {
			select {
			case <-r.Context().Done():
				sp.gone <- turn.Text("runId")
				return
			case frame := <-sp.words:
				switch frame {
				case "end":
					return
				case "cut":
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, frame)
				_ = out.Flush()
			}
		}
	})
	return sp
}

// say has the present turn say parts of its answer.
func (sp *speaker) say(t testing.TB, parts ...string) {
	t.Helper()
	for _, part := range parts {
		sp.send(t, "delta", part)
	}
}

// finish ends the present turn with all that it said.
func (sp *speaker) finish(t testing.TB) {
	t.Helper()
	sp.frame(t, "event: result\ndata: {}\n\n")
	sp.frame(t, "end")
}

func (sp *speaker) send(t testing.TB, name, text string) {
	t.Helper()
	sp.frame(t, "event: "+name+"\ndata: "+hookstest.AsJSON(t, map[string]string{"text": text})+"\n\n")
}

func (sp *speaker) frame(t testing.TB, frame string) {
	t.Helper()
	select {
	case sp.words <- frame:
	case <-time.After(30 * time.Second):
		t.Fatal("no turn takes the words")
	}
}

// runReader reads the events of a run.
type runReader struct {
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc
	events chan streamEvent // closed when the stream ends; a comment has the name ":", and a time to come back "retry"

	text   string // all that the run said
	deltas []string
	lastID string
	result string
	status []string
}

// followRun opens the events of a run.
func followRun(t testing.TB, s *hookstest.Server, id string, headers ...string) *runReader {
	t.Helper()
	return readRun(t, http.DefaultClient, "GET", s.URL+hookstest.RunPath(id)+"/events", "", headers...)
}

// postStreaming sends a request for a run, and asks for its events.
func postStreaming(t testing.TB, s *hookstest.Server, body string, headers ...string) *runReader {
	t.Helper()
	return readRun(t, http.DefaultClient, "POST", s.URL+"/api/hooks/agent", body, append(headers, "Accept", "text/event-stream")...)
}

func readRun(t testing.TB, client *http.Client, method, url, body string, headers ...string) *runReader {
	t.Helper()
	rd, err := tryReadRun(t, client, method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return rd
}

// tryReadRun is readRun for a server that may not be there.
func tryReadRun(t testing.TB, client *http.Client, method, url, body string, headers ...string) (*runReader, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	rd := &runReader{t: t, resp: resp, cancel: cancel, events: make(chan streamEvent, 10_000)}
	t.Cleanup(rd.close)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		t.Fatalf("got %d %v %s", resp.StatusCode, resp.Header, text)
	}
	var text io.Reader = resp.Body
	go func() {
		defer close(rd.events)
		if resp.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(resp.Body)
			if err != nil {
				return
			}
			text = unzipped
		}
		readFrames(text, rd.events)
	}()
	return rd, nil
}

// readFrames hands on events as they come.
func readFrames(from io.Reader, events chan<- streamEvent) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 8<<20)
	var event streamEvent
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			event.name = value
		case "id":
			event.id = value
		case "data":
			event.data = value
		case "retry":
			event.name, event.data = "retry", value
		case "":
			if value != "" {
				event.name, event.data = ":", value
			} else if event.name != "" {
				events <- event
				event = streamEvent{}
			}
		}
	}
}

func (rd *runReader) close() {
	rd.cancel()
	rd.resp.Body.Close()
}

// next waits for the next event and takes it in. It is empty at the end of the stream.
func (rd *runReader) next() streamEvent {
	rd.t.Helper()
	event := hookstest.ReceiveWithin(rd.t, "an event of the run", rd.events)
	var data struct{ Status, Text string }
	if strings.HasPrefix(event.data, "{") {
		if err := json.Unmarshal([]byte(event.data), &data); event.name != "error" && err != nil {
			rd.t.Fatalf("the data of %s is no JSON: %v: %.200s", event.name, err, event.data)
		}
	}
	switch event.name {
	case "status":
		rd.status = append(rd.status, data.Status)
	case "delta":
		rd.text += data.Text
		rd.deltas = append(rd.deltas, data.Text)
	case "reset":
		rd.text = data.Text
	case "result", "error":
		rd.result = event.data
	}
	if event.id != "" {
		before, _ := strconv.ParseInt(rd.lastID, 10, 64)
		if id, err := strconv.ParseInt(event.id, 10, 64); err != nil || id < before || id > 1<<53-1 {
			rd.t.Errorf("the id of %s is %q after %q", event.name, event.id, rd.lastID)
		}
		rd.lastID = event.id
	}
	return event
}

// until reads on until something is so.
func (rd *runReader) until(what string, ok func() bool) {
	rd.t.Helper()
	for !ok() {
		if event := rd.next(); event.name == "" {
			rd.t.Fatalf("the stream ended before this: %s; it said %q", what, rd.text)
		}
	}
}

// untilText reads on until the run has said a text.
func (rd *runReader) untilText(want string) {
	rd.t.Helper()
	rd.until("the text "+want, func() bool { return len(rd.text) >= len(want) })
	if rd.text != want {
		rd.t.Fatalf("the run says %.200q, want %.200q", rd.text, want)
	}
}

// untilEnd reads on until the stream ends, and returns its result.
func (rd *runReader) untilEnd() string {
	rd.t.Helper()
	for rd.next().name != "" {
	}
	return rd.result
}

// ended reads on until the end of the run, and returns the run.
func (rd *runReader) ended() (run hookstest.RunView) {
	rd.t.Helper()
	result := rd.untilEnd()
	if err := json.Unmarshal([]byte(result), &run); err != nil || rd.lastID != "9007199254740991" {
		rd.t.Fatalf("the last event is %s %q, %v; the run said %q", rd.lastID, result, err, rd.text)
	}
	run.Body = result
	return run
}

func TestARunIsFollowedWhileItSpeaks(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	first := followRun(t, s, id)
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"} {
		if got := first.resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if event := first.next(); event.name != "retry" || event.data != "1000" {
		t.Errorf("the first frame is %+v", event)
	}
	if event := first.next(); event.name != "status" || event.data != `{"status":"running"}` || event.id == "" {
		t.Errorf("the first event is %+v", event)
	}
	sp.say(t, "Hel")
	first.untilText("Hel")
	sp.say(t, "lo\n<é>\u2028")
	first.untilText("Hello\n<é>\u2028")
	late := followRun(t, s, id)
	late.untilText("Hello\n<é>\u2028")
	sp.say(t, "!")
	sp.finish(t)
	for _, rd := range []*runReader{first, late} {
		run := rd.ended()
		if rd.text != "Hello\n<é>\u2028!" || run.Reply != rd.text || run.Status != "completed" || run.Body != s.Run(id).Body {
			t.Errorf("the text is %q, the run %s", rd.text, run.Body)
		}
		if got := strings.Join(rd.status, " "); got != "running" {
			t.Errorf("it was %s", got)
		}
	}
}

func TestAQueuedRunIsFollowed(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, "workers 1"))
	s.Accept(`{"message":"before"}`)
	sp.Next()
	id := s.Accept(`{"message":"a"}`)
	rd := followRun(t, s, id)
	rd.until("queued", func() bool { return len(rd.status) == 1 })
	sp.say(t, "one")
	sp.finish(t)
	sp.Next()
	sp.say(t, "two")
	sp.finish(t)
	if run := rd.ended(); run.Reply != "two" || rd.text != "two" || strings.Join(rd.status, " ") != "queued running" {
		t.Errorf("it was %v, said %q and gave %s", rd.status, rd.text, run.Body)
	}
}

func TestAReaderGoesOnWhereItWas(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	first := followRun(t, s, id)
	sp.say(t, "one ")
	first.untilText("one ")
	afterOne := first.lastID
	sp.say(t, "two ")
	first.untilText("one two ")

	again := followRun(t, s, id, "Last-Event-ID", afterOne)
	again.untilText("two ")
	none := followRun(t, s, id, "Last-Event-ID", first.lastID)
	var bad []*runReader
	for _, lastID := range []string{"0", "-1", "x", "1.5", "9007199254740991", "9007199254740992", strings.Repeat("9", 5000), "1 ", ""} {
		rd := followRun(t, s, id, "Last-Event-ID", lastID)
		rd.untilText("one two ")
		bad = append(bad, rd)
	}
	sp.say(t, "three")
	none.untilText("three")
	sp.finish(t)
	again.ended()
	none.ended()
	if again.text != "two three" || none.text != "three" || len(again.status)+len(none.status) != 0 {
		t.Errorf("readers who came back were told %q and %q, %v %v", again.text, none.text, again.status, none.status)
	}
	for _, rd := range bad {
		rd.ended()
		if rd.text != "one two three" || rd.status[0] != "running" {
			t.Errorf("a reader with a bad id was told %q", rd.text)
		}
	}
}

func TestARunThatHasEndedGivesItsResultAtOnce(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("done")), ""))
	id := s.Accept(`{"message":"a"}`)
	want := s.Ended(id).Body
	hookstest.Eventually(t, "the turn is over for followers too, which is a moment after its end is stored", func() bool {
		rd := followRun(t, s, id, "Last-Event-ID", "7") // without an id it would get the result from the store
		rd.ended()
		return len(rd.status) == 0
	})
	for _, lastID := range []string{"", "7", "x"} {
		rd := followRun(t, s, id, "Last-Event-ID", lastID)
		if run := rd.ended(); run.Body != want || len(rd.status) != 0 || rd.text != "" {
			t.Errorf("got %s after %v %q, want %s", run.Body, rd.status, rd.text, want)
		}
	}
	resp := s.Request("GET", hookstest.RunPath(id)+"/events", "", "Authorization", "Bearer "+hookstest.Token, "Last-Event-ID", "9007199254740991")
	if resp.Status != 204 || resp.Body != "" {
		t.Errorf("a reader who has the result gets %d %q", resp.Status, resp.Body)
	}
}

func TestEventsOfARunAreRefusedAsTheRunIs(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), ""))
	id := s.Accept(`{"message":"a"}`)
	path := hookstest.RunPath(id) + "/events"
	const auth, token = "Authorization", "Bearer " + hookstest.Token
	s.Request("GET", path, "").WantError(t, 401)
	s.Request("GET", path, "", auth, "Bearer wrong").WantError(t, 401)
	s.Request("GET", hookstest.RunPath("none")+"/events", "", auth, token).WantError(t, 404, "no such run")
	s.Request("GET", "/api/hooks/runs/events", "", auth, token).WantError(t, 404)
	s.Request("GET", "/api/hooks/runs//events", "", auth, token).WantError(t, 404)
	s.Request("GET", path+"/", "", auth, token).WantError(t, 404)
	for _, method := range []string{"POST", "PUT", "HEAD", "OPTIONS"} {
		resp := s.Request(method, path, "", auth, token)
		if resp.Status != 405 || resp.Header.Get("Allow") != "GET" {
			t.Errorf("%s gets %d and Allow: %s", method, resp.Status, resp.Header.Get("Allow"))
		}
	}
}

func TestFollowersSeeHowARunEnds(t *testing.T) {
	for _, c := range []struct {
		name, body string
		end        func(t *testing.T, s *hookstest.Server, sp *speaker, id string)
		status     string
		words      string
	}{
		{"an error of the runner", `{"message":"a"}`, func(t *testing.T, _ *hookstest.Server, sp *speaker, _ string) {
			sp.send(t, "error", "out of ideas") // after which nobody listens
		}, "failed", "failed to answer"},
		{"a stream that breaks off", `{"message":"a"}`, func(t *testing.T, _ *hookstest.Server, sp *speaker, _ string) { sp.frame(t, "cut") }, "failed", "failed to answer"},
		{"a stream without a result", `{"message":"a"}`, func(t *testing.T, _ *hookstest.Server, sp *speaker, _ string) { sp.frame(t, "end") }, "failed", "failed to answer"},
		{"time", `{"message":"a","timeoutSeconds":1}`, func(*testing.T, *hookstest.Server, *speaker, string) {}, "timed_out", "1 second"},
		{"a cancel", `{"message":"a"}`, func(t *testing.T, s *hookstest.Server, sp *speaker, id string) {
			if resp := s.CancelRun(id); resp.Status != 200 {
				t.Errorf("cancelling gives %d %s", resp.Status, resp.Body)
			}
			if gone := hookstest.ReceiveWithin(t, "the runner is told", sp.gone); gone != id {
				t.Errorf("the turn of %s is cancelled", gone)
			}
		}, "cancelled", "cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sp := startSpeaker(t)
			s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
			id := s.Accept(c.body)
			sp.Next()
			rd := followRun(t, s, id)
			sp.say(t, "half an ans")
			rd.untilText("half an ans")
			c.end(t, s, sp, id)
			run := rd.ended()
			if run.Status != c.status || !strings.Contains(run.ErrorMessage, c.words) || strings.Contains(run.Body, "reply") || rd.text != "half an ans" {
				t.Errorf("the run is %s, and said %q", run.Body, rd.text)
			}
			if now := s.Run(id); now.Body != run.Body {
				t.Errorf("it ended as %s, and is %s now", run.Body, now.Body)
			}
		})
	}
}

func TestRepairsAreNotFollowed(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	answer := s.Hold(t.Context(), `{"message":"a","syncResponse":true,"responseJsonSchema":{"type":"object","required":["n"]}}`)
	rd := followRun(t, s, sp.Next().Text("runId"))
	sp.say(t, "n is ", "2")
	sp.finish(t)
	sp.Next()
	sp.say(t, `{"m"`, `:2}`)
	sp.finish(t)
	sp.Next()
	sp.say(t, `{"n":`, `2}`)
	sp.finish(t)
	if run := rd.ended(); rd.text != "n is 2" || run.Reply != `{"n":2}` || run.RepairAttempts != 2 || strings.Join(rd.status, " ") != "running" {
		t.Errorf("followers were told %v %q and %s", rd.status, rd.text, run.Body)
	}
	if resp := hookstest.ReceiveWithin(t, "the caller is answered", answer); resp.Body != `{"n":2}` {
		t.Errorf("the caller got %d %s", resp.Status, resp.Body)
	}
}

func TestAReloadLosesNothing(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	type told struct {
		text  string
		run   hookstest.RunView
		opens int
	}
	const readers = 5
	all := make(chan told, readers)
	begun := make(chan struct{}, readers)
	for range readers {
		go func() {
			var got told
			defer func() { all <- got }()
			lastID := ""
			for got.run.RunID == "" && t.Context().Err() == nil {
				rd, err := tryReadRun(t, http.DefaultClient, "GET", s.URL+hookstest.RunPath(id)+"/events", "", "Last-Event-ID", lastID)
				if err != nil {
					continue // the old server was closing
				}
				if got.opens++; got.opens == 1 {
					rd.untilText("0 ")
					begun <- struct{}{}
				}
				rd.untilEnd()
				for _, status := range rd.status[min(1, len(rd.status)):] {
					t.Errorf("a second status: %s", status)
				}
				got.text += rd.text
				if rd.lastID != "" { // the server may close before it has sent an event
					lastID = rd.lastID
				}
				if rd.result != "" {
					_ = json.Unmarshal([]byte(rd.result), &got.run)
				}
				rd.close()
			}
		}()
	}
	var want strings.Builder
	for i := range 300 {
		part := fmt.Sprint(i, " ")
		want.WriteString(part)
		sp.say(t, part)
		if i == 0 {
			for range readers {
				hookstest.ReceiveWithin(t, "a reader has begun", begun)
			}
		}
		if i == 100 || i == 200 {
			s.Load(hookstest.Hooks(sp.Runner, fmt.Sprintf("workers %d", i)))
		}
	}
	sp.finish(t) // some may still be unreachable
	for range readers {
		got := hookstest.ReceiveWithin(t, "a reader is done", all)
		if got.text != want.String() || got.run.Reply != want.String() || got.run.Status != "completed" {
			t.Errorf("after %d opens a reader got %q", got.opens, got.text)
		}
		if got.opens < 2 {
			t.Error("no reader was sent away by the reloads")
		}
	}
}

func TestShutdownDoesNotWaitForReaders(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, "drain_timeout 10ms"))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	rd := followRun(t, s, id)
	sp.say(t, "half")
	rd.untilText("half")
	s.Stop()
	last := streamEvent{}
	for event := rd.next(); event.name != ""; event = rd.next() {
		last = event
	}
	if last.name != ":" || last.data != "reconnect" || rd.result != "" {
		t.Errorf("the last frame is %+v", last)
	}
	s.Load(hookstest.Hooks(sp.Runner, ""))
	s.Settle()
	sp.Next()
	again := followRun(t, s, id, "Last-Event-ID", rd.lastID)
	sp.say(t, "all of it")
	sp.finish(t)
	if run := again.ended(); again.text != "all of it" || run.Reply != "all of it" {
		t.Errorf("after the restart: %q, %s", again.text, run.Body)
	}
}

// unreadRequest sends a request over a connection of its own, from which nothing is read.
func unreadRequest(t testing.TB, s *hookstest.Server, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestReadersThatDoNotReadSlowNobody(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	sp.say(t, "begin ")
	for range 100 {
		unreadRequest(t, s, "GET "+hookstest.RunPath(id)+"/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+hookstest.Token+"\r\n\r\n")
	}
	rd := followRun(t, s, id)
	hookstest.Eventually(t, "all streams are open", func() bool { return hookstest.GoroutinesIn(s, "serveRunEvents(") == 101 })
	part := strings.Repeat("0123456789abcdef", 2048)
	want := "begin " + strings.Repeat(part, 30)
	for range 30 {
		sp.say(t, part)
	}
	rd.untilText(want)
	sp.finish(t)
	if run := rd.ended(); run.Reply != want {
		t.Errorf("the reply has %d bytes, want %d", len(run.Reply), len(want))
	}
	if run := s.Ended(s.Post("/api/hooks/agent", `{"message":"b","timeoutSeconds":1}`).Field(t, "runId").(string)); run.Status != "timed_out" {
		t.Errorf("another run: %s", run.Body)
	}
	hookstest.Eventually(t, "those who do not read are cut off", func() bool { return hookstest.GoroutinesIn(s, "serveRunEvents(") == 0 })
}

func TestHostileHeadersOfReadersDoNoHarm(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	for name, header := range map[string]string{
		"NUL":          "Last-Event-ID: 1\x002",
		"control":      "Last-Event-ID: \x01",
		"two of them":  "Last-Event-ID: 1\r\nLast-Event-ID: 2",
		"huge":         "Last-Event-ID: " + strings.Repeat("1", 100_000),
		"huge Accept":  "Accept: " + strings.Repeat(`a/b;c="d,e";q=0.1,`, 600) + "*/*;q=0",
		"not UTF-8":    "Last-Event-ID: \xff\xfe",
		"with a query": "Last-Event-ID: 5?lastEventId=1",
	} {
		t.Run(name, func(t *testing.T) {
			conn := unreadRequest(t, s, "GET "+hookstest.RunPath(id)+"/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer "+hookstest.Token+"\r\n"+header+"\r\n\r\n")
			defer conn.Close()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // which would read on
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 && resp.StatusCode != 400 && resp.StatusCode != 431 {
				t.Errorf("got %d", resp.StatusCode)
			}
		})
	}
	sp.say(t, "x")
	sp.finish(t)
	if run := s.Ended(id); run.Reply != "x" {
		t.Errorf("the run is %s", run.Body)
	}
}

func TestCompressionHoldsNothingBack(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, "route {\n encode gzip\n"+hookstest.Hooks(sp.Runner, "")+"\n}")
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	rd := followRun(t, s, id, "Accept-Encoding", "gzip")
	if got := rd.resp.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("the encoding is %q", got)
	}
	sp.say(t, "a")
	rd.untilText("a")
	sp.say(t, "b")
	rd.untilText("ab")
	sp.finish(t)
	if run := rd.ended(); run.Reply != "ab" {
		t.Errorf("got %s", run.Body)
	}
	sync := postStreaming(t, s, `{"message":"a","syncResponse":true}`, "Accept-Encoding", "gzip")
	sp.Next()
	sp.say(t, "c")
	sync.untilText("c")
	sp.finish(t)
	if run := sync.ended(); run.Reply != "c" || sync.resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %s", run.Body)
	}
}

func TestEveryProtocolCarriesEvents(t *testing.T) {
	sp := startSpeaker(t)
	s := secureSite(t, hookstest.Hooks(sp.Runner, ""))
	eachProtocol(t, func(t *testing.T, c protocolClient) {
		accepted := c.post(s.URL+"/api/hooks/agent", `{"message":"a"}`)
		sp.Next()
		rd := readRun(t, c.client, "GET", s.URL+accepted.Header.Get("Location")+"/events", "")
		if rd.resp.ProtoMajor != c.version {
			t.Errorf("the answer came over HTTP/%d", rd.resp.ProtoMajor)
		}
		sp.say(t, "a")
		rd.untilText("a")
		sp.say(t, "b")
		rd.untilText("ab")
		sp.finish(t)
		if run := rd.ended(); run.Reply != "ab" {
			t.Errorf("got %s", run.Body)
		}
		sync := readRun(t, c.client, "POST", s.URL+"/api/hooks/agent", `{"message":"a","syncResponse":true}`, "Accept", "text/event-stream")
		sp.Next()
		sp.say(t, "a")
		sync.untilText("a")
		sp.finish(t)
		if run := sync.ended(); run.Reply != "a" || sync.resp.Header.Get("X-Service-Run-Id") != run.RunID {
			t.Errorf("got %s", run.Body)
		}
	})
}

func TestARevokedTokenEndsItsStreams(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, "hooks {\n runner http "+sp.URL+"\n}")
	s.PatchSettings(`{"enabled":true,"token":"` + hookstest.Token + `"}`)
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	rd := followRun(t, s, id)
	sp.say(t, "one")
	rd.untilText("one")
	s.PatchSettings(`{"memoryPreset":"disabled"}`)
	sp.say(t, "two")
	rd.untilText("onetwo")
	s.PatchSettings(`{"token":"another-token-of-tests"}`)
	sp.say(t, "three")
	if result := rd.untilEnd(); result != "" || rd.text != "onetwo" {
		t.Errorf("with a revoked token: %q %s", rd.text, result)
	}
	sp.finish(t) // or Caddy would wait for it when it stops
}

func TestAccessLogHasStreamsAndNoToken(t *testing.T) {
	sp := startSpeaker(t)
	file := filepath.Join(t.TempDir(), "access.log")
	s := hookstest.StartSite(t, "log {\n output file "+file+"\n}\n"+hookstest.Hooks(sp.Runner, ""))
	id := s.Accept(`{"message":"a"}`)
	sp.Next()
	rd := readRun(t, http.DefaultClient, "GET", s.URL+hookstest.RunPath(id)+"/events?token="+hookstest.Token, "", "X-Service-Token", hookstest.Token)
	sp.finish(t)
	rd.ended()
	var log string
	hookstest.Eventually(t, "the stream is in the access log", func() bool {
		data, _ := os.ReadFile(file)
		log = string(data)
		return strings.Contains(log, "/events")
	})
	if strings.Contains(log, hookstest.Token) || !strings.Contains(log, `"status":200`) {
		t.Errorf("the access log is %s", log)
	}
}

func TestARunOfAnotherNodeIsFollowed(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		sp := startSpeaker(t)
		s := nodeBeside(t, store, pinnedOn, sp.Runner)
		accept := func(accepted hookstest.Response) string {
			id, _ := accepted.Field(t, "runId").(string)
			for sp.Next().Text("runId") != id {
			}
			return id
		}
		id := accept(s.Post("/a/agent", `{"message":"a"}`))
		rd := readRun(t, http.DefaultClient, "GET", s.URL+"/a/runs/"+id+"/events", "")
		rd.until("running", func() bool { return len(rd.status) > 0 && rd.status[len(rd.status)-1] == "running" })
		sp.say(t, "one ")
		rd.untilText("one ")
		late := readRun(t, http.DefaultClient, "GET", s.URL+"/a/runs/"+id+"/events", "")
		late.untilText("one ")
		again := readRun(t, http.DefaultClient, "GET", s.URL+"/b/runs/"+id+"/events", "", "Last-Event-ID", rd.lastID)
		sp.say(t, "two")
		again.untilText("two") // it may have come after the word, and must not come after the end
		sp.finish(t)
		for _, reader := range []*runReader{rd, late, again} {
			if run := reader.ended(); run.Reply != "one two" {
				t.Errorf("got %s", run.Body)
			}
		}
		if rd.text != "one two" || late.text != "one two" || again.text != "two" {
			t.Errorf("the readers got %q, %q and %q", rd.text, late.text, again.text)
		}

		sync := readRun(t, http.DefaultClient, "POST", s.URL+"/a/agent", `{"message":"a","syncResponse":true}`, "Accept", "text/event-stream")
		sp.Next()
		sp.say(t, "three")
		sync.untilText("three")
		sp.finish(t)
		if run := sync.ended(); run.Reply != "three" {
			t.Errorf("a sync caller got %s", run.Body)
		}
	})
}
