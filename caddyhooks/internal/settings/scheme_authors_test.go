package settings

import (
	"reflect"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// authorIn finds the author in the parts of a body that the scheme selects.
func authorIn(t testing.TB, scheme, body string) EventAuthor {
	t.Helper()
	a := Authentication{Scheme: FindScheme(scheme)}
	selected := new(strictjson.Selection)
	a.SelectParts(selected)
	doc, err := strictjson.ParseSelected([]byte(body), selected)
	if err != nil {
		t.Fatal(err)
	}
	return a.AuthorOf(doc)
}

func TestAuthorsOfEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, body string
		ids          []string
		bot          bool
	}{
		{"slack", `{"event":{"type":"message","user":"U1","text":"hi"}}`, []string{"U1"}, false},
		{"slack", `{"event":{"type":"message","bot_id":"B1","user":"U9","app_id":"A1","bot_profile":{"id":"B1"}}}`, []string{"B1", "U9", "A1"}, true},
		{"slack", `{"event":{"subtype":"message_changed","message":{"user":"U9","bot_id":"B1"},"previous_message":{"user":"U2"}}}`, []string{"B1", "U9"}, true},
		{"slack", `{"event":{"subtype":"bot_message"}}`, nil, true},
		{"slack", `{"event":{"user":{"id":"U1"},"bot_id":["B1"]}}`, nil, false},
		{"slack", `[]`, nil, false},
		{"telegram", `{"message":{"from":{"id":42,"is_bot":false},"reply_to_message":{"from":{"id":7,"is_bot":true}}}}`, []string{"42"}, false},
		{"telegram", `{"edited_message":{"from":{"id":7,"is_bot":true}}}`, []string{"7"}, true},
		{"telegram", `{"callback_query":{"from":{"id":42},"message":{"from":{"id":7,"is_bot":true}}}}`, []string{"42"}, false},
		{"discord", `{"type":2,"application_id":"9","member":{"user":{"id":"42"}},"message":{"author":{"id":"9","bot":true}}}`, []string{"42"}, false},
		{"discord", `{"user":{"id":"9","bot":true}}`, []string{"9"}, true},
		{"github", `{"action":"created","comment":{"id":1,"user":{"login":"ann","type":"User"}},"sender":{"login":"ann"}}`, []string{"ann"}, false},
		{"github", `{"action":"created","comment":{"id":1,"user":{"login":"our[bot]","type":"Bot"}},"sender":{"login":"our[bot]"}}`, []string{"our[bot]", "our[bot]"}, true},
		{"github", `{"action":"created","comment":{"id":1,"user":{"login":"ann"},"performed_via_github_app":{"slug":"our"}}}`, []string{"ann", "our[bot]"}, false},
		{"github", `{"ref":"refs/heads/main","sender":{"login":"ann"}}`, nil, false},
		{"github", `{"action":"opened","issue":{"id":1},"sender":{"login":"our[bot]","type":"Bot"}}`, []string{"our[bot]"}, false},
		{"github", `{"action":"deleted","comment":{"id":1,"user":{"login":"ann"}},"sender":{"login":"ann"}}`, nil, false},
		{"gitlab", `{"object_kind":"note","user":{"id":7,"username":"ann"},"object_attributes":{"author_id":7}}`, []string{"7", "ann", "7"}, false},
		{"gitlab", `{"object_kind":"note","user":{"id":8,"username":"project_12_bot_abc"}}`, []string{"8", "project_12_bot_abc"}, true},
		{"gitlab", `{"object_kind":"push","user":{"id":7,"username":"ann"}}`, nil, false},
		{"linear", `{"type":"Comment","actor":{"id":"a","type":"user"},"data":{"userId":"a","user":{"id":"a"}}}`, []string{"a", "a", "a"}, false},
		{"linear", `{"type":"Comment","actor":{"id":"o","type":"oauthClient"},"data":{"userId":null}}`, []string{"o"}, true},
		{"linear", `{"type":"Issue","actor":{"id":"a","type":"user"},"data":{"userId":"a"}}`, nil, false},
		{"stripe", `{"user":{"id":"a"}}`, nil, false},
	} {
		got := authorIn(t, c.scheme, c.body)
		if !reflect.DeepEqual(got.IDs, c.ids) || got.Bot != c.bot || c.ids != nil && got.Service != c.scheme {
			t.Errorf("%s %s: got %+v", c.scheme, c.body, got)
		}
	}
}

// Parts that are not selected make no difference.
func FuzzAuthorOf(f *testing.F) {
	f.Add("slack", `{"event":{"bot_id":"B1","user":7,"message":{"user":"U1"}}}`)
	f.Add("telegram", `{"message":{"from":{"id":1e400,"is_bot":true}}}`)
	f.Add("discord", `{"member":{"user":{"id":"1","bot":"true"}},"event":7}`)
	f.Add("github", `{"action":"edited","comment":{"id":1,"user":{"login":"a[bot]","type":"Bot"},"performed_via_github_app":null},"sender":[]}`)
	f.Add("gitlab", `{"object_kind":"note","user":{"id":1,"username":"group_1_bot"},"object_attributes":{"author_id":{}}}`)
	f.Add("linear", `{"type":"Comment","actor":{"id":"x","type":"integration"},"data":{"botActor":{"id":"y"}}}`)
	f.Fuzz(func(t *testing.T, scheme, body string) {
		a := Authentication{Scheme: FindScheme(scheme)}
		doc, err := strictjson.Parse([]byte(body))
		if err != nil || a.Scheme == nil {
			return
		}
		if whole, parts := a.AuthorOf(doc), authorIn(t, scheme, body); !reflect.DeepEqual(whole, parts) {
			t.Errorf("got %+v of the whole body and %+v of the selected parts", whole, parts)
		}
	})
}
