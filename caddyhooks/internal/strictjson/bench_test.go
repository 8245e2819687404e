package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParse parses 20 KB as GitHub sends them, whole, in part, and not at all.
func BenchmarkParse(b *testing.B) {
	doc := githubIssue()
	var indented bytes.Buffer
	if err := json.Indent(&indented, doc, "", "  "); err != nil {
		b.Fatal(err)
	}
	part := new(Selection)
	part.Member("action").SelectAll()
	part.Member("repository").Member("full_name").SelectAll()
	part.Member("sender").Member("login").SelectAll()
	part.Member("issue").Member("title").SelectAll()
	part.Member("issue").Member("labels").Item(0).Member("name").SelectAll()
	for _, bench := range []struct {
		name     string
		data     []byte
		selected *Selection
	}{
		{"whole", doc, wholeDocument},
		{"part", doc, part},
		{"skipped", doc, nil},
		{"skipped-indented", indented.Bytes(), nil},
		{"skipped-small-objects", smallObjects(), nil},
		{"skipped-many-keys", manyKeys(100_000), nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseSelected(bench.data, bench.selected); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			dec := json.NewDecoder(bytes.NewReader(doc))
			dec.UseNumber()
			var v any
			if err := dec.Decode(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// githubIssue is an issue event in the shape of GitHub: a repository of many URLs, users, labels, and texts in Markdown.
func githubIssue() []byte {
	user := func(login string, id int) string {
		api := "https://api.github.com/users/" + login
		return fmt.Sprintf(`{"login":"%s","id":%d,"node_id":"MDQ6VXNlcjU4MzIzMQ==","avatar_url":"https://avatars.githubusercontent.com/u/%d?v=4",`+
			`"gravatar_id":"","url":"%s","html_url":"https://github.com/%s","followers_url":"%s/followers","following_url":"%s/following{/other_user}",`+
			`"gists_url":"%s/gists{/gist_id}","starred_url":"%s/starred{/owner}{/repo}","subscriptions_url":"%s/subscriptions",`+
			`"organizations_url":"%s/orgs","repos_url":"%s/repos","events_url":"%s/events{/privacy}","received_events_url":"%s/received_events",`+
			`"type":"User","user_view_type":"public","site_admin":false}`, login, id, id, api, login, api, api, api, api, api, api, api, api, api)
	}
	var b strings.Builder
	const repo = "https://api.github.com/repos/caddy-hooks/caddy-hooks"
	b.WriteString(`{"action":"opened","issue":{"url":"` + repo + `/issues/1347","repository_url":"` + repo + `","id":2190541037,"number":1347,` +
		`"title":"Found a bug","user":` + user("octocat", 583231) + `,"labels":[{"id":208045946,"node_id":"MDU6TGFiZWwyMDgwNDU5NDY=",` +
		`"url":"` + repo + `/labels/bug","name":"bug","color":"d73a4a","default":true,"description":"Something isn't working"}],"state":"open","locked":false,` +
		`"assignee":null,"assignees":[` + user("hubot", 2) + `,` + user("monalisa", 77) + `],"milestone":null,"comments":0,"created_at":"2026-01-02T03:04:05Z",` +
		`"reactions":{"total_count":0,"+1":0,"-1":0,"laugh":0,"hooray":0,"confused":0,"heart":0,"rocket":0,"eyes":0},` +
		`"body":"` + strings.Repeat(`I see this on version 2.8.4 — “every time”:\r\n\r\n`+"```"+`\r\npanic: \"index out of range\"\r\n\tat main.go:12\r\n`+"```"+`\r\n`, 12) + `"},`)
	b.WriteString(`"repository":{"id":1296269,"node_id":"MDEwOlJlcG9zaXRvcnkxMjk2MjY5","name":"caddy-hooks","full_name":"caddy-hooks/caddy-hooks","private":false,` +
		`"owner":` + user("caddy-hooks", 1) + `,"fork":false,"size":108,"stargazers_count":80,"pushed_at":"2026-01-02T03:04:05Z","score":1.5`)
	for _, name := range strings.Fields("forks keys collaborators teams hooks issue_events events assignees branches tags blobs git_tags git_refs trees " +
		"statuses languages stargazers contributors subscribers subscription commits git_commits comments issue_comment contents compare merges archive " +
		"downloads issues pulls milestones notifications labels releases deployments") {
		b.WriteString(`,"` + name + `_url":"` + repo + `/` + name + `{/sha}"`)
	}
	b.WriteString(`,"has_issues":true,"has_wiki":true,"topics":["caddy","webhooks"]},"sender":` + user("octocat", 583231) + `,"commits":[`)
	for i := 0; b.Len() < 20<<10; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(user(fmt.Sprintf("user-%d", i), i))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func manyKeys(n int) []byte {
	doc := []byte{'{'}
	for i := range n {
		doc = fmt.Appendf(doc, `"key-%d":%d,`, i, i)
	}
	return append(doc, `"end":null}`...)
}

func smallObjects() []byte {
	doc := []byte{'['}
	for i := 0; len(doc) < 20<<10; i++ {
		doc = fmt.Appendf(doc, `{"id":%d,"user":{"login":"user-%d","site_admin":false},"created_at":"2026-01-02T03:04:05Z","body":"I see the same on version %d.%d, \"again\"."},`, 100000+i, i, i, i)
	}
	return append(doc, `{}]`...)
}
