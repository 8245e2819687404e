package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mattermostOf is the id of a thing of a kind.
func mattermostOf(kind string, n int) string { return fmt.Sprintf("%s%025d", kind, n) }

// startMattermost starts a server of Mattermost with one channel and one thread in it, of which the messages are kept together.
func startMattermost(t *testing.T, token string) (*service, *thread) {
	c := new(thread)
	pending := map[string]int{}
	return startService(t, func(w http.ResponseWriter, r request, _ int) {
		var sent map[string]string
		err := json.Unmarshal([]byte(r.body), &sent)
		fail := func(status int, id string) {
			say(w, status, fmt.Sprintf(`{"id":%q,"message":"Something is wrong.","detailed_error":"","request_id":"x","status_code":%d}`, id, status))
		}
		answer := func(status, id int) {
			message, _ := json.Marshal(sent["message"])
			say(w, status, fmt.Sprintf(`{"id":%q,"create_at":1,"update_at":1,"edit_at":0,"delete_at":0,"user_id":%q,"channel_id":%q,"root_id":%q,"message":%s,"type":"","props":{}}`,
				mattermostOf("p", id), mattermostOf("u", 1), mattermostOf("c", 1), sent["root_id"], message))
		}
		id, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(r.path, "/patch"), "/api/v4/posts/p"))
		switch {
		case r.header.Get("Authorization") != "Bearer "+token:
			fail(401, "api.context.session_expired.app_error")
		case r.body != "" && (err != nil || sent["message"] == "" || len([]rune(sent["message"])) > 16383 || r.header.Get("Content-Type") != "application/json; charset=utf-8"):
			fail(400, "api.context.invalid_body_param.app_error")
		case r.method == "GET" && r.path == "/api/v4/users/me":
			say(w, 200, `{"id":"`+mattermostOf("u", 1)+`","username":"helper","is_bot":true}`)
		case r.method == "POST" && r.path == "/api/v4/posts" && sent["channel_id"] != mattermostOf("c", 1):
			fail(403, "api.context.permissions.app_error")
		case r.method == "POST" && r.path == "/api/v4/posts" && sent["root_id"] != "" && sent["root_id"] != mattermostOf("r", 1):
			fail(400, "api.post.create_post.root_id.app_error")
		case r.method == "POST" && r.path == "/api/v4/posts":
			key := sent["pending_post_id"]
			if pending[key] == 0 || key == "" {
				pending[key] = c.add(sent["message"])
			}
			answer(201, pending[key])
		case r.method == "PUT" && strings.HasSuffix(r.path, "/patch") && len(sent) == 1 && c.change(id, sent["message"]):
			answer(200, id)
		case r.method == "DELETE" && r.body == "" && c.remove(id):
			say(w, 200, `{"status":"OK"}`)
		default:
			fail(404, "app.post.get.app_error")
		}
	}), c
}

func TestMattermostPostOnTheWire(t *testing.T) {
	t.Parallel()
	s, c := startMattermost(t, "secret-token")
	channel, root := mattermostOf("c", 1), mattermostOf("r", 1)
	loaded := loadChannel(t, "mattermost "+s.URL+"/ secret-token")
	for range 2 { // the second time, the server knows the post
		d := delivery(channel+"/"+root, "@channel: *hello* ![x](https://evil.example)")
		if err := loaded.Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	r := s.seen()[0]
	if r.method != "POST" || r.path != "/api/v4/posts" || len(c.all()) != 1 {
		t.Errorf("got %s %s, and the thread has %q", r.method, r.path, c.all())
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "Authorization": "Bearer secret-token", "User-Agent": "caddy-hooks"})
	wantJSON(t, r.body, `{"channel_id":"`+channel+`","root_id":"`+root+`","message":"@\u200bchannel: *hello* !\u200b[x](https://evil.example)","pending_post_id":"`+delivery("", "").ID+`:0"}`)
}

func TestMattermostErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		header string
		id     string
		want   outcome
	}{
		{401, "", "api.context.session_expired.app_error", outcome{"final", 0, "the Mattermost server answered 401: it does not take the token"}},
		{403, "", "api.context.permissions.app_error", outcome{"final", 0, "not a member"}},
		{400, "", "api.post.create_post.root_id.app_error", outcome{"final", 0, "no such thread"}},
		{400, "", "api.post.create_post.channel_root_id.app_error", outcome{"final", 0, "no such thread"}},
		{400, "", "api.post.create_post.can_not_post_to_deleted.error", outcome{"final", 0, "archived"}},
		{404, "", "store.sql_channel.get.existing.app_error", outcome{"final", 0, "no such channel"}},
		{429, "X-RateLimit-Reset: 3", "", outcome{"later", 3 * time.Second, "pause"}},
		{429, "Retry-After: 2", "", outcome{"later", 2 * time.Second, "pause"}},
		{500, "", "app.post.save.app_error", outcome{"again", 0, "answered 500"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			if name, value, ok := strings.Cut(tc.header, ": "); ok {
				w.Header().Set(name, value)
			}
			say(w, tc.status, `{"id":"`+tc.id+`","message":"x","status_code":`+strconv.Itoa(tc.status)+`}`)
		})
		d := delivery(mattermostOf("c", 1), "x")
		tc.want.check(t, loadChannel(t, "mattermost "+s.URL+" hush-1").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != tc.status {
			t.Errorf("noted: %+v", d)
		}
	}
}

func TestMattermostChats(t *testing.T) {
	t.Parallel()
	channel := new(Mattermost)
	id := mattermostOf("c", 1)
	for _, to := range []string{id, id + "/" + mattermostOf("r", 1)} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", id[1:], id + "x", strings.ToUpper(id), id + "/", id + "/x", id + "/" + id + "/" + id, "~town-square", "@ann", id + "\n", "../" + id} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "26 letters") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
