package channels

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// reachTest is a channel with allow_to, and how a test finds out which chat a message has reached.
type reachTest struct {
	channel engine.Channel
	allowed []string
	named   *regexp.Regexp // the places that entries name, written down independently of them
	reached func(t *testing.T, to string) string
}

// startReachTests starts the channels that have chats of their own. What a request that they send names counts, not what was asked for.
func startReachTests(t testing.TB) map[string]reachTest {
	s := startService(t, func(w http.ResponseWriter, r request, _ int) {
		id := `"123456789012345678"`
		switch {
		case strings.HasPrefix(r.path, "/repos/"), strings.HasPrefix(r.path, "/projects/"):
			id = `7`
		case r.path == "/api/v4/posts":
			id = `"4xp9fdt77pncbef59f4k1qe83o"`
		}
		say(w, 200, `{"id":`+id+`,"body":"x","ok":true,"channel":"C1","ts":"1.1","result":{"message_id":1},"event_id":"$x","room_id":"!of-alias:other.org",`+
			`"data":{"commentCreate":{"success":true,"comment":{"id":"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc0"}}}}`)
	})
	tests := make(map[string]reachTest)
	add := func(name, config, named string, allowed []string, reached func(t *testing.T, r request) string) {
		channel := loadChannel(t, fmt.Sprintf(config, "allow_to "+strings.Join(allowed, " ")))
		tests[name] = reachTest{channel, allowed, regexp.MustCompile(`^(?:` + named + `)$`), func(t *testing.T, to string) string {
			s.mu.Lock()
			s.requests = nil
			s.mu.Unlock()
			if err := channel.Send(t.Context(), delivery(to, "x")); err != nil {
				t.Fatalf("%s: %q is valid, and cannot be sent to: %v", name, to, err)
			}
			return reached(t, s.seen()[0])
		}}
	}
	member := func(chat, thread string) func(t *testing.T, r request) string {
		return func(t *testing.T, r request) string {
			var body map[string]any
			dec := json.NewDecoder(strings.NewReader(r.body))
			dec.UseNumber()
			if err := dec.Decode(&body); err != nil {
				t.Fatal(err)
			}
			place := fmt.Sprint(body[chat])
			if body[thread] != nil {
				place += " in " + fmt.Sprint(body[thread])
			}
			return place
		}
	}
	block := " {\n url " + s.URL + "\n %s\n}"
	const ts = `[0-9]+\.[0-9]+`
	add("slack", "slack x"+block, `C0123(?: in `+ts+`)?|CT[A-Z0-9]*(?: in `+ts+`)?|C9 in 1700000000\.000100|#team-[^/]*`,
		[]string{"C0123", "CT*", "C9/1700000000.000100", `"#team-*"`}, member("channel", "thread_ts"))
	add("telegram", "telegram 1:x"+block, `42(?: in [0-9]+)?|-1007[0-9]*(?: in [0-9]+)?|43 in 7|@our_[A-Za-z0-9_]*(?: in [0-9]+)?`,
		[]string{"42", "-1007*", "43/7", "@our_*"}, member("chat_id", "message_thread_id"))
	add("discord", "discord x"+block, `/channels/(?:123456789012345678|777[0-9]*)/messages`, []string{"123456789012345678", "777*"},
		func(_ *testing.T, r request) string { return r.path })
	add("matrix", "matrix "+s.URL+" x {\n %s\n}", `!a:b\.org(?: in .*)?|!team-[^/]*:b\.org(?: in .*)?|!c:d\.org in \$event|!of-alias:other\.org(?: in .*)?|#team:b\.org`,
		[]string{"!a:b.org", "!team-*:b.org", "!c:d.org/$event", `"#team:b.org"`}, func(t *testing.T, r request) string {
			rest, isAlias := strings.CutPrefix(r.path, "/_matrix/client/v3/directory/room/")
			if !isAlias {
				rest, _, _ = strings.Cut(strings.TrimPrefix(r.path, "/_matrix/client/v3/rooms/"), "/")
			}
			place, err := url.PathUnescape(rest)
			if err != nil {
				t.Fatal(err)
			}
			var body matrixMessage
			if _ = json.Unmarshal([]byte(r.body), &body); body.Relation != nil {
				place += " in " + body.Relation.Event
			}
			return place
		})
	path := func(t *testing.T, r request) string { return r.path }
	const name = `[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*` // not of dots alone
	add("github", "github x"+block, `/repos/(?:acme/`+name+`/issues/[0-9]+|x/y/issues/7|[A-Za-z0-9_-]+/docs/issues/[0-9]+)/comments`,
		[]string{"acme/*", `"x/y#7"`, "*/docs"}, path)
	add("gitlab", "gitlab x"+block, `/projects/(?:acme(?:%2F`+name+`)+/(?:issues|merge_requests)/[0-9]+|x%2Fy/issues/7)/notes`, []string{"acme/*", `"x/y#7"`}, path)
	add("mattermost", "mattermost "+s.URL+" x {\n %s\n}", `4xp9fdt77pncbef59f4k1qe83o(?: in [a-z0-9]{26})?|aaaaaa[a-z0-9]{20}(?: in [a-z0-9]{26})?`,
		[]string{"4xp9fdt77pncbef59f4k1qe83o", "aaaaaa*"}, member("channel_id", "root_id"))
	add("linear", "linear x"+block, `ENG-[0-9]+|OPS-7`, []string{"ENG-*", "OPS-7"}, func(t *testing.T, r request) string {
		var body struct {
			Variables struct{ Input struct{ IssueID string } }
		}
		if err := json.Unmarshal([]byte(r.body), &body); err != nil {
			t.Fatal(err)
		}
		return body.Variables.Input.IssueID
	})
	// No server is asked here. What goes into RCPT TO and In-Reply-To counts.
	allowed := []string{"a@x.org", "*@y.org", "team-*@z.org", "b@x.org/<id@x.org>"}
	mail := loadChannel(t, "email mail.example.com {\n from a@example.com\n allow_to "+strings.Join(allowed, " ")+"\n}")
	tests["email"] = reachTest{mail, allowed, regexp.MustCompile(`^(?:a@x\.org(?: in .*)?|[^@]*@y\.org(?: in .*)?|team-[^@]*@z\.org(?: in .*)?|b@x\.org in <id@x\.org>)$`),
		func(t *testing.T, to string) string {
			address, parent, err := parseMailChat(to)
			if err != nil {
				t.Fatal(err)
			}
			if parent != "" {
				return address.String() + " in " + parent
			}
			return address.String()
		}}
	return tests
}

// check checks one chat that somebody names, and reports whether a message may go there.
func (r reachTest) check(t *testing.T, to string) bool {
	if !r.channel.(interface{ AllowsTo(to string) bool }).AllowsTo(to) || r.channel.ValidTo(to) != nil {
		return false
	}
	if place := r.reached(t, to); !r.named.MatchString(place) {
		t.Errorf("%q reaches %q, which no entry of %q names", to, place, r.allowed)
	}
	return true
}

// hostilePieces are put between, before and after parts of chats.
var hostilePieces = []string{"/", "//", "/../", "..", ".", "%2f", "%2F", "%2e%2e", "%00", "#", "?", "&", ";", ",", ":", "@", "!", "$", "*", "<", ">", "|", `\`, "\n", "\r\n", "\t", " ", "\x00", "\x7f",
	"\u00a0", "\u200b", "\u202e", "\u2028", "\u2044", "\uff0f", "\uff03", "\uff0e", "\u3002", "\u0338", "\u0301", "\xff", "\xc0\xaf", "０", "ſ", "K", "ı", "İ", "ß", "xn--", "C0123", "C9", "42", "43/7",
	"-1007", "777", "123456789012345678", "!a:b.org", ":b.org", "!c:d.org", "#team:b.org", "a@x.org", "@y.org", "team-", "@z.org", "b@x.org", "/<id@x.org>", "/<", "/$event", "/1700000000.000100",
	"#team-", "@our_", "1", "a", "A", "0", "acme/", "x/y#7", "#7", "!7", "/docs", "/docs#1", "acme/x!1", "ENG-", "OPS-7", "4xp9fdt77pncbef59f4k1qe83o", "aaaaaa", "aaaaaaaaaaaaaaaaaaaa",
	"/4xp9fdt77pncbef59f4k1qe83o"}

// What a payload makes of a chat reaches no place but those that allow_to names.
func TestHostileChatsReachNoOtherPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	const values = 10_000
	for name, test := range startReachTests(t) {
		random := rand.New(rand.NewPCG(1, 2))
		reached := 0
		for range values {
			seed := strings.ReplaceAll(strings.Trim(test.allowed[random.IntN(len(test.allowed))], `"`), "*", hostilePieces[random.IntN(len(hostilePieces))])
			for range random.IntN(4) {
				at, piece := random.IntN(len(seed)+1), hostilePieces[random.IntN(len(hostilePieces))]
				switch random.IntN(3) {
				case 0:
					seed = seed[:at] + piece + seed[at:]
				case 1:
					seed = seed[:at] + piece
				case 2:
					seed = piece + seed[at:]
				}
			}
			if random.IntN(8) == 0 {
				seed = strings.ToUpper(seed)
			}
			if test.check(t, seed) {
				reached++
			}
		}
		t.Logf("%s: %d of %d hostile chats are allowed ones", name, reached, values)
		if reached < values/100 {
			t.Errorf("%s: %d of %d got through: they are too far from chats to say something", name, reached, values)
		}
	}
}

// FuzzHostileChats looks for chats that reach a place that allow_to does not name.
func FuzzHostileChats(f *testing.F) {
	tests := startReachTests(f)
	for _, test := range tests {
		for _, entry := range test.allowed {
			entry = strings.ReplaceAll(strings.Trim(entry, `"`), "*", "1")
			f.Add(entry)
			f.Add(entry + "/../x")
			f.Add("x/" + entry)
			f.Add(entry + "\n")
		}
	}
	f.Fuzz(func(t *testing.T, to string) {
		for _, test := range tests {
			test.check(t, to)
		}
	})
}
