package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/channels"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// typedChannel is a channel whose requests are checked against types that the service, or somebody who knows it, has published.
type typedChannel struct {
	config string   // as after the name in a Caddyfile; %s stands for the URL of the service
	to     []string // chats, in all forms
	answer string   // what the service says to everything
	// The requests, each as a regular expression of method and path. All of them have to occur, and no others.
	requests map[string]typedRequest
}

// typedRequest has types of TypeScript, "" for what there is no type of. Names in them are imported in channelTypes.
type typedRequest struct{ path, body string }

// channelTypes are the imports and helpers that the types are written with. The packages are those of testdata/channel-types.
const channelTypes = `
import type { WebClient } from "@slack/web-api";
import type { ApiMethods } from "@grammyjs/types";
import type { RESTPatchAPIChannelMessageJSONBody, RESTPostAPIChannelMessageJSONBody, Routes } from "discord-api-types/v10";
import type { RoomMessageEventContent, RoomMessageTextEventContent } from "matrix-js-sdk/lib/types.js";
import type { IEventRelation } from "matrix-js-sdk/lib/matrix.js";
import type { paths } from "@octokit/openapi-types";
import type { IssueNotes, MergeRequestNotes } from "@gitbeaker/core";
import type { LinearDocument } from "@linear/sdk";
import type { Post } from "@mattermost/types/posts";
import type { PartialExcept } from "@mattermost/types/utilities";
import type { IAdaptiveCard } from "adaptivecards/lib/schema.js";
// Values of enums as they are in JSON.
type Plain<T> = T extends string ? ` + "`${T}`" + ` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type MatrixMessage = Plain<RoomMessageEventContent> | Plain<RoomMessageTextEventContent> & { "m.relates_to"?: IEventRelation };
type SlackArguments<F> = F extends (options: infer A) => unknown ? NonNullable<A> : never;
type TelegramArguments<M extends keyof ApiMethods<never>> = Parameters<ApiMethods<never>[M]>[0];
type GitHubBody<P extends keyof paths, M extends keyof paths[P]> =
	paths[P][M] extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
type GitHubComment = GitHubBody<"/repos/{owner}/{repo}/issues/{issue_number}/comments", "post">;
type GitLabNote<T extends IssueNotes | MergeRequestNotes> = { body: Parameters<T["create"]>[2] };
type LinearRequest = { query: string; variables: LinearDocument.MutationCommentCreateArgs }
	| { query: string; variables: LinearDocument.MutationCommentUpdateArgs }
	| { query: string; variables: LinearDocument.MutationCommentDeleteArgs }
	| { query: string; variables: LinearDocument.ViewerQueryVariables };
type TeamsMessage = { type: "message"; attachments: { contentType: "application/vnd.microsoft.card.adaptive"; content: IAdaptiveCard }[] };
`

var typedChannels = map[string]typedChannel{
	"slack": {
		"slack xoxb-1 {\n url %s\n}", []string{"C0123456789", "C0123456789/1700000000.000100", "#general", "U0123456789"},
		`{"ok":true,"channel":"C0123456789","ts":"1700000000.000200","user_id":"U1","bot_id":"B1"}`,
		map[string]typedRequest{
			"POST /chat.postMessage":   {body: `SlackArguments<WebClient["chat"]["postMessage"]>`},
			"POST /chat.update":        {body: `SlackArguments<WebClient["chat"]["update"]>`},
			"POST /chat.delete":        {body: `SlackArguments<WebClient["chat"]["delete"]>`},
			"POST /chat.postEphemeral": {body: `SlackArguments<WebClient["chat"]["postEphemeral"]>`},
			"POST /auth.test":          {body: `SlackArguments<WebClient["auth"]["test"]>`},
		},
	},
	"telegram": {
		"telegram 1:x {\n url %s\n}", []string{"-1001234567890", "42", "-1001234567890/42", "@our_channel/7"}, `{"ok":true,"result":{"message_id":7}}`,
		map[string]typedRequest{
			"POST /bot1:x/sendMessage":     {body: `TelegramArguments<"sendMessage">`},
			"POST /bot1:x/editMessageText": {body: `TelegramArguments<"editMessageText">`},
			"POST /bot1:x/deleteMessage":   {body: `TelegramArguments<"deleteMessage">`},
		},
	},
	"discord": {
		"discord x {\n url %s\n}", []string{"123456789012345678"}, `{"id":"1300000000000000000"}`,
		map[string]typedRequest{
			"POST /channels/[0-9]+/messages":          {`ReturnType<typeof Routes.channelMessages>`, `RESTPostAPIChannelMessageJSONBody`},
			"PATCH /channels/[0-9]+/messages/[0-9]+":  {`ReturnType<typeof Routes.channelMessage>`, `RESTPatchAPIChannelMessageJSONBody`},
			"DELETE /channels/[0-9]+/messages/[0-9]+": {path: `ReturnType<typeof Routes.channelMessage>`},
			"GET /users/@me":                          {path: `ReturnType<typeof Routes.user>`},
		},
	},
	"matrix": {
		"matrix %s x", []string{"!a:b.org", "!a:b.org/$question"}, `{"event_id":"$event","content":{"body":"x"}}`,
		map[string]typedRequest{
			"PUT /_matrix/client/v3/rooms/%21a:b.org/send/m.room.message/[^/]+": {body: `MatrixMessage`},
			"PUT /_matrix/client/v3/rooms/%21a:b.org/redact/\\$event/[^/]+":     {body: `{ reason?: string }`},
			"GET /_matrix/client/v3/rooms/%21a:b.org/event/\\$event":            {},
		},
	},
	"github": {
		"github x {\n url %s\n}", []string{"acme/widgets#7"}, `{"id":1,"body":"x","login":"bot"}`,
		map[string]typedRequest{
			"POST /repos/acme/widgets/issues/7/comments":   {body: `GitHubComment`},
			"PATCH /repos/acme/widgets/issues/comments/1":  {body: `GitHubBody<"/repos/{owner}/{repo}/issues/comments/{comment_id}", "patch">`},
			"DELETE /repos/acme/widgets/issues/comments/1": {},
			"GET /user": {},
		},
	},
	"github app": {
		"github {\n app 1 ../testdata/caddyfile/channel_github_app.pem\n url %s\n}", []string{"acme/widgets#7"},
		`{"id":1,"body":"x","slug":"bot","token":"ghs_1","expires_at":"2999-01-01T00:00:00Z"}`,
		map[string]typedRequest{
			"GET /repos/acme/widgets/installation":         {},
			"POST /app/installations/1/access_tokens":      {body: `GitHubBody<"/app/installations/{installation_id}/access_tokens", "post">`},
			"POST /repos/acme/widgets/issues/7/comments":   {body: `GitHubComment`},
			"PATCH /repos/acme/widgets/issues/comments/1":  {body: `GitHubBody<"/repos/{owner}/{repo}/issues/comments/{comment_id}", "patch">`},
			"DELETE /repos/acme/widgets/issues/comments/1": {},
			"GET /app": {},
		},
	},
	"gitlab": {
		"gitlab x {\n url %s\n}", []string{"acme/tools/widgets#7", "acme/widgets!8"}, `{"id":1,"body":"x","username":"bot"}`,
		map[string]typedRequest{
			"POST /projects/acme%2Ftools%2Fwidgets/issues/7/notes":     {body: `GitLabNote<IssueNotes>`},
			"PUT /projects/acme%2Ftools%2Fwidgets/issues/7/notes/1":    {body: `Parameters<IssueNotes["edit"]>[3]`},
			"DELETE /projects/acme%2Ftools%2Fwidgets/issues/7/notes/1": {},
			"POST /projects/acme%2Fwidgets/merge_requests/8/notes":     {body: `GitLabNote<MergeRequestNotes>`},
			"PUT /projects/acme%2Fwidgets/merge_requests/8/notes/1":    {body: `Parameters<MergeRequestNotes["edit"]>[3]`},
			"DELETE /projects/acme%2Fwidgets/merge_requests/8/notes/1": {},
			"GET /user": {},
		},
	},
	"linear": {
		"linear x {\n url %s/graphql\n}", []string{"ENG-123", "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9"},
		`{"data":{"commentCreate":{"success":true,"comment":{"id":"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc0"}},"commentUpdate":{"success":true},` +
			`"commentDelete":{"success":true},"viewer":{"id":"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc1"}}}`,
		map[string]typedRequest{"POST /graphql": {body: `LinearRequest`}},
	},
	"mattermost": {
		"mattermost %s x", []string{"4xp9fdt77pncbef59f4k1qe83o", "4xp9fdt77pncbef59f4k1qe83o/9xk4fdt77pncbef59f4k1qe83o"}, `{"id":"8xp9fdt77pncbef59f4k1qe83o"}`,
		map[string]typedRequest{
			"POST /api/v4/posts": {body: `PartialExcept<Post, "channel_id" | "message">`},
			"PUT /api/v4/posts/8xp9fdt77pncbef59f4k1qe83o/patch": {body: `Partial<Post>`},
			"DELETE /api/v4/posts/8xp9fdt77pncbef59f4k1qe83o":    {},
			"GET /api/v4/users/me":                               {},
		},
	},
	"teams": {
		"teams %s/workflows/1?sig=x", []string{"office"}, ``,
		map[string]typedRequest{"POST /workflows/1": {body: `TeamsMessage`}},
	},
}

var installChannelTypes = npmtest.Packages("testdata/channel-types")

// What channels send is what the services take, according to types that others wrote.
func TestRequestsOfChannelsHaveTheTypesOfTheServices(t *testing.T) {
	t.Parallel()
	good, bad := channelTypes, channelTypes
	var mistakes []string // the lines of bad that have one
	add := func(value, wrong, kind string) {
		good += fmt.Sprintf("export const a%d = %s satisfies %s;\n", len(mistakes), value, kind)
		bad += fmt.Sprintf("export const a%d = %s satisfies %s;\n", len(mistakes), wrong, kind)
		mistakes = append(mistakes, fmt.Sprintf("bad.ts(%d,", strings.Count(bad, "\n")))
	}
	for name, c := range typedChannels {
		occurred := make(map[string]bool)
		for _, r := range requestsOf(t, name, c) {
			request, ok := "", false
			for request = range c.requests {
				if ok = regexp.MustCompile(`^(?:` + request + `)$`).MatchString(r.method + " " + r.path); ok {
					break
				}
			}
			if !ok {
				t.Errorf("channel %s sends %s %s, which has no type here", name, r.method, r.path)
				continue
			}
			occurred[request] = true
			types := c.requests[request]
			if types.path != "" {
				add(fmt.Sprintf("%q", r.path), fmt.Sprintf("%q", "/x"+r.path), types.path)
			}
			if types.body != "" {
				wrong := `{"no_such_field":1,` + strings.TrimPrefix(r.body, "{")
				add(r.body, strings.Replace(wrong, ",}", "}", 1), types.body)
			} else if r.body != "" {
				t.Errorf("channel %s sends %s %s with a body: %s", name, r.method, r.path, r.body)
			}
		}
		for request := range c.requests {
			if !occurred[request] {
				t.Errorf("channel %s does not send %s", name, request)
			}
		}
	}
	if out, err := checkTypes(t, "good.ts", good); err != nil {
		t.Errorf("TypeScript does not agree: %v\n%s", err, out)
	}
	// That it would notice.
	out, _ := checkTypes(t, "bad.ts", bad)
	for _, place := range mistakes {
		if !strings.Contains(out, place) {
			line := 0
			_, _ = fmt.Sscanf(place, "bad.ts(%d,", &line)
			t.Errorf("TypeScript sees nothing wrong with %s", strings.Split(bad, "\n")[line-1])
		}
	}
	t.Logf("%d types", len(mistakes))
}

// checkTypes runs the compiler on a file.
func checkTypes(t *testing.T, name, text string) (out string, err error) {
	t.Helper()
	modules := filepath.Join(installChannelTypes(t), "node_modules")
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := realtest.Command(t, filepath.Join(modules, ".bin", "tsc"), "--noEmit", "--strict", "--skipLibCheck", "--pretty", "false", "--target", "es2022",
		"--module", "nodenext", "--types", "", name)
	cmd.Dir = dir
	printed, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(printed)), err
}

type sentRequest struct{ method, path, body string }

// requestsOf has a channel do everything it can, and returns what it sent.
func requestsOf(t *testing.T, name string, c typedChannel) (sent []sentRequest) {
	t.Helper()
	var mu sync.Mutex
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) > 0 && !json.Valid(body) {
			t.Errorf("channel %s sent %q, %v", name, body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, sentRequest{r.Method, r.URL.EscapedPath(), string(body)})
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, c.answer)
	}))
	defer service.Close()
	channel := loadChannel(t, fmt.Sprintf(c.config, service.URL))
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("channel %s: %s: %v", name, what, err)
		}
	}
	ctx := t.Context()
	for _, to := range c.to {
		d := &engine.Delivery{ID: "msg_1_0", RunID: "1", To: to, Body: "Hello @alice_1 <b>*world*</b> \"&\" 🎉\n" + strings.Repeat("A long line. ", 1000)}
		if p, ok := channel.(engine.ProgressChannel); ok {
			var err error
			d.Progress, err = p.Begin(ctx, to, "Working on it …")
			must("begin", err)
			edited := *d
			must("edit", channel.Send(ctx, &edited))
			must("withdraw", p.Withdraw(ctx, to, d.Progress))
			d.Progress = ""
		}
		must("send", channel.Send(ctx, d))
		if asks, ok := channel.(engine.QuestionChannel); ok {
			for _, choices := range [][]string{{"yes", "no"}, strings.Fields(strings.Repeat("choice ", 25)), nil} {
				posted, err := asks.Ask(ctx, to, engine.ChannelQuestion{ID: engine.QuestionID("0197f5a0-1111-7222-8333-444455556666", 1), Text: d.Body,
					Choices: choices, Link: "https://example.com/api/hooks/answers/q_1#token"})
				must("ask", err)
				must("close", asks.Close(ctx, to, posted, "Ana answered: yes"))
			}
		}
	}
	if whispers, ok := channel.(interface {
		Whisper(ctx context.Context, chat, thread, person, text string) error
	}); ok {
		must("whisper", whispers.Whisper(ctx, "C0123456789", "1700000000.000100", "U1", "You answered yes."))
		must("whisper", whispers.Whisper(ctx, "C0123456789", "", "U1", "You answered yes."))
	}
	if author, ok := channel.(engine.AuthorChannel); ok {
		_, err := author.Authors(ctx)
		must("authors", err)
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(sent)
}

// loadChannel loads a channel as Caddy does, from what follows its name in a Caddyfile.
func loadChannel(t *testing.T, config string) engine.Channel {
	t.Helper()
	d := caddyfile.NewTestDispenser(config)
	d.Next()
	id := "hooks.channels." + d.Val()
	module, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	loaded, err := ctx.LoadModuleByID(id, caddyconfig.JSON(module, nil))
	if err != nil {
		t.Fatal(err)
	}
	return loaded.(engine.Channel)
}
