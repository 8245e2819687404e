package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// matrixHome answers as a homeserver does, where a room with an alias exists.
type matrixHome struct {
	*service
	mu     sync.Mutex
	events map[string]string // bodies by path
	room   string
}

func startMatrix(t *testing.T, token, room string, lose func(n int) bool) *matrixHome {
	s := &matrixHome{events: make(map[string]string), room: room}
	s.service = startService(t, func(w http.ResponseWriter, r request, n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.header.Get("Authorization") != "Bearer "+token {
			say(w, 401, `{"errcode":"M_UNKNOWN_TOKEN","error":"Unrecognised access token","soft_logout":false}`)
			return
		}
		path, _ := url.PathUnescape(r.path)
		if r.method == "GET" && path == "/_matrix/client/v3/directory/room/#team,a:example.org" {
			say(w, 200, fmt.Sprintf(`{"room_id":%q,"servers":["example.org"]}`, s.room))
			return
		}
		rest, inRoom := strings.CutPrefix(path, "/_matrix/client/v3/rooms/"+s.room+"/")
		if id, ok := strings.CutPrefix(rest, "event/"); ok && inRoom && r.method == "GET" {
			content := `{}` // of an event that was redacted
			if text := s.text(id); text != "" {
				content = fmt.Sprintf(`{"msgtype":"m.notice","body":%q}`, text)
			}
			say(w, 200, fmt.Sprintf(`{"type":"m.room.message","event_id":%q,"room_id":%q,"sender":"@agent:example.org","content":%s}`, id, s.room, content))
			return
		}
		if event, _, ok := strings.Cut(strings.TrimPrefix(rest, "redact/"), "/"); ok && strings.HasPrefix(rest, "redact/") && r.method == "PUT" {
			s.remove(event)
			say(w, 200, `{"event_id":"$redaction"}`)
			return
		}
		if r.method == "GET" {
			say(w, 404, `{"errcode":"M_NOT_FOUND","error":"Room alias not found"}`)
			return
		}
		if r.method != "PUT" || !strings.HasPrefix(path, "/_matrix/client/v3/rooms/"+s.room+"/send/m.room.message/") {
			say(w, 403, `{"errcode":"M_FORBIDDEN","error":"User not in room"}`)
			return
		}
		if len(r.body) > 65_536 {
			say(w, 413, `{"errcode":"M_TOO_LARGE","error":"event too large"}`)
			return
		}
		var content struct {
			Body     string
			New      struct{ Body string } `json:"m.new_content"`
			Relation struct {
				Type  string `json:"rel_type"`
				Event string `json:"event_id"`
			} `json:"m.relates_to"`
		}
		err := json.Unmarshal([]byte(r.body), &content)
		thread := content.Relation.Event
		// What was redacted is still an event that another can relate to.
		if err != nil || thread != "" && thread != "$question" && !strings.HasPrefix(thread, "$event") {
			say(w, 400, `{"errcode":"M_UNKNOWN","error":"Can't send relation to unknown event"}`)
			return
		}
		if _, repeat := s.events[r.path]; !repeat {
			s.events[r.path] = r.body
			if content.Relation.Type == "m.replace" {
				s.edit(thread, content.New.Body)
			} else {
				s.post(message{fmt.Sprintf("$event%d", len(s.events)), s.room, thread, content.Body})
			}
		}
		if lose(n) {
			panic(http.ErrAbortHandler)
		}
		say(w, 200, fmt.Sprintf(`{"event_id":"$event%d"}`, len(s.events)))
	})
	return s
}

func TestMatrixMessageOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ to, path string }{
		{"!room:example.org", "/_matrix/client/v3/rooms/%21room:example.org/send/m.room.message/msg_0197f5a0111172228333444455556666_0.0"},
		{"!31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM", "/_matrix/client/v3/rooms/%2131hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM/send/m.room.message/msg_0197f5a0111172228333444455556666_0.0"},
		{"!a..#,ü:example.org", "/_matrix/client/v3/rooms/%21a..%23%2C%C3%BC:example.org/send/m.room.message/msg_0197f5a0111172228333444455556666_0.0"},
	} {
		s := startMatrix(t, "syt_secret", tc.to, never)
		d := delivery(tc.to, "Hello <b>@room</b> @alice:example.org \"&\" \x00")
		if err := loadChannel(t, "matrix "+s.URL+"/ syt_secret").Send(t.Context(), d); err != nil {
			t.Errorf("%s: %v", tc.to, err)
			continue
		}
		r := s.one()
		if r.method != "PUT" || r.path != tc.path || r.query != "" || d.Sent != 1 {
			t.Errorf("got %s %s?%s", r.method, r.path, r.query)
		}
		r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks", "Authorization": "Bearer syt_secret"})
		wantJSON(t, r.body, `{"msgtype":"m.notice","body":"Hello <b>@room</b> @alice:example.org \"&\"","m.mentions":{}}`)
	}
}

func TestMatrixAliasIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	s := startMatrix(t, "hush-1", "!room:example.org", never)
	channel := loadChannel(t, "matrix "+s.URL+" hush-1")
	for i := range 3 {
		d := delivery("#team,a:example.org", "x")
		d.ID = fmt.Sprintf("msg_%d", i)
		if err := channel.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	all := s.seen()
	if len(all) != 4 || len(s.events) != 3 {
		t.Fatalf("got %d requests and %d events", len(all), len(s.events))
	}
	lookup := all[0]
	if lookup.method != "GET" || lookup.path != "/_matrix/client/v3/directory/room/%23team%2Ca:example.org" || lookup.body != "" {
		t.Errorf("got %s %s", lookup.method, lookup.path)
	}
	lookup.wantHeaders(t, map[string]string{"User-Agent": "caddy-hooks", "Authorization": "Bearer hush-1"})

	// An alias that leads nowhere any more is looked up again.
	s.mu.Lock()
	s.room = "!new:example.org"
	s.mu.Unlock()
	outcome{kind: "final", words: "has not joined"}.check(t, channel.Send(t.Context(), delivery("#team,a:example.org", "x")))
	if err := channel.Send(t.Context(), delivery("#team,a:example.org", "x")); err != nil {
		t.Error(err)
	}

	outcome{kind: "final", words: "M_NOT_FOUND: no room has this alias"}.check(t, channel.Send(t.Context(), delivery("#other:example.org", "x")))
	for _, answer := range []string{``, `{}`, `{"room_id":""}`, `{"room_id":7}`, `{"room_id":"room"}`, `{"room_id":"!a b"}`, `{"room_id":"!a/../b"}`, `{"room_id":"!..:b"}`, `{"room_id":"!` + strings.Repeat("a", 300) + `"}`} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, answer) })
		outcome{kind: "again", words: "not what a Matrix server would say"}.check(t, loadChannel(t, "matrix "+s.URL+" hush-1").Send(t.Context(), delivery("#a:b", "x")))
		if n := len(s.seen()); n != 1 {
			t.Errorf("%s: %d requests", answer, n)
		}
	}

	// Whoever names many aliases does not fill the memory.
	a := &aliases{rooms: make(map[string]resolvedAlias)}
	for i := range 3 * maxAliases {
		a.remember(fmt.Sprint(i), "!a")
	}
	if len(a.rooms) > maxAliases {
		t.Errorf("%d aliases are kept", len(a.rooms))
	}
	if _, ok := a.room(fmt.Sprint(3*maxAliases - 1)); !ok {
		t.Error("the last alias is not")
	}
	a.rooms["old"] = resolvedAlias{"!a", time.Now().Add(-time.Second)}
	if _, ok := a.room("old"); ok {
		t.Error("an alias is kept for good")
	}
}

func TestMatrixSendsOnceWhenAnswersGetLost(t *testing.T) {
	t.Parallel()
	s := startMatrix(t, "hush-1", "!room:example.org", func(n int) bool { return n%2 == 1 })
	channel := loadChannel(t, "matrix "+s.URL+" hush-1")
	d := delivery("!room:example.org", strings.Repeat("\"word\"\n", 10_000))
	attempts := 1
	for ; attempts < 10 && channel.Send(t.Context(), d) != nil; attempts++ {
	}
	words := 0
	for path, body := range s.events {
		var content struct{ Body string }
		if err := json.Unmarshal([]byte(body), &content); err != nil || len(body) > 40_000 {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
		words += strings.Count(content.Body, "word")
	}
	if words != 10_000 || len(s.events) != d.Sent || d.Sent != attempts-1 || d.Sent < 3 {
		t.Errorf("%d words arrived in %d events; %d parts are noted after %d attempts", words, len(s.events), d.Sent, attempts)
	}
}

func TestMatrixErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{429, `{"errcode":"M_LIMIT_EXCEEDED","error":"Too many requests","retry_after_ms":2001}`, outcome{"later", 3 * time.Second, "the Matrix server answered M_LIMIT_EXCEEDED: it asks for a pause"}},
		{400, `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":2000}`, outcome{"later", 2 * time.Second, "pause"}},
		{429, `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":"2000"}`, outcome{"again", 0, "pause"}},
		{401, `{"errcode":"M_UNKNOWN_TOKEN","error":"x"}`, outcome{"final", 0, "does not know the token"}},
		{401, `{"errcode":"M_MISSING_TOKEN","error":"x"}`, outcome{"final", 0, "does not know the token"}},
		{403, `{"errcode":"M_FORBIDDEN","error":"inner words"}`, outcome{"final", 0, "the Matrix server answered M_FORBIDDEN: the user of this channel has not joined the room"}},
		{404, `{"errcode":"M_NOT_FOUND","error":"x"}`, outcome{"final", 0, "there is no such room"}},
		{404, `{"errcode":"M_UNRECOGNIZED","error":"x"}`, outcome{"final", 0, "the Matrix server answered M_UNRECOGNIZED"}},
		{413, `{"errcode":"M_TOO_LARGE","error":"x"}`, outcome{"final", 0, "too long"}},
		{400, `{"errcode":"inner words"}`, outcome{"final", 0, "the Matrix server answered 400"}},
		{500, `{"errcode":"M_UNKNOWN","error":"x"}`, outcome{"again", 0, "M_UNKNOWN"}},
		{502, `<html>`, outcome{"again", 0, "the Matrix server answered 502"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, tc.status, tc.body) })
		d := delivery("!room:example.org", "x")
		err := loadChannel(t, "matrix "+s.URL+" hush-1").Send(t.Context(), d)
		tc.want.check(t, err)
		if strings.Contains(err.Error(), "inner") || d.Sent != 0 || d.LastStatus != tc.status || d.LastAnswer != tc.body {
			t.Errorf("got %v, noted: %+v", err, d)
		}
	}
	s := startMatrix(t, "hush-2", "!room:example.org", never)
	outcome{kind: "final", words: "M_UNKNOWN_TOKEN"}.check(t, loadChannel(t, "matrix "+s.URL+" hush-1").Send(t.Context(), delivery("!room:example.org", "x")))
	outcome{kind: "final", words: "M_UNKNOWN_TOKEN"}.check(t, loadChannel(t, "matrix "+s.URL+" hush-1").Send(t.Context(), delivery("#room:example.org", "x")))
}

func TestMatrixChats(t *testing.T) {
	t.Parallel()
	channel := new(Matrix)
	for _, to := range []string{"!a:b", "!OGEhHVWSdvArJzumhm:matrix.org", "!x:example.org:8448", "!x:[::1]:8448", "!31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM",
		"#room:example.org", "#büro-2:example.org", "#🎉:example.org", "#..a:example.org", "!x:[1::]", "!" + strings.Repeat("a", 250) + ":b.c",
		"!a:b/$event", "!a/$31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM", "!a:b/$acR1l0raoZnm60CBwAVgqbZqoO/mYU81xysh1u7XcJk", "#a:b/$1400000000abcde:example.org:8448"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "!", "#", "!:b", "#:b", "#room", "room:example.org", "@alice:example.org", "!a:", "#a:", "!a:b/c", "!a:b:c", "#a:b?c", "!a b:c", "!a\n:b",
		"!a\x00:b", "!a\u202e:b", "!" + strings.Repeat("a", 255), "!\xff:b",
		"!..:b", "!.", "#..:b", "!/:b", "#a/../b:c", "#a/b:c", `!a\b:c`, "!a?b:c", "!a%2Fb:c", "!a%2Fb", "!a:..", "!a:-", "!a:.:1", "#a:..", "!a:[::]", "!a:[.]:1",
		"!a:b/", "!a:b/event", "!a:b/$", "!a:b/$a b", "!a:b/$a\n", "!a:b/$a%2f", "!a:b/$ü", "!a:b/$a:..", "!a:b/!c:d", "@a:b/$c", "!a:b/$" + strings.Repeat("a", 255)} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "#room:example.org") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
