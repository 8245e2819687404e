package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

const root = "../.."

// Every command in the documentation is run, from the root of the repository and as it is written but for the ports,
// and must print what the documentation says.
func TestDocumentedCommandsPrintWhatTheySay(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		// TestOpenClaw, Test…Example, TestAgentExamples and TestRecipes… run the others.
		if slices.Contains([]string{postgresPage, proxyPage, containerPage, kubernetesPage}, page) || isAgentPage(page) || strings.Contains(page, "/examples/senders/") {
			continue
		}
		t.Run(strings.TrimPrefix(page, root+"/"), func(t *testing.T) {
			t.Parallel()
			runPage(t, page, nil)
		})
	}
}

// isAgentPage reports whether a page needs an agent program of somebody else.
func isAgentPage(page string) bool {
	return slices.Contains([]string{"claude-code", "codex", "gemini", "openclaw", "pull-request-review"}, filepath.Base(filepath.Dir(page)))
}

// start lines of blocks that are not for a shell that goes on.
var (
	startsCaddy  = regexp.MustCompile(`(?m)^go run \./xcaddy run --config (\S+)$`)
	startsRunner = regexp.MustCompile(`(?m)^(python3|node) (\S+) &$`)
	startsGo     = regexp.MustCompile(`(?m)^go run (\./examples/\S+) &$`)
	startsAgents = regexp.MustCompile(`(?m)^PORT=([0-9]+) (python3|node) (\S+) &$`)
	startsProm   = regexp.MustCompile(`(?m)^prometheus (.+) &$`)
	startsAlerts = regexp.MustCompile(`(?m)^prometheus-alertmanager (.+) &$`)
	notRun       = regexp.MustCompile(`(?m)^(go test \./\.\.\.|xcaddy build .*)$`) // CI runs the one, a test below checks the other
)

// runPage runs the commands of a page. Caddy has more in its environment, and addresses are replaced by others, in pairs.
func runPage(t *testing.T, page string, env []string, addresses ...string) {
	t.Helper()
	blocks := fences(t, page)
	s := hookstest.StartProcess(t, "respond 404", env...) // and later with the page's configuration
	runnerPort, alertsPort, dashboardPort, modelPort, promPort := hookstest.FreePort(t), hookstest.FreePort(t), hookstest.FreePort(t), hookstest.FreePort(t), hookstest.FreePort(t)
	ports := strings.NewReplacer(append(addresses,
		"127.0.0.1:8080", "127.0.0.1:"+s.Port, "localhost:8080", "localhost:"+s.Port, "127.0.0.1:2019", strings.TrimPrefix(s.Admin, "http://"),
		"127.0.0.1:8081", "127.0.0.1:"+dashboardPort, "localhost:8081", "localhost:"+dashboardPort,
		"127.0.0.1:9000", "127.0.0.1:"+runnerPort, "127.0.0.1:9001", "127.0.0.1:"+hookstest.FreePort(t), "127.0.0.1:9002", "127.0.0.1:"+hookstest.FreePort(t),
		"127.0.0.1:9090", "127.0.0.1:"+promPort, "127.0.0.1:9100", "127.0.0.1:"+hookstest.FreePort(t), "127.0.0.1:9093", "127.0.0.1:"+alertsPort, "127.0.0.1:11434", "127.0.0.1:"+modelPort, "127.0.0.1:4000", "127.0.0.1:"+modelPort)...)
	models := strings.NewReplacer("127.0.0.1:11434", "127.0.0.1:"+modelPort, "127.0.0.1:4000", "127.0.0.1:"+modelPort) // of presets
	commands := 0
	for i, block := range blocks {
		if block.language != "sh" || notRun.MatchString(block.text) {
			continue
		}
		script := block.text
		if m := startsRunner.FindStringSubmatch(script); m != nil {
			startProcess(t, runnerPort, m[1], m[2])
			script = startsRunner.ReplaceAllString(script, "")
		}
		if m := startsGo.FindStringSubmatch(script); m != nil {
			startGo(t, runnerPort, m[1])
			script = startsGo.ReplaceAllString(script, "")
		}
		for _, m := range startsAgents.FindAllStringSubmatch(script, -1) {
			startProcess(t, strings.TrimPrefix(ports.Replace("127.0.0.1:"+m[1]), "127.0.0.1:"), m[2], m[3])
		}
		script = startsAgents.ReplaceAllString(script, "")
		if m := startsAlerts.FindStringSubmatch(script); m != nil {
			startAlertmanager(t, alertsPort, ports, strings.Fields(m[1])...)
			script = startsAlerts.ReplaceAllString(script, "")
		}
		if m := startsProm.FindStringSubmatch(script); m != nil {
			startPrometheusExample(t, promPort, ports, strings.Fields(m[1])...)
			script = startsProm.ReplaceAllString(script, "")
		}
		if startsModel.MatchString(script) {
			startModels(t, modelPort)
			script = startsModel.ReplaceAllString(script, "")
		}
		if m := startsCaddy.FindStringSubmatch(script); m != nil {
			loadExample(t, s, filepath.Join(root, m[1]), ports.Replace, models.Replace)
			script = startsCaddy.ReplaceAllString(script, "")
		}
		if strings.TrimSpace(script) == "" {
			continue
		}
		commands++
		// `caddy hooks` is that of this repository, and asks the Caddy of the page.
		wantOutput(t, blocks, i, ports.Replace(script), "PATH="+hookstest.NewBinary(t).Folder()+":"+os.Getenv("PATH"), "CADDY_ADMIN="+strings.TrimPrefix(s.Admin, "http://"))
	}
	if commands == 0 && strings.Contains(page, "/examples/") {
		t.Error("the page has no command")
	}
}

// wantOutput runs the commands of a block, and compares what they print with the block that follows.
func wantOutput(t *testing.T, blocks []fence, i int, script string, env ...string) {
	t.Helper()
	if i+1 == len(blocks) || blocks[i+1].language != "output" {
		t.Errorf("line %d: the page does not say what this prints:\n%s", blocks[i].line, script)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // real agents take their time to start
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("line %d: %v", blocks[i].line, err)
	}
	got, want := tidy(string(out)), tidy(blocks[i+1].text)
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", `[^\n]*?`)
	if ok, err := regexp.MatchString("^"+pattern+"$", got); err != nil || !ok {
		t.Errorf("line %d: the page says\n%s\nand this was printed:\n%s", blocks[i].line, want, got)
	}
}

// loadExample loads an edited Caddyfile into a Caddy that is there already. The JSON that it becomes may be edited too: presets of
// runners have addresses that do not stand in the Caddyfile.
func loadExample(t *testing.T, s *hookstest.Server, path string, edit func(string) string, editJSON ...func(string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	global := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tlog {\n\t\tlevel WARN\n\t}\n}\n", strings.TrimPrefix(s.Admin, "http://"))
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(global+edit(string(text))), map[string]any{"filename": path})
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range editJSON {
		config = []byte(edit(string(config)))
	}
	s.LoadJSON(config)
	s.Settle()
}

// tidy makes up for what an eye does not see.
func tidy(output string) string {
	lines := strings.Split(strings.ReplaceAll(output, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// startGo builds an example's program in Go and starts it. `go run` would leave it behind when it is killed.
func startGo(t *testing.T, port, path string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", program, path)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", path, err, out)
	}
	startProcess(t, port, program)
}

// startProcess starts an example's runner and waits until it listens.
func startProcess(t *testing.T, port string, name string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if !filepath.IsAbs(name) {
		cmd = realtest.Command(t, name, args...)
	}
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	hookstest.Eventually(t, name+" listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return stop
}

func TestDocumentedConfigurationsAreValid(t *testing.T) {
	for _, name := range []string{"HOOKS_TOKEN", "GITHUB_SECRET", "TELEGRAM_TOKEN", "SLACK_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "GITLAB_SECRET", "LINEAR_TOKEN", "LINEAR_SECRET", "DISCORD_TOKEN", "MATRIX_TOKEN", "SMTP_PASSWORD", "ANSWERS_TOKEN", "MODELS_KEY", "SECRET", "NEXT_SECRET", "TWILIO_TOKEN", "ANTHROPIC_API_KEY", "CODEX_API_KEY", "AGENT_TOKEN"} {
		t.Setenv(name, "x")
	}
	t.Setenv("PUBLIC_KEY", discordKey)
	t.Setenv("ALERTS_TOKEN", "alerts") // of a hook, other than that of all
	t.Setenv("CRON_TOKEN", "cron")
	t.Setenv("HOOKS_DSN", "postgres://hooks:secret@localhost/hooks")
	t.Setenv("OPS_HASH", "$2a$14$vCOBxyd1nfAZJYjPgoQL6OnzlUYdxJDIMOmFQ6BRxpNvWfRgjVjAK") // of any password
	t.Setenv("CALLBACK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	found := 0
	for _, block := range allFences(t) {
		if block.language == "json" {
			if !json.Valid([]byte(block.text)) {
				t.Errorf("%s: the JSON is not valid", block)
			}
		}
		if block.language != "caddyfile" {
			continue
		}
		found++
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(block.text), map[string]any{"filename": "Caddyfile"})
		if err != nil {
			t.Errorf("%s: %v", block, err)
			continue
		}
		var cfg caddy.Config
		if err := json.Unmarshal(config, &cfg); err != nil {
			t.Fatal(err)
		}
		cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "PANIC"}}}}
		if err := caddy.Validate(&cfg); err != nil {
			t.Errorf("%s: %v", block, err)
		}
	}
	if found == 0 {
		t.Error("the documentation has no Caddyfile")
	}
}

// Alertmanager's own tool looks at the configurations in the documentation.
func TestDocumentedAlertmanagerConfigurationsAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for _, block := range allFences(t) {
		if block.language != "yaml" {
			continue
		}
		found++
		file := filepath.Join(t.TempDir(), "alertmanager.yml")
		if err := os.WriteFile(file, []byte(block.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := realtest.Command(t, "amtool", "check-config", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", block, err, out)
		}
	}
	if found == 0 {
		t.Error("the documentation has no configuration of Alertmanager")
	}
}

// xcaddy is not run here: it builds all of Caddy. Its arguments are a package of this module, and the module itself.
func TestDocumentedBuildsNameThisModule(t *testing.T) {
	t.Parallel()
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindStringSubmatch(string(gomod))[1]
	published, fromClone := "xcaddy build --with "+module+"/caddyhooks", " --replace "+module+"=."
	var found []string
	for _, block := range allFences(t) {
		if strings.HasPrefix(block.text, "xcaddy ") {
			found = append(found, strings.TrimSpace(block.text))
		}
	}
	if want := []string{published, published + fromClone}; !slices.Equal(found, want) {
		t.Errorf("the documentation has the commands %q, want %q", found, want)
	}
	if out, err := exec.Command("go", "list", module+"/caddyhooks").CombinedOutput(); err != nil {
		t.Errorf("there is no such package: %s", out)
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func TestLinksInTheDocumentationLeadSomewhere(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range append(pages(t), examplesMap) {
		for _, link := range markdownLink.FindAllStringSubmatch(outsideOfFences(t, page), -1) {
			if strings.HasPrefix(link[1], "https://") {
				continue
			}
			found++
			path, anchor, hasAnchor := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if hasAnchor && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, link[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d links", found)
	}
}

var examplesMap = filepath.Join(root, "examples", "README.md")

func TestEveryExampleIsOnTheMap(t *testing.T) {
	t.Parallel()
	links := outsideOfFences(t, examplesMap)
	for _, page := range pages(t) {
		folder, err := filepath.Rel(filepath.Dir(examplesMap), filepath.Dir(page))
		if err == nil && !strings.HasPrefix(folder, "..") && !strings.Contains(links, "]("+folder+")") {
			t.Errorf("%s does not lead to %s", examplesMap, folder)
		}
	}
}

func TestEveryPageIsOnTheMap(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(root, "caddyhooks", "docs")
	links := outsideOfFences(t, filepath.Join(folder, "README.md"))
	for _, page := range docs(t) {
		name, err := filepath.Rel(folder, page)
		if err == nil && !strings.HasPrefix(name, "..") && name != "README.md" && !strings.Contains(links, "]("+filepath.ToSlash(name)) {
			t.Errorf("the map of the documentation does not lead to %s", name)
		}
	}
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(t *testing.T, page string) (names []string) {
	t.Helper()
	for _, m := range heading.FindAllStringSubmatch(outsideOfFences(t, page), -1) {
		name := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slices.Contains(names, name) {
			t.Errorf("%s has two headings that are linked to as #%s", page, name)
		}
		names = append(names, name)
	}
	return names
}

func outsideOfFences(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(data), "")
}

// variablePart stands between the parts of a message that are the same every time.
var variablePart = regexp.MustCompile(`…|: |"[^"]*"|\b\d\S*|\bX-[\w-]+|text/html`)

// The messages and reasons in the tables of the documentation are those of the program.
func TestTroubleshootingQuotesTheProgram(t *testing.T) {
	t.Parallel()
	program := sourceOfProgram(t)
	found := 0
	for section, column := range map[string]int{"By status code": 1, "Refused requests": 1, "Failed runs": 0} {
		for _, row := range tableRows(t, section) {
			for _, part := range variablePart.Split(row[column], -1) {
				found++
				part = strings.TrimSpace(part)
				asReason := strings.ToLower(part[:min(1, len(part))]) + part[min(1, len(part)):] // an answer may begin with one
				if !strings.Contains(program, part) && !strings.Contains(program, asReason) {
					t.Errorf("%s: the program does not say %q", section, part)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d parts of messages", found)
	}
}

// The program writes the lines of the log that the documentation explains.
func TestDocumentedLogLinesAreWritten(t *testing.T) {
	t.Parallel()
	program := sourceOfProgram(t)
	found := 0
	for _, row := range tableRows(t, "Logs") {
		for _, line := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[0], -1) {
			found++
			begin, whole := `"`+line[1], `"`
			if before, cut := strings.CutSuffix(begin, "…"); cut {
				begin, whole = before, ""
			}
			if !strings.Contains(program, begin+whole) {
				t.Errorf("the program does not log %q", line[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d lines", found)
	}
}

// continuedText is where a text goes on in the next line of the source.
var continuedText = regexp.MustCompile(`" ?\+\n\s*"`)

// sourceOfProgram is the source of the program, without its tests, with each text on one line.
func sourceOfProgram(t *testing.T) string {
	t.Helper()
	var program strings.Builder
	err := filepath.WalkDir(filepath.Join(root, "caddyhooks"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		program.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return continuedText.ReplaceAllString(program.String(), "")
}

// tableRows are the cells of the first table in a section of the documentation, without its head.
func tableRows(t *testing.T, section string) (rows [][]string) {
	t.Helper()
	text := ""
	for _, page := range docs(t) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, ok := strings.Cut(string(data), "# "+section+"\n"); ok {
			text = found
		}
	}
	if text == "" {
		t.Fatalf("the documentation has no section %s", section)
	}
	for line := range strings.Lines(text[strings.Index(text, "\n|"):][1:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[2:]
}

type fence struct {
	page           string
	line           int
	language, text string
}

func (f fence) String() string { return fmt.Sprintf("%s, line %d", f.page, f.line) }

// allFences are the fenced code blocks of the README and of the pages of the documentation.
func allFences(t *testing.T) (all []fence) {
	t.Helper()
	for _, page := range docs(t) {
		all = append(all, fences(t, page)...)
	}
	return all
}

// fences are the fenced code blocks of a page.
func fences(t *testing.T, page string) []fence {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []fence
	var open *fence
	for i, line := range strings.Split(string(data), "\n") {
		rest, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &fence{page: page, line: i + 1, language: rest}
		case isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}
