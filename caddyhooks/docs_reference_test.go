package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
)

// wantGenerated compares the part of a page between two comments with what it should be. With -update it writes it.
func wantGenerated(t *testing.T, page, name, want string) {
	t.Helper()
	path := filepath.Join("docs", page)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": made by go test ./caddyhooks -run 'TestSchema|TestReference' -update -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(data), begin)
	is, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no lines %s and %s", path, begin, end)
	}
	switch want = "\n" + strings.TrimSpace(want) + "\n\n"; {
	case is == want:
	case *updateGoldens:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not up to date: run go test ./caddyhooks -run 'TestSchema|TestReference' -update", path)
	}
}

// directiveRow is a directive of a block, as the comment of the function that reads the block writes it.
type directiveRow struct{ word, arguments string }

// blockTypes are the Go types whose fields the directives of a block set. Their comments explain the directives.
var blockTypes = map[string][]string{
	"hooks": {"Options", "Settings"}, "hook": {"Mapping", "AgentFields"}, "callbacks": {"Callbacks"}, "health": {"Health"},
	"hooks_dashboard": {"Dashboard"}, "auth hmac": {"Mapping"}, "auth <sender>": {"Mapping"}, "auth token": {"Mapping"},
	"auth oidc":   {"Mapping"},
	"runner echo": {"runners.Echo"}, "runner http": {"runners.HTTP", "runners/internal/httpcall.ServerTLS"},
	"runner openai": {"runners/openai.OpenAI"}, "runner acp": {"runners/acp.ACP", "runners/internal/programs.Program", "runners/internal/models.ByTier"},
	"runner command": {"runners/command.Command", "runners/internal/programs.Program", "runners/internal/models.ByTier"},
	"runner a2a":     {"runners/a2a.A2A", "runners/internal/httpcall.ServerTLS"},
	"channel log":    {"channels.Log", "channels.Recipients"}, "channel email": {"channels.Email", "channels.Recipients"},
	"channel slack": {"channels.Slack", "channels.API", "channels.Recipients"}, "channel telegram": {"channels.Telegram", "channels.API", "channels.Recipients"},
	"channel discord": {"channels.Discord", "channels.API", "channels.Recipients"}, "channel matrix": {"channels.Matrix", "channels.API", "channels.Recipients"},
	"channel gitlab": {"channels.GitLab", "channels.API", "channels.Recipients"}, "channel linear": {"channels.Linear", "channels.API", "channels.Recipients"},
	"channel mattermost": {"channels.Mattermost", "channels.API", "channels.Recipients"}, "channel teams": {"channels.Teams", "channels.API", "channels.Recipients"},
	"channel github":  {"channels.GitHub", "channels.API", "channels.Recipients"},
	"channel webhook": {"channels.Webhook", "channels.API", "channels.Recipients"},
	"store bolt":      {"stores/bolt.Bolt"}, "store memory": {"stores/memory.Memory"}, "store postgres": {"stores/postgres.Postgres"},
}

// fieldOf are the fields of directives whose names differ.
var fieldOf = map[string]string{
	"hooks runner": "RunnersRaw", "hooks store": "StoreRaw", "hooks channel": "ChannelsRaw", "hooks hook": "Mappings",
	"hook auth": "AuthMode", "hook template": "MessageTemplate", "hook sync": "SyncResponse", "hook response_schema": "ResponseJSONSchema",
	"hook validation_tier": "ResponseValidationModelTier", "hook fold": "FoldSeconds", "hook respond": "RespondStatus",
	"auth hmac secret": "HMACSecret", "auth hmac timestamp": "TimestampHeader", "auth <sender> tolerance": "AuthTolerance",
	"auth <sender> timestamp": "TimestampHeader", "auth token header": "AuthHeader", "hooks_dashboard instance": "Instances",
	"auth oidc audience": "OIDCAudience", "auth oidc claim": "OIDCClaims", "auth oidc header": "AuthHeader", "auth oidc keys": "OIDCKeys",
	"runner http tls_client_auth": "TLSClientCert", "runner a2a tls_client_auth": "TLSClientCert",
}

// defaultOf are defaults that the comment of a field tells in another way, since it is that of JSON.
var defaultOf = map[string]string{
	"hooks default_timeout": "5m", "hooks enabled": "off", "hooks memory_preset": "disabled", "hooks history": "retention",
	"hook timeout": "default_timeout", "hook history": "history of the instance", "hook max_payload": "max_payload of the instance",
	"hook memory_preset": "memory_preset of the instance", "hook queue_time": "queue_time of the instance, which is also the longest",
}

// onOff are the words of a Caddyfile for those of JSON.
var onOff = strings.NewReplacer("true", "on", "false", "off")

// saidOnce is what the page says once for all directives.
var saidOnce = regexp.MustCompile(`, in bytes or as in "[^"]+"|\s*Placeholders( such as \{env\.X\}( and \{file\.X\})?| in their values)? are replaced\.`)

var defaultInComment = regexp.MustCompile(`(?s)\s*Default: (.+?)\.(?:\s|$)`)

// TestReferenceOfTheCaddyfile compares the table of all directives with the source: the blocks in the comments of the functions that
// read them, in which caddyfileBlocks knows every word, and the comments of the fields that they set.
func TestReferenceOfTheCaddyfile(t *testing.T) {
	docs := commentsOfFields(t)
	blocks := blocksInComments(t)
	var names []string
	for _, b := range caddyfileBlocks {
		name := blockName(strings.Join(b.within[len(b.within)-1:], ""))
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		for _, word := range wordsOf(b.directives) {
			if !slices.ContainsFunc(blocks[name], func(row directiveRow) bool { return row.word == word }) {
				t.Errorf("the comment that describes the block %s lacks %s", name, word)
			}
		}
	}
	var list []string
	var tables strings.Builder
	firstBlock := map[string]string{} // of a row: the block that explains it
	for _, name := range names {
		anchor := strings.NewReplacer(" ", "-", "<", "", ">", "").Replace(name) // of the block; its rows add their words
		var rows []string
		as := map[string][]string{} // by block, the directives that are explained there
		for _, row := range blocks[name] {
			text := explained(docs, name, row.word)
			if text == "" {
				t.Errorf("no field of blockTypes explains %s of %s", row.word, name)
			}
			otherwise := ""
			if m := defaultInComment.FindStringSubmatch(text); m != nil {
				otherwise, text = onOff.Replace(strings.Trim(m[1], `"`)), strings.TrimSpace(strings.Replace(text, m[0], " ", 1))
			}
			if known, ok := defaultOf[name+" "+row.word]; ok {
				otherwise = known
			}
			line := fmt.Sprintf("`%s` | %s | %s |\n", cell(strings.TrimSpace(row.word+" "+row.arguments)), cell(otherwise), cell(saidOnce.ReplaceAllString(text, "")))
			if first, ok := firstBlock[line]; ok {
				as[first] = append(as[first], "`"+row.word+"`")
				continue
			}
			firstBlock[line] = name
			rows = append(rows, fmt.Sprintf("| <a id=\"%s-%s\"></a>%s", anchor, row.word, line))
		}
		for _, first := range slices.Sorted(maps.Keys(as)) {
			rows = append(rows, fmt.Sprintf("| %s | | as in `%s` |\n", strings.Join(as[first], ", "), first))
		}
		if len(rows) > 0 {
			list = append(list, fmt.Sprintf("[`%s`](#%s)", name, anchor))
			fmt.Fprintf(&tables, "\n### `%s`\n\n| directive | default | what it does |\n|---|---|---|\n%s", name, strings.Join(rows, ""))
		}
	}
	wantGenerated(t, "reference/caddyfile.md", "directives", "By block: "+strings.Join(list, ", ")+".\n"+tables.String())
}

// commentsOfFields are the comments on types and their fields, by the name of a type, and then by that of a field.
func commentsOfFields(t *testing.T) (docs configschema.Docs) {
	t.Helper()
	data, err := os.ReadFile("internal/configschema/docs.json")
	if err == nil {
		err = json.Unmarshal(data, &docs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// whatItIs is the first sentence of the comment on a type, without the name of the type.
func whatItIs(docs configschema.Docs, kind string) string {
	sentence, _, _ := strings.Cut(strings.ReplaceAll(docs[kind][""], "\n", " "), ". ")
	_, text, _ := strings.Cut(strings.TrimSuffix(sentence, "."), " ")
	return strings.TrimPrefix(text, "is ")
}

// cell makes a text fit for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// explained is the comment of the field that a directive sets.
func explained(docs configschema.Docs, block, word string) string {
	if block == "hooks" && word == "health" { // which is a handler of its own
		return asSentence(whatItIs(docs, "Health"))
	}
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
	for _, kind := range blockTypes[block] {
		if field := fieldOf[block+" "+word]; field != "" && docs[kind][field] != "" {
			return docs[kind][field]
		}
		for _, suffix := range []string{"", "seconds", "size", "s"} {
			for field, text := range docs[kind] {
				if plain(field) == plain(word)+suffix {
					return text
				}
			}
		}
	}
	if base, ok := strings.CutSuffix(word, "_file"); ok {
		return "The same as `" + base + "`, from a file."
	}
	return ""
}

// wordsOf are the directives of an entry of caddyfileBlocks.
func wordsOf(directives string) (words []string) {
	for line := range strings.Lines(strings.TrimSpace(directives)) {
		if _, line, ok := strings.Cut(line, ": "); ok {
			words = append(words, strings.Fields(line)[0])
		}
	}
	return words
}

// blockName is what a block is called by the line that opens it: its directive, with the module if it has one.
func blockName(line string) string {
	words := strings.Fields(line)
	switch {
	case words[0] == "channel":
		return "channel " + words[2]
	case slices.Contains([]string{"runner", "store"}, words[0]):
		return words[0] + " " + words[1]
	case words[0] == "auth" && !slices.Contains([]string{"hmac", "oidc", "token"}, words[1]):
		return "auth <sender>"
	case words[0] == "auth":
		return words[0] + " " + words[1]
	}
	return words[0]
}

// blocksInComments are the blocks that comments describe, below a line that ends with "parses:".
func blocksInComments(t *testing.T) map[string][]directiveRow {
	t.Helper()
	blocks := make(map[string][]directiveRow)
	inspectSource(t, func(_ string, node ast.Node) {
		if function, ok := node.(*ast.FuncDecl); ok {
			if _, text, ok := strings.Cut(function.Doc.Text(), "parses:\n\n"); ok {
				readBlock(blocks, text)
			}
		}
	})
	return blocks
}

// readBlock adds a block as it stands in a comment: a line that opens it, a line for each directive, a brace.
func readBlock(blocks map[string][]directiveRow, text string) {
	name := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "}":
			return
		case name == "" && words[len(words)-1] != "{":
			return
		case name == "":
			name = blockName(line)
		case strings.HasPrefix(words[0], "<"):
			return
		default:
			blocks[name] = append(blocks[name], directiveRow{words[0], strings.TrimSuffix(strings.Join(words[1:], " "), " { … }")})
		}
	}
}
